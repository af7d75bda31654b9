//! The alert rules under `ops/`, by Prometheus' own tool.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

const RULES: &str = "ops/prometheus/consumer.rules.yml";
const TESTS: &str = "ops/prometheus/consumer.test.yml";

/// Every file of rules with that of its tests.
const FILES: [(&str, &str); 6] = [
    (RULES, TESTS),
    ("ops/prometheus/connect.rules.yml", "ops/prometheus/connect.test.yml"),
    ("ops/prometheus/idempotency.rules.yml", "ops/prometheus/idempotency.test.yml"),
    ("ops/prometheus/receive.rules.yml", "ops/prometheus/receive.test.yml"),
    ("ops/prometheus/relay.rules.yml", "ops/prometheus/relay.test.yml"),
    ("ops/prometheus/webhook.rules.yml", "ops/prometheus/webhook.test.yml"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// What the tool says, whether it is content, and the end of its story.
fn promtool(arguments: &[&str], file: &Path) -> (bool, String) {
    let ran = Command::new("promtool").args(arguments).arg(file).current_dir(root()).output();
    let output = ran.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!(
            "promtool is not on PATH, and the alert rules cannot be tested without it: install \
             Prometheus (Debian: apt-get install --no-install-recommends prometheus)"
        ),
        _ => panic!("cannot run promtool: {error}"),
    });
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
#[ignore = "deep: needs promtool"]
fn the_alert_rules_fire_when_they_should_and_not_else() {
    for (rules, tests) in FILES {
        let (sound, said) = promtool(&["check", "rules"], Path::new(rules));
        assert!(sound, "{said}");
        let (passed, said) = promtool(&["test", "rules"], Path::new(tests));
        assert!(passed, "{said}");
    }
}

#[test]
#[ignore = "deep: needs promtool"]
fn a_rule_with_another_limit_fails_its_test() {
    let folder: PathBuf = [env!("CARGO_TARGET_TMPDIR"), "alerts"].iter().collect();
    fs::create_dir_all(&folder).unwrap();
    let rules = read(RULES).replace("lag_seconds) > 300", "lag_seconds) > 30000");
    assert_ne!(rules, read(RULES));
    fs::write(folder.join("consumer.rules.yml"), rules).unwrap();
    let tests = folder.join("consumer.test.yml");
    fs::write(&tests, read(TESTS)).unwrap();
    let (passed, said) = promtool(&["test", "rules"], &tests);
    assert!(!passed && said.contains("WalpostConsumerBehind"), "{said}");
}

#[test]
#[ignore = "deep: needs promtool"]
fn the_alert_rules_name_metrics_that_exist_and_each_has_a_test() {
    let documented = read("docs/metrics.md");
    for (rules, tests) in FILES {
        names_exist(&read(rules), &read(tests), &documented);
    }
}

fn names_exist(rules: &str, tests: &str, documented: &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = rules.split(|c| !is_name(c));
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("walpost_")).collect();
    assert!(!metrics.is_empty());
    for metric in metrics {
        let plain = documented.contains(&format!("| `{metric}` |"));
        let histogram = ["_bucket", "_count", "_sum"].iter().any(|part| {
            let of = metric.strip_suffix(part);
            of.is_some_and(|of| documented.contains(&format!("| `{of}` | histogram |")))
        });
        assert!(plain || histogram, "{metric} is unknown");
    }
    let named = |kind: &str| -> Vec<&str> {
        rules.lines().filter_map(|line| line.trim().strip_prefix(kind)).collect()
    };
    let (alerts, records) = (named("- alert: "), named("- record: "));
    assert_eq!(alerts.len() + records.len(), rules.matches("expr:").count());
    for rule in alerts.into_iter().chain(records) {
        assert!(tests.contains(rule), "{rule} has no test");
    }
}
