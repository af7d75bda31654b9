//! Whoever dies or sleeps with a claim loses no delivery, and what may have
//! arrived is sent again with its key or held.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
};
use walpost_testkit::{Process, until};
use walpost_webhook::{OnUnknownOutcome, Order, Processor, RetryPolicy, Schedule};

use crate::{
    client::TIMEOUT,
    receiver::{Receiver, answer},
    world::{LIMIT, World, ids, keys, run, settings},
};

/// Of a process that is stopped: a little longer than it has to be.
const LEASE: Duration = Duration::from_millis(10_500);
const DATABASE: &str = "MEMBER_DATABASE";
const URL: &str = "MEMBER_URL";
const ORDER: &str = "MEMBER_ORDER";
const TEST: &str = "faults::a_processor_in_a_process_of_its_own_drains_on_sigterm";

/// Starts a processor in a process of its own, which is this binary.
fn member(world: &World, receiver: &Receiver, failpoint: Option<&str>) -> Process {
    ordered_member(world, receiver, ("none", failpoint))
}

/// The same, whose deliveries go in an order.
pub(crate) fn ordered_member(
    world: &World,
    receiver: &Receiver,
    (order, failpoint): (&str, Option<&str>),
) -> Process {
    let url = receiver.url("127.0.0.1");
    let mut environment =
        vec![(DATABASE, world.database.url()), (URL, &url), ("RUST_LOG", "walpost_webhook=debug")];
    environment.push((ORDER, order));
    let failpoint = failpoint.map(|failpoint| format!("webhook/{failpoint}"));
    environment.extend(failpoint.as_deref().map(|failpoint| ("WALPOST_FAILPOINT", failpoint)));
    let program = env::current_exe().unwrap();
    Process::start(program, ["--exact", TEST, "--nocapture"], environment)
}

/// Without the environment: a test. With it: the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_processor_in_a_process_of_its_own_drains_on_sigterm() {
    if let Ok(url) = env::var(URL) {
        return act(&url).await;
    }
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 100)).await;
    let member = member(&world, &receiver, None);
    world.until("delivered", 100).await;
    assert!(member.terminate(LIMIT).success(), "{}", member.log());
    assert_eq!(receiver.requests().len(), 100);
}

async fn act(url: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let database = env::var(DATABASE).unwrap();
    let database = walpost_postgres::Database::parse(&database).unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let mut settings = settings(url);
    if env::var("WALPOST_FAILPOINT").is_ok_and(|failpoint| failpoint.ends_with(":stop")) {
        (settings.client.timeout, settings.lease) = (TIMEOUT, LEASE);
    }
    settings.order = match &*env::var(ORDER).unwrap() {
        "key" => Order::Key,
        "all" => Order::All,
        _ => Order::None,
    };
    let processor = Processor::new(database, settings).unwrap();
    let ended = processor.run(async {
        terminated.recv().await;
    });
    ended.await.unwrap();
}

/// Ends a lease as time would.
pub(crate) async fn end_leases(world: &World) {
    let past = "update walpost.webhook_delivery set lease_until = now() - interval '1 s' \
                where state = 'sending'";
    world.past_triggers(past).await;
}

