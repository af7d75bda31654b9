use walpost_migrate::{Migrator, Set};
use walpost_testkit::fresh_database;

use crate::{all_applied, tables, total};

#[tokio::test]
async fn printed_sql_that_another_tool_ran_counts_as_applied() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new().schema("Wal \"post\"").publication("events");
    for set in Set::ALL {
        let tx = client.transaction().await.unwrap();
        tx.batch_execute(&migrator.render(*set).unwrap()).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert!(all_applied(&migrator, &client).await);
    assert_eq!(migrator.migrate(&mut client).await.unwrap(), []);
    assert!(tables(&client).await.contains(&"Wal \"post\".outbox".to_owned()));
}

#[tokio::test]
async fn a_script_goes_on_where_the_migrator_stopped() {
    let mut client = fresh_database().await.connect().await;
    let migrator = Migrator::new();
    let scripts = migrator.scripts(Set::Relay).unwrap();
    client.batch_execute(&scripts[0].sql).await.unwrap();
    let applied = migrator.migrate(&mut client).await.unwrap();
    assert_eq!(applied.len(), total() - 1, "the inbox is not chosen");
    assert_eq!((applied[0].set, applied[0].number), (Set::Relay, 2));
}

#[test]
fn the_printed_sql_opens_no_transaction() {
    for set in Set::ALL {
        let sql = Migrator::new().render(*set).unwrap();
        let statement = |line: &str| {
            let line = line.trim().to_ascii_lowercase();
            line == "commit;" || line == "begin;" || line == "start transaction;"
        };
        assert!(!sql.lines().any(statement), "{set}");
    }
}
