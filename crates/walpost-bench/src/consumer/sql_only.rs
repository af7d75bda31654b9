use std::sync::atomic::Ordering;

use anyhow::Result;
use tokio::task::JoinSet;

use super::{SubjectArgs, child::Applied};
use crate::{database::connect, publish::event_id};

const CONNECTIONS: u64 = 4;
const BATCH_EVENTS: u64 = 500;

const CLAIM: &str = "insert into bench.processed (consumer, source, event_id) \
    select 'sql', 'bench', id from unnest($1::text[]) id on conflict do nothing";
const EFFECT: &str = "insert into bench.effect (event_id, total_cents) \
    select * from unnest($1::text[], $2::int8[])";
const MOVE: &str = "insert into bench.watermark (consumer, topic, part, next_offset) \
    values ('sql', 'none', $1, $2) \
    on conflict (consumer, topic, part) do update set next_offset = excluded.next_offset";

/// The statements alone: 4 connections, 500 events a transaction.
pub(super) async fn run(args: SubjectArgs, applied: Applied) -> Result<()> {
    let mut workers = JoinSet::new();
    for worker in 0..CONNECTIONS {
        workers.spawn(work(args.clone(), worker, applied.clone()));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

async fn work(args: SubjectArgs, worker: u64, applied: Applied) -> Result<()> {
    let mut client = connect(&args.postgres).await?;
    let claim = client.prepare(CLAIM).await?;
    let effect = client.prepare(EFFECT).await?;
    let advance = client.prepare(MOVE).await?;
    let part = i32::try_from(worker)?;
    let mut first = worker * BATCH_EVENTS;
    while first < args.events {
        let events = first..args.events.min(first + BATCH_EVENTS);
        let ids: Vec<String> = events.clone().map(event_id).collect();
        let totals: Vec<i64> = events.clone().map(|n| 1_000 + (n % 90_000) as i64).collect();
        let tx = client.transaction().await?;
        let new = tx.execute(&claim, &[&ids]).await?;
        tx.execute(&effect, &[&ids, &totals]).await?;
        tx.execute(&advance, &[&part, &i64::try_from(events.end)?]).await?;
        tx.commit().await?;
        applied.fetch_add(new, Ordering::Relaxed);
        first += CONNECTIONS * BATCH_EVENTS;
    }
    Ok(())
}
