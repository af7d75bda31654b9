use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use walpost_local::{ChildGuard, Launch, Lifetime, Signal, is_alive, send_signal};

const LIMIT: Duration = Duration::from_secs(20);

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn sleeper(folder: &Path) -> Launch {
    Launch::new("sleeper", "sleep", folder.join("log")).arg("600")
}

#[test]
fn dropping_the_guard_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let child = sleeper(folder.path()).spawn().unwrap();
    let pid = child.pid();
    assert!(child.is_running());
    drop(child);
    assert!(!is_alive(pid));
}

#[test]
fn what_is_paused_stands_still_and_what_has_ended_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let child = sleeper(folder.path()).spawn().unwrap();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        stat.rsplit(')').next().unwrap().trim().chars().next().unwrap()
    };
    for _ in 0..3 {
        child.pause().unwrap();
        assert_eq!(state(), 'T');
        child.resume().unwrap();
    }
    send_signal(child.pid(), Signal::Kill).unwrap();
    until("its end", || state() == 'Z');
    child.pause().unwrap();
    child.wait(LIMIT).unwrap();
    child.pause().unwrap();
}

#[test]
fn a_frozen_program_that_ignores_its_signal_can_be_killed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = "trap '' TERM; echo ready; while :; do read -r x || exec sleep 600; done";
    let child = Launch::new("stubborn", "/bin/sh", &log)
        .args(["-c", script])
        .last_signal(Signal::Terminate)
        .spawn()
        .unwrap();
    until("the trap", || fs::read_to_string(&log).unwrap().contains("ready"));
    child.pause().unwrap();
    let pid = child.pid();
    let short = child.end(Signal::Terminate, Duration::from_millis(100));
    assert!(short.is_err(), "the signal was not ignored");
    child.pause().unwrap();
    assert!(child.kill().unwrap().code().is_none());
    assert!(!is_alive(pid));
}

#[test]
fn a_program_that_cannot_be_found_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Launch::new("x", "no-such-program", folder.path().join("log")).spawn().unwrap_err();
    assert!(error.to_string().contains("`no-such-program`"), "{error}");
}

#[test]
fn a_detached_program_survives_its_guard() {
    let folder = tempfile::tempdir().unwrap();
    let child = sleeper(folder.path()).lifetime(Lifetime::Unbounded).spawn().unwrap();
    let pid = child.pid();
    drop(child);
    assert!(is_alive(pid));
    send_signal(pid, Signal::Kill).unwrap();
    until("its end", || !is_alive(pid));
}

#[test]
fn a_program_of_another_process_ends_with_that_and_not_with_its_guard() {
    let folder = tempfile::tempdir().unwrap();
    let disposable = folder.path().join("disposable");
    fs::create_dir(&disposable).unwrap();
    let owner = sleeper(folder.path()).spawn().unwrap();
    let launch = sleeper(folder.path()).lifetime(Lifetime::Process(owner.pid()));
    let child = launch.disposable(Some(&disposable)).spawn().unwrap();
    let pid = child.pid();
    drop(child);
    assert!(is_alive(pid) && disposable.exists());
    owner.kill().unwrap();
    until("the end of the program", || !is_alive(pid));
    until("the end of its folder", || !disposable.exists());
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn victim_that_starts_a_program_and_waits() {
    let Ok(folder) = std::env::var("WALPOST_VICTIM_FOLDER") else { return };
    let folder = Path::new(&folder);
    let disposable = folder.join("disposable");
    fs::create_dir(&disposable).unwrap();
    let child: ChildGuard = sleeper(folder).disposable(Some(&disposable)).spawn().unwrap();
    println!("\npid {}", child.pid());
    child.wait(Duration::from_secs(600)).unwrap();
}

#[test]
fn a_program_dies_with_a_starter_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guard::victim_that_starts_a_program_and_waits", "--nocapture"])
        .env("WALPOST_VICTIM_FOLDER", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid: u32 = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("pid ").map(|pid| pid.parse().unwrap()))
        .expect("the victim prints the id of its program");
    assert!(is_alive(pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("the end of the program", || !is_alive(pid));
    until("the end of its folder", || !folder.path().join("disposable").exists());
}
