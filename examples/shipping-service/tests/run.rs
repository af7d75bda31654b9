//! The example as a newcomer runs it, and kills it.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use std::{path::Path, time::Duration};

use stand::patiently;
use tempfile::TempDir;
use walpost_testkit::{
    Process,
    local::{Kafka, Postgres, Signal},
};

const ORDERS: i64 = 1_600;
const LIMIT: Duration = Duration::from_secs(300);

fn start(environment: &[(&str, &str)]) -> Process {
    let orders = ORDERS.to_string();
    let all = environment.iter().copied().chain([("ORDERS", orders.as_str())]);
    Process::start(env!("CARGO_BIN_EXE_shipping-service"), [""; 0], all)
}

/// The figure before `word` in the last line that has it.
fn told(process: &Process, word: &str) -> i64 {
    let log = process.log();
    let figure = log.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(word)?;
        before.split_whitespace().last()?.parse().ok()
    });
    figure.unwrap_or(0)
}

/// Time enough to be killed half-way.
fn start_slowly(environment: &[(&str, &str)]) -> Process {
    start(&[environment, &[("PACE_MS", "50")]].concat())
}

/// Killed half-way and started again; what the second one says at its end.
async fn killed_half_way(environment: &[(&str, &str)]) {
    let first = start_slowly(environment);
    walpost_testkit::until(LIMIT, "some shipments", async || {
        assert!(first.is_running(), "{}", first.log());
        told(&first, " shipped ") >= 50
    })
    .await;
    assert!(told(&first, " shipped ") < ORDERS, "it was too fast to be killed half-way");
    first.kill();
    let second = start(environment);
    let status = second.wait(LIMIT);
    let log = second.log();
    assert!(status.success(), "{log}");
    let begun = log.lines().find(|line| line.contains(" on their way ")).unwrap();
    assert!(!begun.trim_start().starts_with("0 orders"), "it goes on: {log}");
    let last = format!("done: {ORDERS} orders, {ORDERS} shipped, none twice");
    assert_eq!(log.lines().last(), Some(&*last), "{log}");
}

/// What is in the tables, whatever the example says.
fn shipments(postgres: &Postgres) -> String {
    let counts = "select count(*), count(distinct s.order_id), count(distinct o.id) \
                  from orders o full join shipment s on s.order_id = o.id";
    postgres.psql("postgres", counts).unwrap().trim().to_owned()
}

fn expected() -> String {
    format!("{ORDERS}|{ORDERS}|{ORDERS}")
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_ships_each_order_once_also_when_it_is_killed_with_its_servers() {
    let folder = TempDir::new().unwrap();
    open_to_all(folder.path());
    let path = folder.path().to_str().unwrap();
    killed_half_way(&[("FOLDER", path)]).await;
    let home = folder.path().join("postgres");
    let postgres = patiently(|| Postgres::builder().home(&home).start()).unwrap();
    assert_eq!(shipments(&postgres), expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_ones_own_do_as_well_and_ctrl_c_ends_in_order() {
    let (postgres, kafka) = tokio::task::spawn_blocking(|| {
        let postgres = Postgres::builder().throwaway().start();
        (postgres.unwrap(), Kafka::builder().start().unwrap())
    })
    .await
    .unwrap();
    let (url, brokers) = (postgres.url("postgres"), kafka.bootstrap());
    let environment = [("DATABASE_URL", &*url), ("KAFKA", &*brokers)];
    let first = start_slowly(&environment);
    walpost_testkit::until(LIMIT, "some shipments", async || {
        assert!(first.is_running(), "{}", first.log());
        told(&first, " shipped ") >= 10
    })
    .await;
    first.signal(Signal::Interrupt);
    let status = first.wait(LIMIT);
    assert!(status.success(), "{}", first.log());
    assert!(first.log().contains("none twice; the next start goes on"), "{}", first.log());
    killed_half_way(&environment).await;
    assert_eq!(shipments(&postgres), expected());
    let again = "insert into shipment (order_id, city, event_id) \
                 select order_id, city, event_id from shipment order by order_id limit 1";
    postgres.psql("postgres", again).unwrap();
    let broken = start(&environment);
    assert_eq!(broken.wait(LIMIT).code(), Some(1), "{}", broken.log());
    let last = format!("BROKEN: of {ORDERS} orders 1 were shipped twice");
    assert!(broken.log().contains(&last), "{}", broken.log());
}
