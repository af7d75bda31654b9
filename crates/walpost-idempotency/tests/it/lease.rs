//! Leases on the core: who was overtaken writes nothing.

use tokio_postgres::Client;
use walpost_idempotency::{AfterExpiry, Claim, Error, Lease, Overtake, Policy, Response};
use walpost_testkit::until;

use crate::support::{LIMIT, World, answer, lookup, policy, print};

async fn lease(world: &World, client: &mut Client, policy: &Policy) -> Claim<Lease> {
    world.idempotency.lease(client, &lookup("a", "k"), &print("a"), policy).await.unwrap()
}

async fn granted(world: &World, client: &mut Client, policy: &Policy) -> Lease {
    match lease(world, client, policy).await {
        Claim::New(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Commits one effect and a recovery point under the lease.
async fn phase(world: &World, client: &mut Client, lease: &Lease) -> Result<(), Error> {
    let tx = world.idempotency.begin(client).await?;
    world.idempotency.hold(&tx, lease).await?;
    tx.batch_execute("insert into effect (name) values ('phase')").await.unwrap();
    world.idempotency.reach(&tx, lease, Some("charged")).await?;
    tx.commit().await.unwrap();
    Ok(())
}

#[tokio::test]
async fn a_lease_keeps_others_away_until_it_is_finished() {
    let world = World::new().await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let held = granted(&world, &mut one, &policy()).await;
    let twin = lease(&world, &mut two, &policy()).await;
    assert!(matches!(twin, Claim::InFlight { .. }), "{twin:?}");
    // A transactional claim of the same key as well.
    let twin = world.request(("a", "k", "a"), &policy()).await.unwrap();
    assert!(matches!(twin, Claim::InFlight { .. }), "{twin:?}");
    let other = world.request(("a", "k", "b"), &policy()).await.unwrap();
    assert_eq!(other, Claim::Mismatch);
    phase(&world, &mut one, &held).await.unwrap();
    world.idempotency.finish(&one, &held, &answer("k")).await.unwrap();
    assert_eq!(lease(&world, &mut two, &policy()).await, Claim::Replay(answer("k")));
    assert_eq!(world.effects().await, ["phase"]);
}

#[tokio::test]
async fn a_run_that_was_overtaken_writes_nothing() {
    let world = World::new().await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let zombie = granted(&world, &mut one, &policy()).await;
    world.shift("1 hour").await;
    let heir = granted(&world, &mut two, &policy()).await;
    assert!(heir.fence() > zombie.fence());
    let given_up = |error: Error| matches!(error, Error::GivenUp { .. });
    assert!(given_up(phase(&world, &mut one, &zombie).await.unwrap_err()));
    assert!(given_up(world.idempotency.renew(&one, &zombie).await.unwrap_err()));
    assert!(given_up(world.idempotency.release(&one, &zombie).await.unwrap_err()));
    let late = Response::new(500, "late");
    assert!(given_up(world.idempotency.finish(&one, &zombie, &late).await.unwrap_err()));
    world.idempotency.finish(&two, &heir, &answer("k")).await.unwrap();
    // Also once the row that it knew is gone, and another one is there.
    world.shift("25 hours").await;
    assert_eq!(world.idempotency.prune(&world.client, 10).await.unwrap().rows, 1);
    let third = granted(&world, &mut two, &policy()).await;
    assert!(third.fence() > heir.fence());
    assert!(given_up(phase(&world, &mut one, &heir).await.unwrap_err()));
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test]
async fn what_died_is_resumed_begun_anew_or_left_to_an_operator() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let first = granted(&world, &mut client, &policy()).await;
    let derived = first.key_for("charge");
    phase(&world, &mut client, &first).await.unwrap();
    world.shift("1 hour").await;
    let refuse = policy().overtake(Overtake::Refuse);
    assert_eq!(lease(&world, &mut client, &refuse).await, Claim::Unresolved);
    let second = granted(&world, &mut client, &policy()).await;
    assert_eq!(second.recovery_point(), Some("charged"));
    assert_eq!(second.key_for("charge"), derived);
    world.idempotency.release(&client, &second).await.unwrap();
    // Also for whoever comes after a run that got no further.
    let further = granted(&world, &mut client, &policy()).await;
    assert_eq!(further.recovery_point(), Some("charged"));
    world.idempotency.release(&client, &further).await.unwrap();
    let third = granted(&world, &mut client, &policy().overtake(Overtake::Rerun)).await;
    assert_eq!(third.recovery_point(), None);
    world.idempotency.release(&client, &third).await.unwrap();
    let fourth = granted(&world, &mut client, &policy()).await;
    assert_eq!(fourth.recovery_point(), None, "the third began anew");
}

/// From now on whoever takes a request over waits, behind its look, until lock 1 is free.
const LATE: &str = "
    alter function walpost.idempotency_take(bytea, bytea, text, bigint, bigint, boolean)
        rename to idempotency_take_at_once;
    create function walpost.idempotency_take(
        k bytea, print bytea, of_route text, lease_ms bigint, ttl_ms bigint, resumes boolean
    ) returns bigint language plpgsql as $$ begin
        perform pg_advisory_xact_lock(1);
        return walpost.idempotency_take_at_once(k, print, of_route, lease_ms, ttl_ms, resumes);
    end $$";

#[tokio::test]
async fn whoever_takes_over_goes_on_behind_what_was_committed_since_it_looked() {
    for (before, overtake, expected) in [
        (None, Overtake::Resume, Some("shipped")),
        (Some("charged"), Overtake::Resume, Some("shipped")),
        (Some("charged"), Overtake::Rerun, None),
    ] {
        let world = World::new().await;
        let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
        // Longer than a session that is paused here.
        let policy = policy().overtake(overtake).lease(LIMIT * 10);
        let held = granted(&world, &mut one, &policy).await;
        if before.is_some() {
            phase(&world, &mut one, &held).await.unwrap();
        }
        world.client.batch_execute(LATE).await.unwrap();
        world.client.batch_execute("select pg_advisory_lock(1)").await.unwrap();
        world.shift("1 hour").await;
        let tx = world.idempotency.begin(&mut one).await.unwrap();
        world.idempotency.hold(&tx, &held).await.unwrap();
        world.idempotency.reach(&tx, &held, Some("shipped")).await.unwrap();
        let committed = async {
            let waiting = "select count(*) from pg_stat_activity \
                           where datname = current_database() and wait_event = 'advisory'";
            until(LIMIT, "a take", async || world.number(waiting).await == 1).await;
            tx.commit().await.unwrap();
            world.idempotency.release(&world.client, &held).await.unwrap();
            world.client.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
        };
        let (heir, ()) = tokio::join!(granted(&world, &mut two, &policy), committed);
        assert_eq!(heir.recovery_point(), expected, "{before:?} {overtake:?}");
        let entry = world.idempotency.show(&world.client, &lookup("a", "k")).await.unwrap();
        assert_eq!(entry.unwrap().recovery_point.as_deref(), expected, "{before:?} {overtake:?}");
    }
}

#[tokio::test]
async fn a_key_that_has_expired_is_begun_from_the_beginning() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let first = granted(&world, &mut client, &policy()).await;
    phase(&world, &mut client, &first).await.unwrap();
    world.shift("25 hours").await;
    let second = granted(&world, &mut client, &policy()).await;
    assert_eq!(second.recovery_point(), None);
    phase(&world, &mut client, &second).await.unwrap();
    world.idempotency.finish(&client, &second, &answer("k")).await.unwrap();
    world.shift("25 hours").await;
    let third = granted(&world, &mut client, &policy()).await;
    assert_eq!(third.recovery_point(), None);
    world.idempotency.release(&client, &third).await.unwrap();
    assert_eq!(granted(&world, &mut client, &policy()).await.recovery_point(), None);
}

#[tokio::test]
async fn what_an_operator_has_to_look_at_stays_until_he_has() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let refuse = policy().overtake(Overtake::Refuse);
    let _ = granted(&world, &mut client, &refuse).await;
    assert!(!world.idempotency.remove(&client, &lookup("a", "k")).await.unwrap(), "it runs");
    world.shift("300 days").await;
    assert_eq!(world.idempotency.prune(&client, 10).await.unwrap().rows, 0);
    let entry = world.idempotency.show(&client, &lookup("a", "k")).await.unwrap().unwrap();
    assert!(entry.is_abandoned && entry.expires_at.is_none(), "{entry:?}");
    assert_eq!(lease(&world, &mut client, &refuse).await, Claim::Unresolved);
    assert!(world.idempotency.remove(&client, &lookup("a", "k")).await.unwrap());
    let _ = granted(&world, &mut client, &refuse).await;
}