async fn killed_at(failpoint: &str) -> (World, Receiver) {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 1)).await;
    let member = member(&world, &receiver, Some(failpoint));
    until(LIMIT, "a death", async || !member.is_running()).await;
    member.killed(LIMIT);
    (world, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_claim_and_call_counts_and_the_delivery_is_sent_by_another() {
    let (world, receiver) = killed_at("after_claim:kill").await;
    assert_eq!(world.row("a000").await, ("sending".to_owned(), 1, None));
    assert_eq!(receiver.requests().len(), 0);
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    end_leases(&world).await;
    world.until("delivered", 1).await;
    let snapshot = running.stop().await;
    assert_eq!(keys(&receiver), ["a000"]);
    assert_eq!((snapshot.stuck, snapshot.delivered), (1, 1));
    assert_eq!(world.row("a000").await, ("delivered".to_owned(), 2, Some("success".to_owned())));
    let outcomes = "select outcome from walpost.webhook_attempt order by number";
    assert_eq!(world.texts(outcomes).await, ["lease_expired", "success"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_the_answer_and_its_row_sends_it_again_with_its_key() {
    let (world, receiver) = killed_at("after_answer:kill").await;
    assert_eq!(world.row("a000").await, ("sending".to_owned(), 1, None));
    assert_eq!(keys(&receiver), ["a000"]);
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    end_leases(&world).await;
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["a000", "a000"]);
    // The same, where it must not happen twice.
    world.insert(&ids("b", 1)).await;
    let claimed = "update walpost.webhook_delivery set state = 'sending', fence = 1, attempts = 1, \
                   next_attempt_at = null, lease_until = now() - interval '1 s' \
                   where event_id = 'b000'";
    world.past_triggers(claimed).await;
    let mut holding = settings(&receiver.url("127.0.0.1"));
    holding.policy.on_unknown_outcome = OnUnknownOutcome::Hold;
    let running = run(&world, holding);
    world.until("unknown", 1).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["a000", "a000"]);
    let expected = ("unknown".to_owned(), 1, Some("lease_expired".to_owned()));
    assert_eq!(world.row("b000").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_behind_the_row_changes_nothing_any_more() {
    let (world, receiver) = killed_at("after_finish:kill").await;
    assert_eq!(world.row("a000").await, ("delivered".to_owned(), 1, Some("success".to_owned())));
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.insert(&ids("b", 1)).await;
    world.until("delivered", 2).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["a000", "b000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_slept_past_its_lease_writes_nothing() {
    let world = World::new().await;
    let failing = Receiver::answering(answer("500 Oops", "", "")).await;
    world.insert(&ids("a", 1)).await;
    let zombie = member(&world, &failing, Some("after_answer:stop"));
    until(LIMIT, "a call", async || failing.requests().len() == 1).await;
    zombie.wait_for_log("failpoint", LIMIT);
    // Its successor is in its call.
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
    let mut patient = settings(&receiver.url("127.0.0.1"));
    patient.client.timeout = LIMIT;
    patient.lease = LIMIT * 2;
    let running = run(&world, patient);
    end_leases(&world).await;
    until(LIMIT, "a second call", async || receiver.requests().len() == 1).await;
    zombie.resume();
    zombie.wait_for_log("the claim was given up", LIMIT);
    let (state, attempts, _) = world.row("a000").await;
    assert_eq!((&*state, attempts), ("sending", 2));
    gate.add_permits(1);
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(world.row("a000").await, ("delivered".to_owned(), 2, Some("success".to_owned())));
    let outcomes = "select outcome from walpost.webhook_attempt order by number";
    assert_eq!(world.texts(outcomes).await, ["lease_expired", "success"]);
    zombie.terminate(LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_slept_past_its_lease_sends_nothing() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 1)).await;
    // Its connection is there, and its request on its way to that.
    let zombie = member(&world, &receiver, Some("before_bytes:stop"));
    zombie.wait_for_log("failpoint", LIMIT);
    until(LIMIT, "a connection", async || receiver.connections() == 1).await;
    let ended = "select count(*) from walpost.webhook_delivery \
                 where state = 'sending' and lease_until <= clock_timestamp()";
    until(LIMIT, "the end of its lease", async || world.number(ended).await == 1).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 1).await;
    zombie.resume();
    zombie.wait_for_log("given back unsent", LIMIT);
    running.stop().await;
    assert_eq!(keys(&receiver), ["a000"]);
    assert_eq!(world.row("a000").await, ("delivered".to_owned(), 2, Some("success".to_owned())));
    zombie.terminate(LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_lost_disables_nothing() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("410 Gone", "", ""), &gate).await;
    world.insert(&ids("a", 1)).await;
    let mut patient = settings(&receiver.url("127.0.0.1"));
    patient.client.timeout = LIMIT;
    patient.lease = LIMIT * 2;
    let running = run(&world, patient);
    until(LIMIT, "a call", async || receiver.requests().len() == 1).await;
    // Another has it now.
    world.past_triggers("update walpost.webhook_delivery set fence = fence + 1").await;
    gate.add_permits(1);
    let snapshot = running.stop().await;
    assert_eq!((snapshot.lost, snapshot.disabled), (1, 0));
    let states = "select state from walpost.webhook_destination";
    assert_eq!(world.texts(states).await, ["active"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_claims_that_end_together_the_last_one_alone_counts() {
    let world = World::new().await;
    let (gate, closed) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let (waits, counted) = (Arc::clone(&gate), Arc::clone(&closed));
    let receiver = Receiver::scripted(move |mut stream, notes| {
        let (waits, counted) = (Arc::clone(&waits), Arc::clone(&counted));
        async move {
            notes.read(&mut stream).await?;
            waits.acquire().await.unwrap().forget();
            let closing = answer("200 OK", "connection: close\r\n", "");
            stream.write_all(closing.as_bytes()).await?;
            let _ = notes.read(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    })
    .await;
    world.insert(&ids("a", 1)).await;
    let mut patient = settings(&receiver.url("127.0.0.1"));
    patient.client.timeout = LIMIT;
    patient.lease = LIMIT * 2;
    let running = run(&world, patient);
    for calls in 1..=3 {
        until(LIMIT, "a call", async || receiver.requests().len() == calls).await;
        if calls < 3 {
            let again = "update walpost.webhook_delivery set state = 'pending', \
                         lease_until = null, next_attempt_at = now()";
            world.past_triggers(again).await;
        }
    }
    // The first end waits for the table, and the others for the first.
    let mut other = world.database.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("lock table walpost.webhook_attempt in share mode").await.unwrap();
    gate.add_permits(1);
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    until(LIMIT, "an end that waits", async || world.number(waiting).await == 1).await;
    gate.add_permits(2);
    until(LIMIT, "all answers", async || closed.load(Ordering::SeqCst) == 3).await;
    tx.commit().await.unwrap();
    world.until("delivered", 1).await;
    let snapshot = running.stop().await;
    assert_eq!((snapshot.delivered, snapshot.lost), (1, 2));
    let numbers = "select number::text from walpost.webhook_attempt";
    assert_eq!(world.texts(numbers).await, ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_refused_takes_no_other_with_it() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let odd = "alter table walpost.webhook_attempt add check (delivery % 2 = 0)";
    world.client.batch_execute(odd).await.unwrap();
    world.insert(&ids("a", 40)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 20).await;
    let snapshot = running.stop().await;
    assert_eq!((snapshot.delivered, snapshot.lost), (20, 20));
    assert_eq!(receiver.requests().len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_ends_every_process_fails() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 1)).await;
    let claimed = "update walpost.webhook_delivery set state = 'sending', fence = 3, attempts = 3, \
                   next_attempt_at = null, lease_until = now() - interval '1 s'";
    world.past_triggers(claimed).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    running.stop().await;
    let expected = ("failed".to_owned(), 3, Some("lease_expired".to_owned()));
    assert_eq!(world.row("a000").await, expected);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_loses_no_delivery() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(10), 1_000));
    let running = run(&world, settings);
    let ids = ids("a", 300);
    for some in ids.chunks(30) {
        world.insert(some).await;
        // Every session but ours: between, before and behind claims and ends.
        world
            .client
            .batch_execute(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid()",
            )
            .await
            .unwrap();
        let unfinished = "select count(*) from walpost.webhook_delivery where state = 'pending'";
        until(LIMIT, "claims", async || world.number(unfinished).await == 0).await;
    }
    // Claims whose answers were lost.
    until(LIMIT, "all deliveries", async || {
        end_leases_of_the_lost(&world).await;
        let done = "select count(*) from walpost.webhook_delivery where state = 'delivered'";
        world.number(done).await == 300
    })
    .await;
    running.stop().await;
    let mut got = keys(&receiver);
    got.sort();
    got.dedup();
    assert_eq!(got, ids);
}

/// Of those that have been on their way for longer than most attempts take.
async fn end_leases_of_the_lost(world: &World) {
    let past = "update walpost.webhook_delivery set lease_until = now() - interval '1 s' \
                where state = 'sending' and lease_until < now() + interval '57 s'";
    world.past_triggers(past).await;
}
