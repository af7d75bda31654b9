//! A receiver in a process of its own, which is killed on either side of its
//! COMMIT: this binary, started again.

use std::{env, net::Ipv4Addr};

use tokio::net::TcpListener;
use walpost_inbox::Database;
use walpost_testkit::{Process, until, until_some};
use walpost_webhook::receive::Receiver;

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server, event},
    sign::Sender,
    world::World,
};
use crate::world::LIMIT;

const DATABASE: &str = "RECEIVER_DATABASE";
const FAILPOINT: &str = "WALPOST_FAILPOINT";
const LISTENS: &str = "listens on ";
const TEST: &str = "receive::kills::a_receiver_in_a_process_of_its_own_answers";
/// One in each mode.
const INLINE: Sender = Sender::Standard;
const QUEUED: Sender = Sender::Github;

/// A receiver that is at work, and its port.
struct Member {
    process: Process,
    port: u16,
}

impl Member {
    async fn start(world: &World, failpoint: Option<&str>) -> Self {
        let mut environment = vec![(DATABASE, world.database.url()), ("RUST_LOG", "warn")];
        let failpoint = failpoint.map(|failpoint| format!("webhook/{failpoint}"));
        environment.extend(failpoint.as_deref().map(|failpoint| (FAILPOINT, failpoint)));
        let program = env::current_exe().unwrap();
        let process = Process::start(program, ["--exact", TEST, "--nocapture"], environment);
        let port = until_some(LIMIT, "a receiver that listens", async || {
            let log = process.log();
            let line = log.lines().find_map(|line| line.split(LISTENS).nth(1));
            line.and_then(|port| port.trim().parse().ok())
        })
        .await;
        Self { process, port }
    }
}

/// Without the environment: a test. With it: the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_in_a_process_of_its_own_answers() {
    if let Ok(url) = env::var(DATABASE) {
        return serve(&url).await;
    }
    let world = World::new().await;
    let member = Member::start(&world, None).await;
    for (sender, again) in [(INLINE, ALREADY), (QUEUED, PENDING)] {
        for answer in [OK, again] {
            let answered = event(member.port, sender, "a", "apply").await.unwrap();
            assert_eq!(answered.what(), (200, answer));
        }
    }
    assert!(member.process.is_running());
}

const PENDING: &str = r#"{"status":"ok","already_processed":true,"processing_state":"pending"}"#;

async fn serve(url: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let builder = Receiver::builder(Database::config(url.parse().unwrap()));
    // Who is to be ended as it sleeps is not to sleep for long.
    let sleeps = env::var(FAILPOINT).is_ok_and(|failpoint| failpoint.ends_with(":stop"));
    let builder = if sleeps { builder } else { builder.answer_within(LIMIT) };
    let receiver = builder
        .inline(INLINE.path(), INLINE.source(), ByType::new())
        .inbox(QUEUED.path(), QUEUED.source())
        .build()
        .unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    println!("{LISTENS}{}", listener.local_addr().unwrap().port());
    axum::serve(listener, receiver.router()).await.unwrap();
}

/// In each mode: sends an event to a receiver that dies at the failpoint, and
/// again to another one. How many rows the dead one left, and what its heir says.
async fn killed(failpoint: &str) -> Vec<(usize, String)> {
    let mut seen = Vec::new();
    for sender in [INLINE, QUEUED] {
        let world = World::new().await;
        let dying = Member::start(&world, Some(failpoint)).await;
        assert_eq!(event(dying.port, sender, "a", "apply").await, None, "{}", dying.process.log());
        dying.process.killed(LIMIT);
        // Waits for the dead one's session, if that is still there.
        let heir = Member::start(&world, None).await;
        let first = world.rows().await.len();
        let answer = event(heir.port, sender, "a", "apply").await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let is_inline = sender == INLINE;
        assert_eq!(world.effects().await, vec!["a"; usize::from(is_inline)]);
        let state = if is_inline { "succeeded" } else { "pending" };
        assert_eq!(world.rows().await, [[sender.name(), "a", "apply", state].map(str::to_owned)]);
        seen.push((first, answer.body));
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_insert_and_commit_leaves_nothing() {
    let seen = killed("before_receipt:kill").await;
    assert_eq!(seen, [(0, OK.to_owned()), (0, OK.to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_commit_and_answer_leaves_all_of_it() {
    let seen = killed("after_receipt:kill").await;
    assert_eq!(seen, [(1, ALREADY.to_owned()), (1, PENDING.to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sleeps_before_its_commit_is_ended_by_the_server_and_wakes_to_nothing() {
    let world = World::new().await;
    let zombie = Member::start(&world, Some("before_receipt:stop")).await;
    let port = zombie.port;
    let asked = tokio::spawn(async move { event(port, INLINE, "a", "apply").await });
    let idle = "select count(*) from pg_stat_activity where datname = current_database() \
                and state = 'idle in transaction'";
    until(LIMIT, "its open transaction", async || world.number(idle).await == 1).await;
    zombie.process.wait_for_log("failpoint", LIMIT);
    // Its twin is a sender's next attempt, at another receiver.
    let builder = world.builder();
    let builder = builder.inline(INLINE.path(), INLINE.source(), ByType::new());
    let heir = Server::start(builder.build().unwrap().router()).await;
    assert_eq!(heir.event(INLINE, "a", "apply").await.what(), (200, OK));
    zombie.process.resume();
    let late = asked.await.unwrap().unwrap();
    let (status, problem) = late.problem();
    assert!(status == 503 && ["timed-out", "store-unavailable"].contains(&problem), "{late:?}");
    assert_eq!(event(zombie.port, INLINE, "a", "apply").await.unwrap().what(), (200, ALREADY));
    assert_eq!(world.effects().await, ["a"]);
}
