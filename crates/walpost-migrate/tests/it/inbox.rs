use walpost_migrate::{Migrator, Set, State};
use walpost_testkit::{fresh_database, postgres_of};

use crate::{all_applied, tables, total};

#[tokio::test]
async fn the_inbox_is_there_when_it_was_chosen_and_not_before() {
    let mut client = fresh_database().await.connect().await;
    let default = Migrator::new();
    assert_eq!(default.migrate(&mut client).await.unwrap().len(), total());
    assert!(!tables(&client).await.contains(&"walpost.inbox".to_owned()));
    let status = default.status(&client).await.unwrap();
    assert!(status.iter().all(|one| one.set != Set::Inbox), "{status:?}");

    let applied = Migrator::new().set(Set::Inbox).migrate(&mut client).await.unwrap();
    assert_eq!(applied.len(), Set::Inbox.migrations().len());
    assert!(tables(&client).await.contains(&"walpost.inbox".to_owned()));
    // From then on it is brought up to date with the others.
    let status = default.status(&client).await.unwrap();
    assert!(status.iter().any(|one| one.set == Set::Inbox && one.state != State::Pending));
    assert_eq!(default.migrate(&mut client).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn all_sets_in_one_go_on_the_oldest_and_the_newest_server() {
    for major in [14, 18] {
        let mut client = postgres_of(major).fresh_database().await.connect().await;
        let migrator = Migrator::new().sets(Set::ALL.iter().copied());
        let expected: usize = Set::ALL.iter().map(|set| set.migrations().len()).sum();
        assert_eq!(migrator.migrate(&mut client).await.unwrap().len(), expected, "{major}");
        assert!(all_applied(&migrator, &client).await, "{major}");
    }
}

#[tokio::test]
async fn payloads_are_not_for_everybody_also_where_new_tables_are() {
    let mut client = fresh_database().await.connect().await;
    client
        .batch_execute("alter default privileges grant select on tables to public")
        .await
        .unwrap();
    Migrator::new().set(Set::Inbox).migrate(&mut client).await.unwrap();
    let sql = "select has_any_column_privilege('public', 'walpost.inbox', 'select')";
    assert!(!client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0));
}
