//! Runs both benches, small and without peers that would have to be fetched.

use std::process::Command;

use serde_json::Value;

fn figures(args: &[&str]) -> Vec<Value> {
    let bench = env!("CARGO_BIN_EXE_walpost-bench");
    let output = Command::new(bench).args(args).arg("--json").output().expect("the bench runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn positive(line: &Value, pointer: &str) -> bool {
    line.pointer(pointer).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0)
}

#[test]
fn the_relay_bench_gives_one_line_of_figures_a_subject() {
    let args = ["--events", "5001", "--subjects", "pg_recvlogical", "--latency-seconds", "1"];
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
    let lines = figures(&["consumer", "--events", "2000"]);
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
fn a_binary_that_is_not_there_is_named_with_the_command_that_builds_it() {
    let bench = env!("CARGO_BIN_EXE_walpost-bench");
    let args = ["relay", "--subjects", "walpost", "--walpost", "/nowhere/walpost"];
    let output = Command::new(bench).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("/nowhere/walpost") && stderr.contains("cargo build"), "{stderr}");
}
