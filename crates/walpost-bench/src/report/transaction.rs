use anyhow::Result;
use serde::Serialize;

use super::{aligned, grouped, rounded, row};
use crate::{arrivals::Arrivals, drain::Drain, measure::Usage};

/// The figures of one large transaction.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: u64,
    pub(crate) wal_bytes: u64,
    pub(crate) drain: Drain,
    pub(crate) arrivals: Arrivals,
    pub(crate) killed: Killed,
    pub(crate) rss_limit_mb: u64,
}

/// What was seen of a process that was killed half-way and of its successor.
#[derive(Debug)]
pub(crate) struct Killed {
    pub(crate) records_at_kill: u64,
    pub(crate) first: Usage,
    pub(crate) second: Usage,
    pub(crate) arrivals: Arrivals,
}

/// The shape that other programs read.
#[derive(Serialize)]
struct Line {
    bench: &'static str,
    subject: &'static str,
    rows: u64,
    events_per_second: u64,
    cpu_seconds_per_million: f64,
    rss_mb_peak: f64,
    first_record_seconds: f64,
}

impl Report {
    pub(crate) fn print(&self, json: bool) -> Result<()> {
        super::print(json.then(|| vec![self.line()]), &self.text())
    }

    /// What breaks a promise or passes a limit.
    pub(crate) fn problem(&self) -> Option<String> {
        let mut problems = Vec::new();
        if !self.arrivals.is_exactly_once() {
            problems.push(format!("not once and in order: {:?}", self.arrivals));
        }
        if !self.killed.arrivals.is_exactly_once() {
            problems
                .push(format!("not once and in order after a kill: {:?}", self.killed.arrivals));
        }
        let (peak, limit) = (self.rss_peak_mb(), self.rss_limit_mb);
        if peak > limit as f64 {
            problems.push(format!("peak RSS was {peak:.1} MB, more than {limit} MB"));
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Of all its processes.
    fn rss_peak_mb(&self) -> f64 {
        let restarted = self.killed.first.rss_peak_mb().max(self.killed.second.rss_peak_mb());
        self.drain.rss_peak_mb().max(restarted)
    }

    fn line(&self) -> Line {
        Line {
            bench: "transaction",
            subject: "walpost",
            rows: self.rows,
            events_per_second: self.drain.events_per_second().round() as u64,
            cpu_seconds_per_million: rounded(self.drain.cpu_seconds_per_million(), 2),
            rss_mb_peak: rounded(self.rss_peak_mb(), 1),
            first_record_seconds: rounded(self.drain.first.as_secs_f64(), 2),
        }
    }

    fn text(&self) -> String {
        let (drain, killed) = (&self.drain, &self.killed);
        let mb = |usage: &Usage| format!("{:.0}", usage.rss_peak_mb());
        let none = || "-".to_owned();
        let rows = [
            row(["", "records", "first, s", "all, s", "events/s", "CPU s/million", "peak RSS, MB"]),
            vec![
                "undisturbed".to_owned(),
                grouped(self.arrivals.records as f64),
                format!("{:.2}", drain.first.as_secs_f64()),
                format!("{:.2}", drain.done.as_secs_f64()),
                grouped(drain.events_per_second()),
                format!("{:.1}", drain.cpu_seconds_per_million()),
                mb(&drain.usage),
            ],
            vec![
                "killed half-way".to_owned(),
                grouped(killed.records_at_kill as f64),
                none(),
                none(),
                none(),
                none(),
                mb(&killed.first),
            ],
            vec![
                "started again".to_owned(),
                grouped((killed.arrivals.records - killed.records_at_kill) as f64),
                none(),
                none(),
                none(),
                none(),
                mb(&killed.second),
            ],
        ];
        let (peak, limit) = (self.rss_peak_mb(), self.rss_limit_mb);
        format!(
            "one transaction: {} rows, {} MB of WAL\n\n{}\nundisturbed: {}\nafter the kill: {}\n\
             peak RSS: {peak:.1} MB; at most {limit} MB: {}\n{LEGEND}",
            grouped(self.rows as f64),
            grouped(self.wal_bytes as f64 / (1024.0 * 1024.0)),
            aligned(&rows),
            of_rows(&self.arrivals),
            of_rows(&killed.arrivals),
            if peak <= limit as f64 { "kept" } else { "PASSED" },
        )
    }
}

fn of_rows(arrivals: &Arrivals) -> String {
    let Arrivals { missing, copies, reordered, unknown, .. } = arrivals;
    if arrivals.is_exactly_once() {
        return "every row once, in order per key".to_owned();
    }
    format!(
        "BROKEN: {missing} rows missing, {reordered} out of order, {unknown} records of no row, \
         {copies} second copies"
    )
}

const LEGEND: &str = "
first: from the start of the process to the first record in the topic; the server
decodes the whole transaction before it sends any of it. events/s: from the first
records seen to the last. CPU: of the process. MB: 1,048,576 bytes.
After a kill the successor reads back what is in the topic and sends the rest.
";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Load;

    fn report() -> Report {
        let usage = |mb: u64| Usage {
            cpu: Duration::from_secs(9),
            rss_peak_bytes: mb << 20,
            ..Usage::default()
        };
        let arrivals = |records| Arrivals { records, ..Arrivals::default() };
        Report {
            rows: 3_000_000,
            wal_bytes: 1 << 30,
            drain: Drain {
                events: 3_000_000,
                first: Duration::from_millis(8_004),
                seen_at_first: 0,
                done: Duration::from_millis(38_004),
                usage: usage(60),
                cpu_at_first: Duration::ZERO,
                load: Load::default(),
            },
            arrivals: arrivals(3_000_000),
            killed: Killed {
                records_at_kill: 1_500_000,
                first: usage(61),
                second: usage(62),
                arrivals: arrivals(3_000_000),
            },
            rss_limit_mb: 128,
        }
    }

    #[test]
    fn the_line_has_the_promised_shape_and_the_peak_of_all_processes() {
        assert_eq!(
            serde_json::to_string(&report().line()).unwrap(),
            r#"{"bench":"transaction","subject":"walpost","rows":3000000,"events_per_second":100000,"cpu_seconds_per_million":3.0,"rss_mb_peak":62.0,"first_record_seconds":8.0}"#
        );
    }

    #[test]
    fn the_text_names_rows_and_the_limit() {
        let text = report().text();
        for part in [
            "3,000,000 rows, 1,024 MB of WAL",
            "undisturbed: every row once, in order per key",
            "after the kill: every row once, in order per key",
            "at most 128 MB: kept",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn what_passes_a_limit_or_breaks_the_promise_is_a_problem() {
        assert_eq!(report().problem(), None);
        let limited = Report { rss_limit_mb: 61, ..report() };
        assert!(limited.problem().unwrap().contains("62.0 MB, more than 61 MB"));
        assert!(limited.text().contains("PASSED"));
        let twice = Arrivals { copies: 1, ..Arrivals::default() };
        assert!(Report { arrivals: twice, ..report() }.problem().unwrap().contains("copies: 1"));
        let mut wrong = report();
        wrong.killed.arrivals.missing = 1;
        assert!(wrong.problem().unwrap().contains("after a kill"));
        assert!(wrong.text().contains("after the kill: BROKEN: 1 rows missing"));
        wrong.killed.arrivals = Arrivals { copies: 1, ..Arrivals::default() };
        assert!(wrong.problem().unwrap().contains("after a kill"));
    }
}
