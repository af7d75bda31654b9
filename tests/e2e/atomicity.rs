use tokio_postgres::Transaction;
use walpost_outbox::{NewEvent, OutboxTable, emit, write};
use walpost_tests::Shop;

use crate::CONSUMER;

#[derive(Clone, Copy, Debug)]
enum Outbox {
    Table,
    Message,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    None,
    BeforeTheEvent,
    AfterTheEvent,
}

/// An application that updates its state, then writes the event, and may fail
/// before or after that.
async fn place_order(
    tx: &Transaction<'_>,
    outbox: Outbox,
    aggregate: &str,
    failure: Failure,
) -> Result<(), Box<dyn std::error::Error>> {
    tx.execute("insert into shop_order (aggregate, seq) values ($1, 1)", &[&aggregate]).await?;
    if failure == Failure::BeforeTheEvent {
        return Err("failed before the event".into());
    }
    let event =
        NewEvent::new("order", aggregate, "Placed").json(&serde_json::json!({ "seq": 1 }))?;
    match outbox {
        Outbox::Table => drop(write(tx, &OutboxTable::default(), &event).await?),
        Outbox::Message => drop(emit(tx, "walpost", &event).await?),
    }
    if failure == Failure::AfterTheEvent {
        return Err("failed after the event".into());
    }
    Ok(())
}

async fn leaves_nothing_when_it_fails(outbox: Outbox) {
    let shop = Shop::open(3).await;
    let _relay = shop.relay();
    let _consumer = shop.consumer(CONSUMER, &[]);
    shop.slot_made().await;
    let mut client = shop.connect().await;
    for (failure, aggregate) in [
        (Failure::BeforeTheEvent, "before"),
        (Failure::AfterTheEvent, "after"),
        (Failure::None, "placed"),
    ] {
        let tx = client.transaction().await.unwrap();
        match place_order(&tx, outbox, aggregate, failure).await {
            Ok(()) => tx.commit().await.unwrap(),
            Err(_) => drop(tx),
        }
    }
    // The one that was placed is behind the others in the WAL: once it is
    // applied, everything before it would be too.
    shop.effects_reach(1).await;
    let effects: Vec<String> =
        shop.effects().await.into_iter().map(|effect| effect.aggregate).collect();
    assert_eq!(effects, ["placed"]);
    let keys: Vec<String> =
        shop.records().await.iter().map(|record| record.key_text().to_owned()).collect();
    assert_eq!(keys, ["placed"]);
    let states = client.query("select aggregate from shop_order", &[]).await.unwrap();
    assert_eq!(states.len(), 1, "no state of what failed");
    let rows = client.query("select from walpost.outbox", &[]).await.unwrap();
    assert_eq!(rows.len(), usize::from(matches!(outbox, Outbox::Table)));
}

#[tokio::test]
async fn a_failed_transaction_leaves_no_state_row_record_or_effect() {
    leaves_nothing_when_it_fails(Outbox::Table).await;
}

#[tokio::test]
async fn a_failed_transaction_leaves_nothing_of_a_message_either() {
    leaves_nothing_when_it_fails(Outbox::Message).await;
}
