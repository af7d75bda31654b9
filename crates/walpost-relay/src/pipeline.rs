mod checkpoints;
mod events;
mod stop;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use walpost_event::{Lsn, Message, Position, Row};

use self::checkpoints::{Written, written};
use crate::{
    ack::{AckTracker, Ticket},
    checkpoint::CheckpointStore,
    config::RelayConfig,
    convert::Converter,
    error::RelayError,
    headers::OwnHeaders,
    metrics::PipelineMetrics,
    parked::{Parked, Parking},
    policy::ParkStreak,
    sink::{Delivery, DeliveryError, Sink},
    source::{Source, SourceItem},
    status::StatusReporter,
};

/// Between two looks at the clock: keep-alives, checkpoints, status.
const TICK: Duration = Duration::from_millis(100);

/// One session: from a source to a sink until either ends, or until told to
/// stop. One loop on one task; nothing in it waits for anything but in
/// [`run`](Pipeline::run).
pub(crate) struct Pipeline<S, K> {
    pub(crate) source: S,
    pub(crate) sink: K,
    pub(crate) converter: Converter,
    pub(crate) headers: OwnHeaders,
    pub(crate) parked: Parked,
    pub(crate) checkpoints: CheckpointStore,
    pub(crate) config: RelayConfig,
    pub(crate) status: StatusReporter,
    pub(crate) metrics: PipelineMetrics,
    pub(crate) progress: Progress,
}

/// How far the session is.
pub(crate) struct Progress {
    tracker: AckTracker,
    items: VecDeque<SourceItem>,
    /// A message that the sink had no room for.
    held: Option<Event>,
    failed: HashMap<Ticket, DeliveryError>,
    streak: ParkStreak,
    received: Lsn,
    done: Lsn,
    checkpointed: Lsn,
    confirmed: Lsn,
    /// Checkpoints that the stream has not passed yet.
    unpassed: VecDeque<Written>,
    writing: Option<JoinHandle<Result<Written, RelayError>>>,
    last_written: Option<Written>,
    last_checkpoint: Instant,
    events_since_checkpoint: bool,
    /// Told to stop: at the next end of a transaction, at the latest then.
    stop_by: Option<Instant>,
}

/// An event that is ready to be sent.
struct Event {
    ticket: Ticket,
    position: Position,
    message: Message,
    row: Row,
}

/// How a session ended without an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to stop, and everything that was on its way is settled.
    Stopped,
    /// Everything up to the position that was asked for is durable.
    Reached,
    /// The sink refused events for good; they are to be parked when they come
    /// again.
    Rejected(HashMap<Position, Parking>),
}

impl Progress {
    pub(crate) fn new(config: &RelayConfig, confirmed: Lsn) -> Self {
        Self {
            tracker: AckTracker::default(),
            items: VecDeque::new(),
            held: None,
            failed: HashMap::new(),
            streak: ParkStreak::new(config.parked_halt_after),
            received: confirmed,
            done: confirmed,
            checkpointed: confirmed,
            confirmed,
            unpassed: VecDeque::new(),
            writing: None,
            last_written: None,
            last_checkpoint: Instant::now(),
            events_since_checkpoint: false,
            stop_by: None,
        }
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Runs until `stop` is true, until `until` is durable, or until an error.
    pub(crate) async fn run(
        mut self,
        mut stop: watch::Receiver<bool>,
        until: Option<Lsn>,
    ) -> Result<Ended, RelayError> {
        let ended = self.serve(&mut stop, until).await;
        if let Some(writing) = self.progress.writing.take() {
            writing.abort();
        }
        self.sink.close().await;
        ended
    }

    async fn serve(
        &mut self,
        stop: &mut watch::Receiver<bool>,
        until: Option<Lsn>,
    ) -> Result<Ended, RelayError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deliveries = Vec::new();
        let mut items = Vec::new();
        loop {
            if !self.progress.failed.is_empty() {
                return self.settle_failures().await;
            }
            if let Some(deadline) = self.progress.stop_by
                && (self.may_stop() || Instant::now() >= deadline)
            {
                return self.drain(deadline).await;
            }
            self.send_items().await?;
            self.note_done();
            self.confirm_passed().await?;
            if until.is_some_and(|until| self.progress.done >= until) {
                self.report();
                return Ok(Ended::Reached);
            }
            let reading = self.may_read();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop), if self.progress.stop_by.is_none() => {
                    let limit = Duration::from_millis(self.config.drain_timeout_ms);
                    self.progress.stop_by = Some(Instant::now() + limit);
                }
                () = self.sink.deliveries(&mut deliveries) => self.settle(&mut deliveries),
                written = written(&mut self.progress.writing) => self.note_written(written)?,
                _ = ticks.tick() => self.tick().await?,
                read = self.source.next(&mut items), if reading => {
                    read?;
                    self.progress.items.extend(items.drain(..));
                }
            }
            // Others on this thread, such as the SQL session, get their turn.
            tokio::task::yield_now().await;
        }
    }

    /// Between two transactions, or when the sink takes nothing and owes
    /// nothing.
    fn may_stop(&self) -> bool {
        let stuck = self.progress.held.is_some() && self.sink.outstanding() == 0;
        !self.progress.tracker.is_open() || stuck
    }

    fn may_read(&self) -> bool {
        self.progress.items.is_empty()
            && self.progress.held.is_none()
            && self.progress.tracker.span_events() < self.config.in_flight_max_events
    }

    /// Hands what was read to the sink until it is full.
    async fn send_items(&mut self) -> Result<(), RelayError> {
        if let Some(held) = self.progress.held.take() {
            self.offer(held).await?;
        }
        if self.progress.held.is_some() {
            return Ok(());
        }
        while let Some(item) = self.progress.items.pop_front() {
            self.take(item).await?;
            let stopping = self.progress.stop_by.is_some() && !self.progress.tracker.is_open();
            if self.progress.held.is_some() || stopping {
                break;
            }
        }
        Ok(())
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        let mut published = 0;
        for delivery in deliveries.drain(..) {
            match delivery.result {
                Ok(()) => {
                    published += 1;
                    self.progress.tracker.done(delivery.ticket);
                }
                Err(error) => {
                    self.progress.failed.insert(delivery.ticket, error);
                }
            }
        }
        self.metrics.published.increment(published);
        self.status.update(|status| status.published += published);
    }

    fn note_done(&mut self) {
        if let Some(done) = self.progress.tracker.take_confirmed() {
            self.progress.done = self.progress.done.max(done);
        }
    }

    async fn tick(&mut self) -> Result<(), RelayError> {
        self.source.keep_alive().await?;
        let due = self.progress.last_checkpoint.elapsed()
            >= Duration::from_millis(self.config.checkpoint_interval_ms);
        if due && self.progress.writing.is_none() && self.worth_a_checkpoint() {
            self.start_checkpoint();
        }
        self.report();
        Ok(())
    }

    fn report(&mut self) {
        let progress = &self.progress;
        let outstanding = self.sink.outstanding() as u64;
        let trouble = self.sink.trouble();
        let oldest = progress.tracker.oldest_committed_at_us();
        self.status.update(|status| {
            status.received = progress.received;
            status.done = progress.done;
            status.confirmed = progress.confirmed;
            status.outstanding = outstanding;
            status.oldest_pending_us = oldest;
            status.trouble = trouble;
            self.metrics.observe(status, crate::clock::now_us());
        });
    }
}
