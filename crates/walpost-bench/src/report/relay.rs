use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::{aligned, grouped, rounded, row};
use crate::{
    drain::Drain,
    latency::{Latency, Percentiles},
    measure::Load,
};

/// What was measured of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) subject: &'static str,
    pub(crate) version: String,
    pub(crate) drain: Drain,
    pub(crate) latency: Vec<Latency>,
}

impl Measured {
    fn p99(&self, rate: u32) -> Option<f64> {
        self.latency.iter().find(|found| found.rate == rate).map(|found| found.percentiles.p99)
    }
}

/// The figures of all subjects.
#[derive(Debug)]
pub(crate) struct Report {
    events: u64,
    measured: Vec<Measured>,
}

/// The shape that other programs read.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    subject: &'a str,
    events_per_second: u64,
    cpu_seconds_per_million: f64,
    rss_mb_peak: f64,
    first_record_seconds: f64,
    latency_ms: BTreeMap<u32, Percentiles>,
}

/// What walpost has to reach, against a subject or by itself.
struct Target {
    text: &'static str,
    against: Option<&'static str>,
    bound: Bound,
    figure: fn(&Measured) -> Option<f64>,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const OURS: &str = "walpost";
const TARGET_RATE: u32 = 2_000;

const TARGETS: [Target; 5] = [
    Target {
        text: "events/s, of pg_recvlogical",
        against: Some("pg_recvlogical"),
        bound: Bound::AtLeast(1.2),
        figure: |measured| Some(measured.drain.events_per_second()),
    },
    Target {
        text: "events/s, of debezium",
        against: Some("debezium"),
        bound: Bound::AtLeast(2.0),
        figure: |measured| Some(measured.drain.events_per_second()),
    },
    Target {
        text: "CPU per event, of debezium",
        against: Some("debezium"),
        bound: Bound::AtMost(0.25),
        figure: |measured| Some(measured.drain.cpu_seconds_per_million()),
    },
    Target {
        text: "peak RSS in MB",
        against: None,
        bound: Bound::AtMost(64.0),
        figure: |measured| Some(measured.drain.rss_peak_mb()),
    },
    Target {
        text: "p99 at 2,000/s, of debezium",
        against: Some("debezium"),
        bound: Bound::AtMost(0.5),
        figure: |measured| measured.p99(TARGET_RATE),
    },
];

impl Report {
    pub(crate) fn new(events: u64) -> Self {
        Self { events, measured: Vec::new() }
    }

    pub(crate) fn add(&mut self, measured: Measured) {
        self.measured.push(measured);
    }

    pub(crate) fn add_latency(&mut self, subject: &str, latency: Vec<Latency>) {
        if let Some(measured) = self.measured.iter_mut().find(|known| known.subject == subject) {
            measured.latency = latency;
        }
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        super::print(json.then(|| self.lines()), &self.text())
    }

    fn lines(&self) -> Vec<Line<'_>> {
        self.measured.iter().map(line).collect()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "relay: {} events, half of them in transactions of 1,000 and half of 1\n",
            grouped(self.events as f64)
        );
        for measured in &self.measured {
            text.push_str(&format!("  {}: {}\n", measured.subject, measured.version));
        }
        for part in [self.throughput(), self.cores(), self.latency(), self.ratios(), self.targets()]
        {
            if part.len() > 1 {
                text.push('\n');
                text.push_str(&aligned(&part));
            }
        }
        text.push_str(LEGEND);
        text
    }

    fn throughput(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "",
            "events/s",
            "from start",
            "first, s",
            "CPU s/million",
            "after first",
            "peak RSS, MB",
        ])];
        rows.extend(self.measured.iter().map(|measured| {
            let drain = &measured.drain;
            let after = (drain.usage.cpu - drain.cpu_at_first).as_secs_f64() * 1e6;
            vec![
                measured.subject.to_owned(),
                grouped(drain.events_per_second()),
                grouped(drain.events_per_second_from_start()),
                format!("{:.2}", drain.first.as_secs_f64()),
                format!("{:.1}", drain.cpu_seconds_per_million()),
                format!("{:.1}", after / drain.events as f64),
                format!("{:.0}", drain.rss_peak_mb()),
            ]
        }));
        rows
    }

    /// Who had the processors while a subject drained.
    fn cores(&self) -> Vec<Vec<String>> {
        let head = ["cores used while draining", "itself", "PostgreSQL", "Kafka", "bench, others"];
        let mut rows = vec![row(head)];
        rows.extend(self.measured.iter().map(|measured| {
            let cells = cores(&measured.drain.load);
            [vec![measured.subject.to_owned()], cells.into()].concat()
        }));
        rows
    }

    fn latency(&self) -> Vec<Vec<String>> {
        let head = [
            "latency, ms",
            "events/s",
            "p50",
            "p99",
            "p99.9",
            "cores: itself",
            "PostgreSQL",
            "Kafka",
            "bench, others",
        ];
        let mut rows = vec![row(head)];
        for measured in &self.measured {
            rows.extend(measured.latency.iter().map(|found| {
                let Percentiles { p50, p99, p99_9 } = found.percentiles;
                let times = [p50, p99, p99_9].map(|time| format!("{time:.1}"));
                let start = [measured.subject.to_owned(), grouped(f64::from(found.rate))];
                [&start[..], &times[..], &cores(&found.load)[..]].concat()
            }));
        }
        rows
    }

    fn ratios(&self) -> Vec<Vec<String>> {
        let figures: [fn(&Measured) -> Option<f64>; 6] = [
            |measured| Some(measured.drain.events_per_second()),
            |measured| Some(measured.drain.cpu_seconds_per_million()),
            |measured| Some(measured.drain.rss_peak_mb()),
            |measured| Some(measured.drain.first.as_secs_f64()),
            |measured| measured.p99(200),
            |measured| measured.p99(TARGET_RATE),
        ];
        let head =
            ["walpost, of", "events/s", "CPU", "peak RSS", "first", "p99 at 200", "at 2,000"];
        let mut rows = vec![row(head)];
        let Some(ours) = self.find(OURS) else { return rows };
        for other in self.measured.iter().filter(|other| other.subject != OURS) {
            let ratio = |figure: fn(&Measured) -> Option<f64>| Some(figure(ours)? / figure(other)?);
            let cells = figures
                .map(|figure| ratio(figure).map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")));
            rows.push([vec![other.subject.to_owned()], cells.into()].concat());
        }
        rows
    }

    fn targets(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["walpost's targets", "asked", "found", ""])];
        let Some(ours) = self.find(OURS) else { return rows };
        for target in &TARGETS {
            let Some(found) = self.value(target, ours) else { continue };
            let unit = if target.against.is_some() { "x" } else { "" };
            let (asked, reached) = match target.bound {
                Bound::AtLeast(bound) => (format!("at least {bound}{unit}"), found >= bound),
                Bound::AtMost(bound) => (format!("at most {bound}{unit}"), found <= bound),
            };
            let verdict = if reached { "reached" } else { "missed" };
            let found = format!("{found:.2}{unit}");
            rows.push(vec![target.text.to_owned(), asked, found, verdict.to_owned()]);
        }
        rows
    }

    fn value(&self, target: &Target, ours: &Measured) -> Option<f64> {
        let found = (target.figure)(ours)?;
        match target.against {
            Some(other) => Some(found / (target.figure)(self.find(other)?)?),
            None => Some(found),
        }
    }

    fn find(&self, subject: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.subject == subject)
    }
}

