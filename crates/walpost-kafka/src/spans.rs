use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
    types::RDKafkaErrorCode,
};
use walpost_librdkafka::{LogRecord, PartitionLog, Read, ends_reading};
use walpost_relay::{
    DEAD_LETTER_HEADER, ID_HEADER, Marks, NoteMarks, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER,
};

use crate::{log::Quiet, nudge::Nudge};

/// Without a record, or news of the end, for this long there will be none.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Between two lines of the log.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Bound on one wait, and so on how late a stop is seen.
const POLL: Duration = Duration::from_millis(20);

/// A part of a partition: from `start` to before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Reads every record of `spans` that is committed, and tells its marks. No
/// transaction is open before the end of any of them. Blocks until all ends are
/// reached.
///
/// # Errors
/// When the brokers do not answer, or once `stopped`.
pub(crate) fn read(
    consumer: &Arc<BaseConsumer<Quiet>>,
    spans: &[Span],
    stopped: &AtomicBool,
    note: &mut NoteMarks,
) -> Result<(), String> {
    let spans: Vec<&Span> = spans.iter().filter(|span| span.start < span.end).collect();
    if spans.is_empty() {
        return Ok(());
    }
    let cannot = |error: KafkaError| match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
            "reading back what is published is denied; grant Read on the topics".to_owned()
        }
        _ => format!("reading back what is published: {error}"),
    };
    let mut reader = Reader::open(consumer, &spans).map_err(cannot)?;
    let mut nudge = Nudge::new(consumer);
    let (mut silent_since, mut told) = (now(), now());
    while !reader.open.is_empty() {
        if told.elapsed() > TELL_EVERY {
            told = now();
            let left: i64 = reader.open.iter().map(|open| open.span.end - open.next).sum();
            tracing::info!(records_left = left, "reading back what is published");
        }
        if stopped.load(Ordering::Relaxed) {
            return Err("stopped while reading back what is published".to_owned());
        }
        if reader.advance(note).map_err(cannot)? {
            silent_since = now();
            continue;
        }
        nudge.again(reader.open.iter().map(|open| &open.span));
        if silent_since.elapsed() > SILENCE_MAX {
            return Err(reader.stuck());
        }
    }
    Ok(())
}

struct Reader {
    // Before the consumer: a queue must not outlive its client.
    open: Vec<Open>,
    consumer: Arc<BaseConsumer<Quiet>>,
}

struct Open {
    log: PartitionLog<Quiet>,
    span: Span,
    next: i64,
}

/// How far one look at a partition got.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Nothing,
    Advanced,
    Done,
}

impl Reader {
    fn open(consumer: &Arc<BaseConsumer<Quiet>>, spans: &[&Span]) -> KafkaResult<Self> {
        let mut list = TopicPartitionList::with_capacity(spans.len());
        for span in spans {
            let start = Offset::Offset(span.start);
            list.add_partition_offset(&span.topic, span.partition, start)?;
        }
        let mut open = Vec::with_capacity(spans.len());
        for span in spans {
            let log = PartitionLog::split(consumer, &span.topic, span.partition);
            let log = log.ok_or_else(|| KafkaError::Subscription("no queue".to_owned()))?;
            open.push(Open { log, span: (*span).clone(), next: span.start });
        }
        consumer.assign(&list)?;
        Ok(Self { open, consumer: consumer.clone() })
    }

    /// One look at each partition, and a short wait if there was nothing;
    /// whether there was something.
    fn advance(&mut self, note: &mut NoteMarks) -> KafkaResult<bool> {
        let mut advanced = false;
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].look(note)? {
                Looked::Done => {
                    self.open.swap_remove(index);
                    advanced = true;
                    continue;
                }
                Looked::Advanced => advanced = true,
                Looked::Nothing => {}
            }
            index += 1;
        }
        if !advanced && !self.open.is_empty() {
            // Serves errors of the client as a whole too.
            if let Some(Err(error)) = self.consumer.poll(POLL)
                && ends_reading(&error)
            {
                return Err(error);
            }
        }
        Ok(advanced)
    }

    fn stuck(&self) -> String {
        let Span { topic, partition, end, .. } = &self.open[0].span;
        format!(
            "reading back what is published stands at offset {} of {topic} partition {partition}, \
             before its end at {end}, and the broker brings no more; see whether all its \
             replicas run",
            self.open[0].next
        )
    }
}

