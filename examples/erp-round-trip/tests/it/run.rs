//! The example as somebody runs it, and kills it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use stand::patiently;
use tempfile::TempDir;
use walpost_testkit::{
    Process,
    local::{Postgres, Signal, send_signal},
    until, until_some,
};

use crate::stage::{LIMIT, PROGRAM, blocking};

const INVOICES: i64 = 600;

/// So slowly that there is time to kill it.
const SLOW: (&str, &str) = ("PACE_MS", "50");

fn start(folder: &Path, environment: &[(&str, &str)]) -> Process {
    let (folder, invoices) = (folder.to_str().unwrap(), INVOICES.to_string());
    let all = [("FOLDER", folder), ("INVOICES", &invoices)];
    Process::start(PROGRAM, [""; 0], all.into_iter().chain(environment.iter().copied()))
}

/// The shipments of its last line.
fn shipped(process: &Process) -> i64 {
    let log = process.log();
    let figure = log.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(" shipments")?;
        before.split_whitespace().last()?.parse().ok()
    });
    figure.unwrap_or(0)
}

async fn some_shipments(process: &Process, count: i64) {
    until(LIMIT, "some shipments", async || {
        assert!(process.is_running(), "{}", process.log());
        shipped(process) >= count
    })
    .await;
    assert!(shipped(process) < INVOICES, "it was too fast");
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    // The server runs as somebody else where we are root.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn ends_well(process: Process) -> String {
    let (status, log) = blocking(move || (process.wait(LIMIT), process.log())).await;
    assert!(status.success(), "{log}");
    let refunds = INVOICES / 25;
    let last = format!(
        "done: {INVOICES} invoices paid, {refunds} refunded, {} events delivered, \
         {INVOICES} shipments, {refunds} cancelled, none twice",
        INVOICES + refunds
    );
    assert_eq!(log.lines().last(), Some(&*last), "{log}");
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_ships_each_paid_invoice_once_also_when_it_is_killed_with_its_server() {
    let folder = folder();
    let first = start(folder.path(), &[SLOW]);
    some_shipments(&first, 40).await;
    first.kill();
    let log = ends_well(start(folder.path(), &[])).await;
    let begun = log.lines().find(|line| line.starts_with("finance:")).unwrap();
    assert!(!begun.contains("     0 paid"), "it goes on: {log}");
    // Whatever the example says.
    let home = folder.path().join("postgres");
    let counts = blocking(move || {
        let postgres = patiently(|| Postgres::builder().home(&home).start()).unwrap();
        let psql = |database, sql| postgres.psql(database, sql).unwrap().trim().to_owned();
        let paid = psql(
            "finance",
            "select count(*), count(distinct payment_id) from invoices where status <> 'open'",
        );
        let shipped =
            psql("logistics", "select count(*), count(distinct invoice_id) from shipment");
        (paid, shipped)
    })
    .await;
    let all = format!("{INVOICES}|{INVOICES}");
    assert_eq!(counts, (all.clone(), all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_side_that_is_killed_is_started_again_and_ctrl_c_ends_both_in_order() {
    let folder = folder();
    let environment = [("SOURCE", "polling"), ("MODE", "inbox"), SLOW];
    let first = start(folder.path(), &environment);
    some_shipments(&first, 5).await;
    first.signal(Signal::Interrupt);
    let (status, log) = blocking(move || (first.wait(LIMIT), first.log())).await;
    assert!(status.success(), "{log}");
    assert!(log.contains("none twice; the next start goes on from here"), "{log}");

    let second = start(folder.path(), &environment);
    for (side, more) in [("finance", 30), ("logistics", 90)] {
        some_shipments(&second, more).await;
        let pid = until_some(LIMIT, "its number", async || {
            let told = format!("{side} is process ");
            let log = second.log();
            log.lines().find_map(|line| line.strip_prefix(&told)?.parse().ok())
        })
        .await;
        send_signal(pid, Signal::Kill).unwrap();
        let told = format!("{side} was killed; now it is process ");
        until(LIMIT, "its successor", async || second.log().contains(&told)).await;
    }
    ends_well(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_shipment_ends_it_as_broken_at_once_and_at_each_start() {
    let folder = folder();
    let postgres = blocking(|| Postgres::builder().throwaway().start().unwrap()).await;
    let url = postgres.url("postgres");
    let environment = [("DATABASE_URL", &*url), SLOW];
    let first = start(folder.path(), &environment);
    some_shipments(&first, 5).await;
    let again = "insert into shipment (invoice_id, city, state, idempotency_key) \
                 select invoice_id, city, state, idempotency_key || '-again' \
                 from shipment order by invoice_id limit 1";
    postgres.psql("logistics", again).unwrap();
    let ends_as_broken = async |process: Process| {
        let (status, log) = blocking(move || (process.wait(LIMIT), process.log())).await;
        assert_eq!(status.code(), Some(1), "{log}");
        let is_last = |line: &str| line.starts_with("erp-round-trip: BROKEN: of ");
        assert!(log.lines().any(is_last), "{log}");
    };
    ends_as_broken(first).await;
    ends_as_broken(start(folder.path(), &environment)).await;
}
