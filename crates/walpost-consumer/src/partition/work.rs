//! A claimed partition at work: batch after batch, and what to do when one
//! fails.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use walpost_event::RetrySchedule;

use super::{
    Interrupt, Partition,
    apply::{Applied, Work},
    failure::Failure,
    held::holds_key,
    jitter,
    session::Session,
    trials::Condemned,
};
use crate::{
    Event, Handler, HandlerError, PartitionState, failpoint::Failpoint, inbox::FetchFailure,
    tell::tell,
};

impl<H: Handler> Partition<H> {
    /// Until something ends the claim.
    pub(super) async fn work(&mut self, session: &mut Session) -> Interrupt {
        let Session { key, replay, .. } = session;
        let (partition, next_offset, epoch) = (&self.of, key.next_offset, key.epoch);
        tracing::info!(%partition, next_offset, epoch, "the partition runs");
        self.shared.board.update(&self.of, |status| {
            status.state = PartitionState::Running;
            status.next_offset = Some(key.next_offset);
            status.committed_offset = None;
            status.epoch = key.epoch;
            status.run = replay.run;
        });
        loop {
            if let Err(interrupt) = self.step(session).await {
                return interrupt;
            }
        }
    }

    async fn step(&mut self, session: &mut Session) -> Result<(), Interrupt> {
        if self.stop.is_requested() {
            return Err(Interrupt::Stopped);
        }
        self.look_at_requests(session).await?;
        self.gather(session).await?;
        if session.batch.is_empty() {
            return self.idle(session).await;
        }
        let count = self.trials.sizing.cut(session.batch.iter().map(Event::offset));
        let count = session.replay.cut(&session.batch[..count]);
        let mut batch = std::mem::take(&mut session.batch);
        let done = self.attempt(session, &batch[..count]).await?;
        batch.drain(..done);
        session.batch = batch;
        self.take_answer(session)?;
        self.send_commit(session).await;
        Ok(())
    }

    /// Takes what has arrived, and waits for more if that is wished.
    async fn gather(&self, session: &mut Session) -> Result<(), Interrupt> {
        let settings = &self.shared.settings;
        let (max_events, max_bytes) = (settings.max_batch_events, settings.max_batch_bytes);
        let wait = Duration::from_millis(settings.max_batch_wait_ms);
        let deadline = tokio::time::Instant::now() + wait;
        let mut stop = self.stop.clone();
        loop {
            let full = match session.inbox.take(&mut session.batch, max_events, max_bytes) {
                Ok(full) => full,
                Err(FetchFailure::OutOfRange) => return Err(self.out_of_range(session).await),
                Err(FetchFailure::Replaced { offset, then, now }) => {
                    return Err(self.replaced(offset, then, now).await);
                }
                Err(FetchFailure::Lost(reason)) => return Err(Interrupt::Fault(reason)),
            };
            if full || wait.is_zero() || session.batch.is_empty() {
                return Ok(());
            }
            tokio::select! {
                () = session.inbox.filled() => {}
                () = sleep_until(deadline) => return Ok(()),
                () = stop.requested() => return Ok(()),
            }
        }
    }

    async fn out_of_range(&self, session: &Session) -> Interrupt {
        let next = session.key.next_offset;
        match self.shared.kafka.watermarks(&self.of).await {
            Ok((low, high)) if (low..=high).contains(&next) => {
                Interrupt::Fault(format!("offset {next} was out of the log's range, and is not"))
            }
            Ok((low, high)) => self.outside_of_log(next, low, high),
            Err(failure) => failure.into(),
        }
    }

    /// The log was cut and has grown again.
    async fn replaced(&self, offset: i64, then: i32, now: i32) -> Interrupt {
        match self.shared.kafka.watermarks(&self.of).await {
            Ok((low, _)) => self.log_replaced(offset, (then, now), low),
            Err(failure) => failure.into(),
        }
    }

