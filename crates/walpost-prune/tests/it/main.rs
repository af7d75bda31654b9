//! The loop of pruners: what a batch takes back, what stays, and who waits for
//! whom.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod old;

use std::{future::pending, time::Duration};

use tokio::time::{self, timeout};
use tokio_postgres::{Client, NoTls, error::SqlState};
use walpost_prune::{Pace, pass, run};
use walpost_testkit::{Database, fresh_database, until};

use self::old::{Failure, Fault, Old};

const LIMIT: Duration = Duration::from_secs(60);
const ROWS: u64 = 9;

/// Two passes are a second apart.
fn pace() -> Pace {
    Pace::default().every(Duration::from_secs(1)).pause(Duration::ZERO)
}

async fn world() -> (Database, Client) {
    let database = fresh_database().await;
    let client = database.connect().await;
    let rows = format!(
        "create table old (id int primary key); insert into old select generate_series(1, {ROWS})"
    );
    client.batch_execute(&rows).await.unwrap();
    (database, client)
}

async fn left(client: &Client) -> u64 {
    let row = client.query_one("select count(*) from old", &[]).await.unwrap();
    row.get::<_, i64>(0).unsigned_abs()
}

#[tokio::test]
async fn a_pass_ends_with_the_first_batch_that_is_not_whole() {
    let (database, mut client) = world().await;
    let old = Old::default();
    let done = pass(&old, pace(), &mut client).await.unwrap();
    assert_eq!((done.pruned, done.yielded), (ROWS, false));
    assert_eq!(old.seen().counted, [2, 2, 2, 2, 1]);
    assert_eq!(left(&database.connect().await).await, 0);
}

#[tokio::test]
async fn a_batch_that_fails_takes_back_its_own_and_what_left_before_stays() {
    let (_database, mut client) = world().await;
    let old = Old::with(2, Fault::Refused);
    let failure = pass(&old, pace(), &mut client).await.unwrap_err();
    assert_eq!(failure, Failure::Refused(Some(SqlState::DIVISION_BY_ZERO)));
    assert_eq!(old.seen().counted, [2, 2]);
    // The connection is of use for the next pass.
    assert_eq!(left(&client).await, ROWS - 4);
    assert_eq!(pass(&old, pace(), &mut client).await.unwrap().pruned, ROWS - 4);
}

#[tokio::test]
async fn a_pass_that_is_dropped_in_a_batch_leaves_all_of_it_and_lets_others_in() {
    let (database, mut client) = world().await;
    let mut other = database.connect().await;
    let old = Old::with(1, Fault::Stuck);
    tokio::select! {
        biased;
        ended = pass(&old, pace(), &mut client) => panic!("{ended:?}"),
        () = old.stuck() => {}
    }
    assert_eq!(left(&client).await, ROWS - 2);
    let next = pass(&Old::default(), pace(), &mut other).await.unwrap();
    assert_eq!((next.pruned, next.yielded), (ROWS - 2, false));
}

#[tokio::test]
async fn who_finds_another_in_a_batch_leaves_the_rest_to_it() {
    let (database, mut client) = world().await;
    let mut other = database.connect().await;
    let old = Old::with(1, Fault::Stuck);
    let second = tokio::select! {
        biased;
        ended = pass(&old, pace(), &mut client) => panic!("{ended:?}"),
        second = async {
            old.stuck().await;
            pass(&Old::default(), pace(), &mut other).await.unwrap()
        } => second,
    };
    assert_eq!((second.pruned, second.yielded), (0, true));
    assert_eq!(left(&client).await, ROWS - 2);
}

#[tokio::test]
async fn a_table_that_is_locked_is_waited_for_a_second() {
    let (database, mut client) = world().await;
    let mut other = database.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("lock table old").await.unwrap();
    let passed = timeout(LIMIT, pass(&Old::default(), pace(), &mut client)).await;
    let failure = passed.expect("an end by itself").unwrap_err();
    assert_eq!(failure, Failure::Refused(Some(SqlState::LOCK_NOT_AVAILABLE)));
    tx.rollback().await.unwrap();
    assert_eq!(left(&client).await, ROWS);
}

#[tokio::test]
async fn a_batch_without_an_answer_is_given_up_and_leaves_all_of_it() {
    let (_database, mut client) = world().await;
    let old = Old::with(1, Fault::Stuck);
    // From then on nothing is asked of the server, and the clock goes as soon as all
    // wait.
    let stuck = async {
        old.stuck().await;
        time::pause();
    };
    let (passed, ()) = tokio::join!(pass(&old, pace(), &mut client), stuck);
    time::resume();
    assert_eq!(passed.unwrap_err(), Failure::Unanswered);
    assert_eq!(left(&client).await, ROWS - 2);
}

#[tokio::test]
async fn a_session_that_ends_in_a_batch_is_told_and_the_next_pass_has_its_rows_leave() {
    let (database, client) = world().await;
    let old = Old::with(1, Fault::Ended);
    // Told of its end before it has gone, a session may have its lock for a moment.
    let locks = "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
                 where d.datname = current_database() and l.locktype = 'advisory'";
    let is_free = async || client.query_one(locks, &[]).await.unwrap().get::<_, i64>(0) == 0;
    let connect = async || {
        until(LIMIT, "the end of the lock", is_free).await;
        let (client, connection) = database.config().connect(NoTls).await?;
        tokio::spawn(connection);
        Ok::<_, tokio_postgres::Error>(client)
    };
    let gone = until(LIMIT, "all rows", async || !old.seen().passes.is_empty());
    timeout(LIMIT, run(&old, pace(), connect, gone)).await.expect("a shutdown");
    let seen = old.seen();
    assert_eq!(seen.counted, [2, 2, 2, 2, 1], "each row once");
    assert_eq!(seen.passes, [(ROWS - 2, false)]);
    assert_eq!(seen.failures.len(), 1, "{seen:?}");
    assert_eq!(seen.failures[0].1, 1, "{seen:?}");
    assert_eq!(left(&client).await, 0);
}

// Of a clock that goes as soon as all wait.
#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_come_is_told_and_tried_again_within_a_minute() {
    let old = Old::default();
    let connect = || pending::<Result<Client, tokio_postgres::Error>>();
    let hourly = Pace::default();
    let told = until(24 * LIMIT, "two failures", async || old.seen().failures.len() == 2);
    run(&old, hourly, connect, told).await;
    let expected = ("no connection in 120s".to_owned(), 60);
    assert_eq!(old.seen().failures, [expected.clone(), expected]);
}