#[tokio::test]
async fn a_run_that_nobody_ended_is_gone_by_policy_and_never_begun_anew_meanwhile() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let gone = policy().after_expiry(AfterExpiry::Gone);
    let zombie = granted(&world, &mut client, &gone).await;
    world.shift("25 hours").await;
    assert_eq!(lease(&world, &mut client, &gone).await, Claim::Gone);
    assert_eq!(world.request(("a", "k", "a"), &gone).await.unwrap(), Claim::Gone);
    // Whoever prunes leaves what says so.
    let pruned = world.idempotency.prune(&world.client, 10).await.unwrap();
    assert_eq!((pruned.responses, pruned.rows), (0, 0));
    assert_eq!(lease(&world, &mut client, &gone).await, Claim::Gone);
    // It is gone, not lost: the run may still end, and then has an answer.
    world.idempotency.finish(&client, &zombie, &answer("k")).await.unwrap();
    assert_eq!(lease(&world, &mut client, &gone).await, Claim::Replay(answer("k")));

    let _ = world.idempotency.remove(&client, &lookup("a", "k")).await.unwrap();
    let _ = granted(&world, &mut client, &gone).await;
    world.shift("31 days").await;
    let _ = granted(&world, &mut client, &gone).await;
    world.shift("31 days").await;
    assert_eq!(world.idempotency.prune(&world.client, 10).await.unwrap().rows, 1);
}

