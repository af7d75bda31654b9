//! What the consumer would make of a handler's answers.

use walpost_consumer::{Event, Handler, HandlerError, Park, tokio_postgres::Transaction};
use walpost_consumer_test::{Ending, FailureKind};

use crate::support::{Ask, event, events, test};

fn only_7(
    failure: fn() -> HandlerError,
) -> impl Fn(&Event) -> Result<(), HandlerError> + Clone + Send + Sync + 'static {
    move |event| if event.id() == "7" { Err(failure()) } else { Ok(()) }
}

#[tokio::test]
async fn a_retry_is_tried_again_and_parked() {
    let failing = only_7(|| HandlerError::retry("the bank is closed"));
    let test = test(move |_| Ask(failing.clone()))
        .await
        .consumer(|builder| builder.max_attempts(3).park(Park::Event));
    let report = test.deliver(&events(&["6", "7", "8"])).await.unwrap();
    report.assert_parked("7", "the bank is closed");
    assert_eq!((report.applied, report.parked.len(), report.parked[0].attempts), (2, 1, 3));
    assert_eq!(report.ending, Ending::Done);
    assert!(report.failures(FailureKind::Retry) >= 3, "{report}");
    assert_eq!(test.number("select count(*) from shipment").await.unwrap(), 2);
}

#[tokio::test]
async fn a_parked_event_holds_its_key_back() {
    let failing = only_7(|| HandlerError::park("no such customer"));
    let test = test(move |_| Ask(failing.clone())).await;
    let of_key =
        |id: &str| Event::builder("t").key(Some(b"k")).header("id", Some(id.as_bytes())).build();
    let report = test.deliver(&[of_key("7"), of_key("8")]).await.unwrap();
    report.assert_parked("7", "no such customer");
    assert_eq!((report.applied, report.waiting, report.parked[0].attempts), (0, 1, 1));
    assert_eq!(report.failures(FailureKind::Park), report.calls.len());
}

#[tokio::test]
async fn a_halt_and_a_missing_table_halt() {
    let failing = only_7(|| HandlerError::halt("ask somebody"));
    let test_of_halt = test(move |_| Ask(failing.clone())).await;
    let report = test_of_halt.deliver(&[event("7", 0)]).await.unwrap();
    report.assert_halted("ask somebody").assert_halted("at offset 0");
    assert_eq!(report.failures(FailureKind::Halt), 1);

    struct Elsewhere;
    impl Handler for Elsewhere {
        async fn handle(&self, tx: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
            tx.execute("insert into shipmnt values (1)", &[]).await?;
            Ok(())
        }
    }
    let test = test(|_| Elsewhere).await;
    test.deliver(&[event("1", 0)]).await.unwrap().assert_halted("undefined table");
}

#[tokio::test]
async fn a_panic_and_a_time_out_are_parked() {
    let test_of_panic = test(|_| Ask(|_: &Event| panic!("a bug"))).await;
    let report = test_of_panic.deliver(&[event("7", 0)]).await.unwrap();
    report.assert_parked("7", "the handler panicked");
    assert_eq!(report.parked[0].attempts, 5);

    struct Slow;
    impl Handler for Slow {
        async fn handle(&self, _: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
            std::future::pending().await
        }
    }
    let test = test(|_| Slow).await;
    let test = test.consumer(|builder| builder.handler_timeout_ms(100).max_attempts(2));
    let report = test.deliver(&[event("7", 0)]).await.unwrap();
    report.assert_parked("7", "the handler took longer than 100 ms");
}

#[tokio::test]
async fn a_transient_failure_for_ever_is_not_waited_for() {
    let failing = only_7(|| HandlerError::transient("the bank is closed"));
    let test = test(move |_| Ask(failing.clone())).await;
    let report = test.deliver(&[event("7", 0)]).await.unwrap();
    assert_eq!(report.ending, Ending::Transient { reason: transient() });
    assert_eq!((report.applied, report.parked.len()), (0, 0));
    assert_eq!(report.failures(FailureKind::Transient), 3);
}

fn transient() -> String {
    "a transient fault stopped the handler: the bank is closed".to_owned()
}

#[tokio::test]
async fn a_record_without_an_id_is_parked() {
    let test = test(|_| Ask(|_: &Event| Ok(()))).await;
    let report = test.deliver(&[Event::builder("t").build(), event("1", 0)]).await.unwrap();
    assert_eq!((report.applied, report.parked.len()), (1, 1), "{report}");
    assert_eq!(report.parked[0].event_id, None);
    assert_eq!(report.parked[0].reason, "missing id header");
    assert_eq!(report.parked[0].place, "t[0]@0");
}
