mod told;

use std::{io::IsTerminal, time::Duration};

use jiff::Timestamp;
use tokio::sync::watch;
use walpost_relay::{
    RelayError, ReplayFilter, ReplayFound, ReplayOrder, ReplayState, Replayed, Replayer, TableName,
};

use crate::{
    command::{connector, instant::instant},
    config::ConfigArgs,
    failure::{Exit, Failure},
    output,
    signals::Signals,
    table::thousands,
};

/// Which events, and how they are published once more.
///
/// Without --yes nothing is sent: the command says what would be. Events are read from the outbox
/// table; those without a row there, logical messages and rows that were deleted, only Kafka can
/// replay. Records have the ids of the originals and the header walpost-replay.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Events of this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Events of one aggregate
    #[arg(long, value_name = "TYPE/ID", value_parser = type_and_id)]
    aggregate: Option<(String, String)>,
    /// Events of aggregates of this type
    #[arg(long, value_name = "TYPE", conflicts_with = "aggregate")]
    aggregate_type: Option<String>,
    /// The event with this id; may be given more than once
    #[arg(long = "id", value_name = "ID", num_args = 1..=1_000)]
    ids: Vec<String>,
    /// Inserted at this time or later, as 2026-05-01T12:00Z; UTC without an offset
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Timestamp>,
    /// Inserted before this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
    /// With this number in the column seq, or a higher one
    #[arg(long, value_name = "SEQ", allow_hyphen_values = true)]
    from_seq: Option<i64>,
    /// With this number in the column seq, or a lower one
    #[arg(long, value_name = "SEQ", allow_hyphen_values = true)]
    until_seq: Option<i64>,
    /// Every event of the table
    #[arg(long, conflicts_with_all = [
        "types", "aggregate", "aggregate_type", "ids", "from", "until", "from_seq", "until_seq"
    ])]
    all: bool,
    /// The outbox table, where the pipeline has several
    #[arg(long, value_name = "SCHEMA.TABLE")]
    table: Option<TableName>,
    /// To this topic instead of each event's own
    #[arg(long, value_name = "TOPIC")]
    to_topic: Option<String>,
    /// Refuse when more events match
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    max: u64,
    /// Most events a second; without it 1000, or that of the replay that is resumed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Also events that are older than replay.dedup_window_hours, or that another program may have
    /// published under another source
    #[arg(long)]
    accept_duplicates: bool,
    /// How long to wait for the relay to have published what matches
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=86_400))]
    wait_seconds: u32,
    /// Send them
    #[arg(long)]
    yes: bool,
    /// Go on with a replay that did not come to its end
    #[arg(long, value_name = "NUMBER", conflicts_with_all = [
        "types", "aggregate", "aggregate_type", "ids", "from", "until", "from_seq", "until_seq",
        "all", "table", "to_topic", "yes", "list"
    ])]
    resume: Option<i64>,
    /// List the replays of the pipeline, the newest first
    #[arg(long, conflicts_with_all = ["yes", "all"])]
    list: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const DEFAULT_RATE_PER_S: u32 = 1_000;

fn type_and_id(text: &str) -> Result<(String, String), String> {
    let (kind, id) = text.split_once('/').ok_or("an aggregate is TYPE/ID")?;
    Ok((kind.to_owned(), id.to_owned()))
}

impl Args {
    fn filter(&self) -> ReplayFilter {
        let (kind, id) = self.aggregate.clone().unzip();
        ReplayFilter {
            event_types: self.types.clone(),
            aggregate_type: kind.or_else(|| self.aggregate_type.clone()),
            aggregate_id: id,
            ids: self.ids.clone(),
            from: self.from.map(|time| time.to_string()),
            until: self.until.map(|time| time.to_string()),
            seq_from: self.from_seq,
            seq_until: self.until_seq,
        }
    }

    fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_seconds.into())
    }
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = connector::load(config).await?;
    config.must_go_to_kafka("`walpost webhook retry` sends deliveries again")?;
    let (database, connector) = (config.database()?, config.kafka_beside()?);
    let window_hours = config.dedup_window_hours()?;
    let (relay, router, encoding) = (config.relay()?, config.router()?, config.encoding()?);
    let filter = args.filter();
    if filter.is_empty() && !args.all && !args.list && args.resume.is_none() {
        return Err(Failure::found(Exit::Configuration, "no filter says which events")
            .next_step("name some of --type, --aggregate, --id, --from and --until, or --all"));
    }
    let replayer = Replayer::open(&database, relay, router, encoding).await.map_err(failed)?;
    if args.list {
        return output::print(told::list(&replayer.list().await.map_err(failed)?, args.json));
    }
    let connect = async || connector.connect().await.map_err(failed);
    let replay = match args.resume {
        Some(id) => {
            let sink = connect().await?;
            replayer.resume(id, args.rate, args.wait(), sink).await.map_err(failed)?
        }
        None => {
            let found = replayer.find(args.table.as_ref(), filter, window_hours).await;
            let found = found.map_err(failed)?;
            if !args.yes {
                output::print(told::survey(&found.survey, args.json))?;
            }
            check(args, &found, window_hours)?;
            if !args.yes {
                output::note("nothing was sent; send them with --yes");
                return Ok(());
            }
            let order = ReplayOrder {
                to_topic: args.to_topic.clone(),
                rate_per_s: args.rate.unwrap_or(DEFAULT_RATE_PER_S),
                wait: args.wait(),
                asked_from: asked_from(),
            };
            let sink = connect().await?;
            replayer.begin(found, order, sink).await.map_err(failed)?
        }
    };
    output::note(format_args!("replay {} begins", replay.id()));
    let (stop, stopped) = watch::channel(false);
    let mut signals = Signals::listen()?;
    let mut told = told::Progress::new(!args.json && std::io::stderr().is_terminal());
    let mut replaying = std::pin::pin!(replay.run(stopped, move |now| told.tell(now)));
    let replayed = loop {
        tokio::select! {
            replayed = &mut replaying => break replayed,
            signal = signals.next() => {
                output::note(format_args!("{signal}: stopping"));
                stop.send_replace(true);
            }
        }
    };
    output::print(told::replayed(&replayed, args.json))?;
    ended(replayed)
}

/// Refuses what is probably not meant.
fn check(args: &Args, found: &ReplayFound, window_hours: Option<u64>) -> Result<(), Failure> {
    let survey = &found.survey;
    let count = thousands(survey.events);
    if survey.events == 0 {
        let text = match survey.parked {
            0 => "no event matches".to_owned(),
            parked => format!(
                "no event matches that was published: {} of those that match are parked",
                thousands(parked)
            ),
        };
        return Err(Failure::found(Exit::Nothing, &text).next_step(
            "widen the filter; events without a row in the table, logical messages and rows that \
             were deleted, only Kafka can replay",
        ));
    }
    if survey.events > args.max {
        let text = format!("{count} events match, which is more than {}", thousands(args.max));
        return Err(Failure::found(Exit::Configuration, &text)
            .next_step(format!("narrow the filter, or take --max {}", survey.events)));
    }
    if survey.beyond_window > 0 && !args.accept_duplicates {
        let text = format!(
            "{} of {count} events are older than the {} hours that consumers deduplicate in, by \
             replay.dedup_window_hours: their effects may be made again",
            thousands(survey.beyond_window),
            window_hours.unwrap_or_default()
        );
        return Err(Failure::found(Exit::Configuration, &text)
            .next_step("narrow the filter by --from, or take --accept-duplicates"));
    }
    if survey.of_other_sources > 0 && !args.accept_duplicates {
        let text = format!(
            "{} of {count} events have ids that are not globally unique, and another program may \
             have published them under another source: consumers would apply these again",
            thousands(survey.of_other_sources)
        );
        return Err(Failure::found(Exit::Configuration, &text).next_step(
            "replay them from Kafka, or take --accept-duplicates; if no other program has \
             published the table, set only_walpost = true in its row of id_space: see \
             docs/identity.md",
        ));
    }
    Ok(())
}

/// Who asks, as far as that is known.
pub(crate) fn asked_from() -> Option<String> {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty())?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty());
    Some(host.map_or(user.clone(), |host| format!("{user}@{host}")))
}

fn ended(replayed: Replayed) -> Result<(), Failure> {
    let Replayed { id, state, progress, gone, error, .. } = replayed;
    let resume = format!("go on with `walpost replay --resume {id}`");
    match (state, error) {
        (_, Some(error)) => {
            Err(Failure::of_relay(error, true).context(&format!("replay {id}")).next_step(resume))
        }
        (ReplayState::Done, None) if progress.unsendable == 0 && gone == 0 => Ok(()),
        (ReplayState::Done, None) if gone > 0 => {
            let text = format!(
                "replay {id}: {} of the {} events that were found have no row any more, or were \
                 parked since, and were not sent",
                thousands(gone),
                thousands(progress.selected)
            );
            Err(Failure::found(Exit::Running, &text).next_step(
                "what retention took away is in its archive, if there is one, and only Kafka can \
                 replay it; nothing else of the replay is left",
            ))
        }
        (ReplayState::Done, None) => {
            let text =
                format!("replay {id}: {} rows could not be sent", thousands(progress.unsendable));
            Err(Failure::found(Exit::Running, &text)
                .next_step("see the reasons above; nothing else of the replay is left"))
        }
        _ => {
            let text = format!("replay {id} was stopped before its end");
            Err(Failure::found(Exit::Running, &text).next_step(resume))
        }
    }
}

fn failed(error: RelayError) -> Failure {
    let undefined = |error: &RelayError| match error {
        RelayError::Sql { source, .. } => source.code().map(|code| code.code()) == Some("42P01"),
        _ => false,
    };
    let is_undefined = undefined(&error);
    let failure = Failure::of_relay(error, false);
    if is_undefined { failure.next_step("run `walpost migrate`") } else { failure }
}
