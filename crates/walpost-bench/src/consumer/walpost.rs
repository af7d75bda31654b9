use std::sync::atomic::Ordering;

use anyhow::Result;
use serde::Deserialize;
use walpost_consumer::{
    Consumer, Database, Event, Handler, HandlerError, SliceError,
    tokio_postgres::{Transaction, types::Type},
};

use super::{
    SubjectArgs,
    child::{Applied, Stop},
};

const ONE: &str = "insert into bench.effect (event_id, total_cents) values ($1, $2)";
const MANY: &str = "insert into bench.effect (event_id, total_cents) select * from unnest($1, $2)";

#[derive(Deserialize)]
struct Order {
    total_cents: i64,
}

/// One statement for each event.
pub(super) struct ByEvent;

/// One statement for all events of a batch.
pub(super) struct BySlice;

impl Handler for ByEvent {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let order: Order = event.json()?;
        tx.query_typed(ONE, &[(&event.id(), Type::TEXT), (&order.total_cents, Type::INT8)]).await?;
        Ok(())
    }
}

impl Handler for BySlice {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        ByEvent.handle(tx, event).await
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let mut ids = Vec::with_capacity(events.len());
        let mut totals = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let order: Order = event.json().map_err(|error| SliceError::at(index, error))?;
            ids.push(event.id());
            totals.push(order.total_cents);
        }
        tx.query_typed(MANY, &[(&ids, Type::TEXT_ARRAY), (&totals, Type::INT8_ARRAY)]).await?;
        Ok(())
    }
}

/// The consumer crate with its defaults.
pub(super) async fn run(
    handler: impl Handler,
    args: SubjectArgs,
    applied: Applied,
    mut stop: Stop,
) -> Result<()> {
    let consumer = Consumer::builder(args.subject.name())
        .kafka("bootstrap.servers", args.bootstrap)
        .topics([args.topic])
        .database(Database::config(args.postgres.parse()?))
        .handler(handler)?;
    let mut status = consumer.status();
    let counting = tokio::spawn(async move {
        while status.changed().await.is_ok() {
            applied.store(status.borrow().counts.applied, Ordering::Relaxed);
        }
    });
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    consumer.run(stopped).await?;
    counting.await?;
    Ok(())
}
