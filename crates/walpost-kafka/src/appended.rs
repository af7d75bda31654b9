//! What a leader has appended and its replicas do not have yet is read by nobody,
//! and stays: a predecessor's last requests may be there, and their records
//! become visible later. So whoever reads back waits until they can be read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, base_consumer::PartitionQueue},
    error::{KafkaError, KafkaResult},
};
use walpost_librdkafka::{ends_reading, seek_behind_appended};

use crate::{log::Quiet, nudge::Nudge, spans::Span};

/// For replicas that lag: Kafka counts them out after 30 s by default.
const REPLICATED_MAX: Duration = Duration::from_secs(60);
/// Until librdkafka has begun with what it was assigned.
const SEEK_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Waits until everything can be read that the leaders of these partitions, each
/// with its epoch, have appended so far. Blocks. The consumer is one for this
/// alone: it reads uncommitted records too, and starts at the end where it is
/// lost.
///
/// # Errors
/// When the replicas do not follow, the brokers do not answer, or once
/// `stopped`.
pub(crate) fn wait_until_readable(
    consumer: &Arc<BaseConsumer<Quiet>>,
    partitions: &[(&Span, i32)],
    stopped: &AtomicBool,
) -> Result<(), String> {
    let cannot = |error: KafkaError| format!("asking for what the leaders have appended: {error}");
    let mut open = open(consumer, partitions).map_err(cannot)?;
    seek(consumer, partitions).map_err(cannot)?;
    let (began, mut nudge) = (now(), Nudge::new(consumer));
    loop {
        let mut left = Vec::with_capacity(open.len());
        for (span, queue) in open {
            if !is_readable(&queue).map_err(cannot)? {
                left.push((span, queue));
            }
        }
        open = left;
        let Some((Span { topic, partition, .. }, _)) = open.first() else { return Ok(()) };
        if stopped.load(Ordering::Relaxed) {
            return Err("stopped while waiting for the replicas of what is published".to_owned());
        }
        if began.elapsed() > REPLICATED_MAX {
            return Err(format!(
                "{topic} partition {partition} has records that its replicas did not take within \
                 {} s, and what was published before cannot be read back; see whether all its \
                 replicas run",
                REPLICATED_MAX.as_secs()
            ));
        }
        nudge.again(open.iter().map(|(span, _)| *span));
        // Serves errors of the client as a whole too.
        if let Some(Err(error)) = consumer.poll(POLL)
            && ends_reading(&error)
        {
            return Err(cannot(error));
        }
    }
}

type Waiting<'a> = Vec<(&'a Span, PartitionQueue<Quiet>)>;

fn open<'a>(
    consumer: &Arc<BaseConsumer<Quiet>>,
    partitions: &[(&'a Span, i32)],
) -> KafkaResult<Waiting<'a>> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    let mut waiting = Vec::with_capacity(partitions.len());
    for (span, _) in partitions {
        list.add_partition_offset(&span.topic, span.partition, Offset::Offset(span.end))?;
        let queue = consumer.split_partition_queue(&span.topic, span.partition);
        let queue = queue.ok_or_else(|| KafkaError::Subscription("no queue".to_owned()))?;
        waiting.push((*span, queue));
    }
    consumer.assign(&list)?;
    Ok(waiting)
}

/// Tried until all partitions are begun with.
fn seek(consumer: &Arc<BaseConsumer<Quiet>>, partitions: &[(&Span, i32)]) -> KafkaResult<()> {
    let places: Vec<(&str, i32, i32)> =
        partitions.iter().map(|(span, epoch)| (&*span.topic, span.partition, *epoch)).collect();
    let began = now();
    loop {
        match seek_behind_appended(&**consumer, &places, SEEK_MAX) {
            Err(_) if began.elapsed() < SEEK_MAX => std::thread::sleep(POLL),
            done => return done,
        }
    }
}

/// The end is told when everything before it is readable; a record that came
/// since says so too.
fn is_readable(queue: &PartitionQueue<Quiet>) -> KafkaResult<bool> {
    while let Some(polled) = queue.poll(Duration::ZERO) {
        match polled {
            Ok(_) | Err(KafkaError::PartitionEOF(_)) => return Ok(true),
            Err(error) if ends_reading(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(false)
}

fn now() -> Instant {
    Instant::now()
}
