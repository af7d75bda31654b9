//! What time does to stored requests: rows are shifted, nobody waits.

use std::time::Duration;

use walpost_idempotency::{AfterExpiry, Claim, Pruned};

use crate::support::{World, answer, lookup, policy};

const ONE: (&str, &str, &str) = ("alice", "k", "a");

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

#[tokio::test]
async fn after_24_hours_a_request_is_new() {
    let world = World::new().await;
    assert_eq!(world.request(ONE, &policy()).await.unwrap(), Claim::New(()));
    world.shift("23 hours 59 minutes").await;
    assert_eq!(world.request(ONE, &policy()).await.unwrap(), Claim::Replay(answer("k")));
    world.shift("1 minute").await;
    // Whatever it is by then.
    let other = ("alice", "k", "b");
    assert_eq!(world.request(other, &policy()).await.unwrap(), Claim::New(()));
    assert_eq!(world.request(other, &policy()).await.unwrap(), Claim::Replay(answer("k")));
    assert_eq!(world.request(ONE, &policy()).await.unwrap(), Claim::Mismatch);
    assert_eq!(world.effects().await, ["k", "k"]);
}

#[tokio::test]
async fn after_72_hours_it_is_gone_until_its_tombstone_is() {
    let world = World::new().await;
    let policy = policy().ttl(hours(72)).after_expiry(AfterExpiry::Gone).tombstone(hours(240));
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::New(()));
    world.shift("71 hours 59 minutes").await;
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::Replay(answer("k")));
    world.shift("1 minute").await;
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::Gone);
    // The same whether or not it was pruned.
    let pruned = world.idempotency.prune(&world.client, 10).await.unwrap();
    assert_eq!((pruned.responses, pruned.rows), (1, 0));
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::Gone);
    let entry = world.idempotency.show(&world.client, &lookup("alice", "k")).await.unwrap();
    let entry = entry.unwrap();
    assert_eq!((&*entry.status, entry.response_status), ("tombstone", None));
    assert_eq!(world.number("select count(body) from walpost.idempotency").await, 0);
    world.shift("239 hours").await;
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::Gone);
    world.shift("1 hour").await;
    assert_eq!(world.request(ONE, &policy).await.unwrap(), Claim::New(()));
    assert_eq!(world.effects().await, ["k", "k"]);
}

#[tokio::test]
async fn pruning_is_done_in_batches_and_takes_what_has_expired_alone() {
    let world = World::new().await;
    let gone = policy().after_expiry(AfterExpiry::Gone);
    for number in 0..7 {
        let _ = world.request(("alice", &format!("new {number}"), "a"), &policy()).await.unwrap();
        let _ = world.request(("alice", &format!("gone {number}"), "a"), &gone).await.unwrap();
    }
    world.shift("25 hours").await;
    let _ = world.request(("alice", "young", "a"), &policy()).await.unwrap();
    // Somebody has one of them.
    let mut client = world.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let lock = "select from walpost.idempotency where lookup = $1 for update";
    tx.execute(lock, &[&&lookup("alice", "new 3").as_bytes()[..]]).await.unwrap();
    let prunable = world.idempotency.prunable(&world.client).await.unwrap();
    assert_eq!((prunable.responses, prunable.rows), (7, 7));
    let pruned = world.idempotency.prune(&world.client, 2).await.unwrap();
    assert_eq!((pruned.responses, pruned.rows), (7, 6));
    tx.rollback().await.unwrap();
    let pruned = world.idempotency.prune(&world.client, 2).await.unwrap();
    assert_eq!((pruned.responses, pruned.rows), (0, 1));
    assert_eq!(world.number("select count(*) from walpost.idempotency").await, 8);
    world.shift("30 days").await;
    let pruned = world.idempotency.prune(&world.client, 1_000).await.unwrap();
    assert_eq!((pruned.responses, pruned.rows), (0, 8));
    assert_eq!(world.idempotency.prune(&world.client, 1).await.unwrap(), Pruned::default());
}
