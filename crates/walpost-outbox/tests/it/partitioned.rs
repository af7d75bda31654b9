//! Writing to the outbox that `walpost migrate --partitioned` creates.

use tokio_postgres::{Client, IsolationLevel};
use walpost_migrate::{Migrator, Set};
use walpost_outbox::{
    Error, EventId, NewEvent, OutboxTable, Uuid, Written, write, write_all, write_once,
};
use walpost_testkit::{Database, SharedPostgres, postgres, postgres_of};

use crate::{count, event};

async fn outbox(server: &SharedPostgres) -> (Database, Client, OutboxTable) {
    let database = server.fresh_database().await;
    let mut client = database.connect().await;
    Migrator::new().set(Set::Relay).partitioned().migrate(&mut client).await.unwrap();
    (database, client, OutboxTable::partitioned("walpost").unwrap())
}

fn keyed(day: u32) -> NewEvent {
    let at = format!("2026-01-{day:02} 12:00:00Z");
    event().idempotency_key("k").column("created_at", at)
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_key_is_taken_once_over_two_days() {
    for major in [14, 18] {
        let (_database, mut client, table) = outbox(postgres_of(major)).await;
        client
            .batch_execute("select walpost.make_day('2026-01-01'), walpost.make_day('2026-01-02')")
            .await
            .unwrap();
        let tx = client.transaction().await.unwrap();
        let first = write_once(&tx, &table, &keyed(1)).await.unwrap();
        let Written::New(id) = &first else { panic!("{first:?}") };
        // In its own transaction, on the same day and on another one.
        for day in [1, 2, 3] {
            let again = write_once(&tx, &table, &keyed(day)).await.unwrap();
            assert_eq!(again, Written::AlreadyWritten(id.clone()), "{major} {day}");
        }
        // Leaving out was for those alone.
        let unkeyed = write_once(&tx, &table, &event()).await.unwrap();
        assert!(matches!(unkeyed, Written::New(_)), "{unkeyed:?}");
        tx.commit().await.unwrap();

        let tx = client.transaction().await.unwrap();
        let again = write_once(&tx, &table, &keyed(2)).await.unwrap();
        assert_eq!(again, Written::AlreadyWritten(id.clone()));
        let error = write(&tx, &table, &keyed(2)).await.unwrap_err();
        assert!(matches!(error, Error::DuplicateKey { .. }), "{error:?}");
        drop(tx);
        let tx = client.transaction().await.unwrap();
        let many = [event(), keyed(2), event()];
        let error = write_all(&tx, &table, &many).await.unwrap_err();
        assert!(matches!(error, Error::DuplicateKey { index: Some(1), .. }), "{error:?}");
        drop(tx);
        assert_eq!(count(&client, "walpost.outbox").await, 2);
        assert_eq!(count(&client, "walpost.outbox_key").await, 1);
        let day = "walpost.outbox_20260101 where idempotency_key = 'k'";
        assert_eq!(count(&client, day).await, 1);
    }
}

#[tokio::test]
async fn an_id_is_an_error_with_the_same_time_alone() {
    let (_database, mut client, table) = outbox(postgres()).await;
    let id = Uuid::from_u128(1);
    let tx = client.transaction().await.unwrap();
    let at = |day: &str| event().id(id).column("created_at", format!("2026-01-{day} 12:00:00Z"));
    write(&tx, &table, &at("01")).await.unwrap();
    write(&tx, &table, &at("02")).await.unwrap();
    let error = write(&tx, &table, &at("02")).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { .. }), "{error:?}");
}

#[tokio::test]
async fn at_once_one_writes_and_all_learn_its_id() {
    let (database, client, table) = outbox(postgres()).await;
    let mut writers = Vec::new();
    for writer in 0..10 {
        let (mut client, table) = (database.connect().await, table.clone());
        writers.push(tokio::spawn(async move {
            let tx = client.transaction().await.unwrap();
            let written = write_once(&tx, &table, &keyed(1 + writer % 3)).await.unwrap();
            tx.commit().await.unwrap();
            written
        }));
    }
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    assert_eq!(written.iter().filter(|one| matches!(one, Written::New(_))).count(), 1);
    assert!(written.iter().all(|one| one.id() == written[0].id()), "{written:?}");
    assert_eq!(count(&client, "walpost.outbox").await, 1);
}

#[tokio::test]
async fn a_key_committed_behind_the_snapshot_is_a_conflict() {
    let (database, mut client, table) = outbox(postgres()).await;
    let mut other = database.connect().await;
    let tx = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    tx.query("select from walpost.outbox", &[]).await.unwrap();
    let first = other.transaction().await.unwrap();
    let id: EventId = write(&first, &table, &keyed(1)).await.unwrap();
    first.commit().await.unwrap();
    let error = write_once(&tx, &table, &keyed(2)).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }) && error.is_transient(), "{error:?}");
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let again = write_once(&tx, &table, &keyed(2)).await.unwrap();
    assert_eq!(again, Written::AlreadyWritten(id));
}

#[tokio::test]
async fn a_table_without_its_keys_or_without_the_trigger_is_refused() {
    let (_database, mut client, table) = outbox(postgres()).await;
    let tx = client.transaction().await.unwrap();
    let error = write_once(&tx, &OutboxTable::default(), &keyed(1)).await.unwrap_err();
    assert!(matches!(error, Error::NoUniqueIndex { .. }), "{error:?}");
    assert!(error.to_string().contains("OutboxTable::partitioned"), "{error}");
    drop(tx);
    client.batch_execute("drop trigger outbox_take_key on walpost.outbox").await.unwrap();
    let tx = client.transaction().await.unwrap();
    let error = write_once(&tx, &table, &keyed(1)).await.unwrap_err();
    assert!(matches!(error, Error::NoUniqueIndex { .. }), "{error:?}");
}
