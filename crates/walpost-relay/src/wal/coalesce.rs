use std::time::Duration;

/// Decides how long to leave the socket alone, so that a busy stream is read
/// in large pieces and an idle one at once.
///
/// A walsender writes every row by itself. A reader that is woken for each
/// spends its time, and the server's, on wake-ups: on two cores 65 thousand
/// events a second against 140 thousand with a pause of 200 µs between reads.
///
/// Pure: the caller measures and sleeps.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    busy_reads: u32,
}

/// Between two reads of a busy stream.
const PAUSE: Duration = Duration::from_micros(200);
/// Behind a read of many rows. Longer ones let small segments fill a receive
/// buffer of the default size, and then the server waits.
const LONG_PAUSE: Duration = Duration::from_micros(500);
/// What a read of many rows brings.
const MANY_ROWS_BYTES: usize = 4 * 1024;
/// A read that had to wait longer than this found the stream idle.
const IDLE_AFTER: Duration = Duration::from_micros(500);
/// Reads in a row without an idle one that make a stream busy.
const BUSY_READS: u32 = 4;
/// A read of this size needs no pause: the reader is behind, not ahead.
const LARGE_READ_BYTES: usize = 128 * 1024;

impl Coalescer {
    /// Tells of a read that waited `waited` for its first byte.
    pub(super) fn after_read(&mut self, waited: Duration) {
        self.busy_reads =
            if waited > IDLE_AFTER { 0 } else { (self.busy_reads + 1).min(BUSY_READS) };
    }

    /// How long to wait before the next read, `since_last` after the last one,
    /// which brought `bytes`.
    pub(super) fn pause(&self, since_last: Duration, bytes: usize) -> Duration {
        if self.busy_reads < BUSY_READS || bytes >= LARGE_READ_BYTES {
            return Duration::ZERO;
        }
        let pause = if bytes < MANY_ROWS_BYTES { PAUSE } else { LONG_PAUSE };
        pause.saturating_sub(since_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(20);

    #[test]
    fn an_idle_stream_is_read_at_once() {
        let mut coalescer = Coalescer::default();
        for _ in 0..100 {
            coalescer.after_read(Duration::from_millis(5));
            assert_eq!(coalescer.pause(SOON, 400), Duration::ZERO);
        }
    }

    #[test]
    fn a_single_transaction_on_an_idle_stream_is_not_delayed() {
        let mut coalescer = Coalescer::default();
        coalescer.after_read(Duration::from_secs(1));
        for _ in 0..BUSY_READS - 1 {
            coalescer.after_read(SOON);
            assert_eq!(coalescer.pause(SOON, 400), Duration::ZERO);
        }
    }

    #[test]
    fn a_busy_stream_is_left_alone_between_reads() {
        let mut coalescer = Coalescer::default();
        for _ in 0..BUSY_READS {
            coalescer.after_read(SOON);
        }
        assert_eq!(coalescer.pause(SOON, 400), Duration::from_micros(180));
        assert_eq!(coalescer.pause(Duration::from_micros(300), 400), Duration::ZERO);
        assert_eq!(coalescer.pause(SOON, MANY_ROWS_BYTES), Duration::from_micros(480));
        assert_eq!(coalescer.pause(SOON, LARGE_READ_BYTES), Duration::ZERO);
    }

    #[test]
    fn one_idle_read_ends_the_pauses() {
        let mut coalescer = Coalescer::default();
        for _ in 0..10 {
            coalescer.after_read(SOON);
        }
        coalescer.after_read(Duration::from_millis(1));
        assert_eq!(coalescer.pause(SOON, 400), Duration::ZERO);
    }
}
