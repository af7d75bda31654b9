use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Transaction};
use walpost_outbox::{NewEvent, OutboxTable, write};

use crate::shop::Shop;

/// Aggregates of one writer.
const AGGREGATES: i64 = 20;

/// Writes orders until it is told to stop: each is a state row and its event,
/// in one transaction. A writer has aggregates of its own, so that their order
/// of commit is its order of writing.
#[derive(Debug)]
pub struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicI64>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts writer `number` of the shop.
    pub async fn start(shop: &Shop, number: usize) -> Self {
        let mut client = shop.connect().await;
        let stop = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicI64::new(0));
        let (stopped, count) = (stop.clone(), written.clone());
        let task = tokio::spawn(async move {
            let mut seq = 0;
            while !stopped.load(Ordering::Relaxed) {
                // Some transactions have many events.
                let events = if seq % 50 == 0 { 30 } else { 1 };
                orders(&mut client, number, seq, events).await;
                seq += events;
                count.store(seq, Ordering::Relaxed);
            }
        });
        Self { stop, written, task }
    }

    /// Events committed so far.
    pub fn written(&self) -> i64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Stops; how many events were committed.
    pub async fn stop(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.written.load(Ordering::Relaxed)
    }
}

async fn orders(client: &mut Client, writer: usize, first: i64, events: i64) {
    let tx = client.transaction().await.unwrap();
    for seq in first..first + events {
        order(&tx, &format!("{writer}-{}", seq % AGGREGATES), seq).await;
    }
    tx.commit().await.unwrap();
}

/// One order: its state, then its event.
pub(crate) async fn order(tx: &Transaction<'_>, aggregate: &str, seq: i64) {
    let insert = "insert into shop_order (aggregate, seq) values ($1, $2)";
    tx.execute(insert, &[&aggregate, &seq]).await.unwrap();
    let event = NewEvent::new("order", aggregate, "Placed")
        .json(&serde_json::json!({ "seq": seq }))
        .unwrap();
    write(tx, &OutboxTable::default(), &event).await.unwrap();
}
