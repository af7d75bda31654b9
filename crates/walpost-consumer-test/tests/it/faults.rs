//! Handlers that are wrong are found, each by what finds it.

use walpost_consumer::{Builder, Guard, OnReset};
use walpost_consumer_test::{Change, Step, TableChange, Way, WayRun, Ways};

use crate::support::{
    Committing, Counting, Outside, Remembering, Shipping, Upserting, event, events, test,
};

fn differing(ways: &Ways) -> Vec<Way> {
    ways.runs.iter().filter(|run| !run.is_same()).map(|run| run.way).collect()
}

#[tokio::test]
async fn a_handler_that_commits_by_itself_halts() {
    let test = test(|_| Committing).await;
    let report = test.deliver(&[event("1", 0)]).await.unwrap();
    report.assert_halted("the handler ended the transaction");
    report.assert_halted("remove COMMIT");
    assert_eq!(report.applied, 0);
    let refused = test.crash_at_every_step(&[event("1", 0)]).await.unwrap_err();
    assert!(refused.to_string().contains("even undisturbed"), "{refused}");
}

#[tokio::test]
async fn a_handler_that_writes_outside_of_its_transaction_is_found_by_crashes() {
    let test = test(|url| Outside { url: url.to_owned() }).await;
    let ways = test.crash_at_every_step(&[event("1", 0), event("2", 0)]).await.unwrap();
    let expected = [
        Way::Crash(Step::BeforeCommit),
        Way::Disconnect(Step::BeforeCommit),
        Way::TakeOver(Step::BeforeHandler),
        Way::TakeOver(Step::BeforeCommit),
    ];
    for way in [expected[0], expected[1], expected[3]] {
        assert!(differing(&ways).contains(&way), "{ways}");
    }
    assert!(differing(&ways).iter().all(|way| expected.contains(way)), "{ways}");
    let run = ways.runs.iter().find(|run| run.way == expected[0]).unwrap();
    let [TableChange { table, rows, .. }] = &run.changes[..] else { panic!("{ways}") };
    assert_eq!((table.as_str(), rows.len()), ("total", 1));
    assert_eq!(rows[0].key, [("name".to_owned(), "all".to_owned())]);
    let Change::Updated { columns, values: None } = &rows[0].change else { panic!("{ways}") };
    assert_eq!(columns, &["orders"]);
    assert!(ways.to_string().contains("a crash before COMMIT: DIFFERS"), "{ways}");
}

#[tokio::test]
async fn a_handler_that_remembers_is_found_by_lost_connections() {
    let test = test(|_| Remembering::default()).await;
    let ways = test.crash_at_every_step(&events(&["1", "2", "3"])).await.unwrap();
    // After a crash its memory is gone with the process; but on a busy machine the
    // next process may lose partitions in its transaction, which it remembers as well.
    let lost = [Step::BeforeHandler, Step::BeforeCommit].map(Way::Disconnect);
    assert!(lost.iter().all(|way| differing(&ways).contains(way)), "{ways}");
    let WayRun { changes, .. } = ways.runs.into_iter().find(|run| run.way == lost[0]).unwrap();
    let counts =
        |table: &str| changes.iter().find(|change| change.table == table).map(TableChange::counts);
    assert_eq!((counts("shipment"), counts("line")), (Some((0, 0, 3)), Some((0, 0, 3))));
}

#[tokio::test]
async fn every_step_is_passed_through_in_each_transaction() {
    let ids = ["1", "2", "3", "4"];
    let calls_at = [
        (Step::BeforeTransaction, 4),
        (Step::BeforeHandler, 4),
        (Step::BeforeCommit, 8),
        (Step::AfterCommit, 4),
    ];
    assert_eq!(calls_at.map(|(step, _)| step), Step::ALL);
    for (step, calls) in calls_at {
        let test = test(|_| Counting).await.consumer(|builder| builder.max_batch_events(1));
        let one_partition: Vec<_> = ids.iter().map(|id| event(id, 0)).collect();
        let report = test.crash_at(step).deliver(&one_partition).await.unwrap();
        report.assert_applied(4).assert_duplicates(0);
        assert_eq!(report.calls.len(), calls, "{step}: {report}");
        // Kafka may be told of more than one transaction at once.
        let least = if step == Step::AfterCommit { 1 } else { 4 };
        assert!((least..=4).contains(&report.interrupted), "{step}: {report}");
        assert_eq!(test.number("select orders from total").await.unwrap(), 4);
    }
}

#[tokio::test]
async fn a_lost_connection_is_passed_through_too() {
    let test = test(|_| Counting).await;
    let report = test.disconnect_at(Step::BeforeHandler).deliver(&[event("1", 0)]).await.unwrap();
    assert_eq!(report.assert_applied(1).interrupted, 1);
    let failed = report.calls.iter().filter(|call| call.failure.is_some()).count();
    assert!(failed >= 1, "the handler met the lost connection: {report}");
    let again = test.disconnect_at(Step::BeforeCommit).deliver(&[event("2", 0)]).await.unwrap();
    assert_eq!(again.assert_applied(1).interrupted, 1);
    assert_eq!(test.number("select orders from total").await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_comes_every_way_too() {
    let ways = test(|_| Shipping).await.every_way(&events(&["1"])).await.unwrap();
    ways.assert_same();
    assert!(ways.runs.iter().all(|run| run.report.applied == 1), "{ways}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn right_handlers_come_to_the_same_every_way() {
    let ids = ["1", "2", "3", "4", "5"];
    let ways = test(|_| Shipping).await.every_way(&events(&ids)).await.unwrap();
    ways.assert_same();
    assert_eq!(ways.runs.len(), Way::REORDERED.len() + Way::INTERRUPTED.len());
    for run in &ways.runs {
        let is_interrupted = Way::INTERRUPTED.contains(&run.way);
        assert_eq!(run.report.interrupted > 0, is_interrupted, "{}", run.way);
        assert_eq!(run.report.applied, 5, "{}: {}", run.way, run.report);
    }
    assert_eq!(ways.left_out, ["line.shipment_id", "shipment.id", "shipment.at"]);
    let slices = [Way::OneByOne, Way::TwiceInARow, Way::Crash(Step::BeforeCommit)];
    test(|_| Upserting).await.ways(&slices, &events(&ids)).await.unwrap().assert_same();
}

#[tokio::test]
async fn a_paused_consumer_commits_nothing_after_a_take_over() {
    // Whatever is in the way of its COMMIT: the fence, or the end of its session. Of
    // its events there are no rows that would make them duplicates.
    let without_rows = |builder: Builder| {
        builder.guard(Guard::business_key(["customer_pkey"])).on_reset(OnReset::Fill)
    };
    let steps = [Step::BeforeTransaction, Step::BeforeHandler, Step::BeforeCommit];
    let test = test(|_| Counting).await.consumer(without_rows);
    let all: Vec<_> = ["1", "2", "3"].iter().map(|id| event(id, 0)).collect();
    let ways = test.ways(&steps.map(Way::TakeOver), &all).await.unwrap();
    ways.assert_same();
    for run in &ways.runs {
        assert_eq!((run.report.interrupted, run.report.applied), (1, 3), "{}", run.way);
    }
}
