//! The same event again: later, at the same time, and with other contents.

use std::time::Duration;

use futures_util::{StreamExt, future::join_all, stream};
use tokio::task::JoinHandle;
use walpost_testkit::until;
use walpost_webhook::receive::OnChanged;

use super::{
    handler::ByType,
    server::{ALREADY, Answer, OK, Server, event},
    sign::Sender,
    world::World,
};
use crate::world::LIMIT;

/// In either mode.
async fn server(world: &World, is_inline: bool, handler: ByType) -> Server {
    let builder = world.builder();
    let (path, source) = (Sender::Standard.path(), Sender::Standard.source());
    let builder =
        if is_inline { builder.inline(path, source, handler) } else { builder.inbox(path, source) };
    Server::start(builder.build().unwrap().router()).await
}

fn is_first(answer: &Answer) -> bool {
    assert_eq!(answer.status, 200, "{answer:?}");
    let is_copy = answer.body.contains("\"already_processed\":true");
    assert_eq!(!is_copy, answer.what() == (200, OK), "{answer:?}");
    !is_copy
}

/// Sends an event beside whatever else is done.
fn spawn(server: &Server, id: &'static str, kind: &'static str) -> JoinHandle<Answer> {
    let port = server.port;
    tokio::spawn(async move { event(port, Sender::Standard, id, kind).await.unwrap() })
}

/// Waits until one waits for a transaction in the database.
async fn until_one_waits(world: &World) {
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock'";
    until(LIMIT, "a twin that waits", async || world.number(waiting).await > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_twins_one_is_the_first() {
    for is_inline in [true, false] {
        let world = World::new().await;
        let server = server(&world, is_inline, ByType::new()).await;
        let twins = (0..50).map(|_| server.event(Sender::Standard, "a", "apply"));
        let answers = join_all(twins).await;
        assert_eq!(answers.iter().filter(|answer| is_first(answer)).count(), 1);
        let state = if is_inline { "succeeded" } else { "pending" };
        assert_eq!(world.rows().await, [["standard", "a", "apply", state].map(str::to_owned)]);
        assert_eq!(world.effects().await, vec!["a"; usize::from(is_inline)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_events_ten_times_each_all_have_one_effect() {
    let world = World::new().await;
    let server = server(&world, true, ByType::new()).await;
    let ids: Vec<String> = (0..100).map(|number| format!("a{number:03}")).collect();
    // Those of one id come together, and those of some ids at once.
    let all = ids.iter().flat_map(|id| (0..10).map(|_| id.clone()));
    let firsts: usize = stream::iter(all)
        .map(|id| {
            let server = &server;
            async move { server.event(Sender::Standard, &id, "apply").await }
        })
        .buffer_unordered(100)
        .map(|answer| usize::from(is_first(&answer)))
        .fold(0, async |sum, first| sum + first)
        .await;
    assert_eq!(firsts, 100);
    assert_eq!(world.effects().await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_waits_for_the_first_and_runs_nothing() {
    let world = World::new().await;
    let handler = ByType::new();
    let server = server(&world, true, handler.clone()).await;
    let first = spawn(&server, "a", "hold");
    handler.gate.reached().await;
    let twin = spawn(&server, "a", "hold");
    until_one_waits(&world).await;
    assert!(!twin.is_finished());
    handler.gate.open();
    assert_eq!(first.await.unwrap().what(), (200, OK));
    assert_eq!(twin.await.unwrap().what(), (200, ALREADY));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_of_one_that_is_rolled_back_is_the_first() {
    let world = World::new().await;
    let handler = ByType::new();
    let server = server(&world, true, handler.clone()).await;
    let first = spawn(&server, "a", "hold");
    handler.gate.reached().await;
    let twin = spawn(&server, "a", "hold");
    until_one_waits(&world).await;
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where datname = current_database() and state = 'idle in transaction'";
    assert_eq!(world.number(kill).await, 1);
    handler.gate.reached().await;
    // Both go on, and the session of one of them is gone.
    handler.gate.open();
    handler.gate.open();
    assert_eq!(first.await.unwrap().problem(), (503, "store-unavailable"));
    assert_eq!(twin.await.unwrap().what(), (200, OK));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_waits_no_longer_than_it_is_waited_for() {
    let world = World::new().await;
    let first = ByType::new();
    let patient = server(&world, true, first.clone()).await;
    let held = spawn(&patient, "a", "hold");
    first.gate.reached().await;
    let builder = world.builder().answer_within(Duration::from_millis(500));
    let builder = builder.inline("/webhooks/standard", Sender::Standard.source(), ByType::new());
    let hasty = Server::start(builder.build().unwrap().router()).await;
    let late = hasty.event(Sender::Standard, "a", "hold").await;
    let (status, problem) = late.problem();
    assert!(status == 503 && ["timed-out", "store-unavailable"].contains(&problem), "{late:?}");
    // Its session waits no longer either.
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock'";
    until(LIMIT, "nobody who waits", async || world.number(waiting).await == 0).await;
    first.gate.open();
    assert_eq!(held.await.unwrap().what(), (200, OK));
    assert_eq!(patient.event(Sender::Standard, "a", "hold").await.what(), (200, ALREADY));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test]
async fn other_contents_under_an_old_id_are_refused_unless_the_sender_may() {
    let world = World::new().await;
    let accepting = Sender::Github.source().on_changed(OnChanged::Accept);
    let builder = world
        .builder()
        .inline("/webhooks/standard", Sender::Standard.source(), ByType::new())
        .inline("/webhooks/stripe", Sender::Stripe.source(), ByType::new())
        .inline("/webhooks/github", accepting, ByType::new());
    let server = Server::start(builder.build().unwrap().router()).await;
    for (sender, is_refused) in
        [(Sender::Standard, true), (Sender::Stripe, false), (Sender::Github, false)]
    {
        let first = server.event(sender, sender.name(), "apply").await;
        assert_eq!(first.what(), (200, OK), "{sender:?}");
        let mut body = sender.body(sender.name(), "apply").into_bytes();
        body.push(b' ');
        let headers = sender.headers(sender.name(), "apply", &body);
        let other = server.post(&sender.path(), &headers, &body).await;
        if is_refused {
            assert_eq!(other.problem(), (409, "id-reused"), "{sender:?}");
        } else {
            assert_eq!(other.what(), (200, ALREADY), "{sender:?}");
        }
        let again = server.event(sender, sender.name(), "apply").await;
        assert_eq!(again.what(), (200, ALREADY), "{sender:?}");
    }
    assert_eq!(world.effects().await, ["github", "standard", "stripe"]);
}

#[tokio::test]
async fn a_copy_of_what_is_not_done_says_how_far_it_is() {
    let world = World::new().await;
    let server = server(&world, false, ByType::new()).await;
    assert_eq!(server.event(Sender::Standard, "a", "apply").await.what(), (200, OK));
    for (change, state) in [
        ("true", "pending"),
        ("processing_state = 'review', next_attempt_at = null", "review"),
        ("processing_state = 'ignored', processed_at = now()", ""),
        ("processing_state = 'succeeded'", ""),
    ] {
        if change != "true" {
            let sql = format!(
                "begin; set local session_replication_role = replica; \
                 update walpost.inbox set {change}; commit"
            );
            world.client.batch_execute(&sql).await.unwrap();
        }
        let expected = if state.is_empty() {
            ALREADY.to_owned()
        } else {
            format!(r#"{{"status":"ok","already_processed":true,"processing_state":"{state}"}}"#)
        };
        let copy = server.event(Sender::Standard, "a", "apply").await;
        assert_eq!(copy.what(), (200, &*expected));
    }
}
