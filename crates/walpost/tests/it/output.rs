//! What is printed, where it goes, and what happens when it cannot.

use std::{
    fs::OpenOptions,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::cli::{nowhere, stderr, stdout, walpost};

fn config(to: impl Into<Stdio>) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_walpost"))
        .arg("config")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = config(writer);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
}

#[test]
fn a_full_disk_is_an_error() {
    let output = config(OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: cannot write to stdout: "), "{}", stderr(&output));
}

#[test]
fn with_json_an_error_is_one_object_on_stdout_and_told_on_stderr_too() {
    let url = nowhere();
    for (args, exit) in [
        (&["status", "--json", "--postgres", &url][..], 3),
        (&["parked", "list", "--json", "--postgres", &url], 3),
        (&["status", "--json"], 2),
        (&["check", "--json", "--set", "pipeline.slto=a"], 2),
        (&["demo", "--json", "--events", "50001"], 2),
    ] {
        let output = walpost(args, &[]);
        assert_eq!(output.status.code(), Some(exit), "{args:?}");
        let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(line["exit_code"], exit, "{line}");
        let text = stderr(&output);
        assert!(text.contains(line["error"].as_str().unwrap()), "{text}{line}");
        assert!(text.contains(line["next_step"].as_str().unwrap()), "{text}{line}");
        assert!(!text.contains("s3cret") && !line.to_string().contains("s3cret"), "{line}");
    }
}

#[test]
fn with_a_log_in_json_the_last_line_is_json_too() {
    let url = nowhere();
    let args = ["run", "--postgres", &url, "--kafka", "127.0.0.1:1", "--set", "log.format=json"];
    let output = walpost(&[&args[..], &["--set", "pipeline.slot=No Slot"]].concat(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().expect("an error is printed");
    assert_eq!((&last["level"], &last["exit_code"]), (&"ERROR".into(), &2.into()), "{text}");
    assert!(last["message"].as_str().unwrap().contains("No Slot"), "{text}");
    assert!(last["timestamp"].as_str().unwrap().starts_with("20"), "{text}");
    assert!(last["next_step"].is_string(), "{text}");
}

#[test]
fn without_json_stdout_stays_empty_on_an_error() {
    let output = walpost(&["status", "--postgres", &nowhere()], &[]);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(3), ""));
}

#[test]
fn a_check_that_fails_is_one_json_object() {
    let args = ["check", "--json", "--postgres", &nowhere(), "--kafka", "127.0.0.1:1"];
    let output = walpost(&args, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(line["checks"][0]["outcome"], "fail", "{line}");
    assert!(line["checks"][0]["next_step"].as_str().unwrap().contains("PostgreSQL runs"), "{line}");
    assert_eq!(line["checks"][1]["group"], "kafka", "{line}");
}

#[test]
fn what_is_in_another_database_is_checked_while_the_own_one_is_away() {
    let (inbox, own) = (format!("inbox.url={}", nowhere()), nowhere());
    let sets = ["inbox.prune=true", &inbox, "idempotency.prune=true", "retention.enabled=true"];
    let args = ["check", "--json", "--postgres", &own, "--kafka", "127.0.0.1:1"];
    let args: Vec<&str> =
        args.into_iter().chain(sets.into_iter().flat_map(|set| ["--set", set])).collect();
    let output = walpost(&args, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let of_postgres = line["checks"].as_array().unwrap().iter();
    let of_postgres = of_postgres.filter(|check| check["group"] == "postgresql");
    let told: Vec<_> = of_postgres.map(|check| [&check["name"], &check["outcome"]]).collect();
    let expected = [["connection", "fail"], ["retention of the inbox", "warn"]];
    assert_eq!(told, expected, "{line}");
}
