use std::{net::SocketAddr, path::PathBuf, process, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use tokio::{sync::watch, task::JoinHandle, time};
use tracing::Instrument;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_relay::{
    EventEncoding, Phase, PipelineStatus, PollingConfig, PollingRelay, Relay, RelayConfig,
    RelayError, RetentionConfig, RunningRelay, Sink,
};
use walpost_router::RouterConfig;

use crate::{
    command::{
        beside::{Beside, Publishing},
        connector, held,
        kafka_sink::PipelineKafka,
        retention::{self, Retention},
        senders::Senders,
    },
    config::{self, Config, ConfigArgs, Pruners, Webhooks, connector::ConnectorFile},
    failure::{Exit, Failure},
    http, log,
    signals::Signals,
};

/// Between two moments at which the recorder tidies up.
const UPKEEP: Duration = Duration::from_secs(5);

/// Upper bounds of histograms, in seconds.
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of a Debezium connector, as --connector has it
    #[arg(value_name = "CONNECTOR", conflicts_with = "file")]
    pub(crate) of: Option<PathBuf>,
}

pub(crate) async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let mut config = Config::load(args)?;
    // First, so that an error is a line of the log if that is JSON.
    log::start(&config)?;
    if held::is_held(&config).await? {
        return Ok(());
    }
    let login = config.database()?;
    // What is wrong in itself is told before anything is waited for.
    config.suppose_tables();
    let mut prepared = Prepared::new(&config).map_err(|failure| failure.in_properties(&config))?;
    let listen = config.listen()?;
    prepared.tell(&config);
    if config.filters().is_some() {
        let found = connector::find_tables_patiently(&mut config).await;
        found.map_err(|failure| failure.in_properties(&config))?;
        prepared = Prepared::new(&config)?;
    }
    let done = until_told(prepared, listen).await;
    done.map_err(|failure| failure.for_role(&login).in_properties(&config))
}

/// Runs until it is told to stop.
async fn until_told(prepared: Prepared, listen: Option<SocketAddr>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let metrics = record_metrics(None)?;
    let listener = match listen {
        Some(address) => Some(http::bind(address).await?),
        None => None,
    };
    let mut running = prepared.start()?;
    let watched = running.watched.clone();
    let upkeep = tokio::spawn(upkeep(metrics.clone()));
    let server = listener.map(|listener| tokio::spawn(http::serve(listener, watched, metrics)));
    let done = until_stopped(&mut running, &mut signals).await;
    let done = running.end(done).await;
    for task in [Some(upkeep), server].into_iter().flatten() {
        task.abort();
    }
    if done.is_ok() {
        tracing::info!("walpost has stopped");
    }
    done
}

/// A pipeline that is about to run, and where its events go; nothing is
/// connected yet.
pub(super) struct Prepared {
    pipeline: Pipeline,
    sink: To,
}

/// Where events go.
enum To {
    Kafka {
        kafka: Box<PipelineKafka>,
        brokers: String,
        /// For what publishes beside the pipeline.
        beside: KafkaConnector,
    },
    Webhooks(Webhooks),
}

impl Prepared {
    /// Checks a configuration whose tables, where a connector's filters say
    /// which, are found.
    pub(super) fn new(config: &Config) -> Result<Self, Failure> {
        let sink = match config.sink()? {
            config::Sink::Webhook(webhooks) => To::Webhooks(webhooks),
            config::Sink::Kafka(connector) => {
                let beside = config.kafka_beside()?.beside(&connector);
                let brokers = connector.bootstrap_servers().to_owned();
                let kafka = PipelineKafka::new(config, connector, &config.database()?);
                let kafka = Box::new(kafka);
                To::Kafka { kafka, brokers, beside }
            }
        };
        Ok(Self { pipeline: Pipeline::new(config)?, sink })
    }

    /// Makes what a start makes before anything is connected, for whoever only looks. Not
    /// in [`Prepared::new`]: heartbeats take their counters from the recorder, which a run
    /// installs behind that.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        self.pipeline.relay().map(drop)
    }

    /// Says in the log what is about to run.
    pub(super) fn tell(&self, config: &Config) {
        for warning in config.connector_file().into_iter().flat_map(ConnectorFile::warnings) {
            tracing::warn!("{warning}");
        }
        let to = match &self.sink {
            To::Webhooks(webhooks) => {
                let to: Vec<&str> = webhooks.names().collect();
                format!("webhooks: {}", to.join(", "))
            }
            To::Kafka { brokers, .. } => format!("kafka: {brokers}"),
        };
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pipeline = self.pipeline.relay.pipeline,
            postgres = %self.pipeline.database,
            to,
            "walpost starts"
        );
    }

    /// Starts the pipeline, and what works beside it.
    pub(super) fn start(self) -> Result<Running, Failure> {
        let database = self.pipeline.database.clone();
        match self.sink {
            To::Webhooks(webhooks) => {
                let connector = webhooks.connector(&database);
                let senders = move || Senders::start(&database, webhooks);
                self.pipeline.start(async move || connector.connect().await, None, senders)
            }
            To::Kafka { mut kafka, beside, .. } => {
                let none = || Ok(Senders::none());
                self.pipeline.start(async move || kafka.connect().await, Some(beside), none)
            }
        }
    }
}

/// Who reads the events.
enum Reading {
    Wal(Box<Relay>),
    Table(Box<PollingRelay>),
}

/// A pipeline that is about to run, wherever its events go.
struct Pipeline {
    database: Database,
    relay: RelayConfig,
    router: RouterConfig,
    encoding: EventEncoding,
    polling: Option<PollingConfig>,
    retention: Option<RetentionConfig>,
    pruners: Pruners,
}

