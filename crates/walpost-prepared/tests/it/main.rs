//! Look-ups of types, behind a pooler in transaction mode.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use tokio_postgres::{Client, Config, NoTls};
use walpost_prepared::{Left, Types, commit};
use walpost_testkit::{Pooler, fresh_database};

/// More array types of tables than one connection looks up types.
const TABLES: &str = "do $$ begin for n in 1..2001 loop \
    execute format('create table t%s ()', n); if n % 500 = 0 then commit; end if; \
    end loop; end $$";
const TYPES: &str = "create type mood as enum ('glad', 'sad'); \
    create domain amount as int check (value >= 0); \
    create type spot as (x int, mood mood)";
/// Its parameters and columns are of those types.
const STATEMENT: &str =
    "select $1::mood, $2::amount, $3::spot, $4::mood[], $5::spot[], $6::amount[]";

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A transaction of a handler.
async fn transact(client: &mut Client) -> Option<Left> {
    let tx = client.transaction().await.unwrap();
    tx.prepare(STATEMENT).await.unwrap();
    commit(tx, "").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn types_of_handlers_are_looked_up_before_those_of_tables() {
    let database = fresh_database().await;
    let owner = database.connect().await;
    owner.batch_execute(TABLES).await.unwrap();
    owner.batch_execute(TYPES).await.unwrap();
    let (pooler, types) = (Pooler::before(&database).await, Types::default());
    let mut first = connect(&pooler.config()).await;
    let mark = types.teach(&mut first).await.unwrap();
    let left = transact(&mut first).await;
    assert!(!types.committed(mark, left), "it has looked up types in its transaction");
    let mut second = connect(&pooler.config()).await;
    let mark = types.teach(&mut second).await.unwrap();
    // More often than the pooler has connections to the server.
    for _ in 0..6 {
        let left = transact(&mut second).await;
        assert!(types.committed(mark, left) && types.fits(mark));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_does_not_end_the_looking_up() {
    let database = fresh_database().await;
    let owner = database.connect().await;
    owner.batch_execute(TYPES).await.unwrap();
    let types = Types::default();
    let mut first = database.connect().await;
    let left = transact(&mut first).await;
    assert!(!types.committed(0, left));
    let pid: i32 = first.query_typed_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    owner.execute("select pg_terminate_backend($1, 60000)", &[&pid]).await.unwrap();
    types.teach(&mut first).await.unwrap_err();
    let mut second = database.connect().await;
    let mark = types.teach(&mut second).await.unwrap();
    let left = transact(&mut second).await;
    assert!(mark != 0 && types.committed(mark, left));
}
