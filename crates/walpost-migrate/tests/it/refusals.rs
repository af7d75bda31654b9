use tokio_postgres::{Client, NoTls};
use walpost_migrate::{Error, Migrator, PlanError, Set, State};
use walpost_testkit::{Database, fresh_database, unique_name};

use crate::tables;

/// A role without rights, and a session of it.
async fn guest(database: &Database) -> (String, Client) {
    let role = unique_name("guest");
    let admin = database.connect().await;
    admin.batch_execute(&format!("create role {role} login password 'guest'")).await.unwrap();
    let mut config = database.config();
    config.user(&role).password("guest");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    (role, client)
}

#[tokio::test]
async fn a_missing_right_is_named_with_its_grant_until_none_is_missing() {
    let database = fresh_database().await;
    let admin = database.connect().await;
    let (role, mut client) = guest(&database).await;
    let migrator = Migrator::new();
    for expected in ["grant create on database", "grant usage, create on schema"] {
        if expected.contains("schema") {
            admin.batch_execute("create schema walpost").await.unwrap();
        }
        let error = migrator.migrate(&mut client).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let Error::MissingRight { grant, role: named, .. } = error else { panic!("{error:?}") };
        assert_eq!(named, role);
        admin.batch_execute(&grant).await.unwrap();
    }
    migrator.migrate(&mut client).await.unwrap();
    assert!(tables(&admin).await.contains(&"walpost.outbox".to_owned()));
}

#[tokio::test]
async fn another_role_is_told_that_it_may_not_read_the_entries() {
    let database = fresh_database().await;
    Migrator::new().migrate(&mut database.connect().await).await.unwrap();
    let (_, client) = guest(&database).await;
    let error = Migrator::new().status(&client).await.unwrap_err();
    assert!(matches!(error, Error::MissingRight { .. }), "{error:?}");
}

#[tokio::test]
async fn a_foreign_publication_is_left_alone_and_named() {
    let database = fresh_database().await;
    let mut client = database.connect().await;
    client.batch_execute("create publication walpost").await.unwrap();
    let error = Migrator::new().migrate(&mut client).await.unwrap_err();
    let Error::Exists { attempt, .. } = &error else { panic!("{error:?}") };
    assert_eq!(attempt, "migration relay/0001_outbox");
    // Nothing of the file is left, also not its table.
    assert!(!tables(&client).await.contains(&"walpost.outbox".to_owned()));
    Migrator::new().publication("shop").migrate(&mut client).await.unwrap();
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new().set(Set::Relay);
    migrator.migrate(&mut client).await.unwrap();
    client
        .batch_execute("insert into walpost.migration values ('relay', 9999, 'later', 'x')")
        .await
        .unwrap();
    let error = migrator.migrate(&mut client).await.unwrap_err();
    assert!(matches!(error, Error::Plan(PlanError::Unknown { number: 9999, .. })), "{error:?}");
    let status = migrator.status(&client).await.unwrap();
    assert_eq!(status.last().map(|one| &one.state), Some(&State::Unknown));
}

#[tokio::test]
async fn a_changed_text_is_refused() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new().set(Set::Relay);
    migrator.migrate(&mut client).await.unwrap();
    client
        .batch_execute("update walpost.migration set checksum = 'x' where number = 2")
        .await
        .unwrap();
    let error = migrator.migrate(&mut client).await.unwrap_err();
    assert!(matches!(error, Error::Plan(PlanError::Changed { number: 2, .. })), "{error:?}");
    let status = migrator.status(&client).await.unwrap();
    assert_eq!(status[1].state, State::Changed);
}

#[tokio::test]
async fn names_and_limits_are_checked_before_anything_is_sent() {
    let mut client = fresh_database().await.connect().await;
    let error = Migrator::new().schema("a$$b").migrate(&mut client).await.unwrap_err();
    assert!(matches!(error, Error::Name(_)), "{error:?}");
    let error = Migrator::new().lock_timeout_ms(0).migrate(&mut client).await.unwrap_err();
    assert!(matches!(error, Error::LockTimeoutBounds { .. }), "{error:?}");
    assert_eq!(tables(&client).await, Vec::<String>::new());
}
