use tokio_postgres::IsolationLevel;
use walpost_inbox::{Error, Inbox, Insert, NewEvent, State};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::fresh_database;

use crate::support::World;

#[tokio::test]
async fn an_event_is_inserted_once_and_its_copies_are_told_from_other_contents() {
    let world = World::new().await;
    let event = NewEvent::new("evt_1", "paid", *b"one").related_reference("invoice 7");
    let Insert::Inserted(number) = world.insert(&event).await else { panic!("it is new") };
    for (again, is_same) in [
        (event.clone(), true),
        (NewEvent::new("evt_1", "paid", *b"two"), false),
        (NewEvent::new("evt_1", "refunded", *b"one"), false),
    ] {
        let Insert::Duplicate(found) = world.insert(&again).await else { panic!("{again:?}") };
        assert_eq!((found.number, found.state, found.is_same), (number, State::Pending, is_same));
    }
    // Another sender's event of that id is another event.
    let other = world.insert(&event.clone().source("other")).await;
    assert!(matches!(other, Insert::Inserted(other) if other != number), "{other:?}");
    let kept = world.texts("select convert_from(payload, 'utf8') from walpost.inbox", &[]).await;
    assert_eq!(kept, ["one", "one"]);

    // By its hash, also when the payload is gone; and the row does not go on.
    world
        .past_triggers(
            "update walpost.inbox set payload = null, processing_state = 'ignored', \
                        processed_at = now(), next_attempt_at = null",
        )
        .await;
    for (payload, is_same) in [("one", true), ("two", false)] {
        let again = world.insert(&NewEvent::new("evt_1", "paid", payload)).await;
        let Insert::Duplicate(found) = again else { panic!("{again:?}") };
        assert_eq!((found.state, found.is_same), (State::Ignored, is_same));
    }
}

#[tokio::test]
async fn of_many_at_once_one_inserts_and_the_others_are_told_so() {
    let world = World::new().await;
    let event = NewEvent::new("evt_1", "paid", *b"one");
    let inserts = (0..16).map(|_| world.insert(&event));
    let inserts = futures_util::future::join_all(inserts).await;
    let inserted = inserts.iter().filter(|one| matches!(one, Insert::Inserted(_))).count();
    assert_eq!((inserted, inserts.len()), (1, 16));
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 1);
}

#[tokio::test]
async fn an_event_commits_or_vanishes_with_the_callers_transaction() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let event = NewEvent::new("evt_1", "paid", *b"one");
    let tx = client.transaction().await.unwrap();
    assert!(matches!(world.inbox.insert_once(&tx, &event).await, Ok(Insert::Inserted(_))));
    // The transaction knows its own.
    assert!(matches!(world.inbox.insert_once(&tx, &event).await, Ok(Insert::Duplicate(_))));
    tx.rollback().await.unwrap();
    assert!(matches!(world.insert(&event).await, Insert::Inserted(_)));

    // One that cannot see the row does not say that it is new.
    let tx = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let tx = tx.start().await.unwrap();
    tx.batch_execute("select 1").await.unwrap();
    let other = NewEvent::new("evt_2", "paid", *b"one");
    assert!(matches!(world.insert(&other).await, Insert::Inserted(_)));
    let error = world.inbox.insert_once(&tx, &other).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }) && error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn odd_names_are_names_and_missing_tables_are_told_with_the_next_step() {
    let database = fresh_database().await;
    let mut client = database.connect().await;
    let event = NewEvent::new("evt'1", "pa\"id", *b"one");
    let tx = client.transaction().await.unwrap();
    let error = Inbox::new().insert_once(&tx, &event).await.unwrap_err();
    assert!(error.to_string().contains("walpost migrate --set inbox"), "{error}");
    tx.rollback().await.unwrap();

    let schema = "In \"box\"'; drop table x; -- %I";
    Migrator::new().set(Set::Inbox).schema(schema).migrate(&mut client).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let inbox = Inbox::in_schema(schema);
    assert!(matches!(inbox.insert_once(&tx, &event).await, Ok(Insert::Inserted(1))));
    tx.commit().await.unwrap();
    let grant = format!(
        "select {}.inbox_grant('reader', current_user)",
        format_args!("\"{}\"", schema.replace('"', "\"\""))
    );
    client.batch_execute(&grant).await.unwrap();
}
