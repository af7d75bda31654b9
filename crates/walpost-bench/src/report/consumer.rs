use anyhow::Result;
use serde::Serialize;

use super::{aligned, grouped, rounded, row};
use crate::{
    consumer::{Outcome, RATE},
    latency::Percentiles,
};

/// The figures of all ways.
#[derive(Debug)]
pub(crate) struct Report {
    events: u64,
    measured: Vec<(String, Outcome)>,
    /// From end to end, in milliseconds.
    latency: Option<Percentiles>,
}

#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    subject: &'a str,
    effects_per_second: u64,
    cpu_seconds_per_million: f64,
    rss_mb_peak: f64,
    first_effect_seconds: f64,
}

#[derive(Serialize)]
struct LatencyLine {
    bench: &'static str,
    subject: &'static str,
    events_per_second: u32,
    latency_ms: Percentiles,
}

/// One of either.
#[derive(Serialize)]
#[serde(untagged)]
enum Any<'a> {
    Throughput(Line<'a>),
    Latency(LatencyLine),
}

const OURS: [&str; 2] = ["walpost_slice", "walpost_per_event"];
const SLICE: &str = "walpost_slice";
const BASELINE: &str = "one_transaction_per_event";
const TARGET: f64 = 10.0;
const SQL_ONLY: &str = "sql_only";
const SHARE_OF_SQL: f64 = 0.4;
const RATE_LEAST: f64 = 60_000.0;
const PEER: &str = "debezium_jdbc_sink";
const TARGET_OF_PEER: f64 = 1.5;
const RSS_MB_MOST: f64 = 64.0;
const P99_MS_MOST: f64 = 60.0;

impl Report {
    pub(crate) fn new(events: u64) -> Self {
        Self { events, measured: Vec::new(), latency: None }
    }

    pub(crate) fn add(&mut self, subject: String, outcome: Outcome) {
        self.measured.push((subject, outcome));
    }

    pub(crate) fn add_latency(&mut self, latency: Percentiles) {
        self.latency = Some(latency);
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        super::print(json.then(|| self.lines()), &self.text())
    }

    fn lines(&self) -> Vec<Any<'_>> {
        let throughput = self.measured.iter().map(|(subject, outcome)| self.line(subject, outcome));
        let latency = self.latency.map(|latency_ms| LatencyLine {
            bench: "consumer",
            subject: "walpost_end_to_end",
            events_per_second: RATE,
            latency_ms,
        });
        throughput.map(Any::Throughput).chain(latency.map(Any::Latency)).collect()
    }

    fn line<'a>(&self, subject: &'a str, outcome: &Outcome) -> Line<'a> {
        Line {
            bench: "consumer",
            subject,
            effects_per_second: self.rate(outcome).round() as u64,
            cpu_seconds_per_million: rounded(self.cpu(outcome), 2),
            rss_mb_peak: rounded(rss(outcome), 1),
            first_effect_seconds: rounded(outcome.first, 2),
        }
    }

    fn text(&self) -> String {
        let head = format!("consumer: {} events\n\n", grouped(self.events as f64));
        let mut rows = vec![row([
            "",
            "effects/s",
            "of one by one",
            "first, s",
            "all, s",
            "CPU s/million",
            "peak RSS, MB",
        ])];
        rows.extend(self.measured.iter().map(|(subject, outcome)| {
            let ratio = self.ratio(subject);
            vec![
                subject.clone(),
                grouped(self.rate(outcome)),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.1}x")),
                format!("{:.2}", outcome.first),
                format!("{:.2}", outcome.done),
                format!("{:.1}", self.cpu(outcome)),
                format!("{:.0}", rss(outcome)),
            ]
        }));
        let mut text = head + &aligned(&rows);
        for subject in OURS {
            if let Some(ratio) = self.ratio(subject) {
                let verdict = if ratio >= TARGET { "reached" } else { "missed" };
                text.push_str(&format!(
                    "\n{subject}: {ratio:.1}x of {BASELINE}; at least {TARGET}x: {verdict}"
                ));
            }
        }
        for (what, reached) in self.verdicts() {
            let verdict = if reached { "reached" } else { "missed" };
            text.push_str(&format!("\n{what}: {verdict}"));
        }
        text + LEGEND
    }

    /// What was to be reached beside the baseline, as far as it was measured.
    fn verdicts(&self) -> Vec<(String, bool)> {
        let find = |name: &str| self.measured.iter().find(|(known, _)| known == name);
        let rate = |name: &str| find(name).map(|(_, outcome)| self.rate(outcome));
        let mut verdicts = Vec::new();
        if let (Some(slice), Some(sql)) = (rate(SLICE), rate(SQL_ONLY)) {
            let least = RATE_LEAST.max(SHARE_OF_SQL * sql);
            let what = format!(
                "{SLICE}: {:.2} of {SQL_ONLY}; at least {} effects/s",
                slice / sql,
                grouped(least)
            );
            verdicts.push((what, slice >= least));
        }
        if let (Some(slice), Some(peer)) = (rate(SLICE), rate(PEER)) {
            let ratio = slice / peer;
            let what = format!("{SLICE}: {ratio:.1}x of {PEER}; at least {TARGET_OF_PEER}x");
            verdicts.push((what, ratio >= TARGET_OF_PEER));
        }
        if let Some((_, outcome)) = find(SLICE) {
            let rss = rss(outcome);
            let what = format!("{SLICE}: {rss:.0} MB resident; at most {RSS_MB_MOST} MB");
            verdicts.push((what, rss <= RSS_MB_MOST));
        }
        if let Some(Percentiles { p50, p99, .. }) = self.latency {
            let what = format!(
                "end to end at {RATE} events/s: p50 {p50:.1} ms, p99 {p99:.1} ms; p99 at most \
                 {P99_MS_MOST} ms"
            );
            verdicts.push((what, p99 <= P99_MS_MOST));
        }
        verdicts
    }

    /// Against the baseline.
    fn ratio(&self, subject: &str) -> Option<f64> {
        let rate = |name: &str| {
            let (_, outcome) = self.measured.iter().find(|(known, _)| known == name)?;
            Some(self.rate(outcome))
        };
        Some(rate(subject)? / rate(BASELINE)?)
    }

    /// Effects per second from the first seen to the last, or from the start
    /// when all were seen at once.
    fn rate(&self, outcome: &Outcome) -> f64 {
        if outcome.seen_at_first == self.events {
            return self.events as f64 / outcome.done;
        }
        (self.events - outcome.seen_at_first) as f64 / (outcome.done - outcome.first)
    }

    fn cpu(&self, outcome: &Outcome) -> f64 {
        outcome.cpu * 1e6 / self.events as f64
    }
}

