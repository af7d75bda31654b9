use walpost_outbox::{Error, OutboxTable, emit, write, write_all};

use crate::{Slot, count, event, outbox};

/// Where the application fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    BeforeEvent,
    AfterEvent,
    InEvent,
    Never,
}

#[derive(Clone, Copy, Debug)]
enum By {
    Row,
    Message,
}

async fn shop(client: &mut tokio_postgres::Client, by: By, fails: Fails) -> Result<(), String> {
    let tx = client.transaction().await.unwrap();
    tx.execute("insert into orders values (1)", &[]).await.unwrap();
    if fails == Fails::BeforeEvent {
        return Err("before".to_owned());
    }
    let event = if fails == Fails::InEvent { event().text("\0") } else { event().text("hello") };
    let table = OutboxTable::default();
    let written = match by {
        By::Row => write(&tx, &table, &event).await,
        By::Message => emit(&tx, "walpost", &event).await,
    };
    written.map_err(|error| error.to_string())?;
    if fails == Fails::AfterEvent {
        return Err("after".to_owned());
    }
    tx.commit().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_error_anywhere_leaves_no_state_no_row_and_nothing_to_decode() {
    let (database, client) = outbox().await;
    client.batch_execute("create table orders (id int)").await.unwrap();
    let slot = Slot::create(&client).await;
    let mut app = database.connect().await;
    for by in [By::Row, By::Message] {
        for fails in [Fails::BeforeEvent, Fails::InEvent, Fails::AfterEvent] {
            shop(&mut app, by, fails).await.unwrap_err();
            assert_eq!(count(&app, "orders").await, 0, "{by:?} {fails:?}");
            assert_eq!(count(&app, "walpost.outbox").await, 0, "{by:?} {fails:?}");
            assert_eq!(slot.changes().await, Vec::<String>::new(), "{by:?} {fails:?}");
        }
        shop(&mut app, by, Fails::Never).await.unwrap();
        let changes = slot.changes().await;
        assert_eq!(changes.len(), 2, "{changes:?}");
        let expected = match by {
            By::Row => "table walpost.outbox: INSERT: id",
            By::Message => "message: transactional: 1 prefix: walpost",
        };
        assert!(changes[0].starts_with("table public.orders: INSERT"), "{changes:?}");
        assert!(changes[1].starts_with(expected), "{changes:?}");
        app.batch_execute("delete from orders; delete from walpost.outbox").await.unwrap();
        slot.changes().await;
    }
    slot.drop().await;
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_event_with_it() {
    let (_database, mut client) = outbox().await;
    let mut tx = client.transaction().await.unwrap();
    let inner = tx.transaction().await.unwrap();
    write(&inner, &OutboxTable::default(), &event()).await.unwrap();
    inner.rollback().await.unwrap();
    let kept = write(&tx, &OutboxTable::default(), &event()).await.unwrap();
    tx.commit().await.unwrap();
    let row = client.query_one("select id::text from walpost.outbox", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), kept.to_string());
}

#[tokio::test]
async fn one_bad_event_of_many_is_named_before_any_is_sent() {
    let (_database, mut client) = outbox().await;
    let tx = client.transaction().await.unwrap();
    let mut events = vec![event(); 3_000];
    events.push(event().text("\0"));
    let error = write_all(&tx, &OutboxTable::default(), &events).await.unwrap_err();
    let expected = "event 3000 of the call, counted from 0, cannot be written";
    assert_eq!(error.to_string(), expected);
    let Error::Event { index: 3_000, source } = error else { panic!("{error:?}") };
    assert!(matches!(*source, Error::Nul { what: "payload" }), "{source:?}");
    let row = tx.query_one("select count(*) from walpost.outbox", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}
