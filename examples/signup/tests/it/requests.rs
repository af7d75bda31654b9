//! Requests that come again, at once, late, and under other keys.

use serde_json::json;
use stand::{post, post_and_go};
use tokio::task::JoinSet;

use crate::world::{World, sign_up, signed_up};

#[tokio::test(flavor = "multi_thread")]
async fn twins_and_retries_get_one_answer_and_one_mail() {
    let world = World::new().await;
    let (api, mut twins) = (world.api(), JoinSet::new());
    for _ in 0..20 {
        twins.spawn(signed_up(api, "k", "ada@example.org"));
    }
    // One that does not wait for its answer.
    let body = json!({ "email": "bob@example.org", "name": "Bob" }).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "b")];
    post_and_go(api, "/signup", &headers, body.as_bytes()).await;
    let answers: Vec<_> = twins.join_all().await;
    assert!(answers.iter().all(|one| (one.status, &one.body) == (201, &answers[0].body)));
    assert_eq!(answers.iter().filter(|one| !one.is_replay()).count(), 1);
    let bob = post(api, "/signup", &headers, body.as_bytes()).await.unwrap();
    assert_eq!(bob.status, 201);
    assert!(world.signed_up("k", "ada@example.org").await.is_replay());
    world.settled(2).await;
    world.is_well(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_keys_with_one_address_one_has_the_account_and_each_keeps_its_answer() {
    let world = World::new().await;
    let (api, mut clients) = (world.api(), JoinSet::new());
    let email = |number: usize| {
        if number.is_multiple_of(2) { "ada@example.org" } else { "ADA@example.org" }
    };
    for number in 0..10 {
        clients.spawn(async move {
            (number, signed_up(api, &format!("k{number}"), email(number)).await)
        });
    }
    let answers: Vec<_> = clients.join_all().await;
    for (number, answer) in &answers {
        assert!(matches!(answer.status, 201 | 409), "{answer:?}");
        assert!(answer.status == 201 || answer.body.contains("email-taken"), "{answer:?}");
        let again = signed_up(api, &format!("k{number}"), email(*number)).await;
        assert_eq!((again.status, &again.body), (answer.status, &answer.body));
        assert!(again.is_replay());
    }
    assert_eq!(answers.iter().filter(|(_, answer)| answer.status == 201).count(), 1);
    world.settled(1).await;
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_retry_is_refused_and_does_nothing() {
    let world = World::new().await;
    assert_eq!(world.signed_up("k", "ada@example.org").await.status, 201);
    let other = sign_up(world.api(), "k", "eve@example.org").await.unwrap();
    assert_eq!(other.status, 422, "{other:?}");
    assert!(other.body.contains("mismatch"), "{other:?}");
    let body = json!({ "email": "bob@example.org", "name": "Bob" }).to_string();
    let headers = [("content-type", "application/json")];
    let keyless = post(world.api(), "/signup", &headers, body.as_bytes()).await.unwrap();
    assert_eq!(keyless.status, 400, "{keyless:?}");
    for (key, email) in [("u1", "no address"), ("u2", "a@b\r\nbcc: c@d")] {
        let unfit = sign_up(world.api(), key, email).await.unwrap();
        assert_eq!(unfit.status, 422, "{unfit:?}");
    }
    world.settled(1).await;
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_two_days_is_told_so_and_sends_no_second_mail() {
    let world = World::new().await;
    assert_eq!(world.signed_up("k", "ada@example.org").await.status, 201);
    world.settled(1).await;
    let shift = ["created_at", "completed_at", "expires_at", "gone_until"]
        .map(|time| format!("{time} = {time} - interval '48 hours'"))
        .join(", ");
    world.app.batch_execute(&format!("update walpost.idempotency set {shift}")).await.unwrap();
    let late = world.signed_up("k", "ada@example.org").await;
    assert_eq!(late.status, 410, "{late:?}");
    let anew = world.signed_up("another", "ada@example.org").await;
    assert_eq!(anew.status, 409, "{anew:?}");
    world.is_well(1).await;
}
