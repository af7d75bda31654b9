use std::time::{Duration, SystemTime};

use tokio_postgres::SimpleQueryMessage;
use walpost_migrate::{Migrator, Set, State};
use walpost_testkit::{fresh_database, postgres_of};

use crate::{all_applied, tables, total};

#[tokio::test]
async fn an_empty_database_gets_everything_once() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new();
    let before = migrator.status(&client).await.unwrap();
    assert_eq!(before.len(), total());
    assert!(before.iter().all(|one| one.state == State::Pending));

    let applied = migrator.migrate(&mut client).await.unwrap();
    let order: Vec<(Set, u32)> = applied.iter().map(|one| (one.set, one.number)).collect();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(order, sorted);
    assert_eq!(order.len(), total());
    assert!(all_applied(&migrator, &client).await);
    for table in ["outbox", "checkpoint", "parked", "position", "migration"] {
        assert!(tables(&client).await.contains(&format!("walpost.{table}")), "{table}");
    }

    assert_eq!(migrator.migrate(&mut client).await.unwrap(), []);
}

#[tokio::test]
async fn the_entry_says_when_and_by_whom() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new().set(Set::Relay);
    migrator.migrate(&mut client).await.unwrap();
    let status = migrator.status(&client).await.unwrap();
    let State::Applied { at, by } = &status[0].state else { panic!("{status:?}") };
    let age = SystemTime::now().duration_since(*at).unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    let role = client.query_one("select current_user::text", &[]).await.unwrap();
    assert_eq!(by, role.get::<_, &str>(0));
}

#[tokio::test]
async fn a_set_alone_leaves_the_other_out() {
    let mut client = fresh_database().await.connect().await;
    Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
    let there = tables(&client).await;
    assert!(there.contains(&"walpost.position".to_owned()), "{there:?}");
    assert!(!there.contains(&"walpost.outbox".to_owned()), "{there:?}");
    let applied = Migrator::new().migrate(&mut client).await.unwrap();
    assert!(applied.iter().all(|one| one.set == Set::Relay), "{applied:?}");
}

#[tokio::test]
async fn odd_names_are_names_and_nothing_else() {
    let mut client = fresh_database().await.connect().await;
    client.batch_execute("create table public.victim ()").await.unwrap();
    let schema = "Wal.post \"x\"'; drop table public.victim; -- {publication} ünï";
    let migrator = Migrator::new().schema(schema).publication("Pub \"{schema}\"");
    migrator.migrate(&mut client).await.unwrap();
    let there = tables(&client).await;
    assert!(there.contains(&format!("{schema}.outbox")), "{there:?}");
    assert!(there.contains(&"public.victim".to_owned()), "{there:?}");
    let published = client
        .query_one("select pubname::text, schemaname::text from pg_publication_tables", &[])
        .await
        .unwrap();
    assert_eq!(published.get::<_, &str>(0), "Pub \"{schema}\"");
    assert_eq!(published.get::<_, &str>(1), schema);
    assert!(all_applied(&migrator, &client).await);
}

#[tokio::test]
async fn two_schemas_live_in_one_database() {
    let mut client = fresh_database().await.connect().await;
    let one = Migrator::new();
    let other = Migrator::new().schema("other").publication("other");
    one.migrate(&mut client).await.unwrap();
    assert_eq!(other.migrate(&mut client).await.unwrap().len(), total());
    assert!(all_applied(&one, &client).await && all_applied(&other, &client).await);
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn it_works_on_the_oldest_and_the_newest_server() {
    for major in [14, 18] {
        let mut client = postgres_of(major).fresh_database().await.connect().await;
        let migrator = Migrator::new();
        assert_eq!(migrator.migrate(&mut client).await.unwrap().len(), total(), "{major}");
        assert!(all_applied(&migrator, &client).await, "{major}");
    }
}

#[tokio::test]
async fn nothing_stays_in_the_session() {
    let mut client = fresh_database().await.connect().await;
    let settings = "select name, setting from pg_settings where source = 'session'";
    let before = client.simple_query(settings).await.unwrap();
    Migrator::new().migrate(&mut client).await.unwrap();
    let after = client.simple_query(settings).await.unwrap();
    let rows = |messages: &[SimpleQueryMessage]| {
        messages.iter().filter(|one| matches!(one, SimpleQueryMessage::Row(_))).count()
    };
    assert_eq!(rows(&before), rows(&after));
    for left in [
        "select count(*) from pg_prepared_statements",
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
    ] {
        let row = client.query_typed_one(left, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 0, "{left}");
    }
}
