//! Whether a transition is idempotent by itself.

use walpost_consumer_test::{Change, TableChange};

use crate::support::{Counting, Shipping, Upserting, events, test};

#[tokio::test]
async fn an_idempotent_handler_changes_nothing_the_second_time() {
    let test = test(|_| Upserting).await;
    let repetition = test.without_guard().twice(&events(&["1", "2", "3"])).await.unwrap();
    repetition.assert_idempotent();
    // It was given them, and not told that they are known.
    assert_eq!((repetition.first.applied, repetition.second.applied), (3, 3));
    assert!(repetition.to_string().starts_with("a second run changed nothing"));
}

#[tokio::test]
async fn a_counter_is_no_idempotent_transition() {
    let test = test(|_| Counting).await.show_contents();
    let repetition = test.without_guard().twice(&events(&["1", "2", "3"])).await.unwrap();
    assert!(!repetition.is_idempotent());
    let [TableChange { table, rows, .. }] = &repetition.changes[..] else { panic!("{repetition}") };
    assert_eq!((table.as_str(), rows.len()), ("total", 1));
    let changed = (Some("3".to_owned()), Some("6".to_owned()));
    let expected = Change::Updated { columns: vec!["orders".into()], values: Some(vec![changed]) };
    assert_eq!(rows[0].change, expected);
    // The guard makes up for it.
    test.deliver(&events(&["1"])).await.unwrap().assert_applied(1);
    test.deliver(&events(&["1"])).await.unwrap().assert_applied(0).assert_duplicates(1);
    assert_eq!(test.number("select orders from total").await.unwrap(), 1);
}

#[tokio::test]
async fn inserted_rows_are_named_by_their_keys_and_contents_are_not() {
    let test = test(|_| Shipping).await;
    let repetition = test.without_guard().twice(&events(&["secret"])).await.unwrap();
    let counts: Vec<_> =
        repetition.changes.iter().map(|change| (change.table.as_str(), change.counts())).collect();
    assert_eq!(counts, [("line", (1, 0, 0)), ("shipment", (1, 0, 0))]);
    let text = repetition.to_string();
    assert!(text.contains("inserted id = 2") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_second_run_that_is_refused_is_no_idempotence() {
    let unique = crate::support::database().await;
    unique.sql("create unique index shipment_order on shipment (order_id)").await.unwrap();
    let test = walpost_consumer_test::HandlerTest::new(unique, |_| Shipping).await.unwrap();
    let repetition = test.without_guard().twice(&events(&["1"])).await.unwrap();
    assert!(repetition.changes.is_empty() && !repetition.is_idempotent(), "{repetition}");
    repetition.second.assert_parked("1", "shipment_order");
}
