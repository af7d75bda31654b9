use walpost_migrate::{Migrator, Set};
use walpost_outbox::{OutboxTable, emit, write, write_all, write_once};
use walpost_testkit::postgres_of;

use crate::{event, outbox};

#[tokio::test]
async fn nothing_stays_in_the_session() {
    let (_database, mut client) = outbox().await;
    let settings = "select count(*) from pg_settings where source = 'session'";
    let before: i64 = client.query_typed_one(settings, &[]).await.unwrap().get(0);
    let tx = client.transaction().await.unwrap();
    let table = OutboxTable::default();
    let keyed = event().idempotency_key("k");
    write(&tx, &table, &event()).await.unwrap();
    write_all(&tx, &table, &vec![event(); 1_001]).await.unwrap();
    let _ = write_once(&tx, &table, &keyed).await.unwrap();
    let _ = write_once(&tx, &table, &keyed).await.unwrap();
    emit(&tx, "walpost", &event()).await.unwrap();
    tx.commit().await.unwrap();
    let prepared = "select count(*) from pg_prepared_statements";
    assert_eq!(client.query_typed_one(prepared, &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(client.query_typed_one(settings, &[]).await.unwrap().get::<_, i64>(0), before);
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn the_oldest_and_the_newest_server_take_every_statement() {
    for major in [14, 18] {
        let mut client = postgres_of(major).fresh_database().await.connect().await;
        Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
        let table = OutboxTable::default();
        let keyed = event().idempotency_key("k").header("a", "b").json(&1).unwrap();
        let tx = client.transaction().await.unwrap();
        let first = write_once(&tx, &table, &keyed).await.unwrap();
        let second = write_once(&tx, &table, &keyed).await.unwrap();
        assert_eq!(first.id(), second.id(), "{major}");
        write_all(&tx, &table, &[event(), event().text("x")]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(crate::count(&client, "walpost.outbox").await, 3, "{major}");
    }
}
