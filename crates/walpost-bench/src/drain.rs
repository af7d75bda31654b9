//! One subject empties the backlog.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use walpost_local::ChildGuard;

use crate::{
    measure::{Load, Meter, Usage},
    subject::{Job, Output, Subject},
    topic::Ends,
};

const POLL: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(900);

/// How a subject emptied the backlog. All times from the start of its process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drain {
    pub(crate) events: u64,
    /// When the first events were seen.
    pub(crate) first: Duration,
    /// How many were seen then.
    pub(crate) seen_at_first: u64,
    /// When all were there.
    pub(crate) done: Duration,
    /// Of the process by then, start included.
    pub(crate) usage: Usage,
    /// CPU time of the process when the first events were seen.
    pub(crate) cpu_at_first: Duration,
    /// Who had the processors meanwhile.
    pub(crate) load: Load,
}

impl Drain {
    /// From the first events seen to the last, or from the start when all were
    /// seen at once.
    pub(crate) fn events_per_second(&self) -> f64 {
        if self.seen_at_first == self.events {
            return self.events_per_second_from_start();
        }
        let events = self.events - self.seen_at_first;
        events as f64 / (self.done - self.first).as_secs_f64()
    }

    /// From the start of the process.
    pub(crate) fn events_per_second_from_start(&self) -> f64 {
        self.events as f64 / self.done.as_secs_f64()
    }

    /// From the start of the process.
    pub(crate) fn cpu_seconds_per_million(&self) -> f64 {
        self.usage.cpu.as_secs_f64() * 1e6 / self.events as f64
    }

    /// From the first events seen on.
    pub(crate) fn cpu_seconds_per_million_after_first(&self) -> f64 {
        (self.usage.cpu - self.cpu_at_first).as_secs_f64() * 1e6 / self.events as f64
    }

    pub(crate) fn rss_peak_mb(&self) -> f64 {
        self.usage.rss_peak_mb()
    }
}

/// Starts the subject and waits until all events are out. It runs on until the
/// guard is dropped.
pub(crate) fn drain(
    subject: &dyn Subject,
    job: &Job<'_>,
    events: u64,
) -> Result<(Drain, ChildGuard)> {
    let ends = match subject.output() {
        Output::Topic => Some(Ends::open(&job.services.kafka.bootstrap(), job.topic)?),
        Output::File => None,
    };
    let before = job.services.load(Duration::ZERO, None)?;
    let start = Instant::now();
    let child = subject.start(job)?;
    let mut meter = Meter::new(child.pid());
    let mut first = None;
    loop {
        let usage = meter.sample()?;
        let seen = match &ends {
            Some(ends) => ends.records()?,
            None => seen_in_file(&usage, &child, events)?,
        };
        let now = start.elapsed();
        if seen > 0 && first.is_none() {
            first = Some((now, seen.min(events), usage.cpu));
        }
        if let (Some((first, seen_at_first, cpu_at_first)), true) = (first, seen >= events) {
            let mut load = job.services.load(now, None)?.since(&before);
            load.itself = usage.cpu;
            let drain =
                Drain { events, first, seen_at_first, done: now, usage, cpu_at_first, load };
            return Ok((drain, child));
        }
        if ends.is_some() && usage.ended {
            bail!("{} ended early; its log ends with: {}", subject.name(), child.log_tail());
        }
        if now > LIMIT {
            bail!("{} had {seen} of {events} events after {LIMIT:?}", subject.name());
        }
        thread::sleep(POLL);
    }
}

/// A file does not tell how many events are in it: at least one when something
/// was written, all when the subject has ended as it was told to.
fn seen_in_file(usage: &Usage, child: &ChildGuard, events: u64) -> Result<u64> {
    if !usage.ended {
        return Ok(u64::from(usage.written_bytes > 0));
    }
    let status = child.wait(Duration::from_secs(1)).context("waiting for its end")?;
    match status.success() {
        true => Ok(events),
        false => bail!("it ended with {status}: {}", child.log_tail()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_leave_out_what_was_there_at_the_first_look() {
        let drain = Drain {
            events: 1_000,
            first: Duration::from_secs(2),
            seen_at_first: 200,
            done: Duration::from_secs(4),
            usage: Usage { cpu: Duration::from_millis(3), ..Usage::default() },
            cpu_at_first: Duration::ZERO,
            load: Load::default(),
        };
        assert!((drain.events_per_second() - 400.0).abs() < 1e-9);
        let at_once = Drain { seen_at_first: 1_000, first: drain.done, ..drain };
        assert!((at_once.events_per_second() - 250.0).abs() < 1e-9);
        assert!((drain.events_per_second_from_start() - 250.0).abs() < 1e-9);
        assert!((drain.cpu_seconds_per_million() - 3.0).abs() < 1e-9);
    }
}
