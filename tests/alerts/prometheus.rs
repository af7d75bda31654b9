//! A real Prometheus over the rules that are shipped, in seconds instead of
//! minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::Value;
use walpost_testkit::{Process, local::free_port, until, until_some};
use walpost_tests::{LIMIT, http_get};

/// How the name of a file of rules ends.
const RULES: &str = ".rules.yml";
/// What a window of minutes becomes, and a time for which something has to last.
const WINDOW: &str = "10s";
const FOR: &str = "1s";

/// One that scrapes and evaluates every second, on a port of its own.
pub(crate) struct Prometheus {
    _process: Process,
    port: u16,
}

impl Prometheus {
    /// Of these jobs, by name and port.
    pub(crate) async fn start(jobs: &[(&str, u16)]) -> Self {
        let port = free_port().unwrap();
        let name = format!("prometheus-{port}");
        let folder: PathBuf = [env!("CARGO_TARGET_TMPDIR"), &name].iter().collect();
        fs::create_dir_all(&folder).unwrap();
        let mut config = "global: {scrape_interval: 1s, scrape_timeout: 1s, \
                          evaluation_interval: 1s}\nrule_files:\n"
            .to_owned();
        for (file, rules) in shipped() {
            fs::write(folder.join(&file), in_seconds(&rules)).unwrap();
            config.push_str(&format!("  - {file}\n"));
        }
        config.push_str("scrape_configs:\n");
        for (job, port) in jobs {
            let targets = format!("static_configs: [{{targets: ['127.0.0.1:{port}']}}]");
            config.push_str(&format!("  - {{job_name: {job}, {targets}}}\n"));
        }
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ];
        let process = Process::start("prometheus", args, [("GOMAXPROCS", "1")]);
        let prometheus = Self { _process: process, port };
        until(LIMIT, "Prometheus", async || http_get(port, "/-/ready").await.is_ok()).await;
        prometheus
    }

    /// The samples of an expression now: labels and value.
    pub(crate) async fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let query = format!("/api/v1/query?query={encoded}");
        let asking = async || http_get(self.port, &query).await.ok();
        let answer = until_some(LIMIT, "an answer of Prometheus", asking).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let samples = answer["data"]["result"].as_array().unwrap().iter();
        let value = |sample: &Value| sample["value"][1].as_str().unwrap().parse().unwrap();
        samples.map(|sample| (sample["metric"].clone(), value(sample))).collect()
    }

    /// The first sample.
    pub(crate) async fn value(&self, expression: &str) -> Option<f64> {
        self.query(expression).await.first().map(|(_, value)| *value)
    }

    /// What fires now, as name, severity, and what it is about.
    pub(crate) async fn firing(&self) -> BTreeSet<String> {
        let firing = self.query("ALERTS{alertstate=\"firing\"}").await;
        firing.iter().map(|(labels, _)| named(labels)).collect()
    }

    /// Waits until all of these fire at once.
    pub(crate) async fn fires(&self, expected: &BTreeSet<String>) {
        let (mut firing, started) = (BTreeSet::new(), Instant::now());
        until(2 * LIMIT, "an answer of Prometheus", async || {
            firing = self.firing().await;
            firing.is_superset(expected) || started.elapsed() > LIMIT
        })
        .await;
        assert!(firing.is_superset(expected), "of {expected:?} fire {firing:?}");
    }

    /// What has fired in the last minutes.
    pub(crate) async fn fired(&self) -> BTreeSet<String> {
        let fired = self.query("max_over_time(ALERTS{alertstate=\"firing\"}[5m])").await;
        fired.iter().map(|(labels, _)| named(labels)).collect()
    }
}

fn named(labels: &Value) -> String {
    let text = |label: &str| labels[label].as_str().unwrap_or_default().to_owned();
    let about = ["pipeline", "route", "destination"].map(text).concat();
    format!("{} {} {about}", text("alertname"), text("severity"))
}

/// All files of rules that are shipped, with their names.
fn shipped() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = fs::read_dir(root.join("ops/prometheus")).unwrap().map(|file| file.unwrap().path());
    let rules = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        name.ends_with(RULES).then(|| (name, fs::read_to_string(&path).unwrap()))
    });
    rules.collect()
}

/// The same rules with other windows of time, and nothing else: every limit stays.
fn in_seconds(rules: &str) -> String {
    let mut shorter = String::new();
    for line in rules.lines() {
        let line = match line.trim().strip_prefix("for: ") {
            Some(lasting) => line.replace(lasting, FOR),
            None => with_short_windows(line),
        };
        shorter.push_str(&line);
        shorter.push('\n');
    }
    assert_eq!(limits(&shorter), limits(rules), "only windows of time differ");
    shorter
}

/// `[5m]` and the like become `[10s]`.
fn with_short_windows(line: &str) -> String {
    let mut parts = line.split('[');
    let mut shorter = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let minutes = part.split_once("m]");
        match minutes.filter(|(count, _)| count.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((_, rest)) => shorter.push_str(&format!("[{WINDOW}]{rest}")),
            None => shorter.push_str(&format!("[{part}")),
        }
    }
    shorter
}

/// What comes behind each comparison, with the rules' names.
fn limits(rules: &str) -> Vec<&str> {
    let is_limit = |word: &&str| word.parse::<f64>().is_ok();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.chain(rules.split_whitespace().filter(is_limit)).collect()
}

#[test]
#[ignore = "deep: needs Prometheus"]
fn only_windows_of_time_become_shorter() {
    let rules = "- alert: A\n  expr: sum(rate(a{b=~\"[cd]\"}[5m])) / sum(rate(e[15m])) > 0.05\n  \
                 for: 5m\n";
    let expected = "- alert: A\n  expr: sum(rate(a{b=~\"[cd]\"}[10s])) / sum(rate(e[10s])) > \
                    0.05\n  for: 1s\n";
    assert_eq!(in_seconds(rules), expected);
}