#[tokio::test]
async fn a_recovery_point_extends_the_lease() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let held = granted(&world, &mut client, &policy()).await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    world.idempotency.hold(&tx, &held).await.unwrap();
    // Work that takes longer than a lease: seen from its end.
    let long = "update walpost.idempotency set lease_until = now() - interval '1 s'";
    tx.batch_execute(long).await.unwrap();
    world.idempotency.reach(&tx, &held, Some("charged")).await.unwrap();
    tx.commit().await.unwrap();
    let left = "select extract(epoch from lease_until - clock_timestamp())::int8 \
                from walpost.idempotency";
    assert!((30..=60).contains(&world.number(left).await));
}

#[tokio::test]
async fn nobody_overtakes_a_run_while_it_commits() {
    let world = World::new().await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let held = granted(&world, &mut one, &policy()).await;
    world.shift("1 hour").await;
    let tx = world.idempotency.begin(&mut one).await.unwrap();
    world.idempotency.hold(&tx, &held).await.unwrap();
    let twin = lease(&world, &mut two, &policy()).await;
    assert!(matches!(twin, Claim::InFlight { .. }), "{twin:?}");
    tx.batch_execute("insert into effect (name) values ('phase')").await.unwrap();
    world.idempotency.reach(&tx, &held, Some("charged")).await.unwrap();
    tx.commit().await.unwrap();
    world.idempotency.finish(&one, &held, &answer("k")).await.unwrap();
    assert_eq!(world.effects().await, ["phase"]);
}

#[tokio::test]
async fn a_phase_that_ends_its_transaction_is_refused() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let held = granted(&world, &mut client, &policy()).await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    world.idempotency.hold(&tx, &held).await.unwrap();
    tx.batch_execute("commit; begin").await.unwrap();
    let reached = world.idempotency.reach(&tx, &held, Some("charged")).await;
    assert!(matches!(reached, Err(Error::HandlerEnded { .. })), "{reached:?}");
}