fn cores(load: &Load) -> [String; 4] {
    load.cores().map(|cores| format!("{cores:.2}"))
}

fn line(measured: &Measured) -> Line<'_> {
    let drain = &measured.drain;
    let latency = measured.latency.iter().map(|found| {
        let Percentiles { p50, p99, p99_9 } = found.percentiles;
        let [p50, p99, p99_9] = [p50, p99, p99_9].map(|value| rounded(value, 2));
        (found.rate, Percentiles { p50, p99, p99_9 })
    });
    Line {
        bench: "relay",
        subject: measured.subject,
        events_per_second: drain.events_per_second().round() as u64,
        cpu_seconds_per_million: rounded(drain.cpu_seconds_per_million(), 2),
        rss_mb_peak: rounded(drain.rss_peak_mb(), 1),
        first_record_seconds: rounded(drain.first.as_secs_f64(), 2),
        latency_ms: latency.collect(),
    }
}

const LEGEND: &str = "
events/s: from the first event seen to the last, in the topic (pg_recvlogical:
in its output). CPU: user and system time of the process from its start to the
last event; beside it from the first event on. Latency: from just before an
INSERT is sent, commit included, to the arrival at a reader of the topic. Cores:
processors busy with each; when others had many, measure again.
";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Usage;

    fn measured(subject: &'static str, seconds: u64, cpu_ms: u64, p99: f64) -> Measured {
        let usage = Usage {
            cpu: Duration::from_millis(cpu_ms),
            rss_peak_bytes: 48 << 20,
            ..Usage::default()
        };
        let drain = Drain {
            events: 1_000_000,
            first: Duration::from_millis(500),
            seen_at_first: 0,
            done: Duration::from_millis(500) + Duration::from_secs(seconds),
            usage,
            cpu_at_first: Duration::ZERO,
            load: Load::default(),
        };
        let percentiles = Percentiles { p50: 1.0, p99, p99_9: 30.126 };
        let latency = vec![Latency { rate: 2_000, percentiles, load: Load::default() }];
        Measured { subject, version: "1".into(), drain, latency }
    }

    fn report() -> Report {
        let mut report = Report::new(1_000_000);
        report.add(measured("pg_recvlogical", 14, 9_000, 8.0));
        report.add(measured("walpost", 10, 6_000, 9.0));
        report.add(measured("debezium", 20, 30_000, 27.0));
        report
    }

    #[test]
    fn a_line_has_the_promised_shape() {
        let lines = report().lines().iter().map(serde_json::to_string).collect::<Vec<_>>();
        assert_eq!(
            lines[1].as_ref().unwrap(),
            r#"{"bench":"relay","subject":"walpost","events_per_second":100000,"cpu_seconds_per_million":6.0,"rss_mb_peak":48.0,"first_record_seconds":0.5,"latency_ms":{"2000":{"p50":1.0,"p99":9.0,"p99_9":30.13}}}"#
        );
    }

    #[test]
    fn targets_are_judged_each_by_its_own_bound() {
        let targets = report().targets();
        let verdicts: Vec<_> = targets[1..].iter().map(|row| (&*row[2], &*row[3])).collect();
        let reached = "reached";
        assert_eq!(
            verdicts,
            [
                ("1.40x", reached),
                ("2.00x", reached),
                ("0.20x", reached),
                ("48.00", reached),
                ("0.33x", reached)
            ]
        );
        let mut slow = report();
        slow.measured[1] = measured("walpost", 13, 8_000, 20.0);
        let missed = slow.targets().iter().filter(|row| row[3] == "missed").count();
        assert_eq!(missed, 4);
    }

    #[test]
    fn without_a_peer_there_is_no_ratio_to_it() {
        let mut report = report();
        report.measured.truncate(2);
        let text = report.text();
        assert!(text.contains("of pg_recvlogical") && !text.contains("of debezium"), "{text}");
        report.measured.remove(1);
        assert_eq!(report.ratios().len(), 1);
        assert_eq!(report.targets().len(), 1);
    }
}
