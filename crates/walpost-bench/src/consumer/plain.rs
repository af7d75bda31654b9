use std::{sync::atomic::Ordering, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use rdkafka::{
    Message,
    consumer::BaseConsumer,
    message::{BorrowedMessage, Headers},
};
use serde::Deserialize;
use tokio::{sync::mpsc, task::JoinSet};
use walpost_event::{SOURCE_HEADER, source_of};

use super::{
    SubjectArgs,
    child::{Applied, Stop},
};
use crate::{
    database::connect,
    topic::{PARTITIONS, read_from_beginning},
};

/// Read ahead for each partition.
const QUEUE_EVENTS: usize = 1_000;
const POLL: Duration = Duration::from_millis(100);

const CLAIM: &str = "insert into bench.processed (consumer, source, event_id) \
    values ('plain', $1, $2) on conflict do nothing";
const EFFECT: &str = "insert into bench.effect (event_id, total_cents) values ($1, $2)";
const MOVE: &str = "insert into bench.watermark (consumer, topic, part, next_offset) \
    values ('plain', $1, $2, $3) \
    on conflict (consumer, topic, part) do update set next_offset = excluded.next_offset";

struct Received {
    partition: i32,
    offset: i64,
    id: String,
    source: String,
    total_cents: i64,
}

#[derive(Deserialize)]
struct Order {
    total_cents: i64,
}

/// What one writes without the consumer crate: for each event a transaction
/// with its dedup row, its effect and its offset, by prepared statements. As
/// parallel as the crate is: a connection for each partition.
pub(super) async fn run(args: SubjectArgs, applied: Applied, stop: Stop) -> Result<()> {
    let consumer = read_from_beginning(&args.bootstrap, &args.topic)?;
    let mut queues = Vec::new();
    let mut workers = JoinSet::new();
    for _ in 0..PARTITIONS {
        let (queue, events) = mpsc::channel(QUEUE_EVENTS);
        queues.push(queue);
        workers.spawn(work(args.clone(), events, applied.clone()));
    }
    let reading = thread::spawn(move || read(&consumer, &queues, &stop));
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    reading.join().map_err(|_| anyhow!("the reader panicked"))?
}

/// Ends the workers by closing their queues.
fn read(consumer: &BaseConsumer, queues: &[mpsc::Sender<Received>], stop: &Stop) -> Result<()> {
    while !*stop.borrow() {
        let Some(record) = consumer.poll(POLL) else { continue };
        let received = receive(&record?).context("a record without what is needed")?;
        let queue = queues.get(usize::try_from(received.partition)?);
        queue.context("a partition too many")?.blocking_send(received)?;
    }
    Ok(())
}

fn receive(record: &BorrowedMessage<'_>) -> Option<Received> {
    let headers = record.headers()?;
    let header = |name: &str| {
        let found = headers.iter().find(|header| header.key == name)?;
        String::from_utf8(found.value?.to_vec()).ok()
    };
    let id = header("id")?;
    let source = header(SOURCE_HEADER);
    let source = source_of(&id, source.as_deref(), record.topic()).to_owned();
    let order: Order = serde_json::from_slice(record.payload()?).ok()?;
    Some(Received {
        partition: record.partition(),
        offset: record.offset(),
        id,
        source,
        total_cents: order.total_cents,
    })
}

async fn work(
    args: SubjectArgs,
    mut events: mpsc::Receiver<Received>,
    applied: Applied,
) -> Result<()> {
    let mut client = connect(&args.postgres).await?;
    let claim = client.prepare(CLAIM).await?;
    let effect = client.prepare(EFFECT).await?;
    let advance = client.prepare(MOVE).await?;
    while let Some(event) = events.recv().await {
        let tx = client.transaction().await?;
        let new = tx.execute(&claim, &[&event.source, &event.id]).await?;
        if new == 1 {
            tx.execute(&effect, &[&event.id, &event.total_cents]).await?;
        }
        tx.execute(&advance, &[&args.topic, &event.partition, &(event.offset + 1)]).await?;
        tx.commit().await?;
        applied.fetch_add(new, Ordering::Relaxed);
    }
    Ok(())
}
