//! One attempt at events, and what becomes of them when it fails.

use std::time::{Duration, Instant};

use walpost_event::RetrySchedule;

use super::{
    Interrupt, Partition,
    apply::{Applied, Work},
    failure::Failure,
    held::{MAX_HELD_KEYS, holds_key},
    jitter,
    lane::{Fence, Lane},
    trials::Condemned,
};
use crate::{
    Counts, Event, Handler, HandlerError, PartitionState, database_error::Patience, tell::tell,
};

/// What an attempt came to.
#[derive(Debug, Default)]
pub(super) struct Attempted {
    /// How many of the events are committed, from the first on.
    pub(super) events: usize,
    pub(super) counts: Counts,
    /// Something was parked.
    pub(super) parked: bool,
    /// Why nothing more of the partition may go on.
    pub(super) halt: Option<String>,
}

impl<H: Handler> Partition<H> {
    /// Applies `events`, of which [`Lane::next`] has cut off what may go
    /// together, or sets the first one aside.
    pub(super) async fn attempt(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        events: &[Event],
    ) -> Result<Attempted, Interrupt> {
        let Some(first) = events.first() else {
            return Ok(Attempted::default());
        };
        if let Err(problem) = first.identity() {
            return self.park(lane, fence, &events[..1], problem.reason(), 0).await;
        }
        if let Some(condemned) = lane.trials.take_condemned(first.offset()) {
            let Condemned { reason, attempts, .. } = condemned;
            return self.park(lane, fence, &events[..1], &reason, attempts).await;
        }
        let work = if lane.held.holds(first) { Work::Wait } else { Work::Handle };
        let started = Instant::now();
        match self.apply(lane, fence, events, work).await {
            Ok(applied) => {
                self.metrics.batch_seconds.record(started.elapsed());
                self.metrics.batch_events.record(events.len() as f64);
                if applied.new > 0 {
                    lane.trials.parked_in_row = 0;
                }
                lane.trials.transient_failures = 0;
                let attempted = self.committed(events, applied, false);
                if attempted.counts.duplicates > 0 {
                    self.warn_of_copy(lane, fence.position(), events).await;
                }
                Ok(attempted)
            }
            Err(Failure::Database(error)) => Err(self.failed("applying a batch", error)),
            Err(Failure::Store(error)) => Err(self.store_failed("applying a batch", &error)),
            Err(Failure::Connection) => Ok(Attempted::default()),
            Err(Failure::Handler { error, at, discard }) => {
                self.metrics.failures.increment(1);
                if discard {
                    lane.slot.close();
                } else {
                    lane.slot.give_back();
                }
                if self.may_be_done(lane, events, &error, at) {
                    return Ok(Attempted::default());
                }
                self.handler_failed(lane, events, error, at).await?;
                if discard { Err(Interrupt::Discarded) } else { Ok(Attempted::default()) }
            }
        }
    }

