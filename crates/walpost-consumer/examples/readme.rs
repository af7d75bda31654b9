//! Notes a shipment for every order, exactly once.

use walpost_consumer::tokio_postgres::Transaction;
use walpost_consumer::{Consumer, Database, Event, Handler, HandlerError};

#[derive(serde::Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

struct Shipping;

impl Handler for Shipping {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let order: OrderPlaced = event.json()?;
        tx.execute("insert into shipment (order_id) values ($1)", &[&order.order_id]).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let consumer = Consumer::builder("shipping")
        .kafka("bootstrap.servers", std::env::var("KAFKA")?)
        .topics(["outbox.event.order"])
        .database(Database::config(std::env::var("DATABASE_URL")?.parse()?))
        .handler(Shipping)?;
    consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
