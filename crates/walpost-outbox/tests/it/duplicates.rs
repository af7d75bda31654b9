use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::{Client, IsolationLevel};
use walpost_outbox::{Error, EventId, OutboxTable, Uuid, Written, write, write_all, write_once};
use walpost_testkit::{fresh_database, until};

use crate::{count, event, outbox};

const LIMIT: Duration = Duration::from_secs(30);

async fn backend(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Until that backend waits for a lock.
async fn waiting(observer: &Client, pid: i32) {
    let sql = "select coalesce(wait_event_type = 'Lock', false) from pg_stat_activity \
               where pid = $1";
    until(LIMIT, "a wait for a lock", async || {
        observer.query_one(sql, &[&pid]).await.unwrap().get(0)
    })
    .await;
}

#[tokio::test]
async fn a_key_that_is_taken_is_an_error_and_no_second_event() {
    let (_database, mut client) = outbox().await;
    let table = OutboxTable::default();
    let keyed = event().idempotency_key("k");
    let tx = client.transaction().await.unwrap();
    write(&tx, &table, &keyed).await.unwrap();
    tx.commit().await.unwrap();

    let tx = client.transaction().await.unwrap();
    let error = write(&tx, &table, &keyed).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }) && error.is_duplicate(), "{error:?}");
    assert!(!error.is_transient());
    drop(tx);

    let id = Uuid::from_u128(1);
    let tx = client.transaction().await.unwrap();
    write(&tx, &table, &event().id(id)).await.unwrap();
    let error = write(&tx, &table, &event().id(id).idempotency_key("other")).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { .. }) && error.is_duplicate(), "{error:?}");
    drop(tx);
    assert_eq!(count(&client, "walpost.outbox").await, 1);
}

#[tokio::test]
async fn of_many_events_the_one_that_was_there_is_named() {
    let (_database, mut client) = outbox().await;
    let table = OutboxTable::default();
    let (keyed, known) = (event().idempotency_key("k"), event().id(Uuid::from_u128(1)));
    let tx = client.transaction().await.unwrap();
    write_all(&tx, &table, &[keyed.clone(), known.clone()]).await.unwrap();
    tx.commit().await.unwrap();

    // The second statement of the call has it.
    let mut events = vec![event(); 1_500];
    events[1_207] = keyed;
    let tx = client.transaction().await.unwrap();
    let error = write_all(&tx, &table, &events).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { index: Some(1_207), .. }), "{error:?}");
    assert!(error.to_string().ends_with(" (event 1207 of the call, counted from 0)"), "{error}");
    drop(tx);

    events[1_207] = event();
    events[3] = known;
    let tx = client.transaction().await.unwrap();
    let error = write_all(&tx, &table, &events).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { index: Some(3), .. }), "{error:?}");
}

#[tokio::test]
async fn two_of_one_call_with_the_same_key_or_id_are_named_and_nothing_is_sent() {
    let (_database, mut client) = outbox().await;
    let table = OutboxTable::default();
    let id = Uuid::from_u128(1);
    let tx = client.transaction().await.unwrap();
    let keyed = || event().idempotency_key("secret");
    let error = write_all(&tx, &table, &[event(), keyed(), event(), keyed()]).await.unwrap_err();
    let expected = "events 1 and 3 of the call, counted from 0, have the same idempotency key";
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_duplicate() && !error.is_transient());
    // As text it is the same id.
    let twins = [event().id(id), event().id(id.to_string())];
    let error = write_all(&tx, &table, &twins).await.unwrap_err();
    assert!(matches!(error, Error::Twice { what: "id", first: 0, second: 1 }), "{error:?}");
    write_all(&tx, &table, &[keyed()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&client, "walpost.outbox").await, 1);
}

#[tokio::test]
async fn a_savepoint_outlives_a_key_that_is_taken() {
    let (_database, mut client) = outbox().await;
    let table = OutboxTable::default();
    let keyed = event().idempotency_key("k");
    let mut tx = client.transaction().await.unwrap();
    write(&tx, &table, &keyed).await.unwrap();
    let savepoint = tx.transaction().await.unwrap();
    let error = write(&savepoint, &table, &keyed).await.unwrap_err();
    assert!(error.is_duplicate(), "{error:?}");
    savepoint.rollback().await.unwrap();
    write(&tx, &table, &event()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&client, "walpost.outbox").await, 2);
}

#[tokio::test]
async fn a_key_that_is_taken_is_an_answer_and_the_transaction_goes_on() {
    let (_database, mut client) = outbox().await;
    let table = OutboxTable::default();
    let keyed = event().idempotency_key("k");
    for isolation in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        client.batch_execute("delete from walpost.outbox").await.unwrap();
        let begin = async |client: &mut Client| {
            let tx = client.build_transaction().isolation_level(isolation).start().await.unwrap();
            let first = write_once(&tx, &table, &keyed).await.unwrap();
            let second = write_once(&tx, &table, &keyed).await.unwrap();
            let unkeyed = write_once(&tx, &table, &event()).await.unwrap();
            assert!(matches!(unkeyed, Written::New(_)), "{unkeyed:?}");
            tx.commit().await.unwrap();
            (first, second)
        };
        let (first, second) = begin(&mut client).await;
        let Written::New(id) = first else { panic!("{first:?}") };
        assert_eq!(second, Written::AlreadyWritten(id.clone()));
        let (third, fourth) = begin(&mut client).await;
        assert_eq!((third.id(), fourth.id()), (&id, &id));
        assert!(matches!(third, Written::AlreadyWritten(_)), "{third:?}");
        assert_eq!(count(&client, "walpost.outbox").await, 3, "{isolation:?}");
    }
}

