use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use walpost_consumer::operator::Marker;

use super::{
    Place,
    cluster::{Cluster, Log},
    stored::{self, Halted, Position, Reset},
};
use crate::{
    command::{
        parked::{for_terminal, json_for_terminal},
        sql,
    },
    config::Config,
    failure::Failure,
    output,
    table::{Table, thousands},
};

/// How to list.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// Which consumer to show.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Its name
    name: String,
    /// Show at most so many of its resets, the newest first
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    resets: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// A partition with what Kafka says of it, as far as it says anything.
struct Seen {
    stored: Position,
    log: Option<Log>,
    /// Of the record at the stored offset.
    timestamp_ms: Option<i64>,
}

impl Seen {
    /// Offsets behind the stored one.
    fn lag_events(&self) -> Option<i64> {
        let (next, log) = (self.stored.next_offset?, self.log.as_ref()?);
        Some((log.high - next).max(0))
    }

    /// Age of the record at the stored offset, 0 where there is none.
    fn lag_seconds(&self, now_ms: i64) -> Option<f64> {
        match (self.lag_events()?, self.timestamp_ms) {
            (0, _) => Some(0.0),
            (_, Some(at)) => Some((now_ms - at).max(0) as f64 / 1_000.0),
            (_, None) => None,
        }
    }

    /// Whose the group's offset in Kafka is.
    fn held(&self) -> Option<&'static str> {
        let committed = &self.log.as_ref()?.committed;
        Some(match (committed.offset, Marker::parse(&committed.metadata)) {
            (None, _) => "none",
            (Some(offset), Some(marker)) if marker.offset == offset => "marked",
            _ => "unmarked",
        })
    }
}

pub(super) async fn list(config: &Config, place: &Place, args: &ListArgs) -> Result<(), Failure> {
    let client = sql::connect_to_look(&place.database).await?;
    let stored = stored::positions(&client, &place.schema, None).await?;
    let seen = see(config, stored).await?;
    let now = now_ms();
    let same = |one: &Seen, next: &Seen| {
        (&one.stored.consumer, &one.stored.topic) == (&next.stored.consumer, &next.stored.topic)
    };
    let topics = seen.chunk_by(same);
    if args.json {
        let lines = topics.map(|of| json_for_terminal(&topic_json(of, now)) + "\n");
        return output::print(lines.collect::<String>());
    }
    if seen.is_empty() {
        return output::print("no consumer has read anything\n");
    }
    let titles = ["consumer", "group", "topic", "partitions", "lag", "behind", "parked", "halted"];
    let mut table = Table::titled(titles).right([3, 4, 5, 6, 7]);
    for of in topics {
        let first = &of[0].stored;
        table.row([
            for_terminal(&first.consumer),
            for_terminal(&first.group),
            for_terminal(&first.topic),
            of.len().to_string(),
            number(lag_events(of)),
            seconds(lag_seconds(of, now)),
            thousands(parked(of).unsigned_abs()),
            halted(of).count().to_string(),
        ]);
    }
    output::print(format_args!("{table}{}", halted_lines(&seen)))
}

pub(super) async fn show(config: &Config, place: &Place, args: &ShowArgs) -> Result<(), Failure> {
    let client = sql::connect_to_look(&place.database).await?;
    let stored = stored::positions(&client, &place.schema, Some(&args.name)).await?;
    if stored.is_empty() {
        return Err(stored::unknown(&args.name));
    }
    let resets = stored::resets(&client, &place.schema, &args.name, args.resets).await?;
    let seen = see(config, stored).await?;
    let now = now_ms();
    if args.json {
        let object = json!({
            "consumer": args.name,
            "group": seen[0].stored.group,
            "partitions": seen.iter().map(|one| json(one, now)).collect::<Vec<_>>(),
            "resets": resets.iter().map(Reset::json).collect::<Vec<_>>(),
        });
        return output::print(json_for_terminal(&object) + "\n");
    }
    output::print(partitions(&seen, now))?;
    if resets.is_empty() {
        return Ok(());
    }
    output::print(format_args!("\nresets, the newest first\n{}", reset_table(&resets)))
}

/// Asks Kafka, where brokers are configured. What it does not say is missing,
/// with a word why.
async fn see(config: &Config, stored: Vec<Position>) -> Result<Vec<Seen>, Failure> {
    let cluster = Cluster::of_if_any(config)?;
    let mut seen = Vec::new();
    // Groups with all their consumers stand together by their names.
    for of_group in stored.chunk_by(|one, next| one.group == next.group) {
        let logs = match &cluster {
            Some(cluster) => look(cluster, of_group).await,
            None => Ok(vec![(None, None); of_group.len()]),
        };
        let logs = logs.unwrap_or_else(|reason| {
            output::note(format_args!(
                "without what Kafka knows of group {}: {reason}",
                of_group[0].group
            ));
            vec![(None, None); of_group.len()]
        });
        seen.extend(of_group.iter().zip(logs).map(|(stored, (log, timestamp_ms))| Seen {
            stored: stored.clone(),
            log,
            timestamp_ms,
        }));
    }
    if cluster.is_none() && !seen.is_empty() {
        output::note("without the ends of the topics: no brokers are named, by --kafka say");
    }
    Ok(seen)
}

type FromKafka = (Option<Log>, Option<i64>);

