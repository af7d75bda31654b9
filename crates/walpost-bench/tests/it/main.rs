//! Runs the benches, small and without peers that would have to be fetched.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use walpost_testkit::built_program;

const BENCH: &str = env!("CARGO_BIN_EXE_walpost-bench");

fn bench(args: &[&str]) -> Output {
    Command::new(BENCH).args(args).arg("--json").output().expect("the bench runs")
}

fn figures(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    lines(&output)
}

fn lines(output: &Output) -> Vec<Value> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn positive(line: &Value, pointer: &str) -> bool {
    line.pointer(pointer).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0)
}

/// The program to measure, of this profile.
fn walpost() -> PathBuf {
    built_program("walpost")
}

#[test]
fn the_relay_bench_gives_one_line_of_figures_a_subject() {
    // So many that it still runs when it is first looked at.
    let args = ["--events", "50001", "--subjects", "pg_recvlogical", "--latency-seconds", "1"];
    let lines = figures(&[&["relay"], &args[..]].concat());
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["bench"], &lines[0]["subject"]),
        (&"relay".into(), &"pg_recvlogical".into())
    );
    for pointer in ["/events_per_second", "/rss_mb_peak", "/first_record_seconds"] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
    for rate in ["200", "2000"] {
        for percentile in ["p50", "p99", "p99_9"] {
            let pointer = format!("/latency_ms/{rate}/{percentile}");
            assert!(positive(&lines[0], &pointer), "{pointer}: {}", lines[0]);
        }
    }
}

#[test]
fn the_consumer_bench_makes_every_effect_once_in_every_way() {
    let ways = "walpost_slice,walpost_per_event,one_transaction_per_event,sql_only";
    let args = ["consumer", "--events", "2000", "--latency-seconds", "0", "--subjects", ways];
    let lines = figures(&args);
    let subjects: Vec<_> = lines.iter().map(|line| line["subject"].as_str().unwrap()).collect();
    assert_eq!(
        subjects,
        ["walpost_slice", "walpost_per_event", "one_transaction_per_event", "sql_only"]
    );
    for line in &lines {
        assert_eq!(line["bench"], "consumer");
        assert!(positive(line, "/effects_per_second"), "{line}");
    }
}

#[test]
fn the_consumer_bench_measures_from_the_commit_to_the_effect() {
    let walpost = walpost();
    let args = ["consumer", "--events", "1000", "--subjects", "sql_only", "--latency-seconds", "1"];
    let lines = figures(&[&args[..], &["--walpost", walpost.to_str().unwrap()]].concat());
    let latency = &lines[1];
    assert_eq!(latency["subject"], "walpost_end_to_end");
    for pointer in ["/latency_ms/p50", "/latency_ms/p99"] {
        assert!(positive(latency, pointer), "{pointer}: {latency}");
    }
}

#[test]
fn the_transaction_bench_gives_one_line_and_every_row() {
    let walpost = walpost();
    let args = ["transaction", "--rows", "20000", "--walpost", walpost.to_str().unwrap()];
    let lines = figures(&args);
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["bench"], &lines[0]["rows"]), (&"transaction".into(), &20_000.into()));
    for pointer in ["/events_per_second", "/rss_mb_peak", "/first_record_seconds"] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
}

#[test]
fn the_transaction_bench_exits_with_1_when_the_memory_passes_the_limit() {
    let walpost = walpost();
    let args = ["transaction", "--rows", "1000", "--rss-limit-mb", "1"];
    let output = bench(&[&args[..], &["--walpost", walpost.to_str().unwrap()]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("more than 1 MB"), "{stderr}");
    assert_eq!(lines(&output).len(), 1);
}

#[test]
fn a_binary_that_is_not_there_is_named_with_the_command_that_builds_it() {
    let args = ["relay", "--subjects", "walpost", "--walpost", "/nowhere/walpost"];
    let output = Command::new(BENCH).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("/nowhere/walpost") && stderr.contains("cargo build"), "{stderr}");
}

#[test]
fn the_bench_of_lanes_compares_them_with_one() {
    let lines = figures(&["slow", "--events", "400", "--wait-ms", "2", "--lanes", "4"]);
    assert_eq!(lines.len(), 1);
    for pointer in ["/serial_effects_per_second", "/lanes_effects_per_second", "/ratio"] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
}

#[test]
fn the_bench_of_idempotency_keys_measures_every_kind_of_request() {
    let lines = figures(&["idempotency", "--requests", "200"]);
    assert_eq!(lines.len(), 1);
    for pointer in ["/bare_p50_us", "/new_p50_us", "/replayed_p50_us", "/round_trip_p50_us"] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
}

#[test]
fn the_webhook_bench_measures_deliveries_and_transactions() {
    let walpost = walpost();
    let args = ["webhook", "--deliveries", "200", "--rounds", "1", "--seconds", "1"];
    let rate = ["--rate", "50", "--walpost", walpost.to_str().unwrap()];
    let lines = figures(&[&args[..], &rate[..]].concat());
    assert_eq!(lines.len(), 1);
    for pointer in [
        "/deliveries_per_s",
        "/fast_alone_p99_ms",
        "/fast_beside_p99_ms",
        "/fast_ratio",
        "/transaction_healthy_p99_ms",
        "/transaction_dead_p99_ms",
        "/transaction_ratio",
    ] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
}

#[test]
fn the_relay_bench_measures_walpost_itself() {
    let walpost = walpost();
    let args = ["relay", "--events", "50001", "--subjects", "walpost", "--latency-seconds", "1"];
    let lines = figures(&[&args[..], &["--walpost", walpost.to_str().unwrap()]].concat());
    assert_eq!((lines.len(), &lines[0]["subject"]), (1, &"walpost".into()));
    for pointer in ["/events_per_second", "/first_record_seconds", "/latency_ms/200/p50"] {
        assert!(positive(&lines[0], pointer), "{pointer}: {}", lines[0]);
    }
}
