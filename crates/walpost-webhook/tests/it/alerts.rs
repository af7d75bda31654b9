//! What people are told, and the schedule after which they are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::io::AsyncWriteExt;
use walpost_testkit::until;
use walpost_webhook::{AlertFormat, Alerts, Breaker, ProcessorSettings, RetryPolicy, Schedule};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, NAME, World, ids, run, settings, sorted_keys},
};

const OPERATORS: &str = "operators";

/// The same with alerts to the destination of the operators.
fn alerting(mut settings: ProcessorSettings) -> ProcessorSettings {
    let mut alerts = Alerts::to(OPERATORS);
    // No two of them, whatever time it is.
    alerts.window = Duration::from_secs(u32::MAX.into());
    settings.alerts = Some(alerts);
    settings
}

/// A processor of the operators' destination itself, and where it sends to.
async fn operators(world: &World) -> (Receiver, crate::world::Running) {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let mut settings = alerting(settings(&receiver.url("127.0.0.1")));
    settings.name = OPERATORS.to_owned();
    let running = run(world, settings);
    (receiver, running)
}

/// The texts in the bodies that a receiver got.
fn texts(receiver: &Receiver) -> Vec<String> {
    let text = |request: String| {
        let body = request.split_once("\r\n\r\n").unwrap().1;
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        body["text"].as_str().unwrap().to_owned()
    };
    receiver.requests().into_iter().map(text).collect()
}

/// Eight attempts by the clock of the schedule, which is moved on; then one alert;
/// then, by hand, the same once more.
#[tokio::test(flavor = "multi_thread")]
async fn behind_eight_attempts_there_is_one_alert_and_a_retry_has_the_same_key() {
    let world = World::new().await;
    let (told, operators) = operators(&world).await;
    let refusals = Arc::new(AtomicUsize::new(8));
    let left = refusals.clone();
    let receiver = Receiver::scripted(move |mut stream, notes| {
        let left = left.clone();
        async move {
            while notes.read(&mut stream).await? {
                let refuses = left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                let status = if refuses.is_ok() { "500 Oops" } else { "200 OK" };
                stream.write_all(answer(status, "", "").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    world.hold_retries().await;
    let mut of = alerting(settings(&receiver.url("127.0.0.1")));
    of.policy = RetryPolicy::new(Schedule::erp());
    of.breaker = None;
    let running = run(&world, of);
    world.insert(&ids("invoice-", 1)).await;
    for (attempt, wait) in (1..).zip([5, 30, 300, 1_800, 14_400, 14_400, 14_400]) {
        let tried = format!(
            "select count(*) from walpost.webhook_delivery where attempts = {attempt} \
             and state = 'pending' and destination = '{NAME}'"
        );
        until(LIMIT, "an attempt", async || world.number(&tried).await == 1).await;
        let waits = world.wait().await;
        // A little of it goes by until the attempt is written down.
        assert!((wait - 2..=wait).contains(&waits), "{waits} behind attempt {attempt}");
        assert!(told.requests().is_empty(), "there are attempts left");
        world.let_go().await;
    }
    world.until("failed", 1).await;
    until(LIMIT, "an alert", async || told.requests().len() == 1).await;
    assert_eq!(receiver.requests().len(), 8);
    let text = &texts(&told)[0];
    assert!(text.contains("logistics has failed after 8 attempts (http_5xx 500)"), "{text}");
    let failed = "select id from walpost.webhook_delivery where state = 'failed'";
    let id = world.number(failed).await;
    assert_eq!(world.deliveries.retry(&world.client, &[id]).await.unwrap().done, [id]);
    world.until("delivered", 2).await;
    assert_eq!(sorted_keys(&receiver), ["invoice-000"; 9]);
    running.stop().await;
    operators.stop().await;
    assert_eq!(told.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_failures_bring_one_alert_and_alerts_bring_none_about_themselves() {
    let world = World::new().await;
    let bad = Receiver::answering(answer("500 Oops", "", "")).await;
    let mut failing = alerting(settings(&bad.url("127.0.0.1")));
    failing.breaker = None;
    let logistics = run(&world, failing.clone());
    failing.name = OPERATORS.to_owned();
    let operators = run(&world, failing);
    world.insert(&ids("a", 50)).await;
    world.until("failed", 51).await;
    logistics.stop().await;
    operators.stop().await;
    let alerts = "select event_type from walpost.webhook_delivery where destination = 'operators'";
    assert_eq!(world.texts(alerts).await, ["walpost.webhook.failed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_gone_or_away_is_told_in_the_format_that_was_asked_for() {
    let world = World::new().await;
    let (told, operators) = operators(&world).await;
    let gone = Receiver::answering(answer("410 Gone", "", "")).await;
    let mut of_gone = alerting(settings(&gone.url("127.0.0.1")));
    let mut alerts = Alerts::to(OPERATORS);
    alerts.format = AlertFormat::Json;
    of_gone.alerts = Some(alerts);
    let running = run(&world, of_gone);
    world.insert(&ids("a", 1)).await;
    until(LIMIT, "an alert", async || told.requests().len() == 1).await;
    running.stop().await;
    let request = &told.requests()[0];
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&body["type"], &body["destination"]),
        (&"walpost.webhook.disabled".into(), &NAME.into())
    );
    world.deliveries.enable(&world.client, NAME).await.unwrap();
    let bad = Receiver::answering(answer("503 Busy", "", "")).await;
    let mut of_bad = alerting(settings(&bad.url("127.0.0.1")));
    of_bad.policy = RetryPolicy::new(Schedule::fixed(Duration::from_secs(3_600), 100));
    of_bad.breaker = Some(Breaker { failures: 3, ..Breaker::default() });
    let running = run(&world, of_bad);
    world.insert(&ids("b", 5)).await;
    until(LIMIT, "an alert", async || told.requests().len() == 2).await;
    let text = texts(&told).pop().unwrap();
    assert!(text.contains("logistics is away (http_5xx 503)"), "{text}");
    running.stop().await;
    operators.stop().await;
}

/// A role that may end deliveries and create none.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_alert_can_be_created_what_it_is_about_ends_all_the_same() {
    let world = World::new().await;
    let role = walpost_testkit::unique_name("sender");
    let sql = format!("create role {role} login; select walpost.webhook_grant('sender', '{role}')");
    world.client.batch_execute(&sql).await.unwrap();
    let bad = Receiver::answering(answer("500 Oops", "", "")).await;
    let running = crate::world::run_as(&world, &role, alerting(settings(&bad.url("127.0.0.1"))));
    world.insert(&ids("a", 2)).await;
    world.until("failed", 2).await;
    running.stop().await;
    let all = "select count(*) from walpost.webhook_delivery";
    assert_eq!(world.number(all).await, 2);
}
