use std::{net::SocketAddr, process, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::time;
use walpost_encode::Encoding;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_relay::{
    DeadLetters, Phase, PollingConfig, PollingRelay, Relay, RelayConfig, RelayError,
    RetentionConfig, RunningRelay, Sink,
};
use walpost_router::RouterConfig;

use crate::{
    command::{
        retention::{self, Retention},
        senders::Senders,
    },
    config::{self, Config, ConfigArgs, Pruners},
    failure::{Exit, Failure},
    http, log,
    signals::Signals,
};

/// Between two moments at which the recorder tidies up.
const UPKEEP: Duration = Duration::from_secs(5);
/// For dead letters that are on their way when the pipeline has stopped.
const LETTERS_END: Duration = Duration::from_secs(10);

/// Upper bounds of histograms, in seconds.
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

pub(crate) async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let config = Config::load(args)?;
    let database = config.database()?;
    let login = database.clone();
    let done = match config.sink()? {
        config::Sink::Webhook(webhooks) => {
            let connector = webhooks.connector(&database);
            let to: Vec<&str> = webhooks.names().collect();
            let to = format!("webhooks: {}", to.join(", "));
            let pipeline = Pipeline::new(&config, &to)?;
            let senders = async move || Senders::start(&database, webhooks);
            pipeline.run(async move || connector.connect().await, None, senders).await
        }
        config::Sink::Kafka(connector) => {
            let beside = config.kafka_beside()?;
            let to = format!("kafka: {}", connector.bootstrap_servers());
            let pipeline = Pipeline::new(&config, &to)?;
            let none = async || Ok(Senders::none());
            pipeline.run(async move || connector.connect().await, Some(beside), none).await
        }
    };
    done.map_err(|failure| failure.for_role(&login))
}

/// A pipeline that is about to run, wherever its events go.
struct Pipeline {
    database: Database,
    relay: RelayConfig,
    router: RouterConfig,
    encoding: Encoding,
    polling: Option<PollingConfig>,
    retention: Option<RetentionConfig>,
    pruners: Pruners,
    listen: Option<SocketAddr>,
}

impl Pipeline {
    fn new(config: &Config, to: &str) -> Result<Self, Failure> {
        let pipeline = Self {
            database: config.database()?,
            relay: config.relay()?,
            router: config.router()?,
            encoding: config.encoding()?,
            polling: config.polling()?,
            retention: config.settings.retention.enabled.then(|| config.retention()).transpose()?,
            pruners: config.pruners()?,
            listen: config.listen()?,
        };
        log::start(config)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pipeline = pipeline.relay.pipeline,
            postgres = %pipeline.database,
            to,
            "walpost starts"
        );
        Ok(pipeline)
    }

    /// Runs until it is told to stop. `beside` is for dead letters.
    async fn run<K: Sink + 'static>(
        self,
        connect: impl AsyncFnMut() -> Result<K, RelayError> + Send + 'static,
        beside: Option<KafkaConnector>,
        senders: impl AsyncFnOnce() -> Result<Senders, Failure>,
    ) -> Result<(), Failure> {
        let Self { database, relay, router, encoding, polling, retention, pruners, listen } = self;
        let mut signals = Signals::listen()?;
        let metrics = record_metrics()?;
        let listener = match listen {
            Some(address) => Some(http::bind(address).await?),
            None => None,
        };
        let (outbox, id_column) = (database.clone(), router.event_id.clone());
        let letters = DeadLetters::new(&database, &relay, &router).zip(beside);
        let refused = |error| Failure::of_relay(error, false);
        let mut running = match polling {
            Some(polling) => PollingRelay::new(database, relay.clone(), polling, router, encoding)
                .map_err(refused)?
                .start(connect),
            None => Relay::new(database, relay.clone(), router, encoding)
                .map_err(refused)?
                .start(connect),
        };
        let mut senders = senders().await?;
        let watched = http::Watched::new(running.status(), &relay);
        let readiness = tokio::spawn(watched.clone().watch());
        let upkeep = tokio::spawn(upkeep(metrics.clone()));
        let server = listener.map(|listener| tokio::spawn(http::serve(listener, watched, metrics)));
        let days = retention::days(outbox.clone(), relay.clone(), running.status());
        let days = tokio::spawn(days);
        let retention = retention.map(|retention| {
            let task = Retention { database: outbox, relay, id_column, retention };
            tokio::spawn(task.run(running.status()))
        });
        let pruners = pruners.start();
        let letters = letters.map(|(letters, beside)| {
            let connect = move || {
                let beside = beside.clone();
                async move { beside.connect().await }
            };
            tokio::spawn(letters.run(running.status(), connect))
        });
        let done = until_stopped(&mut running, &mut senders, &mut signals).await;
        let done = done.and(senders.stop().await);
        if let Some(letters) = letters
            && time::timeout(LETTERS_END, letters).await.is_err()
        {
            tracing::warn!("dead letters were on their way at the stop; they may come again");
        }
        let tasks = [Some(readiness), Some(upkeep), Some(days), retention, server];
        for task in tasks.into_iter().flatten().chain(pruners) {
            task.abort();
        }
        if done.is_ok() {
            tracing::info!("walpost has stopped");
        }
        done
    }
}

/// The first signal drains, the second ends at once.
async fn until_stopped(
    running: &mut RunningRelay,
    senders: &mut Senders,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let mut status = running.status();
    let mut has_streamed = false;
    let mut stopping = false;
    loop {
        tokio::select! {
            done = running.finished() => {
                return done.map_err(|error| Failure::of_relay(error, has_streamed));
            }
            () = senders.ended(), if !stopping => {
                stopping = true;
                running.stop();
            }
            signal = signals.next() => {
                if stopping {
                    tracing::warn!(signal, "ending at once");
                    process::exit(i32::from(Exit::Running as u8));
                }
                tracing::info!(signal, "stopping; a second signal ends at once");
                stopping = true;
                running.stop();
                senders.tell_to_stop();
            }
            Ok(()) = status.changed() => {
                has_streamed |= status.borrow_and_update().phase == Phase::Streaming;
            }
        }
    }
}

fn record_metrics() -> Result<PrometheusHandle, Failure> {
    let cannot = |error| Failure::running(error).context("cannot set up the metrics");
    let recorder = PrometheusBuilder::new()
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

async fn upkeep(metrics: PrometheusHandle) {
    let mut tick = time::interval(UPKEEP);
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}