#[tokio::test]
async fn an_uncommitted_holder_of_the_key_is_waited_for() {
    let (database, mut client) = outbox().await;
    let observer = database.connect().await;
    for commits in [true, false] {
        let table = OutboxTable::default();
        let keyed = event().idempotency_key(commits.to_string());
        let tx = client.transaction().await.unwrap();
        let held = write(&tx, &table, &keyed).await.unwrap();
        let mut other = database.connect().await;
        let pid = backend(&other).await;
        let second = tokio::spawn(async move {
            let tx = other.transaction().await.unwrap();
            let written = write_once(&tx, &table, &keyed).await;
            tx.commit().await.unwrap();
            written
        });
        waiting(&observer, pid).await;
        if commits {
            tx.commit().await.unwrap();
            assert_eq!(second.await.unwrap().unwrap(), Written::AlreadyWritten(held));
        } else {
            tx.rollback().await.unwrap();
            let written = second.await.unwrap().unwrap();
            assert!(matches!(&written, Written::New(id) if *id != held), "{written:?}");
        }
    }
    assert_eq!(count(&client, "walpost.outbox").await, 2);
}

#[tokio::test]
async fn a_key_committed_behind_the_snapshot_is_a_conflict_to_be_run_again() {
    let (database, mut client) = outbox().await;
    let mut other = database.connect().await;
    let table = OutboxTable::default();
    for isolation in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let keyed = event().idempotency_key(format!("{isolation:?}"));
        let begin = async |client: &mut Client, meanwhile: Option<&mut Client>| {
            let tx = client.build_transaction().isolation_level(isolation).start().await.unwrap();
            tx.query("select count(*) from walpost.outbox", &[]).await.unwrap();
            if let Some(other) = meanwhile {
                let tx = other.transaction().await.unwrap();
                write(&tx, &table, &keyed).await.unwrap();
                tx.commit().await.unwrap();
            }
            let written = write_once(&tx, &table, &keyed).await;
            tx.rollback().await.unwrap();
            written
        };
        let error = begin(&mut client, Some(&mut other)).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }) && error.is_transient(), "{error:?}");
        let again = begin(&mut client, None).await.unwrap();
        assert!(matches!(again, Written::AlreadyWritten(_)), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_twenty_at_once_one_writes_and_all_learn_its_id() {
    let (database, client) = outbox().await;
    let clients = join_all((0..20).map(|_| database.connect())).await;
    let writers = clients.into_iter().map(|mut client| {
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for round in 0..20 {
                let keyed = event().idempotency_key(round.to_string());
                let tx = client.transaction().await.unwrap();
                let table = OutboxTable::default();
                answers.push(write_once(&tx, &table, &keyed).await.unwrap());
                tx.commit().await.unwrap();
            }
            answers
        })
    });
    let answers: Vec<Vec<Written>> =
        join_all(writers).await.into_iter().map(Result::unwrap).collect();
    for round in 0..20 {
        let new = answers.iter().filter(|of| matches!(of[round], Written::New(_))).count();
        assert_eq!(new, 1, "{round}");
        assert!(answers.iter().all(|of| of[round].id() == answers[0][round].id()), "{round}");
    }
    assert_eq!(count(&client, "walpost.outbox").await, 20);
}

#[tokio::test]
async fn a_whole_unique_index_serves_as_well_and_none_is_refused() {
    let mut client = fresh_database().await.connect().await;
    client
        .batch_execute(
            "create table events (id bigint generated always as identity, aggregatetype text, \
             aggregateid text, type text, payload jsonb, key text, part int)",
        )
        .await
        .unwrap();
    let table = OutboxTable::builder("public", "events")
        .id("id", walpost_outbox::IdColumn::BigInt)
        .idempotency_key("key")
        .build()
        .unwrap();
    let keyed = event().idempotency_key("k");
    for index in ["", "create unique index i on events (key, part)"] {
        client.batch_execute(index).await.unwrap();
        let tx = client.transaction().await.unwrap();
        let error = write_once(&tx, &table, &keyed).await.unwrap_err();
        assert!(matches!(error, Error::NoUniqueIndex { .. }), "{error:?}");
    }
    client.batch_execute("create unique index j on events (key)").await.unwrap();
    let tx = client.transaction().await.unwrap();
    let first = write_once(&tx, &table, &keyed).await.unwrap();
    assert!(matches!(first, Written::New(EventId::BigInt(_))), "{first:?}");
    let second = write_once(&tx, &table, &keyed).await.unwrap();
    assert_eq!(second, Written::AlreadyWritten(first.id().clone()));
}
