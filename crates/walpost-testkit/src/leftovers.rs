//! Databases of tests whose process has ended, on a server that a run shares.

use std::{process, thread};

use tokio_postgres::{Client, Error};
use walpost_local::is_alive;

use crate::services::connect;

/// Of the names of all databases of the tests of one process.
pub(crate) fn prefix(pid: u32) -> String {
    format!("walpost_p{pid}")
}

/// The process whose test has created the database of this name.
fn creator(name: &str) -> Option<u32> {
    name.strip_prefix("walpost_p")?.split_once('_')?.0.parse().ok()
}

/// Drops, next to the tests of this process, the databases and slots of processes
/// that have ended: a slot retains WAL and a database takes 8 MB.
pub(crate) fn drop_in_background(url: String) {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let dropped = runtime.expect("a runtime").block_on(async {
            let admin = connect(&url).await;
            drop_all(&admin, &left(&admin).await?).await
        });
        if let Err(error) = dropped {
            // The next process tries again.
            eprintln!("databases of earlier tests stay: {error}");
        }
    });
}

async fn drop_all(admin: &Client, databases: &[String]) -> Result<(), Error> {
    // A database whose slot is in use cannot be dropped.
    admin
        .execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots \
             where database = any($1) and active_pid is not null",
            &[&databases],
        )
        .await?;
    for name in databases {
        // With its database an unused slot goes as well.
        let statement = format!("drop database if exists {name} with (force)");
        // Prepared transactions, for example, keep it.
        if let Err(error) = admin.batch_execute(&statement).await
            && error.is_closed()
        {
            return Err(error);
        }
    }
    Ok(())
}

/// The databases of processes that have ended.
async fn left(admin: &Client) -> Result<Vec<String>, Error> {
    let rows = admin.query("select datname from pg_database", &[]).await?;
    let names = rows.iter().map(|row| row.get::<_, String>(0));
    let has_ended = |pid| pid != process::id() && !is_alive(pid);
    Ok(names.filter(|name| creator(name).is_some_and(has_ended)).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{fresh_database, unique_name};

    #[test]
    fn the_creator_is_read_from_the_name() {
        assert_eq!(creator(&unique_name(&prefix(12))), Some(12));
        assert_eq!(creator("walpost_p12_3_ab_finance"), Some(12));
        assert_eq!(creator("postgres"), None);
    }

    #[tokio::test]
    async fn databases_and_slots_of_ended_processes_are_dropped_and_others_stay() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let own = fresh_database().await;
        let admin = own.connect().await;
        let left = unique_name(&prefix(child.id()));
        admin.batch_execute(&format!("create database {left} template template0")).await.unwrap();
        let url = own.url().replace(own.name(), &left);
        let slot = unique_name("left");
        let create = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
        connect(&url).await.batch_execute(&create).await.unwrap();

        let found = super::left(&admin).await.unwrap();
        assert!(found.contains(&left) && !found.contains(&own.name().to_owned()), "{found:?}");
        drop_all(&admin, std::slice::from_ref(&left)).await.unwrap();
        let find = "select (select count(*) from pg_database where datname = $1) + \
                    (select count(*) from pg_replication_slots where slot_name = $2)";
        let count: i64 = admin.query_one(find, &[&left, &slot]).await.unwrap().get(0);
        assert_eq!(count, 0);
    }
}
