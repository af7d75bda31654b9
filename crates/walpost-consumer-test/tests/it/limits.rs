//! What cannot be told is refused, with the next step.

use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};
use walpost_consumer_test::{Error, HandlerTest, Step, TestDatabase};

use crate::support::{Numbering, Shipping, Upserting, database, event, events, test};

#[tokio::test]
async fn too_many_rows_are_refused_and_named() {
    let full = database().await;
    full.sql("insert into customer select n, 1 from generate_series(1, 50) n").await.unwrap();
    let test = HandlerTest::new(full, |_| Upserting).await.unwrap().max_rows(49);
    let Err(refused) = test.crash_at_every_step(&events(&["1"])).await else {
        panic!("compared more rows than allowed")
    };
    let text = refused.to_string();
    assert!(text.contains("table customer") && text.contains("49 rows"), "{text}");
    // Of the others alone there are few.
    let test = test.tables(["total", "shipment"]);
    test.without_guard().twice(&events(&["1"])).await.unwrap().assert_idempotent();
}

#[tokio::test]
async fn a_handler_that_depends_on_more_than_its_events_is_refused() {
    let test = test(|_| Numbering).await;
    let refused = test.crash_at_every_step(&[event("1", 0)]).await.unwrap_err();
    assert!(matches!(&refused, Error::Unsteady { table } if table == "customer"), "{refused:?}");
}

#[tokio::test]
async fn names_that_do_not_exist_are_refused() {
    let test = test(|_| Shipping).await.tables(["shipmnt"]);
    let refused = test.crash_at_every_step(&events(&["1"])).await.unwrap_err();
    assert!(refused.to_string().contains("no table shipmnt"), "{refused}");
    let test = test.tables(["shipment"]).leave_out("shipment", "when");
    let refused = test.crash_at_every_step(&events(&["1"])).await.unwrap_err();
    assert!(refused.to_string().contains("no column when"), "{refused}");
}

#[tokio::test]
async fn nothing_to_deliver_and_nothing_to_interrupt_are_refused() {
    let test = test(|_| Shipping).await;
    assert!(matches!(test.deliver(&[]).await, Err(Error::NoEvents)));
    test.deliver(&events(&["1"])).await.unwrap().assert_applied(1);
    // A copy has a transaction too, so there is something to interrupt.
    let report = test.crash_at(Step::BeforeCommit).deliver(&events(&["1"])).await.unwrap();
    assert_eq!(report.assert_applied(0).assert_duplicates(1).interrupted, 1);
}

#[tokio::test]
async fn a_handler_that_waits_for_ever_is_given_up_in_time() {
    struct Stuck;
    impl Handler for Stuck {
        async fn handle(&self, _: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
            std::future::pending().await
        }
    }
    let test = test(|_| Stuck).await.limit_ms(500);
    let refused = test.deliver(&[event("1", 0)]).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("within 500 ms") && text.contains("what the handler waits"), "{text}");
}

#[tokio::test]
async fn a_setting_of_the_consumer_is_checked_as_ever() {
    let test = test(|_| Shipping).await.consumer(|builder| builder.lanes(0));
    let refused = test.deliver(&[event("1", 0)]).await.unwrap_err();
    assert!(format!("{refused:?}").contains("setting lanes"), "{refused:?}");
}

#[tokio::test]
async fn a_test_leaves_no_database_behind() {
    let server = walpost_testkit::postgres().url();
    let test = test(|_| Shipping).await;
    test.deliver(&events(&["1"])).await.unwrap();
    let name = test.url().rsplit('/').next().unwrap().to_owned();
    let there = |name: String| async move {
        let admin = TestDatabase::create(server).await.unwrap();
        let client = admin.client().await.unwrap();
        let sql = "select exists (select from pg_database where datname = $1)";
        client.query_one(sql, &[&name]).await.unwrap().get::<_, bool>(0)
    };
    assert!(there(name.clone()).await);
    drop(test);
    assert!(!there(name).await);
}

#[tokio::test]
async fn a_database_that_is_migrated_already_can_be_copied() {
    let server = walpost_testkit::postgres().url();
    let migrated = database().await;
    let copy = TestDatabase::copy_of(server, migrated.name()).await.unwrap();
    let test = HandlerTest::new(copy, |_| Shipping).await.unwrap();
    test.deliver(&events(&["1"])).await.unwrap().assert_applied(1);
    assert_eq!(test.number("select count(*) from shipment").await.unwrap(), 1);
}
