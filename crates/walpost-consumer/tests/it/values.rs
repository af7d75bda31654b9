//! Values that are missing, and values that are large.

use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};

use crate::support::{World, each, effect, run};

/// Expects a number, and no value where the id allows it.
struct Numbers;

impl Handler for Numbers {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        match event.id() {
            "asks" if event.value().is_none() => {}
            "may" => {
                let _: Option<u32> = event.json()?;
            }
            _ => {
                let _: u32 = event.json()?;
            }
        }
        effect(tx, event).await
    }
}

#[tokio::test]
async fn a_record_without_a_value_is_parked_where_json_is_read_and_handed_on_to_who_asks() {
    let world = World::new(1).await;
    let records = [
        ("number", Some("7")),
        ("tombstone", None),
        ("null", Some("null")),
        ("asks", None),
        ("may", Some("null")),
        ("end", Some("8")),
    ];
    for (id, value) in records {
        world.publish_value(0, id, value).await;
    }
    let mut running = run(world.consumer().handler(Numbers).unwrap());
    running.until("all", |status| status.counts.applied + status.counts.parked == 6).await;
    running.stop().await.unwrap();
    let applied = ["number", "asks", "may", "end"].map(str::to_owned);
    assert_eq!(world.effects().await, each(&applied, 1));
    let sql = "select event_id, value, reason, attempts from walpost.consumer_parked order by off";
    let parked = world.client.query(sql, &[]).await.unwrap();
    let parked: Vec<(&str, Option<&[u8]>, &str, i32)> =
        parked.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    let up = "the handler gave the event up: ";
    let none = format!("{up}the record has no value, expected JSON");
    let null = format!("{up}the value is JSON of another shape (line 1, column 4)");
    let expected: [(&str, Option<&[u8]>, &str, i32); 2] =
        [("tombstone", None, &none, 1), ("null", Some(b"null"), &null, 1)];
    assert_eq!(parked, expected);
}

/// Takes its time for the first event, so that others gather behind it.
struct Slow;

impl Handler for Slow {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if event.id() == "first" {
            tx.query("select pg_sleep(0.5)", &[]).await?;
        }
        effect(tx, event).await
    }
}

async fn large_records(lanes: usize) {
    let world = World::new(1).await;
    let sizes = [
        ("first", 900),
        ("a", 400),
        ("b", 400),
        ("large0", 700_000),
        ("c", 400),
        ("d", 400),
        ("large1", 300_000),
        ("large2", 2_000),
        ("e", 100),
        ("f", 100),
    ];
    for (id, size) in sizes {
        world.publish_value(0, id, Some(&"x".repeat(size))).await;
    }
    let consumer = world.consumer().max_batch_bytes(1_024).lanes(lanes);
    let mut running = run(consumer.handler(Slow).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    let ids = sizes.map(|(id, _)| id.to_owned());
    assert_eq!(world.effects().await, each(&ids, 1));
    assert_eq!(world.stored().await, 10);
    let together = "select string_agg(event_id, ' ' order by n) from effect \
                    group by xmin::text order by min(n)";
    let together = world.client.query(together, &[]).await.unwrap();
    let together: Vec<String> = together.iter().map(|row| row.get(0)).collect();
    for transaction in &together {
        let bytes: usize = transaction
            .split(' ')
            .map(|id| sizes.iter().find(|(of, _)| *of == id).unwrap().1)
            .sum();
        assert!(bytes <= 1_024 || !transaction.contains(' '), "{together:?}");
    }
    assert!(together.iter().any(|ids| ids.contains(' ')), "nothing was batched: {together:?}");
}

#[tokio::test]
async fn an_event_beyond_the_bytes_of_a_batch_goes_alone_and_holds_up_nothing() {
    large_records(1).await;
}

#[tokio::test]
async fn an_event_beyond_the_bytes_of_a_batch_goes_alone_in_a_lane_too() {
    large_records(4).await;
}
