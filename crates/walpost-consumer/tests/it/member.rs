//! A member of the group in a process of its own, which can be paused and
//! killed: this binary, started again.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use walpost_consumer::{
    Consumer, Database, Event, Handler, HandlerError, OnReset, SliceError,
    tokio_postgres::Transaction,
};
use walpost_testkit::{self as testkit, Process};

use crate::support::{BRIEF_SESSION_MS, Effects, LIMIT, SESSION_MS, World, each, ids};

/// Names of what the process is told, all but the pause, the failpoint, Redis and
/// the topic of dead letters required.
const BROKER: &str = "MEMBER_BROKER";
const DATABASE: &str = "MEMBER_DATABASE";
const NAME: &str = "MEMBER_NAME";
const TOPIC: &str = "MEMBER_TOPIC";
/// Id of the event in whose handler the process stops itself, once.
const PAUSE_AT: &str = "MEMBER_PAUSE_AT";
const LANES: &str = "MEMBER_LANES";
/// In milliseconds.
const SESSION: &str = "MEMBER_SESSION";
/// Address of the Redis whose keys are the guard.
const REDIS: &str = "MEMBER_REDIS";
/// Topic of dead letters.
const LETTERS: &str = "MEMBER_LETTERS";
const FAILPOINT: &str = "WALPOST_FAILPOINT";
/// Settings of librdkafka: `name=value`, one in each line.
const KAFKA: &str = "MEMBER_KAFKA";
/// `fill`, or else effects are made again.
const ON_RESET: &str = "MEMBER_ON_RESET";

/// In the second batch, whatever guards it.
pub(crate) const KILL_BEFORE_COMMIT: &str = "before_commit@2:kill";

/// How a member hurts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Nothing,
    /// By the test, at any moment.
    Killed,
    PausesInHandlerOf(&'static str),
    /// `name[@count]:kill|stop` of the consumer's.
    Failpoint(&'static str),
}

/// Starts a member on the world's topic.
pub(crate) fn start(world: &World, harm: Harm) -> Process {
    launch(world, harm, &Told::default())
}

/// The same with so many lanes.
pub(crate) fn start_with_lanes(world: &World, lanes: usize, harm: Harm) -> Process {
    launch(world, harm, &Told { lanes, ..Told::default() })
}

/// The same with a topic of dead letters.
pub(crate) fn start_with_letters(world: &World, topic: &str, harm: Harm) -> Process {
    launch(world, harm, &Told { letters: Some(topic), ..Told::default() })
}

/// The same with the keys of a Redis as the guard.
pub(crate) fn start_with(world: &World, harm: Harm, redis: Option<&str>) -> Process {
    launch(world, harm, &Told { redis, ..Told::default() })
}

/// The same with settings of librdkafka, and a policy for resets.
pub(crate) fn start_as(
    world: &World,
    harm: Harm,
    kafka: &[(&str, &str)],
    on_reset: OnReset,
) -> Process {
    launch(world, harm, &Told { kafka, on_reset, ..Told::default() })
}

/// What makes members differ.
struct Told<'a> {
    lanes: usize,
    kafka: &'a [(&'a str, &'a str)],
    on_reset: OnReset,
    redis: Option<&'a str>,
    letters: Option<&'a str>,
}

impl Default for Told<'_> {
    fn default() -> Self {
        Self { lanes: 1, kafka: &[], on_reset: OnReset::Rerun, redis: None, letters: None }
    }
}

