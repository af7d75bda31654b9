//! `walpost demo` from outside: what it prints, and that it leaves nothing.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use walpost_local::{Postgres, Signal};
use walpost_testkit::{Process, until};

use crate::cli::{stderr, walpost};

const LIMIT: Duration = Duration::from_secs(300);

/// A demo whose temporary folders are all in `folder`.
fn demo(folder: &Path, args: &[&str]) -> Process {
    let args = [&["demo"], args].concat();
    Process::start(env!("CARGO_BIN_EXE_walpost"), args, [("TMPDIR", folder)])
}

/// Short enough for a socket in it, and open to the user that the server runs
/// as.
fn folder() -> TempDir {
    let open = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("wd").permissions(open).tempdir_in("/tmp").unwrap()
}

/// Files in the folder, and processes that were told of it.
fn left(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut left: Vec<_> = files.map(|file| file.path().display().to_string()).collect();
    let name = folder.display().to_string();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&name) {
            left.push(command);
        }
    }
    left
}

const NOTHING: [String; 0] = [];

#[test]
fn a_demo_with_a_kill_of_each_keeps_the_promise_and_leaves_nothing() {
    let folder = folder();
    let demo = demo(folder.path(), &["--events", "400", "--json"]);
    let status = demo.wait(LIMIT);
    let text = demo.log();
    assert!(status.success(), "{text}");
    let figures: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    for (name, figure) in [
        ("committed", 400),
        ("published", 400),
        ("applied", 400),
        ("replayed", 400),
        ("lost", 0),
        ("applied_twice", 0),
        ("reordered", 0),
    ] {
        assert_eq!(figures[name], figure, "{name}: {text}");
    }
    for part in ["SIGKILL to the relay", "SIGKILL to the consumer", "published twice"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(left(folder.path()), NOTHING);
}

#[test]
#[ignore = "deep: takes long"]
fn an_interrupted_demo_leaves_nothing_on_a_server_of_the_users() {
    let server = Postgres::builder().throwaway().start().unwrap();
    for signal in [Signal::Interrupt, Signal::Hangup] {
        let folder = folder();
        let url = server.url("postgres");
        let demo = demo(folder.path(), &["--events", "50000", "--postgres", &url]);
        demo.wait_for_log("  written ", LIMIT);
        let there = server.psql("postgres", "select count(*) from pg_replication_slots").unwrap();
        assert_eq!(there.trim(), "1");
        demo.signal(signal);
        let status = demo.wait(LIMIT);
        let text = demo.log();
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains("error: the demo was interrupted by SIG"), "{text}");
        assert_eq!(left(folder.path()), NOTHING);
        let left = "select count(*) from pg_database where datname like 'walpost_demo%'
            union all select count(*) from pg_replication_slots";
        assert_eq!(server.psql("postgres", left).unwrap().split_whitespace().max(), Some("0"));
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_killed_demo_leaves_no_process_and_no_folder() {
    let folder = folder();
    let demo = demo(folder.path(), &["--events", "50000"]);
    demo.wait_for_log("  written ", LIMIT);
    demo.kill();
    until(LIMIT, "an end of what it had started", async || left(folder.path()).is_empty()).await;
}

#[test]
#[ignore = "deep: takes long"]
fn two_demos_at_once_do_not_meet() {
    let server = Postgres::builder().throwaway().start().unwrap();
    let url = server.url("postgres");
    let folders = [folder(), folder()];
    let args = ["--events", "1", "--kills", "0", "--postgres", &url];
    let demos = folders.each_ref().map(|folder| demo(folder.path(), &args));
    for (demo, folder) in demos.iter().zip(&folders) {
        assert!(demo.wait(LIMIT).success(), "{}", demo.log());
        assert_eq!(left(folder.path()), NOTHING);
    }
}

#[test]
fn a_demo_that_cannot_begin_says_why_before_it_starts_anything() {
    for (args, exit, parts) in [
        (&["--postgres", "nonsense"][..], 2, ["--postgres: the connection string", "next step"]),
        (&["--events", "0"], 2, ["invalid value '0'", "--events"]),
        (&["--events", "10000000"], 2, ["mock", "--kafka"]),
        (&["--events", "2", "--kills", "3"], 2, ["3 kills do not fit into 2 events", "next step"]),
        (&["--postgres", "postgres://a@127.0.0.1:1/a"], 3, ["cannot reach", "PostgreSQL runs"]),
        (&["--kafka", "127.0.0.1:1"], 4, ["no answer from the brokers at 127.0.0.1:1", "[kafka]"]),
    ] {
        let output = walpost(&[&["demo"], args].concat(), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{args:?}: {text}");
        assert!(!text.contains("PostgreSQL  "), "{args:?}: {text}");
    }
}

#[test]
fn a_server_without_logical_wal_is_told_before_the_play() {
    let server = Postgres::builder().throwaway().setting("wal_level", "replica").start().unwrap();
    let output = walpost(&["demo", "--postgres", &server.url("postgres")], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("wal_level is replica") && text.contains("next step: run"), "{text}");
    let left = "select count(*) from pg_database where datname like 'walpost_demo%'";
    assert_eq!(server.psql("postgres", left).unwrap().trim(), "0");
}
