use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::{aligned, grouped, rounded, row};
use crate::{
    drain::Drain,
    latency::{Latency, Percentiles},
    measure::Load,
};

/// What was measured of one subject, round by round.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    subject: &'static str,
    version: String,
    rounds: Vec<Round>,
}

/// What was measured of one subject in one round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) drain: Drain,
    pub(crate) latency: Vec<Latency>,
}

impl Round {
    fn at(&self, rate: u32) -> Option<&Latency> {
        self.latency.iter().find(|found| found.rate == rate)
    }
}

type Figure = fn(&Round) -> Option<f64>;

impl Measured {
    fn median(&self, figure: Figure) -> Option<f64> {
        median(self.rounds.iter().filter_map(figure).collect())
    }

    /// The figure against that of another subject in the same round, since
    /// the next round may find another machine: the median, and the extremes.
    fn ratio(&self, other: &Self, figure: Figure) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::of(pairs.filter_map(|(ours, theirs)| Some(figure(ours)? / figure(theirs)?)))
    }

    fn rates(&self) -> Vec<u32> {
        self.rounds.iter().flat_map(|round| &round.latency).map(|found| found.rate).fold(
            Vec::new(),
            |mut rates, rate| {
                if !rates.contains(&rate) {
                    rates.push(rate);
                }
                rates
            },
        )
    }

    fn percentiles(&self, rate: u32) -> Option<Percentiles> {
        let at = |pick: fn(&Percentiles) -> f64| {
            let found = self.rounds.iter().filter_map(|round| round.at(rate));
            median(found.map(|found| pick(&found.percentiles)).collect())
        };
        Some(Percentiles { p50: at(|p| p.p50)?, p99: at(|p| p.p99)?, p99_9: at(|p| p.p99_9)? })
    }
}

/// Of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Self { low, median: median(values)?, high })
    }
}

/// The middle one, or the mean of the two there.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// The figures of all subjects.
#[derive(Debug)]
pub(crate) struct Report {
    events: u64,
    rounds: u32,
    encoding: &'static str,
    measured: Vec<Measured>,
}

/// The shape that other programs read.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    encoding: &'static str,
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
    figure: Figure,
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
        figure: |round| Some(round.drain.events_per_second()),
    },
    Target {
        text: "events/s, of debezium",
        against: Some("debezium"),
        bound: Bound::AtLeast(2.0),
        figure: |round| Some(round.drain.events_per_second()),
    },
    Target {
        text: "CPU per event, of debezium",
        against: Some("debezium"),
        bound: Bound::AtMost(0.25),
        figure: |round| Some(round.drain.cpu_seconds_per_million()),
    },
    Target {
        text: "peak RSS in MB",
        against: None,
        bound: Bound::AtMost(64.0),
        figure: |round| Some(round.drain.rss_peak_mb()),
    },
    Target {
        text: "p99 at 2,000/s, of debezium",
        against: Some("debezium"),
        bound: Bound::AtMost(0.5),
        figure: |round| p99(round, TARGET_RATE),
    },
];

impl Report {
    /// `encoding` is what the records were.
    pub(crate) fn new(events: u64, rounds: u32, encoding: &'static str) -> Self {
        Self { events, rounds, encoding, measured: Vec::new() }
    }

    pub(crate) fn add(&mut self, subject: &'static str, version: String) {
        self.measured.push(Measured { subject, version, rounds: Vec::new() });
    }

    /// # Panics
    /// If the subject was not added.
    pub(crate) fn add_round(&mut self, subject: &str, round: Round) {
        self.known(subject).rounds.push(round);
    }

    /// To the last round of the subject.
    ///
    /// # Panics
    /// If it has none.
    pub(crate) fn add_latency(&mut self, subject: &str, latency: Vec<Latency>) {
        self.known(subject).rounds.last_mut().expect("a round").latency = latency;
    }

    fn known(&mut self, subject: &str) -> &mut Measured {
        let mut measured = self.measured.iter_mut();
        measured.find(|known| known.subject == subject).expect("the subject was added")
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        super::print(json.then(|| self.lines()), &self.text())
    }

