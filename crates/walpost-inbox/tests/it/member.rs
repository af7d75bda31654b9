//! A processor in a process of its own, which can be paused and killed: this
//! binary, started again.

use std::{env, future::pending, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::Transaction;
use walpost_inbox::{
    Database, Event, Handler, HandlerError, Head, Inbox, NewEvent, Processor, RetrySchedule, State,
};
use walpost_testkit::Process;

use crate::support::{LIMIT, World, ids};

const DATABASE: &str = "MEMBER_DATABASE";
/// What the process does: `process`, `hang` in its handler, or `receive`.
const TASK: &str = "MEMBER_TASK";
const NAME: &str = "MEMBER_NAME";

/// Printed once SIGTERM is waited for.
pub(crate) const READY: &str = "ready to be stopped";

/// How short a lease may be.
pub(crate) const LEASE_MS: u32 = 1_500;
pub(crate) const HANDLER_TIMEOUT_MS: u32 = 1_000;

const TEST: &str = "member::a_processor_in_a_process_of_its_own_drains_on_sigterm";

/// Starts a process on the world's database.
pub(crate) fn start(world: &World, task: &str, name: &str) -> Process {
    let environment = [
        (DATABASE, world.database.url()),
        (TASK, task),
        (NAME, name),
        ("RUST_LOG", "walpost_inbox=debug"),
    ];
    let program = env::current_exe().unwrap();
    Process::start(program, ["--exact", TEST, "--nocapture"], environment)
}

/// Without the environment: a test. With it: the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_processor_in_a_process_of_its_own_drains_on_sigterm() {
    if let Ok(task) = env::var(TASK) {
        return act(&task).await;
    }
    let world = World::new().await;
    world.receive("apply", ids("a", 100)).await;
    let member = start(&world, "process", "one");
    world.until(State::Succeeded, 100).await;
    assert!(member.terminate(LIMIT).success(), "{}", member.log());
    assert_eq!(world.sorted_effects().await, ids("a", 100));
}

async fn act(task: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let config: tokio_postgres::Config = env::var(DATABASE).unwrap().parse().unwrap();
    if task == "receive" {
        return receive(config).await;
    }
    let handler = Member { hangs: task == "hang" };
    let processor = Processor::builder(Database::config(config))
        .name(env::var(NAME).unwrap())
        .concurrency(4)
        .lease_ms(if handler.hangs { 30_000 } else { LEASE_MS })
        .handler_timeout_ms(if handler.hangs { 14_000 } else { HANDLER_TIMEOUT_MS })
        .retries(RetrySchedule::new([Duration::ZERO]).repeating_last())
        .handler(handler)
        .unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    println!("{READY}");
    let ended = processor.run(async {
        terminated.recv().await;
    });
    ended.await.unwrap();
}

/// Receives an event, and does nothing more.
async fn receive(config: tokio_postgres::Config) {
    let (mut client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tx = client.transaction().await.unwrap();
    let _ = Inbox::new().insert_once(&tx, &NewEvent::new("a", "apply", *b"")).await.unwrap();
    tx.commit().await.unwrap();
    println!("received");
    pending::<()>().await;
}

struct Member {
    hangs: bool,
}

impl Handler for Member {
    type Work = ();

    fn select(&self, _: &Head) -> Option<()> {
        Some(())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        (): &(),
        event: &Event,
    ) -> Result<(), HandlerError> {
        let id = event.head().event_id();
        tx.execute("insert into effect (event_id) values ($1)", &[&id]).await?;
        if self.hangs {
            println!("in its handler");
            pending::<()>().await;
        }
        Ok(())
    }
}
