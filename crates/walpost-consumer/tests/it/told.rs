//! What a process says, also one without a subscriber of `tracing`, as a first
//! program of somebody's may have none: this binary, started again.

use std::env;

use rdkafka::mocking::MockCluster;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Transaction, config::Host};
use walpost_consumer::{Consumer, Database, Event, Handler, HandlerError, Park};
use walpost_testkit::{self as testkit, Process, Proxy, Target};

use crate::support::{LIMIT, World};

const BROKER: &str = "TOLD_BROKER";
const DATABASE: &str = "TOLD_DATABASE";
const NAME: &str = "TOLD_NAME";
const TOPIC: &str = "TOLD_TOPIC";
/// Whether a subscriber is set.
const SUBSCRIBER: &str = "TOLD_SUBSCRIBER";

const TEST: &str = "told::parked_events_and_halted_partitions_are_told_without_a_subscriber";

fn start(world: &World, broker: &str, database: &str, subscriber: bool) -> Process {
    let environment = [
        (BROKER, broker),
        (DATABASE, database),
        (NAME, &world.name),
        (TOPIC, &world.topic),
        (SUBSCRIBER, if subscriber { "yes" } else { "no" }),
    ];
    let program = env::current_exe().unwrap();
    Process::start(program, ["--exact", TEST, "--nocapture"], environment)
}

/// Waits until the process has said `text` so many times.
async fn until_told(process: &Process, text: &str, times: usize) {
    testkit::until(LIMIT, text, async || {
        assert!(process.is_running(), "{}", process.log());
        told(process, text) >= times
    })
    .await;
}

fn told(process: &Process, text: &str) -> usize {
    process.log().lines().filter(|line| line.contains(text)).count()
}

/// Without the environment: a test. With it: a program.
#[tokio::test(flavor = "multi_thread")]
async fn parked_events_and_halted_partitions_are_told_without_a_subscriber() {
    if env::var_os(BROKER).is_some() {
        return program().await;
    }
    let world = World::new(2).await;
    world.publish(0, ["a", "park", "b", "halt", "c"]).await;
    let process = start(&world, testkit::kafka().bootstrap(), world.database.url(), false);
    // The end of what it says last.
    until_told(&process, "create what is missing", 1).await;
    let log = process.log();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_default();
    let parked = line("parked an event");
    assert!(parked.starts_with("walpost-consumer: ") && parked.contains("no customer"), "{log}");
    assert!(parked.contains(&format!("partition={}[0] offset=1", world.topic)), "{log}");
    let halted = line("the partition is halted");
    assert!(halted.contains("at offset 3") && halted.contains("relation \"nowhere\""), "{log}");
    assert!(halted.contains("create what is missing"), "{log}");
    assert!(process.is_running(), "the other partition goes on");
    assert!(process.terminate(LIMIT).success(), "{}", process.log());
}

async fn program() {
    let read = |name: &str| env::var(name).unwrap();
    if read(SUBSCRIBER) == "yes" {
        tracing_subscriber::fmt().with_ansi(false).init();
    }
    let consumer = Consumer::builder(read(NAME))
        .park(Park::Event)
        .kafka("bootstrap.servers", read(BROKER))
        .topics([read(TOPIC)])
        .database(Database::config(read(DATABASE).parse().unwrap()))
        .handler(Odd)
        .unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let ended = consumer.run(async move {
        terminated.recv().await;
    });
    ended.await.unwrap();
}

struct Odd;

impl Handler for Odd {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        match event.id() {
            "park" => Err(HandlerError::park("no customer")),
            "halt" => {
                tx.execute("insert into nowhere values (1)", &[]).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_away_are_told_at_a_bounded_rate_and_so_is_the_end_of_it() {
    let world = World::new(1).await;
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(&world.topic, 1, 1).unwrap();
    cluster.broker_down(1).unwrap();
    let broker = cluster.bootstrap_servers();
    let process = start(&world, &broker, world.database.url(), true);
    for times in 1..=2 {
        until_told(&process, "no broker answers", times).await;
        cluster.broker_up(1).unwrap();
        until_told(&process, "brokers answer", times).await;
        // From here on it asks the brokers nothing of its own accord.
        until_told(&process, "the partition runs", 1).await;
        cluster.broker_down(1).unwrap();
    }
    cluster.broker_up(1).unwrap();
    assert!(process.terminate(LIMIT).success(), "{}", process.log());
    let log = process.log();
    // librdkafka says both twenty times a second.
    assert_eq!(told(&process, "brokers are down"), 0, "{log}");
    let (refused, silences) = (told(&process, "refused"), told(&process, "no broker answers"));
    assert!(refused <= silences + 2 && silences <= 4, "{log}");
    let first = log.lines().find(|line| line.contains("no broker answers")).unwrap();
    assert!(first.contains(&broker) && first.contains("reason="), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_told_with_its_address_and_so_is_the_end_of_it() {
    let world = World::new(1).await;
    let (host, port) = match world.database.config().get_hosts() {
        [Host::Tcp(host), ..] => (host.clone(), world.database.config().get_ports()[0]),
        other => panic!("tests reach PostgreSQL by TCP, not by {other:?}"),
    };
    let address = tokio::net::lookup_host((host, port)).await.unwrap().next().unwrap();
    let proxy = Proxy::start(Target::Tcp(address)).await;
    proxy.cut();
    let url = world.database.url().replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    assert!(url.contains(&proxy.port().to_string()), "{url}");
    let process = start(&world, testkit::kafka().bootstrap(), &url, false);
    until_told(&process, "the database cannot be reached", 1).await;
    until_told(&process, &format!(":{} (database ", proxy.port()), 1).await;
    proxy.restore();
    until_told(&process, "the database answers", 1).await;
    world.until_number("select count(*) from walpost.position where epoch > 0", 1).await;
    assert!(process.terminate(LIMIT).success(), "{}", process.log());
    assert_eq!(told(&process, "the database cannot be reached"), 1, "{}", process.log());
}