    /// The one place that decides what becomes of an event that failed.
    async fn handler_failed(
        &self,
        lane: &mut Lane,
        events: &[Event],
        error: HandlerError,
        at: Option<i64>,
    ) -> Result<(), Interrupt> {
        let reason = error.report();
        let offset = at.or_else(|| events.first().map(Event::offset)).unwrap_or_default();
        let partition = &self.of;
        let wait = match error {
            HandlerError::Halt(_) => {
                let place = if at.is_some() { "at" } else { "from" };
                let reason = error.halt_reason(&format!("{place} offset {offset}"));
                return Err(Interrupt::Halt(reason));
            }
            HandlerError::Transient(_) => {
                lane.trials.transient_failures += 1;
                tell!(
                    warn,
                    { partition = partition, offset = offset, reason = reason },
                    "a transient fault, trying again"
                );
                RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(10))
                    .delay(lane.trials.transient_failures, jitter())
            }
            HandlerError::Retry(_) | HandlerError::Park(_) if events.len() > 1 => {
                tracing::warn!(%partition, offset, reason, "a batch failed, looking for the event");
                lane.trials.sizing.failed_together(events.len(), at);
                None
            }
            HandlerError::Retry(_) | HandlerError::Park(_) => {
                let attempts = lane.trials.sizing.failed_alone(offset);
                tracing::warn!(%partition, offset, attempts, reason, "an event failed");
                let wait = self.next_attempt(&error, attempts, self.shared.settings.max_attempts);
                let stands_still =
                    error.patience() == Patience::Brief && wait.is_some_and(|wait| !wait.is_zero());
                let wait = wait.filter(|_| !stands_still || lane.trials.may_wait(Instant::now()));
                if wait.is_none() {
                    lane.trials.condemned = Some(Condemned { offset, attempts, reason });
                }
                wait
            }
        };
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            self.set_state(PartitionState::Retrying);
            self.stop.clone().sleep(wait).await?;
            self.set_state(PartitionState::Running);
        }
        Ok(())
    }

    /// How long an event waits that failed alone so many times; `None` for no further attempt.
    pub(super) fn next_attempt(
        &self,
        error: &HandlerError,
        attempts: u32,
        allowed: u32,
    ) -> Option<Duration> {
        if attempts >= allowed {
            return None;
        }
        error.patience().delay(attempts, &self.shared.settings.retry_schedule, jitter())
    }

    /// Sets one event aside, in the transaction that counts it as done.
    async fn park(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        events: &[Event],
        reason: &str,
        attempts: u32,
    ) -> Result<Attempted, Interrupt> {
        let applied = match self.apply(lane, fence, events, Work::Park { reason, attempts }).await {
            Ok(applied) => applied,
            Err(Failure::Database(error)) => return Err(self.failed("parking an event", error)),
            Err(Failure::Store(error)) => return Err(self.store_failed("parking an event", &error)),
            Err(Failure::Connection) => return Ok(Attempted::default()),
            Err(Failure::Handler { error, .. }) => {
                let place = format!("parking the event at offset {}", events[0].offset());
                return Err(Interrupt::Halt(error.halt_reason(&place)));
            }
        };
        let mut attempted = self.committed(events, applied, true);
        lane.trials.parked_in_row += 1;
        if attempted.parked {
            self.say_parked(fence.position());
        }
        let mut holds = false;
        if attempted.parked
            && let Some(key) = events[0].key()
            && holds_key(self.shared.settings.park, &events[0])
        {
            holds = true;
            lane.held.hold(key);
        }
        attempted.halt = self.too_many(lane, reason, holds);
        if attempted.halt.is_none() {
            let (partition, offset) = (&self.of, events[0].offset());
            tell!(
                error,
                { partition = partition, offset = offset, reason = reason, attempts = attempts },
                "parked an event"
            );
        }
        Ok(attempted)
    }

    /// Why what was parked is a fault and no poison. `holds`: one more key is
    /// held; after a restart it is not asked again, so that requests are served.
    fn too_many(&self, lane: &Lane, reason: &str, holds: bool) -> Option<String> {
        let (limit, schema) = (self.shared.settings.halt_after_parked, self.shared.sql.schema());
        if lane.trials.parked_in_row > limit {
            return Some(format!(
                "more than {limit} events in a row were parked, which is a fault and no poison; \
                 the last one because: {reason}. See {schema}.consumer_parked, mend the handler, and \
                 restart the consumer"
            ));
        }
        (holds && lane.held.is_too_much()).then(|| {
            format!(
                "more than {MAX_HELD_KEYS} keys are held back by parked events, which is a fault and \
                 no poison. See {schema}.consumer_parked, mend the handler, ask for the events to be \
                 retried or discarded, and restart the consumer"
            )
        })
    }

    /// The events are committed: counts them.
    fn committed(&self, events: &[Event], applied: Applied, parked: bool) -> Attempted {
        let Applied { new, waiting } = applied;
        let duplicates = events.len() as u64 - new - waiting;
        self.metrics.duplicates.increment(duplicates);
        self.metrics.waiting.increment(waiting);
        if parked { &self.metrics.parked } else { &self.metrics.applied }.increment(new);
        let mut counts = Counts { duplicates, waiting, ..Counts::default() };
        *(if parked { &mut counts.parked } else { &mut counts.applied }) = new;
        Attempted { events: events.len(), counts, parked: parked && new > 0, halt: None }
    }
}
