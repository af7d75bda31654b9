//! The service that ships: a handler, and the consumer around it.

use std::collections::BTreeMap;

use serde::Deserialize;
use walpost_consumer::{
    Consumer, Database, Error, Event, Handler, HandlerError, tokio_postgres::Transaction,
};

use crate::shop::AGGREGATE;

/// The part of the event that is of interest here.
#[derive(Deserialize)]
struct OrderPlaced<'event> {
    order_id: i64,
    city: &'event str,
}

pub(crate) struct Shipping;

impl Handler for Shipping {
    /// What is written through `tx` commits together with the offset of the
    /// event, or not at all. So this needs no thought about copies: the table
    /// has no unique key, and a shipment that is made twice would show.
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if event.event_type() != Some("OrderPlaced") {
            return Err(HandlerError::park("an event of another type"));
        }
        let order: OrderPlaced<'_> = event.json()?;
        tx.execute(
            "insert into shipment (order_id, city, event_id) values ($1, $2, $3)",
            &[&order.order_id, &order.city, &event.id()],
        )
        .await?;
        Ok(())
    }
}

/// The consumer, not yet running.
pub(crate) fn consumer(
    database: &walpost_postgres::Database,
    brokers: &str,
) -> Result<Consumer<Shipping>, Error> {
    let database = database.clone();
    let connect = move || {
        let database = database.clone();
        async move { database.connect().await }
    };
    let kafka = [("bootstrap.servers".to_owned(), brokers.to_owned())];
    Consumer::builder("shipping")
        .kafka_settings(BTreeMap::from(kafka))
        .topics([topic()])
        .database(Database::connect_with(connect))
        // After a kill the group waits so long for the member that is gone.
        .session_timeout_ms(6_000)
        .handler(Shipping)
}

/// Where the relay publishes the shop's events.
pub(crate) fn topic() -> String {
    format!("outbox.event.{AGGREGATE}")
}
