mod reader;
mod told;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use walpost_event::Lsn;
use walpost_kafka::TailRecord;
use walpost_relay::{EventEncoding, RelayError, Shadow, ShadowEvent, ShadowMade};
use walpost_shadow::{
    Comparison, Event, Expected, Observed, Parked, Settings, Summary, TopicPattern,
};

use self::{
    reader::{Read, Reader, Wanted},
    told::{Ended, Span, Told},
};
use crate::{
    command::connector,
    config::{Config, ConfigArgs, connector::ConnectorFile, duration},
    failure::{Exit, Failure},
    log, output,
    signals::Signals,
};

/// Between two looks at what waits.
const TICK: Duration = Duration::from_millis(100);
/// Between two questions to PostgreSQL: how far it is, and the connector's slot.
const ASK: Duration = Duration::from_secs(1);
/// Between two lines that say how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// What is compared, and for how long.
///
/// Beside a connector that runs: its WAL is read from a temporary slot, and what Debezium
/// publishes from its topics. Nothing is written, neither to PostgreSQL nor to Kafka. Ends at
/// SIGINT and SIGTERM, and then says what was found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of the Debezium connector, as --connector has it
    #[arg(value_name = "CONNECTOR", conflicts_with = "file")]
    pub(crate) of: Option<PathBuf>,
    /// End after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
    /// End once so many records were compared
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// How long one side waits for a record of the other
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    grace: Duration,
    /// A topic that the connector writes, beside those that follow from its configuration: what
    /// Walpost has not of it is missing. May be given more than once
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show keys, values and headers that differ, and not only their sizes
    #[arg(long)]
    show_payloads: bool,
    /// Print JSON: an object for each difference, and last the summary
    #[arg(long)]
    pub(crate) json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let told = "a time is a whole number with ms, s, m or h, such as 10m";
    duration(text).filter(|time| !time.is_zero()).ok_or_else(|| told.to_owned())
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = connector::load(config).await?;
    log::start(&config)?;
    config.must_go_to_kafka("there is nothing to compare with")?;
    for warning in config.connector_file().into_iter().flat_map(ConnectorFile::warnings) {
        tracing::warn!("{warning}");
    }
    let mut signals = Signals::listen()?;
    let mut running = tokio::select! {
        running = Running::start(&config, args) => running?,
        signal = signals.next() => {
            output::note(format_args!("{signal}: stopping"));
            return Err(nothing_compared());
        }
    };
    let ended = running.compare(args, &mut signals).await;
    running.finish(ended).await
}

/// Both sides, and what was found.
struct Running {
    shadow: Shadow,
    reader: Reader,
    comparison: Comparison,
    told: Told,
    began: Instant,
    /// Topics of Walpost's records.
    topics: HashSet<Arc<str>>,
    /// The connector's slot has passed the start.
    is_behind_start: bool,
    /// A moment, and a position of the WAL before which everything was committed then
    /// that could have been published.
    committed: Option<(Duration, Lsn)>,
    last: Last,
}

/// When something was done last.
struct Last {
    asked: Instant,
    told: Instant,
}

impl Running {
    async fn start(config: &Config, args: &Args) -> Result<Self, Failure> {
        let (database, connector) = (config.database()?, config.kafka_beside()?);
        let (relay, router, encoding) = (config.relay()?, config.router()?, config.encoding()?);
        let wanted = Wanted {
            named: args.topics.iter().map(|topic| (&**topic).into()).collect(),
            pattern: TopicPattern::of_replacement(&router.topic_replacement),
        };
        let mut settings = Settings::new(walpost_kafka::partition_for_key);
        settings.grace = args.grace;
        settings.expands_json = match &encoding {
            EventEncoding::Connect(options) => options.typing.expand.is_some(),
            EventEncoding::Plain(_) => false,
        };
        let mut comparison = Comparison::new(settings);
        wanted.named.iter().for_each(|topic| comparison.owns(topic));
        let refused = |error: RelayError| Failure::of_relay(error, false);
        // First the topics: what is committed behind the slot is written behind their ends.
        let reader = Reader::start(connector, wanted).await.map_err(refused)?;
        output::note(format_args!("making a temporary slot beside {:?}", relay.slot));
        let slot = relay.slot.clone();
        let shadow = Shadow::open(&database, relay, router, encoding).await;
        let shadow = shadow.map_err(|error| refused(error).for_role(&database))?;
        output::note(format_args!(
            "comparing what is committed from {} on, read from the temporary slot {:?}",
            shadow.begins_at(),
            shadow.slot()
        ));
        let away = "what is committed while Debezium is away is extra until it writes it";
        match shadow.is_read_elsewhere().await.map_err(of_postgres)? {
            Some(true) => {}
            Some(false) => {
                output::note(format_args!(
                    "nobody reads the connector's slot {slot:?} now: {away}"
                ));
            }
            None => output::note(format_args!("there is no slot {slot:?} yet: {away}")),
        }
        let now = Instant::now();
        Ok(Self {
            shadow,
            reader,
            comparison,
            told: Told::new(args.json, args.show_payloads),
            began: now,
            topics: HashSet::new(),
            is_behind_start: false,
            committed: None,
            last: Last { asked: now, told: now },
        })
    }

