//! The example as a newcomer runs it, and kills it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use stand::patiently;
use tempfile::TempDir;
use walpost_testkit::{
    Process,
    local::{Postgres, Signal},
    until,
};

use crate::world::{LIMIT, free_address, mail_server, mails};

const ACCOUNTS: usize = 250;

/// Time enough to be killed half-way.
fn start_slowly(environment: &[(&str, &str)]) -> Process {
    start(&[], &[environment, &[("PACE_MS", "200")]].concat())
}

fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Process {
    let accounts = ACCOUNTS.to_string();
    let all = environment.iter().copied().chain([("ACCOUNTS", accounts.as_str())]);
    Process::start(env!("CARGO_BIN_EXE_signup"), arguments, all)
}

async fn some_mails(process: &Process, folder: &Path, wanted: usize) {
    until(LIMIT, "some mails", async || {
        assert!(process.is_running(), "{}", process.log());
        folder.is_dir() && mails(folder).len() >= wanted
    })
    .await;
}

/// Accounts, and those of them with a delivery that has arrived.
const COUNTS: &str = "select (select count(*) from account), (select count(*) from \
                      walpost.webhook_delivery where state = 'delivered')";

#[tokio::test(flavor = "multi_thread")]
async fn one_command_sends_one_mail_for_each_account_also_when_it_is_killed() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let environment = [("FOLDER", folder.path().to_str().unwrap())];
    let spool = folder.path().join("mails");
    for wanted in [20, 60] {
        let process = start_slowly(&environment);
        some_mails(&process, &spool, wanted).await;
        assert!(mails(&spool).len() < ACCOUNTS, "it was too fast to be killed half-way");
        process.kill();
    }
    let last = start(&[], &environment);
    assert!(last.wait(LIMIT).success(), "{}", last.log());
    assert!(last.log().contains(&format!("done: {ACCOUNTS} accounts, ")), "{}", last.log());
    assert!(mails(&spool).values().all(|mails| *mails == 1));
    let settled = start(&["settle"], &environment);
    assert!(settled.wait(LIMIT).success(), "{}", settled.log());
    let done = format!("done: {ACCOUNTS} accounts, {ACCOUNTS} mails, none twice");
    assert_eq!(settled.log().lines().last(), Some(&*done), "{}", settled.log());
    let mails = mails(&spool);
    assert_eq!((mails.len(), mails.values().sum()), (ACCOUNTS, ACCOUNTS));
    let home = folder.path().join("postgres");
    let postgres = patiently(|| Postgres::builder().home(&home).start()).unwrap();
    let counts = postgres.psql("postgres", COUNTS).unwrap();
    assert_eq!(counts.trim(), format!("{ACCOUNTS}|{ACCOUNTS}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_ones_own_do_as_well_and_ctrl_c_ends_in_order() {
    let database = walpost_testkit::fresh_database().await;
    let spool = TempDir::new().unwrap();
    let smtp = free_address();
    let _server = mail_server(spool.path(), smtp).await;
    let smtp = smtp.to_string();
    let environment = [("DATABASE_URL", database.url()), ("SMTP", &*smtp)];
    let first = start_slowly(&environment);
    some_mails(&first, spool.path(), 10).await;
    first.signal(Signal::Interrupt);
    assert!(first.wait(LIMIT).success(), "{}", first.log());
    assert!(first.log().contains("none twice; the next start goes on"), "{}", first.log());
    let second = start(&[], &environment);
    assert!(second.wait(LIMIT).success(), "{}", second.log());
    // What a server has not answered in time, as on a busy machine, nobody knows.
    let looking = ("SPOOL", spool.path().to_str().unwrap());
    let settled = start(&["settle"], &[&environment[..], &[looking]].concat());
    assert!(settled.wait(LIMIT).success(), "{}", settled.log());
    let mails = mails(spool.path());
    assert_eq!((mails.len(), mails.values().sum()), (ACCOUNTS, ACCOUNTS), "{}", second.log());
    let done = format!("done: {ACCOUNTS} accounts, {ACCOUNTS} mails, none twice");
    assert_eq!(settled.log().lines().last(), Some(&*done), "{}", settled.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_mail_ends_it_as_broken_at_once_and_at_each_start() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let environment = [("FOLDER", folder.path().to_str().unwrap())];
    let spool = folder.path().join("mails");
    let first = start_slowly(&environment);
    some_mails(&first, &spool, 10).await;
    let mails = std::fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path());
    let mail = mails.filter(|path| path.extension().is_some_and(|it| it == "eml")).min().unwrap();
    std::fs::copy(&mail, spool.join("again.eml")).unwrap();
    let ends_as_broken = |process: Process| {
        let status = process.wait(LIMIT);
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().find(|line| line.starts_with("signup: BROKEN: of ")).unwrap();
        assert!(last.ends_with(" accounts 1 have two mails"), "{log}");
    };
    ends_as_broken(first);
    ends_as_broken(start(&[], &environment));
}
