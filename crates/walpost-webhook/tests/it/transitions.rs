//! Which step between states is allowed, whoever asks for it.

use crate::world::{World, ids};

const STATES: [&str; 6] = ["pending", "sending", "delivered", "failed", "held", "unknown"];

/// A row in `state`, past all triggers.
async fn plant(world: &World, state: &str) {
    world.past_triggers("delete from walpost.webhook_delivery").await;
    world.insert(&ids("a", 1)).await;
    let columns = match state {
        "pending" => "next_attempt_at = now(), attempts = 1, fence = 1",
        "sending" => {
            "next_attempt_at = null, lease_until = now() + interval '1 h', attempts = 1, fence = 1"
        }
        "delivered" | "failed" => "next_attempt_at = null, finished_at = now(), fence = 1",
        _ => "next_attempt_at = null, fence = 1, attempts = 1",
    };
    let sql = format!("update walpost.webhook_delivery set state = '{state}', {columns}");
    world.past_triggers(&sql).await;
}

/// SQLSTATE of what the database says to a change.
async fn change(world: &World, set: &str) -> Result<(), String> {
    let sql = format!("update walpost.webhook_delivery set {set}");
    let said = world.client.batch_execute(&sql).await;
    said.map_err(|error| error.code().unwrap().code().to_owned())
}

fn refused() -> Result<(), String> {
    Err("WP010".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_steps_of_the_table_are_allowed() {
    let world = World::new().await;
    let allowed = [
        "pending to pending",
        "pending to sending",
        "pending to held",
        "sending to pending",
        "sending to delivered",
        "sending to failed",
        "sending to held",
        "sending to unknown",
        "failed to pending",
        "held to pending",
        "held to failed",
        "unknown to pending",
        "unknown to delivered",
        "unknown to failed",
        "delivered to delivered",
    ];
    for from in STATES {
        for to in STATES {
            plant(&world, from).await;
            let more = match to {
                "sending" => ", fence = 2, attempts = 2, lease_until = now() + interval '1 min'",
                "pending" if matches!(from, "failed" | "unknown") => {
                    ", attempts = 0, next_attempt_at = now()"
                }
                "pending" => ", next_attempt_at = now(), outcome = 'o'",
                "delivered" if from == "delivered" => "",
                _ => ", outcome = 'o'",
            };
            let step = format!("{from} to {to}");
            let expected = if allowed.contains(&&*step) { Ok(()) } else { refused() };
            assert_eq!(change(&world, &format!("state = '{to}'{more}")).await, expected, "{step}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_counts_and_an_end_keeps_its_fence() {
    let world = World::new().await;
    for wrong in [
        "state = 'sending', lease_until = now() + interval '1 min'",
        "state = 'sending', lease_until = now() + interval '1 min', fence = 2",
        "state = 'sending', lease_until = now() + interval '1 min', attempts = 2",
        "state = 'sending', lease_until = now() - interval '1 s', attempts = 2, fence = 2",
        "state = 'sending', lease_until = now() + interval '1 min', attempts = 2, fence = 3",
    ] {
        plant(&world, "pending").await;
        assert_eq!(change(&world, wrong).await, refused(), "{wrong}");
    }
    plant(&world, "pending").await;
    world
        .past_triggers("update walpost.webhook_delivery set next_attempt_at = now() + '1 h'")
        .await;
    let early =
        "state = 'sending', lease_until = now() + interval '1 min', attempts = 2, fence = 2";
    assert_eq!(change(&world, early).await, refused());
    for wrong in [
        "state = 'delivered'",
        "state = 'delivered', outcome = 'o', fence = 2",
        "state = 'delivered', outcome = 'o', attempts = 0",
    ] {
        plant(&world, "sending").await;
        assert_eq!(change(&world, wrong).await, refused(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_given_back_does_not_count_and_leaves_no_outcome() {
    let world = World::new().await;
    let back = "state = 'pending', next_attempt_at = now(), attempts = 0";
    for wrong in ["outcome = 'o'", "fence = 0", "fence = 2"] {
        plant(&world, "sending").await;
        assert_eq!(change(&world, &format!("{back}, {wrong}")).await, refused(), "{wrong}");
    }
    plant(&world, "sending").await;
    assert_eq!(change(&world, back).await, Ok(()));
    let left = "select count(*) from walpost.webhook_delivery \
                where lease_until is null and outcome is null";
    assert_eq!(world.number(left).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_delivered_does_not_change_and_leaves_only_once_it_is_done() {
    let world = World::new().await;
    for wrong in [
        "event_id = 'b'",
        "destination = 'b'",
        "idempotency_key = 'b'",
        "path = '/b'",
        "content_type = 'b'",
        "retry_limit = 9",
        "created_at = now()",
        "body = 'b'",
        "body = null",
    ] {
        plant(&world, "pending").await;
        assert_eq!(change(&world, wrong).await, refused(), "{wrong}");
    }
    plant(&world, "delivered").await;
    assert_eq!(change(&world, "body = null").await, Ok(()));
    for state in STATES {
        plant(&world, state).await;
        let gone = world.client.execute("delete from walpost.webhook_delivery", &[]).await;
        let is_done = matches!(state, "delivered" | "failed");
        assert_eq!(gone.is_ok(), is_done, "{state}");
        if let Err(error) = gone {
            assert_eq!(error.code().unwrap().code(), "WP012");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_begins_as_pending_with_its_body() {
    let world = World::new().await;
    for (columns, values) in [
        ("state", "'delivered'"),
        ("attempts", "1"),
        ("fence", "1"),
        ("outcome", "'o'"),
        ("claimed_by", "'c'"),
        ("next_attempt_at", "null"),
    ] {
        let sql = format!(
            "insert into walpost.webhook_delivery \
             (destination, event_id, idempotency_key, body, {columns}) \
             values ('d', 'e', 'k', 'b', {values})"
        );
        let refused = world.client.batch_execute(&sql).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "WP010", "{columns}");
    }
    let empty = "insert into walpost.webhook_delivery (destination, event_id, idempotency_key) \
                 values ('d', 'e', 'k')";
    let refused = world.client.batch_execute(empty).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "WP010");
}
