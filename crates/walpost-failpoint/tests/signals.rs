//! What becomes of a process, which is this binary, started again.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use walpost_failpoint::reached;

const PASSES: &str = "PASSES_POINTS";
const TEST: &str = "a_process_that_has_no_failpoint_passes_all_points";
const SIGKILL: i32 = 9;
const SIGABRT: i32 = 6;

/// With this in the variable, or without it.
fn process(armed: Option<&str>) -> Command {
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", TEST, "--nocapture"]).env(PASSES, "").env_remove("WALPOST_FAILPOINT");
    process.envs(armed.map(|armed| ("WALPOST_FAILPOINT", armed)));
    process
}

/// What it has passed, of `a1 a2 a3 b1`.
fn passed(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(|line| line.split("passed ").nth(1)).map(str::to_owned).collect()
}

/// Without the environment: a test. With it: the process.
#[test]
fn a_process_that_has_no_failpoint_passes_all_points() {
    if env::var_os(PASSES).is_none() {
        let output = process(None).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(passed(&output), ["a1", "a2", "a3", "b1"]);
        return;
    }
    // What libtest says of the test has no end of line yet.
    println!();
    for n in 1..=3 {
        reached("a", &["before", "after"], "after");
        println!("passed a{n}");
    }
    reached("b", &["between"], "between");
    println!("passed b1");
}

#[test]
fn it_is_killed_where_and_when_it_is_asked_for() {
    let kills: [(&str, &[&str]); 4] = [
        ("a/after:kill", &[]),
        ("a/after@2:kill", &["a1"]),
        ("a/after@3:kill", &["a1", "a2"]),
        ("b/between:kill", &["a1", "a2", "a3"]),
    ];
    for (armed, before) in kills {
        let output = process(Some(armed)).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGKILL), "{armed}: {output:?}");
        assert_eq!(passed(&output), before, "{armed}");
    }
    for never in ["a/after@4:kill", "a/before:kill", "b/between@2:kill", "c/after:kill"] {
        let output = process(Some(never)).output().unwrap();
        assert!(output.status.success(), "{never}: {output:?}");
        assert_eq!(passed(&output).len(), 4, "{never}");
    }
}

#[test]
fn a_name_that_is_unknown_fails_in_the_crate_that_it_is_of_and_says_what_there_is() {
    let refused: [(&str, &[&str], &str); 4] = [
        ("a/between:kill", &[], "a has no point between, it has before, after"),
        ("b/after:kill", &["a1", "a2", "a3"], "b has no point after, it has between"),
        ("after:kill", &[], "after:kill is not of the form whose/name[@count]:kill|stop"),
        ("a/after:halt", &[], "a/after:halt is not of the form"),
    ];
    for (armed, before, reason) in refused {
        let output = process(Some(armed)).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGABRT), "{armed}: {output:?}");
        assert_eq!(passed(&output), before, "{armed}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.contains(reason), "{armed}: {log}");
    }
}

#[test]
fn one_that_is_stopped_passes_nothing_more_until_it_is_woken() {
    let mut process = process(Some("a/after@2:stop"));
    let child = process.stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    kill_process(pid, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(passed(&output), ["a1", "a2", "a3", "b1"]);
}
