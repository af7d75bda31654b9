//! Events of a range that are to be run again, found by reading the topic.

use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{Offset, TopicPartitionList, consumer::Consumer, error::KafkaError};
use tokio::sync::mpsc;
use tokio_postgres::Client;
use walpost_consumer::Event;
use walpost_librdkafka::{LogRecord, PartitionLog, Read, ends_reading};

use super::{
    Place,
    cluster::Cluster,
    kafka_failed,
    stored::{self, Position},
};
use crate::{
    command::sql,
    failure::{Exit, Failure},
};

/// Events whose effects are looked up by one statement.
const CHUNK_EVENTS: usize = 1_000;
/// Longest silence of the brokers while records are left.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// Which events: of one of the types and of one of the aggregates, where any
/// are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    types: Vec<String>,
    aggregates: Vec<String>,
}

impl Filter {
    /// `None` without any.
    pub(super) fn new(types: &[String], aggregates: &[String]) -> Option<Self> {
        let any = !types.is_empty() || !aggregates.is_empty();
        any.then(|| Self { types: types.to_vec(), aggregates: aggregates.to_vec() })
    }

    fn takes(&self, event: &Event) -> bool {
        let of = |named: &[String], value: Option<&[u8]>| {
            named.is_empty() || named.iter().any(|one| Some(one.as_bytes()) == value)
        };
        of(&self.types, event.event_type().map(str::as_bytes)) && of(&self.aggregates, event.key())
    }
}

/// For the audit row.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.types.is_empty() {
            parts.push(format!("type {}", self.types.join(" or ")));
        }
        if !self.aggregates.is_empty() {
            parts.push(format!("aggregate {}", self.aggregates.join(" or ")));
        }
        f.write_str(&parts.join(", "))
    }
}

/// What was found in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Offsets of the records to run.
    pub(super) offsets: Vec<i64>,
    /// How many of them have had their effect.
    pub(super) done: u64,
    /// How many are parked or were discarded, and so have none.
    pub(super) parked: u64,
    /// How many have not, for another reason.
    pub(super) missing: u64,
    /// Records that match and are left out: the effect is another record's.
    pub(super) copies: u64,
}

pub(super) fn count<'a>(choices: impl Iterator<Item = &'a Choice>) -> usize {
    choices.map(|choice| choice.offsets.len()).sum()
}

/// A record that matches: source, id, offset.
type Match = (String, String, i64);

/// Reads `range` of a partition, and looks up what matches. Refuses more than
/// `max` events.
pub(super) async fn choose(
    client: &Client,
    place: &Place,
    cluster: &Cluster,
    of: &Position,
    range: Range<i64>,
    filter: &Filter,
    max: usize,
) -> Result<Choice, Failure> {
    let mut choice = Choice::default();
    if range.is_empty() {
        return Ok(choice);
    }
    let (sender, mut chunks) = mpsc::channel(2);
    let (cluster, stored, filter) = (cluster.clone(), of.clone(), filter.clone());
    let reading =
        tokio::task::spawn_blocking(move || read(&cluster, &stored, range, &filter, &sender));
    while let Some(chunk) = chunks.recv().await {
        look_up(client, place, of, chunk, &mut choice).await?;
        if choice.offsets.len() > max {
            // The reader ends when nobody listens any more.
            let text = "more events match than --max".to_owned();
            return Err(Failure::found(Exit::Configuration, &text)
                .next_step("narrow the range or the selection, or raise --max"));
        }
    }
    let read = reading.await.map_err(Failure::running)?;
    read.map_err(|error| kafka_failed(&error))?;
    Ok(choice)
}

/// Whether the effect of each was made, and by this record.
async fn look_up(
    client: &Client,
    place: &Place,
    of: &Position,
    chunk: Vec<Match>,
    choice: &mut Choice,
) -> Result<(), Failure> {
    let query = format!(
        "select u.off, d.off is not null, d.pos_id = $2 and d.off = u.off, \
         exists (select from {s}.consumer_parked p where p.pos_id = $2 and p.off = u.off) \
         from unnest($3::text[], $4::text[], $5::bigint[]) u(src, id, off) \
         left join {s}.done d on d.consumer = $1 and d.source = u.src and d.event_id = u.id",
        s = sql::quoted(&place.schema)
    );
    let sources: Vec<&str> = chunk.iter().map(|one| &*one.0).collect();
    let ids: Vec<&str> = chunk.iter().map(|one| &*one.1).collect();
    let offsets: Vec<i64> = chunk.iter().map(|one| one.2).collect();
    let rows = client.query(&query, &[&of.consumer, &of.id, &sources, &ids, &offsets]).await;
    for row in rows.map_err(stored::failed(&place.schema))? {
        let (is_done, is_own): (bool, Option<bool>) = (row.get(1), row.get(2));
        match (is_done, is_own) {
            (true, Some(true)) if row.get(3) => choice.parked += 1,
            (true, Some(true)) => choice.done += 1,
            (true, _) => {
                choice.copies += 1;
                continue;
            }
            (false, _) => choice.missing += 1,
        }
        choice.offsets.push(row.get(0));
    }
    Ok(())
}

