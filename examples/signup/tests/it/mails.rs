//! A mail server that is away, refuses, comes back, or breaks off.

use serde_json::json;
use stand::post;
use walpost_testkit::{until, until_some};

use crate::world::{LIMIT, Part, World};

/// Signs up, and waits until nothing goes on by itself: the state, the mails.
async fn ended(world: &World, email: &str) -> (String, usize) {
    assert_eq!(world.signed_up("k", email).await.status, 201);
    let state = world.ended(1).await.into_values().next().unwrap();
    (state, world.mails().values().sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_waits_for_its_server_and_is_sent_once() {
    let mut world = World::new().await;
    world.stop_mail_server();
    assert_eq!(world.signed_up("k", "later-ada@example.org").await.status, 201);
    until(LIMIT, "two attempts", async || {
        world.delivery().await.is_some_and(|(_, _, attempts)| attempts >= 2)
    })
    .await;
    world.start_mail_server().await;
    world.settled(1).await;
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_is_refused_was_not_begun() {
    let world = World::new().await;
    assert_eq!(world.signed_up("k", "never-ada@example.org").await.status, 201);
    let (event, state, _) = until_some(LIMIT, "two attempts", async || {
        world.delivery().await.filter(|(_, _, attempts)| *attempts >= 2)
    })
    .await;
    assert!(matches!(&*state, "pending" | "sending"), "{state}");
    let begun = world.mailer.query("select event_id from mail", &[]).await.unwrap();
    assert!(begun.is_empty(), "{event}");
    let outcomes = "select distinct status from walpost.webhook_attempt";
    let outcomes = world.app.query(outcomes, &[]).await.unwrap();
    let outcomes: Vec<i32> = outcomes.iter().map(|row| row.get(0)).collect();
    // 429 where the mail server has not said so in time.
    assert!(outcomes.contains(&422), "{outcomes:?}");
    assert!(outcomes.iter().all(|status| matches!(status, 422 | 429)), "{outcomes:?}");
    assert!(world.mails().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_mail_that_was_accepted_without_a_word_there_is_no_second_one() {
    let world = World::new().await;
    assert_eq!(ended(&world, "cut-ada@example.org").await, ("unknown".to_owned(), 1));
    // Who has no look at the mail server is told what to ask it.
    let said = world.operator(false).await;
    let (event, state, _) = world.delivery().await.unwrap();
    assert!(said.contains(&format!("ask the mail server for <{event}@signup.example>")), "{said}");
    assert_eq!((&*state, world.mails().values().sum::<usize>()), ("unknown", 1));
    assert!(world.operator(true).await.contains("1 found at the mail server"));
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_broke_off_is_sent_once_somebody_has_looked() {
    let world = World::new().await;
    assert_eq!(ended(&world, "lost-ada@example.org").await, ("unknown".to_owned(), 0));
    assert!(world.operator(true).await.contains("1 sent after all"));
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mailer_mails_for_nobody_who_has_not_the_key() {
    let world = World::new().await;
    let body = json!({ "email": "eve@example.org", "name": "Eve" }).to_string();
    let headers = [("content-type", "application/json"), ("webhook-id", "1")];
    let answer = post(world.mailer_at(), "/mails", &headers, body.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(world.is_running(Part::Mailer) && world.mails().is_empty());
}
