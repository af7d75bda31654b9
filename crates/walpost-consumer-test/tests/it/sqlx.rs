//! Handlers whose transaction is that of sqlx.

use walpost_consumer::Event;
use walpost_consumer_sqlx::{
    Failed, Sqlx, SqlxHandler,
    sqlx::{self, PgTransaction, postgres::PgPoolOptions},
};
use walpost_consumer_test::{HandlerTest, Step};

use crate::support::{database, event, events};

struct Counting;

impl SqlxHandler for Counting {
    async fn handle(&self, tx: &mut PgTransaction<'_>, _: &Event) -> Result<(), Failed> {
        let count = sqlx::query("update total set orders = orders + 1");
        count.execute(&mut **tx).await?;
        Ok(())
    }
}

async fn test() -> HandlerTest<Sqlx<Counting>> {
    HandlerTest::new(database().await, |url| {
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(url).unwrap();
        Sqlx::new(pool, Counting)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn deliveries_are_deduplicated_and_interrupted() {
    let test = test().await;
    test.deliver(&events(&["1", "2"])).await.unwrap().assert_applied(2);
    test.deliver(&events(&["1"])).await.unwrap().assert_applied(0).assert_duplicates(1);
    for (number, step) in Step::ALL.into_iter().enumerate() {
        let next = event(&format!("3{number}"), 0);
        let report = test.crash_at(step).deliver(&[next]).await.unwrap();
        assert_eq!(report.assert_applied(1).interrupted, 1, "{step}");
        // The handler has run before the crash, or not.
        let calls = if step == Step::BeforeCommit { 2 } else { 1 };
        assert_eq!(report.calls.len(), calls, "{step}");
    }
    assert_eq!(test.number("select orders from total").await.unwrap(), 2 + 4);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn every_way_is_the_same_and_no_second_run_is() {
    let test = test().await;
    test.every_way(&events(&["1", "2", "3"])).await.unwrap().assert_same();
    let repetition = test.without_guard().twice(&events(&["1"])).await.unwrap();
    assert_eq!(repetition.changes[0].counts(), (0, 1, 0));
}