fn launch(world: &World, harm: Harm, told: &Told<'_>) -> Process {
    let Told { lanes, kafka, on_reset, redis, letters } = *told;
    let kafka: Vec<String> = kafka.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let on_reset = if on_reset == OnReset::Fill { "fill" } else { "rerun" };
    let session_ms = if harm == Harm::Nothing { SESSION_MS } else { BRIEF_SESSION_MS };
    let mut environment = vec![
        (SESSION.to_owned(), session_ms.to_string()),
        (LANES.to_owned(), lanes.to_string()),
        (BROKER.to_owned(), testkit::kafka().bootstrap().to_owned()),
        (DATABASE.to_owned(), world.database.url().to_owned()),
        (NAME.to_owned(), world.name.clone()),
        (TOPIC.to_owned(), world.topic.clone()),
        ("RUST_LOG".to_owned(), "walpost_consumer=debug".to_owned()),
        (KAFKA.to_owned(), kafka.join("\n")),
        (ON_RESET.to_owned(), on_reset.to_owned()),
    ];
    match harm {
        Harm::Nothing | Harm::Killed => {}
        Harm::PausesInHandlerOf(id) => environment.push((PAUSE_AT.to_owned(), id.to_owned())),
        Harm::Failpoint(point) => {
            environment.push((FAILPOINT.to_owned(), format!("consumer/{point}")));
        }
    }
    environment.extend(redis.map(|url| (REDIS.to_owned(), url.to_owned())));
    environment.extend(letters.map(|topic| (LETTERS.to_owned(), topic.to_owned())));
    let program = env::current_exe().unwrap();
    Process::start(program, ["--exact", TEST, "--nocapture"], environment)
}

/// Whether the process was stopped by SIGSTOP.
pub(crate) fn is_paused(process: &Process) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

const TEST: &str = "member::a_member_in_a_process_of_its_own_drains_on_sigterm";

/// Without the environment: a test. With it: the member.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_in_a_process_of_its_own_drains_on_sigterm() {
    if env::var_os(BROKER).is_some() {
        return run().await;
    }
    let world = World::new(1).await;
    world.publish(0, ids("a", 100)).await;
    let member = start(&world, Harm::Nothing);
    world.until_number("select count(*) from effect", 100).await;
    // At its end it does not wait long for Kafka's answer.
    testkit::until(LIMIT, "the commit", async || world.committed(0).await.0 == Some(100)).await;
    assert!(member.terminate(LIMIT).success(), "{}", member.log());
    assert_eq!(world.effects().await, each(&ids("a", 100), 1));
    assert_eq!(world.committed(0).await.0, Some(100));
}

async fn run() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let read = |name: &str| env::var(name).unwrap();
    let handler = Pausing { at: env::var(PAUSE_AT).ok(), paused: AtomicBool::new(false) };
    let settings = read(KAFKA);
    let settings = settings.lines().filter_map(|setting| setting.split_once('='));
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let on_reset = if read(ON_RESET) == "fill" { OnReset::Fill } else { OnReset::Rerun };
    let builder = Consumer::builder(read(NAME))
        .kafka_settings(settings)
        .kafka("bootstrap.servers", read(BROKER))
        .topics([read(TOPIC)])
        .database(Database::config(read(DATABASE).parse().unwrap()))
        .session_timeout_ms(read(SESSION).parse().unwrap())
        // The server itself ends no transaction of a paused one while a test waits.
        .handler_timeout_ms(600_000)
        .max_batch_events(50)
        .lanes(read(LANES).parse().unwrap())
        .on_reset(on_reset);
    let builder = match env::var(REDIS) {
        Ok(url) => crate::redis::guarded(builder, &url),
        Err(_) => builder,
    };
    let builder = match env::var(LETTERS) {
        Ok(topic) => builder.dead_letter_topic(topic),
        Err(_) => builder,
    };
    let consumer = builder.handler(handler).unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let ended = consumer.run(async move {
        terminated.recv().await;
    });
    ended.await.unwrap();
}

struct Pausing {
    at: Option<String>,
    paused: AtomicBool,
}

impl Handler for Pausing {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        Effects.handle(tx, event).await
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        Effects.handle_slice(tx, events).await?;
        let here = events.iter().any(|event| Some(event.id()) == self.at.as_deref());
        if here && !self.paused.swap(true, Ordering::SeqCst) {
            kill_process(getpid(), Signal::STOP).unwrap();
            // Any of its threads may be the one that takes the signal.
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }
}

/// Waits until the process has stopped itself.
pub(crate) async fn until_paused(process: &Process) {
    testkit::until(LIMIT, "a paused member", async || is_paused(process)).await;
}

/// Waits until the process was killed by its failpoint, and not ended by an error or
/// a panic.
pub(crate) async fn until_dead(process: &Process) {
    testkit::until(LIMIT, "a dead member", async || !process.is_running()).await;
    process.killed(LIMIT);
}

/// A moment, for randomness and not for order.
pub(crate) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