    fn lines(&self) -> Vec<Line<'_>> {
        self.measured.iter().filter_map(|measured| line(measured, self.encoding)).collect()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "relay: {} events as {}, half of them in transactions of 1,000 and half of 1; medians \
             of {} rounds\n",
            grouped(self.events as f64),
            self.encoding,
            self.rounds
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
        const COLUMNS: [(&str, Figure, usize); 6] = [
            ("events/s", |round| Some(round.drain.events_per_second()), 0),
            ("from start", |round| Some(round.drain.events_per_second_from_start()), 0),
            ("first, s", |round| Some(round.drain.first.as_secs_f64()), 2),
            ("CPU s/million", |round| Some(round.drain.cpu_seconds_per_million()), 1),
            ("after first", |round| Some(round.drain.cpu_seconds_per_million_after_first()), 1),
            ("peak RSS, MB", |round| Some(round.drain.rss_peak_mb()), 0),
        ];
        let head = COLUMNS.map(|(name, ..)| name.to_owned());
        let mut rows = vec![[vec![String::new()], head.into()].concat()];
        rows.extend(self.measured.iter().map(|measured| {
            let cells = COLUMNS.map(|(_, figure, digits)| {
                let found = measured.median(figure).unwrap_or_default();
                if digits == 0 { grouped(found) } else { format!("{found:.digits$}") }
            });
            [vec![measured.subject.to_owned()], cells.into()].concat()
        }));
        rows
    }

    /// Who had the processors while a subject drained.
    fn cores(&self) -> Vec<Vec<String>> {
        let head = ["cores used while draining", "itself", "PostgreSQL", "Kafka", "bench, others"];
        let mut rows = vec![row(head)];
        rows.extend(self.measured.iter().map(|measured| {
            let loads = measured.rounds.iter().map(|round| &round.drain.load);
            [vec![measured.subject.to_owned()], cores(loads).into()].concat()
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
            for rate in measured.rates() {
                let Some(Percentiles { p50, p99, p99_9 }) = measured.percentiles(rate) else {
                    continue;
                };
                let times = [p50, p99, p99_9].map(|time| format!("{time:.1}"));
                let start = [measured.subject.to_owned(), grouped(f64::from(rate))];
                let found = measured.rounds.iter().filter_map(|round| round.at(rate));
                let cores = cores(found.map(|found| &found.load));
                rows.push([&start[..], &times[..], &cores[..]].concat());
            }
        }
        rows
    }

    fn ratios(&self) -> Vec<Vec<String>> {
        let figures: [Figure; 6] = [
            |round| Some(round.drain.events_per_second()),
            |round| Some(round.drain.cpu_seconds_per_million()),
            |round| Some(round.drain.rss_peak_mb()),
            |round| Some(round.drain.first.as_secs_f64()),
            |round| p99(round, 200),
            |round| p99(round, TARGET_RATE),
        ];
        let head =
            ["walpost, of", "events/s", "CPU", "peak RSS", "first", "p99 at 200", "at 2,000"];
        let mut rows = vec![row(head)];
        let Some(ours) = self.find(OURS) else { return rows };
        for other in self.measured.iter().filter(|other| other.subject != OURS) {
            let cells = figures.map(|figure| {
                let ratio = ours.ratio(other, figure);
                ratio.map_or("-".to_owned(), |ratio| format!("{:.2}x", ratio.median))
            });
            rows.push([vec![other.subject.to_owned()], cells.into()].concat());
        }
        rows
    }

    fn targets(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["walpost's targets", "asked", "found", "", "rounds"])];
        let Some(ours) = self.find(OURS) else { return rows };
        for target in &TARGETS {
            let Some(found) = self.value(target, ours) else { continue };
            let unit = if target.against.is_some() { "x" } else { "" };
            let (asked, reached) = match target.bound {
                Bound::AtLeast(bound) => (format!("at least {bound}{unit}"), found.median >= bound),
                Bound::AtMost(bound) => (format!("at most {bound}{unit}"), found.median <= bound),
            };
            let verdict = if reached { "reached" } else { "missed" };
            let median = format!("{:.2}{unit}", found.median);
            let rounds = format!("{:.2} to {:.2}", found.low, found.high);
            rows.push(vec![target.text.to_owned(), asked, median, verdict.to_owned(), rounds]);
        }
        rows
    }

    fn value(&self, target: &Target, ours: &Measured) -> Option<Spread> {
        match target.against {
            Some(other) => ours.ratio(self.find(other)?, target.figure),
            None => Spread::of(ours.rounds.iter().filter_map(target.figure)),
        }
    }

    fn find(&self, subject: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.subject == subject)
    }
}