impl Open {
    fn look(&mut self, note: &mut NoteMarks) -> KafkaResult<Looked> {
        let mut looked = Looked::Nothing;
        while let Some(read) = self.log.poll() {
            match read {
                Read::Record(record) => {
                    self.next = record.offset() + 1;
                    if record.offset() < self.span.end {
                        note(marks(&record, &self.span));
                    }
                    looked = Looked::Advanced;
                }
                // No transaction is open before the end, so behind the last record are
                // markers, or what was aborted. A leader that has just become one may
                // tell an end before that: more comes.
                Read::End(offset) if offset > self.next => {
                    self.next = offset;
                    looked = Looked::Advanced;
                }
                Read::End(_) => {}
                Read::Failed(error) if ends_reading(&error) => return Err(error),
                Read::Failed(_) => {}
            }
            if self.next >= self.span.end {
                return Ok(Looked::Done);
            }
        }
        Ok(looked)
    }
}

fn marks<'a>(record: &'a LogRecord<'_>, span: &'a Span) -> Marks<'a> {
    let (topic, partition) = (&*span.topic, span.partition);
    let mut marks = Marks { topic, partition, offset: record.offset(), ..Marks::default() };
    for (name, value) in record.headers() {
        if name == POSITION_HEADER.as_bytes() {
            marks.position = value;
        } else if name == ID_HEADER.as_bytes() {
            marks.id = marks.id.or(value);
        } else if name == SOURCE_HEADER.as_bytes() {
            marks.source = value;
        } else if name == REPLAY_HEADER.as_bytes() {
            marks.replay = Some(value.unwrap_or_default());
        } else if name == DEAD_LETTER_HEADER.as_bytes() {
            // Not its value, which another one's record that was sent on has.
            marks.replay.get_or_insert_default();
        }
    }
    marks
}

fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, thread, time::Duration};

    use rdkafka::{
        ClientConfig,
        config::FromClientConfigAndContext,
        mocking::MockCluster,
        producer::{BaseProducer, BaseRecord, Producer},
    };

    use super::*;

    fn publish(bootstrap: &str, values: std::ops::Range<u32>) {
        let mut config = ClientConfig::new();
        let producer: BaseProducer = config.set("bootstrap.servers", bootstrap).create().unwrap();
        for value in values {
            let value = value.to_string();
            let headers = rdkafka::message::OwnedHeaders::new();
            let id = rdkafka::message::Header { key: ID_HEADER, value: Some(&value) };
            let record = BaseRecord::<str, str>::to("orders").partition(0).payload("v");
            let record = record.headers(headers.insert(id));
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(SILENCE_MAX).unwrap();
    }

    /// As a leader that has just become one, and knows of less than the one before,
    /// whose end was asked for.
    #[test]
    fn an_end_before_the_one_that_was_asked_for_is_none() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let bootstrap = cluster.bootstrap_servers();
        publish(&bootstrap, 0..3);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &bootstrap).set("group.id", "walpost-read-back");
        config.set("enable.partition.eof", "true").set("fetch.wait.max.ms", "50");
        let consumer = BaseConsumer::from_config_and_context(&config, Quiet).unwrap();
        let consumer = Arc::new(consumer);
        let found = Arc::new(Mutex::new(Vec::new()));
        let noting = found.clone();
        let mut note: Box<NoteMarks> = Box::new(move |marks: Marks<'_>| {
            let id = String::from_utf8_lossy(marks.id.unwrap()).into_owned();
            noting.lock().unwrap().push(id);
        });
        let span = Span { topic: "orders".into(), partition: 0, start: 0, end: 5 };
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| read(&consumer, &[span], &stopped, &mut note));
            let began = now();
            while found.lock().unwrap().len() < 3 {
                assert!(began.elapsed() < SILENCE_MAX, "the first three");
                thread::sleep(POLL);
            }
            thread::sleep(Duration::from_millis(300));
            assert!(!reading.is_finished(), "the end was told before what was asked for");
            publish(&bootstrap, 3..6);
            reading.join().unwrap().unwrap();
        });
        assert_eq!(*found.lock().unwrap(), ["0", "1", "2", "3", "4"]);
    }
}
