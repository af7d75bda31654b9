//! The application that places orders: state and event in one transaction.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{sync::watch, time::sleep};
use tokio_postgres::Client;
use walpost_outbox::{NewEvent, OutboxTable, walpost_contracts::Contracts, write};
use walpost_postgres::Database;

use crate::Failed;

/// The aggregate type, which names the topic: `outbox.event.shop-order`.
pub(crate) const AGGREGATE: &str = "shop-order";
/// What the shop and its consumers agree on.
const ORDER_PLACED: &str = include_str!("../../../docs/events/shop/order-placed.md");

/// What readers of the event need to know.
#[derive(Serialize)]
struct OrderPlaced<'a> {
    order_id: i64,
    city: &'a str,
}

/// Places orders, one after each `pace`, until there are as many, or it is asked to stop.
pub(crate) async fn place_orders(
    database: Database,
    orders: i64,
    pace: Duration,
    stopped: watch::Receiver<bool>,
) -> Result<(), Failed> {
    let mut client = database.connect().await?;
    let contracts = Contracts::parse([("order-placed.md".into(), ORDER_PLACED.to_owned())])?;
    let outbox = OutboxTable::default().with_contracts(Arc::new(contracts));
    let there: i64 = client.query_one("select count(*) from orders", &[]).await?.get(0);
    for number in there..orders {
        if *stopped.borrow() {
            break;
        }
        place_order(&mut client, &outbox, ["Lisbon", "Oslo", "Vienna"][number as usize % 3])
            .await?;
        sleep(pace).await;
    }
    Ok(())
}

async fn place_order(client: &mut Client, outbox: &OutboxTable, city: &str) -> Result<(), Failed> {
    let tx = client.transaction().await?;
    let placed =
        tx.query_one("insert into orders (city) values ($1) returning id", &[&city]).await?;
    let order_id: i64 = placed.get(0);
    let event = NewEvent::new(AGGREGATE, order_id.to_string(), "OrderPlaced")
        .json(&OrderPlaced { order_id, city })?;
    write(&tx, outbox, &event).await?;
    // Here both are there, or neither is.
    tx.commit().await?;
    Ok(())
}
