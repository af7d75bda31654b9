//! What a process says, also one without a subscriber of `tracing`, as a first
//! program of somebody's may have none: this binary, started again.

use std::env;

use rdkafka::mocking::MockCluster;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Transaction, config::Host};
use walpost_consumer::{Consumer, Database, Event, Handler, HandlerError, Park};
use walpost_testkit::{self as testkit, Process, Proxy, Signal, Target, local};

use crate::support::{Effects, LIMIT, World, each, effect, run};

const BROKER: &str = "TOLD_BROKER";
const DATABASE: &str = "TOLD_DATABASE";
const NAME: &str = "TOLD_NAME";
const TOPIC: &str = "TOLD_TOPIC";
/// Whether a subscriber is set.
const SUBSCRIBER: &str = "TOLD_SUBSCRIBER";

/// In milliseconds; then it waits long for all else. Empty for none.
const STOP_TIMEOUT: &str = "TOLD_STOP_TIMEOUT";

/// What one of the events waits for.
const LOCK: i64 = 7;

const TEST: &str = "told::parked_events_and_halted_partitions_are_told_without_a_subscriber";

fn start(world: &World, broker: &str, database: &str, subscriber: bool) -> Process {
    start_as(world, broker, database, subscriber, "")
}

fn start_as(
    world: &World,
    broker: &str,
    database: &str,
    subscriber: bool,
    stop_timeout_ms: &str,
) -> Process {
    let environment = [
        (STOP_TIMEOUT, stop_timeout_ms),
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
    assert!(halted.contains("at offset 3") && halted.contains("42P01 (undefined table)"), "{log}");
    assert!(halted.contains("create what is missing"), "{log}");
    assert!(process.is_running(), "the other partition goes on");
    assert!(process.terminate(LIMIT).success(), "{}", process.log());
}

async fn program() {
    let read = |name: &str| env::var(name).unwrap();
    if read(SUBSCRIBER) == "yes" {
        tracing_subscriber::fmt().with_ansi(false).init();
    }
    let mut consumer = Consumer::builder(read(NAME));
    if let Ok(stop_timeout_ms) = read(STOP_TIMEOUT).parse() {
        consumer = consumer
            .stop_timeout_ms(stop_timeout_ms)
            .session_timeout_ms(300_000)
            .lock_timeout_ms(600_000)
            .handler_timeout_ms(600_000);
    }
    let consumer = consumer
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
            "block" => {
                std::thread::sleep(LIMIT);
                Ok(())
            }
            "wait" => {
                tx.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await?;
                effect(tx, event).await
            }
            "halt" => {
                tx.execute("insert into nowhere values (1)", &[]).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_block_all_threads_are_told_and_a_stop_ends_in_time() {
    let world = World::new(6).await;
    for partition in 0..6 {
        world.publish(partition, ["block"]).await;
    }
    let (broker, database) = (testkit::kafka().bootstrap(), world.database.url());
    let process = start_as(&world, broker, database, false, "300");
    until_told(&process, "the handler blocks its thread", 2).await;
    let log = process.log();
    let line = log.lines().find(|line| line.contains("blocks its thread")).unwrap();
    for part in [&*format!("partition={}[", world.topic), " offset=0", " blocked=1."] {
        assert!(line.contains(part), "{part}: {line}");
    }
    process.signal(Signal::Terminate);
    assert!(process.wait(LIMIT / 5).success(), "{}", process.log());
    assert!(told(&process, "leaving without it") > 0, "{}", process.log());
    assert_eq!(world.stored().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_stop_that_waits_for_brokers_alone_says_that_what_was_made_is_committed() {
    let kafka = local::Kafka::builder().start().unwrap();
    let world = World::on(&kafka.bootstrap(), 1).await;
    world.client.execute("select pg_advisory_lock($1)", &[&LOCK]).await.unwrap();
    world.publish(0, ["wait"]).await;
    let (broker, database) = (kafka.bootstrap(), world.database.url());
    let process = start_as(&world, &broker, database, true, "2500");
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                 and database = (select oid from pg_database where datname = current_database())";
    world.until_number(waits, 1).await;
    kafka.pause().unwrap();
    world.client.execute("select pg_advisory_unlock($1)", &[&LOCK]).await.unwrap();
    world.until_number("select count(*) from effect", 1).await;
    process.signal(Signal::Terminate);
    testkit::until(LIMIT, "a word on it", async || {
        told(&process, "what was made is committed") == 1
    })
    .await;
    kafka.resume().unwrap();
    assert!(process.wait(LIMIT).success(), "{}", process.log());
    assert_eq!(told(&process, "rolled back"), 0, "{}", process.log());
    let next = run(world.consumer().handler(Effects).unwrap());
    testkit::until(LIMIT, "the commit", async || world.committed(0).await.0 == Some(1)).await;
    next.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&["wait".to_owned()], 1));
}
