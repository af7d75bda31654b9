//! Handlers that block their thread: which they are, and what is logged of them.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use metrics::Gauge;

use crate::{
    TopicPartition,
    tell::{Reminder, seconds, tell},
};

/// A call that keeps its thread for so long blocks it.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// Calls of a handler in one partition, and since when each keeps its thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    calls: Arc<Mutex<Vec<Arc<Call>>>>,
}

#[derive(Debug)]
struct Call {
    /// Of its first event.
    offset: i64,
    /// In microseconds since [`START`], 0 while it waits.
    since_us: AtomicU64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Polls {
    /// Runs a call whose first event is at `offset`.
    pub(crate) async fn watch<T>(&self, offset: i64, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let watched = Watched::begin(self, offset);
        poll_fn(|context| {
            let us = u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX);
            watched.call.since_us.store(us.max(1), Ordering::Relaxed);
            let polled = call.as_mut().poll(context);
            watched.call.since_us.store(0, Ordering::Relaxed);
            polled
        })
        .await
    }

    /// The call that has kept its thread for the longest time, if that is too long: its offset,
    /// and for how long.
    fn blocked(&self, now: Instant) -> Option<(i64, Duration)> {
        let now = now.saturating_duration_since(*START);
        let kept = |call: &Arc<Call>| {
            let since_us = call.since_us.load(Ordering::Relaxed);
            let kept = now.saturating_sub(Duration::from_micros(since_us));
            (since_us > 0 && kept >= BLOCKED_AFTER).then_some((call.offset, kept))
        };
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter_map(kept).max_by_key(|(_, kept)| *kept)
    }
}

/// A call, until it is dropped.
struct Watched<'a> {
    polls: &'a Polls,
    call: Arc<Call>,
}

impl<'a> Watched<'a> {
    fn begin(polls: &'a Polls, offset: i64) -> Self {
        let call = Arc::new(Call { offset, since_us: AtomicU64::new(0) });
        polls.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&call));
        Self { polls, call }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut calls = self.polls.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

/// What was logged of the partitions whose handler blocks its thread.
#[derive(Debug, Default)]
pub(crate) struct BlockedLog {
    logged: HashMap<TopicPartition, Reminder>,
}

impl BlockedLog {
    /// Looks at one partition, logs what is new, and sets its gauge.
    pub(crate) fn look(&mut self, of: &TopicPartition, polls: &Polls, gauge: &Gauge, now: Instant) {
        let Some((offset, kept)) = polls.blocked(now) else {
            if self.logged.remove(of).is_some() {
                gauge.set(0.0);
                tracing::info!(partition = %of, "the handler gave its thread back");
            }
            return;
        };
        gauge.set(kept.as_secs_f64());
        if self.logged.entry(of.clone()).or_default().is_due(now) {
            let blocked = seconds(kept);
            tell!(
                warn,
                { partition = of, offset = offset, blocked = blocked },
                "the handler blocks its thread, its time limit cannot end it; await instead, or use \
                 tokio::task::spawn_blocking"
            );
        }
    }

    /// A partition is no longer this member's.
    pub(crate) fn forget(&mut self, of: &TopicPartition) {
        self.logged.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_blocks_while_it_is_polled_and_not_while_it_waits() {
        let polls = Polls::default();
        let later = || Instant::now() + 2 * BLOCKED_AFTER;
        let during = polls.watch(7, async {
            assert_eq!(polls.blocked(Instant::now()), None);
            polls.blocked(later()).map(|(offset, _)| offset)
        });
        assert_eq!(during.await, Some(7));
        assert_eq!(polls.blocked(later()), None);
        let mut waiting = std::pin::pin!(polls.watch(8, std::future::pending::<()>()));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        assert_eq!(polls.blocked(later()), None);
    }
}
