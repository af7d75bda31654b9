//! What a process costs, as `/proc` has it.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Linux shows times in this unit whatever it counts in.
const TICKS_PER_SECOND: u64 = 100;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time of all its threads, and of its children that it
    /// has waited for.
    pub(crate) cpu: Duration,
    /// The most memory it ever had resident.
    pub(crate) rss_peak_bytes: u64,
    /// What it passed to `write`.
    pub(crate) written_bytes: u64,
    /// It has ended, and nobody has waited for it yet.
    pub(crate) ended: bool,
}

impl Usage {
    /// In units of 1,048,576 bytes.
    pub(crate) fn rss_peak_mb(&self) -> f64 {
        self.rss_peak_bytes as f64 / (1024.0 * 1024.0)
    }
}

/// Reads the usage of a child that has not been waited for. When it has ended
/// its memory is gone from `/proc`; the last figure stays.
#[derive(Debug)]
pub(crate) struct Meter {
    pid: u32,
    last: Usage,
}

impl Meter {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, last: Usage::default() }
    }

    pub(crate) fn sample(&mut self) -> Result<Usage> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.pid));
        let stat = read("stat").with_context(|| format!("reading the usage of {}", self.pid))?;
        let (ended, ticks) = parse_stat(&stat).context("/proc/…/stat in another format")?;
        let peak = read("status").ok().and_then(|status| parse_field(&status, "VmHWM:"));
        let written = read("io").ok().and_then(|io| parse_field(&io, "wchar:"));
        self.last = Usage {
            cpu: cpu_time(ticks),
            rss_peak_bytes: peak.map_or(self.last.rss_peak_bytes, |kb| kb * 1024),
            written_bytes: written.unwrap_or(self.last.written_bytes),
            ended,
        };
        Ok(self.last)
    }
}

/// CPU time used by a subject and by those around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) elapsed: Duration,
    pub(crate) itself: Duration,
    /// With all its processes.
    pub(crate) postgres: Duration,
    pub(crate) kafka: Duration,
    /// Everyone, those above included.
    pub(crate) machine: Duration,
}

impl Load {
    /// So far, by the process ids; the subject's where it runs already.
    pub(crate) fn sample(
        elapsed: Duration,
        subject: Option<u32>,
        postgres: u32,
        kafka: u32,
    ) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let machine = cpu_time(parse_busy(&stat).context("/proc/stat in another format")?);
        let cpu_of = |pid| Meter::new(pid).sample().map(|usage| usage.cpu);
        Ok(Self {
            elapsed,
            itself: subject.map_or(Ok(Duration::ZERO), cpu_of)?,
            postgres: cpu_with_children(postgres)?,
            kafka: cpu_of(kafka)?,
            machine,
        })
    }

    /// What was used since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            itself: self.itself.saturating_sub(earlier.itself),
            postgres: self.postgres.saturating_sub(earlier.postgres),
            kafka: self.kafka.saturating_sub(earlier.kafka),
            machine: self.machine.saturating_sub(earlier.machine),
        }
    }

    /// Processors that were busy with the subject, PostgreSQL, Kafka, and
    /// everything else.
    pub(crate) fn cores(&self) -> [f64; 4] {
        let known = self.itself + self.postgres + self.kafka;
        let others = self.machine.saturating_sub(known);
        [self.itself, self.postgres, self.kafka, others]
            .map(|cpu| cpu.as_secs_f64() / self.elapsed.as_secs_f64())
    }
}

/// Children that have ended are in the parent's figures.
fn cpu_with_children(pid: u32) -> Result<Duration> {
    let mut cpu = Meter::new(pid).sample()?.cpu;
    for entry in fs::read_dir("/proc").context("listing /proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if parse_parent(&stat) == Some(pid) {
            cpu += Meter::new(child).sample().map_or(Duration::ZERO, |usage| usage.cpu);
        }
    }
    Ok(cpu)
}

fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Ticks of all processors that were neither idle nor waiting for a disk.
fn parse_busy(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    // user, nice, system, idle, iowait, irq, softirq, steal, and guests, which
    // are in user already.
    let busy = ticks.iter().take(7).sum::<u64>();
    Some(busy - ticks.get(3)? - ticks.get(4)?)
}

fn cpu_time(ticks: u64) -> Duration {
    Duration::from_micros(ticks * 1_000_000 / TICKS_PER_SECOND)
}

/// Whether it is a zombie, and the sum of utime, stime, cutime and cstime.
fn parse_stat(stat: &str) -> Option<(bool, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let ticks = fields.skip(10).take(4).map(|field| field.parse::<u64>().ok());
    let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
    (ticks.len() == 4).then(|| (ended, ticks.iter().sum()))
}

fn parse_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 31 12 5 2 20 0 3 0 9";
        assert_eq!(parse_stat(stat), Some((false, 50)));
        assert_eq!(parse_stat(&stat.replace(" S ", " Z ")), Some((true, 50)));
        assert_eq!(parse_stat("7 (a) S 1"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmPeak:\t  900 kB\nVmHWM:\t  512 kB\n";
        assert_eq!(parse_field(status, "VmHWM:"), Some(512));
        assert_eq!(parse_field(status, "VmSwap:"), None);
    }

    #[test]
    fn the_machine_is_busy_when_it_is_neither_idle_nor_waiting() {
        assert_eq!(parse_busy("cpu  10 1 5 900 50 2 3 7 0 0\ncpu0 1\n"), Some(21));
        assert_eq!(parse_busy("cpu0 1"), None);
    }

    #[test]
    fn cores_are_shares_of_the_time_that_passed() {
        let seconds = Duration::from_secs;
        let load = |n| Load {
            elapsed: seconds(2 * n),
            itself: seconds(n),
            postgres: seconds(2 * n),
            kafka: Duration::ZERO,
            machine: seconds(4 * n),
        };
        assert_eq!(load(5).since(&load(3)).cores(), [0.5, 1.0, 0.0, 0.5]);
    }

    #[test]
    fn a_child_counts_for_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert_eq!(parse_parent(&stat), Some(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn our_own_usage_is_not_nothing() {
        let usage = Meter::new(std::process::id()).sample().unwrap();
        assert!(usage.rss_peak_bytes > 1024 * 1024);
        assert!(!usage.ended);
    }
}