async fn look(cluster: &Cluster, stored: &[Position]) -> Result<Vec<FromKafka>, String> {
    let logs = cluster.logs(stored, None).await?;
    let is_behind = |(one, log): &(&Position, &Log)| {
        one.next_offset.is_some_and(|next| (log.low..log.high).contains(&next))
    };
    let behind: Vec<Position> =
        stored.iter().zip(&logs).filter(is_behind).map(|(one, _)| one.clone()).collect();
    let mut timestamps = behind.iter().map(|one| one.id).zip(cluster.timestamps(&behind).await?);
    let mut next = timestamps.next();
    let mut found = Vec::new();
    for (one, log) in stored.iter().zip(logs) {
        let timestamp = match next {
            Some((id, timestamp)) if id == one.id => {
                next = timestamps.next();
                timestamp
            }
            _ => None,
        };
        found.push((Some(log), timestamp));
    }
    Ok(found)
}

fn partitions(seen: &[Seen], now: i64) -> String {
    let titles = [
        "topic",
        "partition",
        "next",
        "log end",
        "lag",
        "behind",
        "in Kafka",
        "marker",
        "epoch",
        "run",
        "to make again",
        "parked",
        "last reset",
        "state",
    ];
    let mut table = Table::titled(titles).right([1, 2, 3, 4, 5, 6, 8, 9, 10, 11]);
    for one in seen {
        let Position {
            topic,
            partition,
            next_offset,
            epoch,
            run,
            again,
            parked,
            last_reset,
            halted,
            ..
        } = &one.stored;
        let log = one.log.as_ref();
        table.row([
            for_terminal(topic),
            partition.to_string(),
            number(*next_offset),
            number(log.map(|log| log.high)),
            number(one.lag_events()),
            seconds(one.lag_seconds(now)),
            number(log.and_then(|log| log.committed.offset)),
            one.held().unwrap_or("-").to_owned(),
            epoch.to_string(),
            run.to_string(),
            again.to_string(),
            parked.to_string(),
            last_reset.as_ref().map_or_else(|| "-".to_owned(), |reset| reset.at.clone()),
            if halted.is_some() { "halted" } else { "-" }.to_owned(),
        ]);
    }
    format!("{table}{}", halted_lines(seen))
}

/// Those that no member has claimed since they halted.
fn halted(of: &[Seen]) -> impl Iterator<Item = (&Position, &Halted)> {
    of.iter().filter_map(|one| Some((&one.stored, one.stored.halted.as_ref()?)))
}

/// Why each halted partition is.
fn halted_lines(seen: &[Seen]) -> String {
    let line = |(of, Halted { at, reason }): (&Position, &Halted)| {
        let (consumer, topic) = (for_terminal(&of.consumer), for_terminal(&of.topic));
        let (partition, reason) = (of.partition, for_terminal(reason));
        format!("{consumer}: {topic}[{partition}] halted at {at}: {reason}\n")
    };
    halted(seen).map(line).collect()
}

fn reset_table(resets: &[Reset]) -> Table {
    let titles = [
        "at",
        "topic",
        "partition",
        "mode",
        "from",
        "to",
        "chosen",
        "by",
        "run",
        "asked by",
        "reason",
    ];
    let mut table = Table::titled(titles).right([2, 4, 5, 6, 8]);
    for reset in resets {
        let text =
            |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), for_terminal);
        table.row([
            reset.at.clone(),
            for_terminal(&reset.topic),
            reset.partition.to_string(),
            reset.mode.clone(),
            number(reset.from),
            reset.to.to_string(),
            number(reset.chosen_events.map(i64::from)),
            text(&reset.chosen_by),
            reset.run.to_string(),
            reset.asked_by.as_deref().map_or_else(|| "Kafka's offset".to_owned(), for_terminal),
            text(&reset.reason),
        ]);
    }
    table
}

fn json(one: &Seen, now: i64) -> Value {
    let (stored, log) = (&one.stored, one.log.as_ref());
    json!({
        "topic": stored.topic,
        "partition": stored.partition,
        "next_offset": stored.next_offset,
        "log_start": log.map(|log| log.low),
        "log_end": log.map(|log| log.high),
        "lag_events": one.lag_events(),
        "lag_seconds": one.lag_seconds(now),
        "kafka_offset": log.and_then(|log| log.committed.offset),
        "kafka_marker": one.held(),
        "epoch": stored.epoch,
        "run": stored.run,
        "again_events": stored.again,
        "parked_events": stored.parked,
        "last_reset": stored.last_reset.as_ref().map(Reset::json),
        "halted": stored.halted.as_ref().map(Halted::json),
    })
}

fn topic_json(of: &[Seen], now: i64) -> Value {
    let first = &of[0].stored;
    json!({
        "consumer": first.consumer,
        "group": first.group,
        "topic": first.topic,
        "partitions": of.len(),
        "lag_events": lag_events(of),
        "lag_seconds": lag_seconds(of, now),
        "parked_events": parked(of),
        "halted": halted(of)
            .map(|(of, Halted { at, reason })| {
                json!({ "partition": of.partition, "at": at, "reason": reason })
            })
            .collect::<Vec<_>>(),
    })
}

/// Of all partitions, if it is known of all that were read.
fn lag_events(of: &[Seen]) -> Option<i64> {
    of.iter().filter(|one| one.stored.next_offset.is_some()).map(Seen::lag_events).sum()
}

/// Of the partition that is furthest behind.
fn lag_seconds(of: &[Seen], now: i64) -> Option<f64> {
    let read = of.iter().filter(|one| one.stored.next_offset.is_some());
    let all: Option<Vec<f64>> = read.map(|one| one.lag_seconds(now)).collect();
    all?.into_iter().reduce(f64::max)
}

fn parked(of: &[Seen]) -> i64 {
    of.iter().map(|one| one.stored.parked).sum()
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