/// A pipeline that runs, with what works beside it.
pub(super) struct Running {
    relay: RunningRelay,
    senders: Senders,
    publishing: Publishing,
    tasks: Tasks,
    status: watch::Receiver<PipelineStatus>,
    has_streamed: bool,
    stopping: bool,
    /// How it goes.
    pub(super) watched: http::Watched,
}

/// Who works beside a pipeline, for as long as this is there.
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Pipeline {
    fn new(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            database: config.database()?,
            relay: config.relay()?,
            router: config.router()?,
            encoding: config.encoding()?,
            polling: config.polling()?,
            retention: config.settings.retention.enabled.then(|| config.retention()).transpose()?,
            pruners: config.pruners()?,
        })
    }

    /// Checks what goes together, and what publishes beside it.
    fn relay(&self) -> Result<(Beside, Reading), Failure> {
        let Self { database, relay, router, encoding, polling, .. } = self;
        let refused = |error| Failure::of_relay(error, false);
        let beside = Beside::new(database, relay, router, encoding).map_err(refused)?;
        let (database, config, router) = (database.clone(), relay.clone(), router.clone());
        let reading = match polling.clone() {
            Some(polling) => PollingRelay::new(database, config, polling, router, encoding.clone())
                .map(|relay| Reading::Table(Box::new(relay))),
            None => Relay::new(database, config, router, encoding.clone())
                .map(|relay| Reading::Wal(Box::new(relay))),
        };
        Ok((beside, reading.map_err(refused)?))
    }

    /// Starts it. `kafka` is for what publishes beside it.
    fn start<K: Sink + 'static>(
        self,
        connect: impl AsyncFnMut() -> Result<K, RelayError> + Send + 'static,
        kafka: Option<KafkaConnector>,
        senders: impl FnOnce() -> Result<Senders, Failure>,
    ) -> Result<Running, Failure> {
        let (beside, reading) = self.relay()?;
        let Self { database: outbox, relay, router, retention, pruners, .. } = self;
        let id_column = router.event_id;
        let running = match reading {
            Reading::Table(relay) => (*relay).start(connect),
            Reading::Wal(relay) => (*relay).start(connect),
        };
        let senders = senders()?;
        let watched = http::Watched::new(running.status(), &relay);
        let readiness = tokio::spawn(watched.clone().watch().in_current_span());
        let days = retention::days(outbox.clone(), relay.clone(), running.status());
        let days = tokio::spawn(days.in_current_span());
        let retention = retention.map(|retention| {
            let task = Retention { database: outbox, relay, id_column, retention };
            tokio::spawn(task.run(running.status()).in_current_span())
        });
        let pruners = pruners.start();
        let publishing = kafka.map(|kafka| beside.start(&kafka, &running)).unwrap_or_default();
        let tasks = [Some(readiness), Some(days), retention];
        let tasks = Tasks(tasks.into_iter().flatten().chain(pruners).collect());
        let status = running.status();
        Ok(Running {
            relay: running,
            senders,
            publishing,
            tasks,
            status,
            has_streamed: false,
            stopping: false,
            watched,
        })
    }
}

impl Running {
    /// What the pipeline is doing.
    pub(super) fn status(&self) -> watch::Receiver<PipelineStatus> {
        self.status.clone()
    }

    /// Waits until the pipeline has ended; it is told to where who sends webhooks
    /// has ended by itself. Safe to cancel.
    pub(super) async fn finished(&mut self) -> Result<(), Failure> {
        loop {
            tokio::select! {
                done = self.relay.finished() => {
                    return done.map_err(|error| Failure::of_relay(error, self.has_streamed));
                }
                () = self.senders.ended(), if !self.stopping => {
                    self.stopping = true;
                    self.relay.stop();
                }
                Ok(()) = self.status.changed() => {
                    let phase = self.status.borrow_and_update().phase.clone();
                    self.has_streamed |= phase == Phase::Streaming;
                }
            }
        }
    }

    /// Asks the pipeline to stop, and who sends webhooks.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.relay.stop();
        self.senders.tell_to_stop();
    }

    /// Ends what works beside the pipeline, which has ended like this.
    pub(super) async fn end(self, done: Result<(), Failure>) -> Result<(), Failure> {
        let done = done.and(self.senders.stop().await);
        self.publishing.end().await;
        drop(self.tasks);
        done
    }
}

/// The first signal drains, the second ends at once.
async fn until_stopped(running: &mut Running, signals: &mut Signals) -> Result<(), Failure> {
    let mut stopping = false;
    loop {
        tokio::select! {
            done = running.finished() => return done,
            signal = signals.next() => {
                if stopping {
                    tracing::warn!(signal, "ending at once");
                    process::exit(i32::from(Exit::Running as u8));
                }
                tracing::info!(signal, "stopping; a second signal ends at once");
                stopping = true;
                running.stop();
            }
        }
    }
}

/// Installs the recorder. Gauges that nothing has set for `idle` leave, if it is
/// given: where pipelines come and go, so that none shows that has gone.
pub(super) fn record_metrics(idle: Option<Duration>) -> Result<PrometheusHandle, Failure> {
    let cannot = |error| Failure::running(error).context("cannot set up the metrics");
    let recorder = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::GAUGE, idle)
        .set_buckets(&BUCKETS)
        .map_err(anyhow::Error::from)
        .map_err(cannot)?;
    let recorder = recorder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)
        .map_err(|_| cannot(anyhow::anyhow!("another recorder is installed")))?;
    walpost_relay::describe_metrics();
    Ok(handle)
}

/// For ever has the recorder tidy up.
pub(super) async fn upkeep(metrics: PrometheusHandle) {
    let mut tick = time::interval(UPKEEP);
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}
