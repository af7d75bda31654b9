//! Tables of an earlier version.

use walpost_consumer::{Database, Error, error_chain};
use walpost_migrate::{Migrator, Set};
use walpost_testkit as testkit;

use crate::support::{EFFECT_TABLE, Effects, World, ids, run};

/// Migrations without which this version does not start.
const NEEDED: usize = 13;

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_each_earlier_version_are_used_or_refused_with_the_command() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 5)).await;
    let scripts = Migrator::new().scripts(Set::Consumer).unwrap();
    for count in 0..=scripts.len() {
        let database = testkit::fresh_database().await;
        let client = database.connect().await;
        client.batch_execute(EFFECT_TABLE).await.unwrap();
        for script in &scripts[..count] {
            client.batch_execute(&format!("begin; {} commit", script.sql)).await.unwrap();
        }
        let name = format!("{}_{count}", world.name);
        let consumer = world.consumer_named(&name).database(Database::config(database.config()));
        let mut running = run(consumer.handler(Effects).unwrap());
        if count >= NEEDED {
            running.until_applied(5).await;
            running.stop().await.unwrap();
            continue;
        }
        let error = running.end().await.unwrap_err();
        assert!(matches!(error, Error::NotMigrated { .. }), "{count}: {error}");
        let text = error_chain(&error);
        assert!(text.contains("not all tables"), "{count}: {text}");
        assert!(text.contains("run `walpost migrate --set consumer`"), "{count}: {text}");
        assert!(text.ends_with("the function lanes_hold is missing"), "{count}: {text}");
    }
}
