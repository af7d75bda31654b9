//! From just before an INSERT is sent to the arrival of its event at a reader.

mod reader;
mod writer;

use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use self::reader::Reader;
pub(crate) use self::writer::write_at_rate;
use crate::{
    measure::Load,
    progress,
    subject::{Job, Output, Subject},
    topic,
};

/// Before anything is measured: at the highest rate, for JIT compilers, caches
/// and connections.
const WARM_UP: Duration = Duration::from_secs(10);
/// For the last events to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const MARK: &[u8] = b"sent_us=";

/// Latency in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
}

impl Percentiles {
    /// Nearest rank, of microseconds. `None` of nothing.
    pub(crate) fn of(mut micros: Vec<u64>) -> Option<Self> {
        micros.sort_unstable();
        let at = |per_mille: usize| {
            let rank = (micros.len() * per_mille).div_ceil(1_000).max(1);
            micros.get(rank - 1).map(|micros| *micros as f64 / 1_000.0)
        };
        Some(Self { p50: at(500)?, p99: at(990)?, p99_9: at(999)? })
    }
}

/// What was measured at one rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Events per second.
    pub(crate) rate: u32,
    pub(crate) percentiles: Percentiles,
    /// Who had the processors meanwhile.
    pub(crate) load: Load,
}

/// Reads what the job's subject, the process `pid`, puts out, and measures each
/// of the rates (events per second) for `duration`.
pub(crate) fn measure(
    subject: &dyn Subject,
    job: &Job<'_>,
    pid: u32,
    rates: &[u32],
    duration: Duration,
) -> Result<Vec<Latency>> {
    let reader = match subject.output() {
        Output::Topic => {
            let bootstrap = job.services.kafka.bootstrap();
            Reader::of_topic(topic::read_from_beginning(&bootstrap, job.topic)?)
        }
        Output::File => Reader::of_pipe(job.file)?,
    };
    let warm_up = rates.iter().max().copied().unwrap_or_default();
    at_rate(&reader, job, warm_up, WARM_UP.min(duration))?;
    let mut measured = Vec::new();
    for &rate in rates {
        progress!("{}: latency at {rate} events/s", subject.name());
        let start = Instant::now();
        let before = job.services.load(Duration::ZERO, Some(pid))?;
        let micros = at_rate(&reader, job, rate, duration)?;
        let load = job.services.load(start.elapsed(), Some(pid))?.since(&before);
        let percentiles = Percentiles::of(micros).context("no event was written")?;
        measured.push(Latency { rate, percentiles, load });
    }
    reader.stop()?;
    Ok(measured)
}

/// Latency of each event in microseconds.
fn at_rate(reader: &Reader, job: &Job<'_>, rate: u32, duration: Duration) -> Result<Vec<u64>> {
    let written = write_at_rate(&job.services.conninfo(), rate, duration)?;
    let start = Instant::now();
    while reader.seen() < written {
        if reader.has_ended() {
            bail!("the reader ended after {} of {written} events", reader.seen());
        }
        if start.elapsed() > ARRIVAL_LIMIT {
            bail!("{} of {written} events arrived within {ARRIVAL_LIMIT:?}", reader.seen());
        }
        thread::sleep(POLL);
    }
    Ok(reader.take())
}

/// Microseconds since 1970.
pub(crate) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The text by which [`find_marks`] finds this time again. It is part of a text
/// column, so that every encoding leaves it as it is.
pub(crate) fn mark(micros: u64) -> String {
    format!("{}{micros};", String::from_utf8_lossy(MARK))
}

/// Calls `found` with the time of each [`mark`], and returns how many of `bytes`
/// need no second search when more follows.
pub(crate) fn find_marks(bytes: &[u8], mut found: impl FnMut(u64)) -> usize {
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(MARK.len()).position(|window| window == MARK) {
        let start = from + at + MARK.len();
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if start + digits == bytes.len() {
            return from + at;
        }
        let number = std::str::from_utf8(&bytes[start..start + digits]).unwrap_or_default();
        if let Ok(micros) = number.parse() {
            found(micros);
        }
        from = start + digits;
    }
    bytes.len().saturating_sub(MARK.len() - 1).max(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let percentiles = Percentiles::of((1..=1_000).rev().map(|n| n * 1_000).collect()).unwrap();
        assert_eq!(percentiles, Percentiles { p50: 500.0, p99: 990.0, p99_9: 999.0 });
        let one = Percentiles::of(vec![1_500]).unwrap();
        assert_eq!(one, Percentiles { p50: 1.5, p99: 1.5, p99_9: 1.5 });
        assert_eq!(Percentiles::of(Vec::new()), None);
    }

    #[test]
    fn times_are_found_wherever_a_stream_is_cut() {
        let text = format!("{{\"sent\": \"{}\", \"order\": 1}}x\0\x18{}", mark(123), mark(4567));
        let stream = text.as_bytes();
        for cut in 0..=stream.len() {
            let mut found = Vec::new();
            let kept = find_marks(&stream[..cut], |micros| found.push(micros));
            let rest = find_marks(&stream[kept..], |micros| found.push(micros));
            assert_eq!(found, [123, 4567], "cut at {cut}");
            assert!(kept + rest <= stream.len());
        }
    }
}