/// Blocks. Ends early, without an error, when nobody listens.
fn read(
    cluster: &Cluster,
    of: &Position,
    range: Range<i64>,
    filter: &Filter,
    sender: &mpsc::Sender<Vec<Match>>,
) -> Result<(), String> {
    let failed = |error: KafkaError| format!("reading {}[{}]: {error}", of.topic, of.partition);
    let client = Arc::new(cluster.client("walpost-look")?);
    let mut list = TopicPartitionList::new();
    let from = Offset::Offset(range.start);
    list.add_partition_offset(&of.topic, of.partition, from).map_err(failed)?;
    let log = PartitionLog::split(&client, &of.topic, of.partition);
    let log = log.ok_or("librdkafka gives no queue for the partition")?;
    client.assign(&list).map_err(failed)?;
    let (mut chunk, mut heard, mut said) = (Vec::new(), Instant::now(), String::new());
    loop {
        let record = match log.poll() {
            Some(Read::Record(record)) => record,
            // Markers of transactions may be the last. A leader that has just become
            // one may tell an end before the range's: more comes.
            Some(Read::End(offset)) if offset >= range.end => break,
            Some(Read::Failed(error)) if ends_reading(&error) => return Err(failed(error)),
            silence => {
                if let Some(Read::Failed(error)) = silence {
                    said = format!("; last error: {error}");
                }
                if heard.elapsed() < SILENCE_LIMIT {
                    match client.poll(POLL) {
                        Some(Err(error)) if ends_reading(&error) => return Err(failed(error)),
                        _ => continue,
                    }
                }
                let limit = SILENCE_LIMIT.as_secs();
                return Err(format!(
                    "reading {}[{}] got nothing for {limit} s{said}",
                    of.topic, of.partition
                ));
            }
        };
        heard = Instant::now();
        let offset = record.offset();
        if offset < range.end {
            let event = event(of, &record);
            // Without an id there is nothing that it could be told by.
            if !event.id().is_empty() && filter.takes(&event) {
                chunk.push((event.source().to_owned(), event.id().to_owned(), offset));
            }
        }
        let is_full = chunk.len() >= CHUNK_EVENTS;
        if is_full && sender.blocking_send(std::mem::take(&mut chunk)).is_err() {
            return Ok(());
        }
        if offset + 1 >= range.end {
            break;
        }
    }
    let _ = sender.blocking_send(chunk);
    Ok(())
}

/// As members see it.
fn event(of: &Position, record: &LogRecord<'_>) -> Event {
    let mut event = Event::builder(&*of.topic).position(of.partition, record.offset());
    event = event.key(record.key());
    for (name, value) in record.headers() {
        event = event.header(&String::from_utf8_lossy(name), value);
    }
    event.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chosen_by_type_and_by_aggregate() {
        let filter = |types: &[&str], aggregates: &[&str]| {
            let owned =
                |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            Filter::new(&owned(types), &owned(aggregates))
        };
        let event = |kind: &[u8], key: Option<&[u8]>| {
            Event::builder("t").header("eventType", Some(kind)).key(key).build()
        };
        assert_eq!(filter(&[], &[]), None);
        let both = filter(&["a", "b"], &["k"]).unwrap();
        assert!(both.takes(&event(b"b", Some(b"k"))));
        assert!(!both.takes(&event(b"c", Some(b"k"))));
        assert!(!both.takes(&event(b"b", Some(b"l"))));
        assert!(!both.takes(&event(b"b", None)));
        assert!(filter(&["b"], &[]).unwrap().takes(&event(b"b", None)));
        assert!(filter(&[], &["k"]).unwrap().takes(&event(b"\xff", Some(b"k"))));
        assert_eq!(both.to_string(), "type a or b, aggregate k");
    }
}
