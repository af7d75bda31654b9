use futures_util::future::join_all;
use tokio_postgres::IsolationLevel;
use walpost_migrate::{Error, Migrator};
use walpost_testkit::fresh_database;

use crate::{all_applied, total};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_eight_at_once_each_migration_is_applied_by_one() {
    let database = fresh_database().await;
    let clients = join_all((0..8).map(|_| database.connect())).await;
    let runs = clients.into_iter().map(|mut client| async move {
        // The worst default that a role can have.
        client.batch_execute("set default_transaction_isolation = 'serializable'").await.unwrap();
        Migrator::new().migrate(&mut client).await.unwrap().len()
    });
    let applied = join_all(runs.map(tokio::spawn)).await;
    let applied: Vec<usize> = applied.into_iter().map(Result::unwrap).collect();
    assert_eq!(applied.iter().sum::<usize>(), total(), "{applied:?}");
    assert!(all_applied(&Migrator::new(), &database.connect().await).await);
}

#[tokio::test]
async fn the_wait_for_a_lock_has_an_end() {
    let database = fresh_database().await;
    let (mut holder, mut client) = (database.connect().await, database.connect().await);
    Migrator::new().migrate(&mut holder).await.unwrap();
    let tx = holder.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let tx = tx.start().await.unwrap();
    tx.batch_execute("lock table walpost.migration in access exclusive mode").await.unwrap();
    let error = Migrator::new().lock_timeout_ms(50).migrate(&mut client).await.unwrap_err();
    assert!(matches!(error, Error::LockTimeout { lock_timeout_ms: 50, .. }), "{error:?}");
    tx.rollback().await.unwrap();
    assert_eq!(Migrator::new().migrate(&mut client).await.unwrap(), []);
}