    /// How many of the events are done with, from the first.
    async fn attempt(
        &mut self,
        session: &mut Session,
        events: &[Event],
    ) -> Result<usize, Interrupt> {
        let Some(first) = events.first() else {
            return Ok(0);
        };
        if let Err(problem) = first.identity() {
            return self.park(session, &events[..1], problem.reason(), 0).await;
        }
        if let Some(condemned) = self.trials.take_condemned(first.offset()) {
            let Condemned { reason, attempts, .. } = condemned;
            return self.park(session, &events[..1], &reason, attempts).await;
        }
        let started = Instant::now();
        match self.apply(session, events, Work::Handle).await {
            Ok(applied) => {
                self.metrics.batch_seconds.record(started.elapsed());
                self.metrics.batch_events.record(events.len() as f64);
                if applied.new > 0 {
                    self.trials.parked_in_row = 0;
                }
                self.trials.transient_failures = 0;
                self.done(session, events, applied, false);
                Ok(events.len())
            }
            Err(Failure::Database(error)) => Err(self.failed("applying a batch", error)),
            Err(Failure::Handler { error, at, discard }) => {
                self.metrics.failures.increment(1);
                self.handler_failed(events, error, at).await?;
                if discard { Err(Interrupt::Discarded) } else { Ok(0) }
            }
        }
    }

    /// The one place that decides what becomes of an event that failed.
    async fn handler_failed(
        &mut self,
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
                self.trials.transient_failures += 1;
                tell!(
                    warn,
                    { partition = partition, offset = offset, reason = reason },
                    "a transient fault, trying again"
                );
                RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(10))
                    .delay(self.trials.transient_failures, jitter())
            }
            HandlerError::Retry(_) | HandlerError::Park(_) if events.len() > 1 => {
                tracing::warn!(%partition, offset, reason, "a batch failed, looking for the event");
                self.trials.sizing.failed_together(events.len(), at);
                None
            }
            HandlerError::Retry(_) | HandlerError::Park(_) => {
                let attempts = self.trials.sizing.failed_alone(offset);
                let last = attempts >= self.shared.settings.max_attempts;
                tracing::warn!(%partition, offset, attempts, reason, "an event failed");
                if last || matches!(error, HandlerError::Park(_)) {
                    self.trials.condemned = Some(Condemned { offset, attempts, reason });
                    None
                } else {
                    self.shared.settings.retry_schedule.delay(attempts, jitter())
                }
            }
        };
        if let Some(wait) = wait {
            self.set_state(PartitionState::Retrying);
            self.stop.sleep(wait).await?;
            self.set_state(PartitionState::Running);
        }
        Ok(())
    }

    /// Sets one event aside, in the transaction that moves the offset past it.
    async fn park(
        &mut self,
        session: &mut Session,
        events: &[Event],
        reason: &str,
        attempts: u32,
    ) -> Result<usize, Interrupt> {
        match self.apply(session, events, Work::Park { reason, attempts }).await {
            Ok(applied) => {
                self.trials.parked_in_row += 1;
                self.done(session, events, applied, true);
                if applied.new == 1 {
                    let holds = holds_key(self.shared.settings.park, &events[0]);
                    session.held.parked(&events[0], holds, Instant::now());
                    self.check_held(session, holds)?;
                }
            }
            Err(Failure::Database(error)) => return Err(self.failed("parking an event", error)),
            Err(Failure::Handler { error, .. }) => {
                let place = format!("parking the event at offset {}", session.key.next_offset);
                return Err(Interrupt::Halt(error.halt_reason(&place)));
            }
        }
        let (limit, partition) = (self.shared.settings.halt_after_parked, &self.of);
        if self.trials.parked_in_row > limit {
            return Err(Interrupt::Halt(format!(
                "more than {limit} events in a row were parked, which is a fault and no poison; \
                 the last one because: {reason}. See {schema}.consumer_parked, mend the handler, and \
                 restart the consumer",
                schema = self.shared.sql.schema(),
            )));
        }
        let offset = session.key.next_offset - 1;
        tell!(
            error,
            { partition = partition, offset = offset, reason = reason, attempts = attempts },
            "parked an event"
        );
        Ok(events.len())
    }

    /// The events are committed.
    fn done(&mut self, session: &mut Session, events: &[Event], applied: Applied, parked: bool) {
        Failpoint::AfterCommit.reached();
        session.key = session.key.after(events);
        let end = session.key.next_offset;
        session.ledger.stored();
        self.trials.advanced(end);
        let Applied { new, waiting } = applied;
        let duplicates = events.len() as u64 - new - waiting;
        self.metrics.duplicates.increment(duplicates);
        self.metrics.waiting.increment(waiting);
        if parked { &self.metrics.parked } else { &self.metrics.applied }.increment(new);
        self.shared.board.advance(&self.of, end, |counts| {
            *(if parked { &mut counts.parked } else { &mut counts.applied }) += new;
            counts.duplicates += duplicates;
            counts.waiting += waiting;
        });
    }
}
