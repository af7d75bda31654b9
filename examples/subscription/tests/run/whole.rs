//! The example as a newcomer runs it, and kills it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use stand::patiently;
use tempfile::TempDir;
use walpost_testkit::{
    Process, fresh_database,
    local::{Postgres, Signal},
    until,
};

use crate::{
    oracle::Oracle,
    world::{LIMIT, connect},
};

const SUBSCRIPTIONS: u64 = 200;

/// Does not come to its end: some webhooks are not sent, and it does not ask for them.
fn start_endless(environment: &[(&str, &str)]) -> Process {
    start(&[environment, &[("RECONCILE_EVERY_MS", "600000")]].concat())
}

fn start(environment: &[(&str, &str)]) -> Process {
    let wanted = SUBSCRIPTIONS.to_string();
    let all = environment.iter().copied().chain([("SUBSCRIPTIONS", wanted.as_str())]);
    Process::start(env!("CARGO_BIN_EXE_subscription"), [""; 0], all)
}

/// The figure before `word` in the last line that has it.
fn told(process: &Process, word: &str) -> u64 {
    let log = process.log();
    let figure = log.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(word)?;
        before.split_whitespace().last()?.parse().ok()
    });
    figure.unwrap_or(0)
}

async fn until_some_are_active(process: &Process, least: u64) {
    until(LIMIT, "some that are active", async || {
        assert!(process.is_running(), "{}", process.log());
        told(process, " active ") >= least
    })
    .await;
    assert!(told(process, " active ") < SUBSCRIPTIONS * 9 / 10, "too fast: {}", process.log());
}

fn goes_on_to_the_end(environment: &[(&str, &str)]) {
    let last = start(environment);
    let status = last.wait(LIMIT);
    let log = last.log();
    assert!(status.success(), "{log}");
    let begun = log.lines().find(|line| line.contains(" on their way ")).unwrap();
    assert!(!begun.trim_start().starts_with("0 requested"), "it goes on: {log}");
    let expected = format!(
        "done: {SUBSCRIPTIONS} subscriptions, {} active, {} failed, none unknown to us, none doubled",
        SUBSCRIPTIONS * 9 / 10,
        SUBSCRIPTIONS / 10
    );
    assert_eq!(log.lines().last(), Some(&*expected), "{log}");
}

/// From the tables, whatever the example says.
async fn judge(url: impl Fn(&str) -> String) {
    let [app, billing] = ["app", "billing"].map(url);
    let oracle = Oracle::of(connect(&app).await, connect(&billing).await);
    let all = oracle.compare().await;
    assert_eq!(all.len() as u64, SUBSCRIPTIONS);
    for (user, ours, theirs) in all {
        let expected = if user.ends_with("-poor") { "failed" } else { "active" };
        assert_eq!((&*ours, theirs.as_deref()), (expected, Some(expected)), "{user}");
        assert_eq!(oracle.told_of(&user).await, [expected], "{user}");
    }
}

fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_leaves_no_subscription_unknown_or_doubled_also_when_it_is_killed() {
    let folder = TempDir::new().unwrap();
    open_to_all(folder.path());
    let environment = [("FOLDER", folder.path().to_str().unwrap())];
    for least in [5, 100] {
        let killed = start_endless(&environment);
        until_some_are_active(&killed, least).await;
        killed.kill();
    }
    tokio::task::block_in_place(|| goes_on_to_the_end(&environment));
    let home = folder.path().join("postgres");
    let start = move || patiently(|| Postgres::builder().home(&home).start()).unwrap();
    let postgres = tokio::task::spawn_blocking(start).await.unwrap();
    judge(|name| postgres.url(name)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_server_of_ones_own_ctrl_c_ends_in_order_and_the_next_start_goes_on() {
    let database = fresh_database().await;
    let environment = [("DATABASE_URL", database.url())];
    let first = start_endless(&environment);
    until_some_are_active(&first, 5).await;
    first.signal(Signal::Interrupt);
    let status = tokio::task::block_in_place(|| first.wait(LIMIT));
    assert!(status.success(), "{}", first.log());
    assert!(first.log().contains("none doubled; the next start goes on"), "{}", first.log());
    tokio::task::block_in_place(|| goes_on_to_the_end(&environment));
    judge(|name| database.beside(name).url().to_owned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_there_twice_ends_it_as_broken_at_once_and_at_each_start() {
    let database = fresh_database().await;
    let environment = [("DATABASE_URL", database.url())];
    let first = start_endless(&environment);
    until_some_are_active(&first, 5).await;
    let again = "insert into subscription (reference, user_id, plan_id, state) \
                 select reference, user_id, plan_id, state from subscription order by id limit 1";
    let billing = database.beside("billing").connect().await;
    assert_eq!(billing.execute(again, &[]).await.unwrap(), 1);
    let ends_as_broken = |process: Process| {
        let status = tokio::task::block_in_place(|| process.wait(LIMIT));
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().find(|line| line.starts_with("subscription: BROKEN: of ")).unwrap();
        assert!(last.ends_with(" subscriptions 1 doubled, 0 unknown to us"), "{log}");
    };
    ends_as_broken(first);
    ends_as_broken(start(&environment));
}
