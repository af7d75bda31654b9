//! A claimed partition at work, with one lane: batch after batch.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::{Interrupt, Partition, attempt::Attempted, lane::Fence, session::Session};
use crate::{Event, Handler, inbox::FetchFailure};

impl<H: Handler> Partition<H> {
    /// Until something ends the claim.
    pub(super) async fn work(&self, session: &mut Session) -> Interrupt {
        loop {
            if let Err(interrupt) = self.step(session).await {
                return interrupt;
            }
        }
    }

    async fn step(&self, session: &mut Session) -> Result<(), Interrupt> {
        if self.stop.is_requested() {
            return Err(Interrupt::Stopped);
        }
        self.look_at_requests(session).await?;
        session.lane.slot.give_back();
        self.gather(session).await?;
        if session.batch.is_empty() {
            return self.idle(session).await;
        }
        self.meter.next_is_of(session.batch.first().and_then(Event::timestamp_ms));
        let count = session.lane.next(&session.batch).len();
        let count = self.keep_pace(session, count).await?;
        self.take_turn(&mut session.lane).await?;
        let mut batch = std::mem::take(&mut session.batch);
        let Session { lane, key, ledger, .. } = session;
        let events = &batch[..count];
        let fence = Fence::Offset { key: *key, known: ledger.known() };
        let attempted = self.attempt(lane, fence, events).await?;
        lane.slot.give_back();
        let done = attempted.events;
        self.done(session, &batch[..done], attempted)?;
        batch.drain(..done);
        session.batch = batch;
        self.take_answer(session)?;
        self.send_commit(session).await;
        Ok(())
    }

    /// The events are committed, and the offset with them.
    fn done(
        &self,
        session: &mut Session,
        events: &[Event],
        attempted: Attempted,
    ) -> Result<(), Interrupt> {
        let Attempted { counts, parked, halt, .. } = attempted;
        if !events.is_empty() {
            session.key = session.key.after(events);
            let end = session.key.next_offset;
            self.meter.advanced(end);
            session.ledger.stored();
            session.lane.trials.advanced(end, counts.are_new());
            let made = counts.applied + counts.parked;
            session.lane.replay.made(events[0].offset(), made, Instant::now());
            self.shared.board.advance(&self.of, end, |all| all.add(counts));
        }
        if parked {
            session.looks.parked(Instant::now());
        }
        halt.map_or(Ok(()), |reason| Err(Interrupt::Halt(reason)))
    }

    /// Takes what has arrived.
    pub(super) async fn take(
        &self,
        session: &mut Session,
        max_events: usize,
    ) -> Result<bool, Interrupt> {
        let max_bytes = self.shared.settings.max_batch_bytes;
        match session.inbox.take(&mut session.batch, max_events, max_bytes) {
            Ok(full) => Ok(full),
            Err(FetchFailure::OutOfRange) => Err(self.out_of_range(session).await),
            Err(FetchFailure::Replaced { offset, then, now }) => {
                Err(self.replaced(offset, then, now).await)
            }
            Err(FetchFailure::Lost(reason)) => Err(Interrupt::Fault(reason)),
        }
    }

    /// Takes what has arrived, and waits for more if that is wished.
    async fn gather(&self, session: &mut Session) -> Result<(), Interrupt> {
        let wait = Duration::from_millis(self.shared.settings.max_batch_wait_ms);
        let deadline = tokio::time::Instant::now() + wait;
        let mut stop = self.stop.clone();
        loop {
            let full = self.take(session, self.shared.settings.max_batch_events).await?;
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
            Ok(log) => self.check_log(next, log).await.err().unwrap_or_else(|| {
                Interrupt::Fault(format!("offset {next} was out of the log's range, and is not"))
            }),
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
}
