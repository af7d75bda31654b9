use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::interval};
use tokio_postgres::{Client, Error};

use super::super::load::connect;

/// 100 transactions a second.
const TICK: Duration = Duration::from_millis(10);
const AGGREGATES: u64 = 20;

/// An application that writes events, and goes on when its database comes back.
/// What it has committed the table says.
#[derive(Debug)]
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Load {
    pub(super) fn start(url: String) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let told = stop.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(TICK);
            let mut session = None;
            let mut seq = 0;
            while !told.load(Ordering::Relaxed) {
                ticks.tick().await;
                let client = match &mut session {
                    Some(client) => client,
                    none => none.insert(connect(&url).await),
                };
                seq += 1;
                if write(client, seq).await.is_err() {
                    session = None;
                }
            }
        });
        Self { stop, task }
    }

    pub(super) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

/// One event; each tenth transaction writes two and is rolled back.
async fn write(client: &mut Client, seq: u64) -> Result<(), Error> {
    let tx = client.transaction().await?;
    let is_none = seq.is_multiple_of(10);
    for _ in 0..=u64::from(is_none) {
        let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values ('order', $1, 'Placed', $2::text::jsonb)";
        let aggregate = (seq % AGGREGATES).to_string();
        let payload = format!("{{\"type\":\"Placed\",\"seq\":{seq},\"none\":{is_none}}}");
        tx.execute(insert, &[&aggregate, &payload]).await?;
    }
    if is_none { tx.rollback().await } else { tx.commit().await }
}