    /// Until it is to end, or one side fails.
    async fn compare(&mut self, args: &Args, signals: &mut Signals) -> Result<Ended, Failure> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Of what is compared no more, and until when partners may come.
        let mut ending: Option<(Ended, Instant)> = None;
        loop {
            tokio::select! {
                signal = signals.next() => {
                    output::note(format_args!("{signal}: stopping"));
                    return Ok(Ended::Signal);
                }
                next = self.shadow.next(), if self.comparison.takes_events() => {
                    self.expect(next.map_err(of_postgres)?);
                }
                read = self.reader.next(), if self.comparison.takes_records() => {
                    self.observe(read)?;
                }
                _ = ticks.tick() => self.tick().await?,
            }
            match ending {
                None => {
                    let ended = self.is_to_end(args);
                    if ended.is_some() {
                        self.comparison.end();
                    }
                    ending = ended.map(|ended| (ended, Instant::now() + args.grace));
                }
                Some((ended, until)) if self.comparison.is_settled() || Instant::now() >= until => {
                    self.comparison.settle(self.began.elapsed());
                    return Ok(ended);
                }
                Some(_) => {}
            }
        }
    }

    fn is_to_end(&self, args: &Args) -> Option<Ended> {
        let is_over = |limit| self.began.elapsed() >= limit;
        if args.duration.is_some_and(is_over) {
            return Some(Ended::Time);
        }
        let is_enough = args.records.is_some_and(|most| self.comparison.compared() >= most);
        is_enough.then_some(Ended::Records)
    }

    fn expect(&mut self, events: Vec<ShadowEvent>) {
        let now = self.began.elapsed();
        for ShadowEvent { position, made } in events {
            let event = match made {
                ShadowMade::Message(message) => {
                    if !self.topics.contains(&message.topic) {
                        self.topics.insert(message.topic.clone());
                        self.reader.want(&message.topic);
                    }
                    Event::Made(Expected { position, message })
                }
                ShadowMade::Parked { id, reason, detail } => {
                    Event::Parked(Parked { position, id, reason, detail })
                }
                ShadowMade::Unregistered { id, detail } => {
                    let reason = "schema_not_registered";
                    Event::Unregistered(Parked { position, id, reason, detail })
                }
            };
            self.comparison.expect(now, event);
        }
    }

    fn observe(&mut self, read: Read) -> Result<(), Failure> {
        match read {
            Read::Topic(topic, partitions) => self.comparison.set_partitions(&topic, partitions),
            Read::End(topic, partition, offset) => {
                self.comparison.begins_at(&topic, partition, offset);
            }
            Read::Record(record) => {
                let TailRecord { partition, offset, message } = *record;
                let observed = Observed { partition, offset, message: Box::new(message) };
                self.comparison.observe(self.began.elapsed(), observed);
            }
            Read::Failed(error) => {
                let failure = Failure::of_relay(error, false);
                return Err(failure.context("reading what Debezium publishes failed"));
            }
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), Failure> {
        if !self.comparison.takes_events() {
            self.shadow.keep_alive().await.map_err(of_postgres)?;
        }
        if let Some((at, lsn)) = self.committed
            && self.shadow.has_returned(lsn)
        {
            self.committed = None;
            self.comparison.has_events_until(at);
        }
        self.comparison.settle(self.began.elapsed());
        self.told.findings(self.comparison.take_findings())?;
        if self.last.asked.elapsed() >= ASK {
            self.last.asked = Instant::now();
            self.ask().await.map_err(of_postgres)?;
        }
        if self.last.told.elapsed() >= PROGRESS {
            self.last.told = Instant::now();
            self.told.progress(self.began.elapsed(), &self.comparison.summary());
        }
        Ok(())
    }

    async fn ask(&mut self) -> Result<(), RelayError> {
        if !self.is_behind_start {
            self.is_behind_start = self.shadow.is_behind_start().await?;
            if self.is_behind_start {
                self.reader.ask_ends();
            }
        }
        if self.committed.is_none() {
            let at = self.began.elapsed();
            self.committed = Some((at, self.shadow.flushed().await?));
        }
        Ok(())
    }

    /// Has the slot dropped, and says what was found.
    async fn finish(mut self, ended: Result<Ended, Failure>) -> Result<(), Failure> {
        self.told.findings(self.comparison.take_findings())?;
        let summary = self.comparison.summary();
        let read = Span {
            begins_at: self.shadow.begins_at(),
            read: self.shadow.read(),
            dropped: self.shadow.dropped(),
        };
        drop(self.reader);
        let closed = self.shadow.close().await.map_err(of_postgres);
        self.told.summary(&summary, &read, ended.as_ref())?;
        ended?;
        closed?;
        judged(&summary, self.told.is_json())
    }
}

fn of_postgres(error: RelayError) -> Failure {
    Failure::of_relay(error, true).context("reading the WAL beside Debezium failed")
}

fn judged(summary: &Summary, is_json: bool) -> Result<(), Failure> {
    let only_extra = summary.missing == 0 && summary.different.is_empty();
    let failure = if summary.differs() && only_extra {
        let text = "Debezium has not written what Walpost would have";
        Failure::found(Exit::Different, text).next_step(
            "see in its status and log whether the connector runs and how far it is; a longer \
             --grace waits for one that is behind",
        )
    } else if summary.differs() {
        let text = "Debezium has published something else than Walpost would";
        Failure::found(Exit::Different, text).next_step(
            "see what differs above, and docs/from-debezium.md for what may; --show-payloads shows \
             the contents",
        )
    } else if summary.compared() == 0 {
        nothing_compared()
    } else {
        return Ok(());
    };
    Err(if is_json { failure.told_in_json() } else { failure })
}

fn nothing_compared() -> Failure {
    Failure::found(Exit::Nothing, "no record was compared").next_step(
        "have events written while it runs; name the connector's topics by --topic if they do not \
         follow from route.topic.replacement",
    )
}