fn p99(round: &Round, rate: u32) -> Option<f64> {
    Some(round.at(rate)?.percentiles.p99)
}

fn cores<'a>(loads: impl Iterator<Item = &'a Load>) -> [String; 4] {
    let loads: Vec<[f64; 4]> = loads.map(Load::cores).collect();
    [0, 1, 2, 3].map(|column| {
        let cores = median(loads.iter().map(|load| load[column]).collect());
        format!("{:.2}", cores.unwrap_or_default())
    })
}

fn line<'a>(measured: &'a Measured, encoding: &'static str) -> Option<Line<'a>> {
    let median = |figure: Figure| measured.median(figure);
    let latency = measured.rates().into_iter().filter_map(|rate| {
        let Percentiles { p50, p99, p99_9 } = measured.percentiles(rate)?;
        let [p50, p99, p99_9] = [p50, p99, p99_9].map(|value| rounded(value, 2));
        Some((rate, Percentiles { p50, p99, p99_9 }))
    });
    Some(Line {
        bench: "relay",
        encoding,
        subject: measured.subject,
        events_per_second: median(|round| Some(round.drain.events_per_second()))?.round() as u64,
        cpu_seconds_per_million: rounded(
            median(|round| Some(round.drain.cpu_seconds_per_million()))?,
            2,
        ),
        rss_mb_peak: rounded(median(|round| Some(round.drain.rss_peak_mb()))?, 1),
        first_record_seconds: rounded(median(|round| Some(round.drain.first.as_secs_f64()))?, 2),
        latency_ms: latency.collect(),
    })
}

const LEGEND: &str = "
In transactions a topic's end counts markers as well, so the last few events of a
drain may be missing from it.
A ratio is the median of those of each round, in which the subjects took turns.
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

    fn round(seconds: u64, cpu_ms: u64, p99: f64) -> Round {
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
        Round { drain, latency: vec![Latency { rate: 2_000, percentiles, load: Load::default() }] }
    }

    /// Three rounds on a machine that is slower in each.
    fn report() -> Report {
        let mut report = Report::new(1_000_000, 3, "text");
        for (subject, seconds, cpu_ms, p99) in [
            ("pg_recvlogical", 14, 9_000, 8.0),
            ("walpost", 10, 6_000, 9.0),
            ("debezium", 20, 30_000, 27.0),
        ] {
            report.add(subject, "1".into());
            for slower in 1..=3 {
                report.add_round(
                    subject,
                    round(seconds * slower, cpu_ms * slower, p99 * slower as f64),
                );
            }
        }
        report
    }

    #[test]
    fn a_line_has_the_promised_shape() {
        let lines = report().lines().iter().map(serde_json::to_string).collect::<Vec<_>>();
        assert_eq!(
            lines[1].as_ref().unwrap(),
            r#"{"bench":"relay","encoding":"text","subject":"walpost","events_per_second":50000,"cpu_seconds_per_million":12.0,"rss_mb_peak":48.0,"first_record_seconds":0.5,"latency_ms":{"2000":{"p50":1.0,"p99":18.0,"p99_9":30.13}}}"#
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
        slow.measured[1].rounds = vec![round(13, 8_000, 20.0)];
        let missed = slow.targets().iter().filter(|row| row[3] == "missed").count();
        assert_eq!(missed, 4);
    }

    #[test]
    fn a_ratio_is_taken_within_a_round_and_its_extremes_are_told() {
        let mut report = report();
        assert_eq!(report.targets()[1][2..], ["1.40x", "reached", "1.40 to 1.40"]);
        report.measured[1].rounds[0] = round(28, 1, 1.0);
        report.measured[1].rounds[2] = round(21, 1, 1.0);
        assert_eq!(report.targets()[1][2..], ["1.40x", "reached", "0.50 to 2.00"]);
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
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