fn rss(outcome: &Outcome) -> f64 {
    outcome.rss_peak_bytes as f64 / (1024.0 * 1024.0)
}

const LEGEND: &str = "

effects/s: from the first committed effect seen to the last. CPU: of the
process, the database's not included. one_transaction_per_event: as many
connections as walpost has, one for each partition. sql_only: the statements
without Kafka, 4 connections, 500 events a transaction. debezium_jdbc_sink: at
least once, upserts of 3,000 by 4 tasks, from JSON with schemas; its rows are
counted now and then, its start included in the CPU. End to end: from just
before the INSERT of one event is sent to the news of its effect's commit.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let outcome = |done| Outcome {
            first: 1.0,
            seen_at_first: 100,
            done,
            cpu: 0.5,
            rss_peak_bytes: 20 << 20,
        };
        let mut report = Report::new(1_100);
        report.add("walpost_slice".into(), outcome(1.5));
        report.add(BASELINE.into(), outcome(11.0));
        report
    }

    #[test]
    fn a_line_has_the_promised_shape() {
        let line = serde_json::to_string(&report().lines()[0]).unwrap();
        assert_eq!(
            line,
            r#"{"bench":"consumer","subject":"walpost_slice","effects_per_second":2000,"cpu_seconds_per_million":454.55,"rss_mb_peak":20.0,"first_effect_seconds":1.0}"#
        );
    }

    #[test]
    fn the_ratio_is_that_of_the_rates() {
        let text = report().text();
        assert!(
            text.contains("20.0x of one_transaction_per_event; at least 10x: reached"),
            "{text}"
        );
        let mut alone = report();
        alone.measured.truncate(1);
        assert!(!alone.text().contains("at least 10x"));
    }

    #[test]
    fn what_is_to_be_reached_is_judged_where_it_was_measured() {
        let mut report = report();
        let slow = Outcome { rss_peak_bytes: 900 << 20, ..report.measured[1].1 };
        report.add(PEER.into(), slow);
        report.add(SQL_ONLY.into(), report.measured[0].1);
        report.add_latency(Percentiles { p50: 9.0, p99: 61.0, p99_9: 70.0 });
        let text = report.text();
        for line in [
            "walpost_slice: 1.00 of sql_only; at least 60,000 effects/s: missed",
            "walpost_slice: 20.0x of debezium_jdbc_sink; at least 1.5x: reached",
            "walpost_slice: 20 MB resident; at most 64 MB: reached",
            "end to end at 2000 events/s: p50 9.0 ms, p99 61.0 ms; p99 at most 60 ms: missed",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
        let line = serde_json::to_string(report.lines().last().unwrap()).unwrap();
        assert_eq!(
            line,
            r#"{"bench":"consumer","subject":"walpost_end_to_end","events_per_second":2000,"latency_ms":{"p50":9.0,"p99":61.0,"p99_9":70.0}}"#
        );
    }
}
