use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use walpost_event::{Identity, Lsn, Message, Operation, Position, Row, RowChange};
use walpost_pgoutput::LogicalMessage;

use crate::{
    ack::{AckTracker, Ticket},
    checkpoint::CheckpointStore,
    config::RelayConfig,
    convert::Converter,
    error::RelayError,
    headers::OwnHeaders,
    metrics::PipelineMetrics,
    parked::{ParkReason, Parked, Parking},
    policy::{Disposition, ParkStreak, decide},
    sink::{Delivery, DeliveryError, Sink, Unsent},
    source::{Source, SourceItem},
    status::StatusReporter,
};

/// Between two looks at the clock: keep-alives, checkpoints, status.
const TICK: Duration = Duration::from_millis(100);
/// After a failed delivery, for the fate of the others.
const SETTLE: Duration = Duration::from_secs(30);
/// Checkpoints remembered while the stream lags behind them.
const UNPASSED_MAX: usize = 64;

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

#[derive(Clone, Copy, Debug)]
struct Written {
    confirmed: Lsn,
    /// At or behind the commit record of the write itself.
    wal: Lsn,
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
                && (!self.progress.tracker.is_open() || Instant::now() >= deadline)
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

    async fn take(&mut self, item: SourceItem) -> Result<(), RelayError> {
        match item {
            SourceItem::Begin { commit_lsn, committed_at_us, .. } => {
                self.progress.tracker.begin(commit_lsn, committed_at_us);
                self.metrics.transactions.increment(1);
                Ok(())
            }
            SourceItem::Commit { end_lsn } => {
                self.progress.tracker.commit(end_lsn);
                self.progress.received = self.progress.received.max(end_lsn);
                Ok(())
            }
            SourceItem::KeepAlive { wal_end } => {
                self.progress.tracker.keep_alive(wal_end);
                self.progress.received = self.progress.received.max(wal_end);
                Ok(())
            }
            SourceItem::Change(change) => self.change(change).await,
            SourceItem::Oversize { change, size_bytes } => self.oversize(change, size_bytes).await,
            SourceItem::Message(message) => self.logical_message(message).await,
        }
    }

    async fn change(&mut self, change: RowChange) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        match change.operation {
            Operation::Insert => self.event(change).await,
            Operation::Update | Operation::Delete => {
                self.metrics.skipped.increment(1);
                self.converter.other_operation(&change)
            }
        }
    }

    async fn logical_message(&mut self, message: LogicalMessage) -> Result<(), RelayError> {
        if !self.converter.is_outbox_prefix(&message.prefix) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        match self.converter.message_row(&message) {
            Ok(row) => self.event(RowChange::insert(row)).await,
            Err(parking) => {
                let (ticket, position) = self.progress.tracker.event();
                self.park(ticket, position, &Identity::default(), parking).await
            }
        }
    }

    async fn oversize(&mut self, change: RowChange, size_bytes: u64) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            return Ok(());
        }
        let (ticket, position) = self.progress.tracker.event();
        let identity = self.converter.identity(&change.row);
        let limit = self.config.max_event_bytes;
        let detail = format!("the row has {size_bytes} bytes, max_event_bytes is {limit}");
        let parking = Parking { reason: ParkReason::Oversize, detail };
        self.park(ticket, position, &identity, parking).await
    }

    /// An insert: its own ticket, then parked or sent.
    async fn event(&mut self, change: RowChange) -> Result<(), RelayError> {
        let (ticket, position) = self.progress.tracker.event();
        self.progress.events_since_checkpoint = true;
        if self.parked.contains(position) {
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        if !self.parked.is_empty() {
            let identity = self.converter.identity(&change.row);
            if let Some(parking) = self.parked.must_wait(position, &identity) {
                return self.park(ticket, position, &identity, parking).await;
            }
        }
        match self.converter.message(&change) {
            Ok(mut message) => {
                self.headers.add(&mut message.headers, position);
                self.offer(Event { ticket, position, message, row: change.row }).await
            }
            Err(parking) => {
                let identity = self.converter.identity(&change.row);
                self.park(ticket, position, &identity, parking).await
            }
        }
    }

    /// Sends the event, holds it until there is room, or parks it.
    async fn offer(&mut self, event: Event) -> Result<(), RelayError> {
        let Event { ticket, position, message, row } = event;
        match self.sink.try_send(ticket, message) {
            Ok(()) => {
                self.progress.streak.sent();
                Ok(())
            }
            Err(Unsent::Full(message)) => {
                self.progress.held = Some(Event { ticket, position, message: *message, row });
                Ok(())
            }
            Err(Unsent::Never { topic, detail }) => {
                let detail = format!("{topic}: {detail}");
                let parking = Parking { reason: ParkReason::Rejected, detail };
                let identity = self.converter.identity(&row);
                self.park(ticket, position, &identity, parking).await
            }
        }
    }

    async fn park(
        &mut self,
        ticket: Ticket,
        position: Position,
        identity: &Identity,
        parking: Parking,
    ) -> Result<(), RelayError> {
        // What waits behind a parked event is no sign of a fault.
        if parking.reason != ParkReason::Behind && !self.progress.streak.may_park() {
            return Err(RelayError::Halted {
                count: self.config.parked_halt_after,
                position,
                reason: parking.detail,
            });
        }
        self.parked.park(position, identity, &parking).await?;
        self.progress.tracker.done(ticket);
        self.metrics.parked.increment(1);
        self.status.update(|status| status.parked += 1);
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

    /// Waits for the fate of everything on its way, then decides.
    async fn settle_failures(&mut self) -> Result<Ended, RelayError> {
        let deadline = Instant::now() + SETTLE;
        let mut deliveries = Vec::new();
        while self.sink.outstanding() > 0 {
            let wait = self.sink.deliveries(&mut deliveries);
            if tokio::time::timeout_at(deadline, wait).await.is_err() {
                break;
            }
            self.settle(&mut deliveries);
        }
        let mut rejected = HashMap::new();
        let mut retry = None;
        for (ticket, error) in &self.progress.failed {
            match decide(error) {
                Disposition::Retry => retry = Some(error),
                Disposition::Park => {
                    if let Some(position) = self.progress.tracker.position(*ticket) {
                        let parking =
                            Parking { reason: ParkReason::Rejected, detail: error.to_string() };
                        rejected.insert(position, parking);
                    }
                }
            }
        }
        match retry {
            _ if !rejected.is_empty() => Ok(Ended::Rejected(rejected)),
            Some(error) => Err(RelayError::Sink { detail: error.to_string(), transient: true }),
            None => Err(RelayError::Sink { detail: "no reason given".into(), transient: true }),
        }
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

    /// Nothing but our own last checkpoint is in the WAL since: write none.
    fn worth_a_checkpoint(&self) -> bool {
        if self.progress.done <= self.progress.checkpointed {
            return false;
        }
        self.progress.events_since_checkpoint
            || self.progress.last_written.is_none_or(|last| self.progress.done > last.wal)
    }

    fn start_checkpoint(&mut self) {
        let (checkpoints, confirmed) = (self.checkpoints.clone(), self.progress.done);
        self.progress.last_checkpoint = Instant::now();
        self.progress.events_since_checkpoint = false;
        self.progress.writing = Some(tokio::spawn(async move {
            let wal = checkpoints.write(confirmed).await?;
            Ok(Written { confirmed, wal })
        }));
    }

    fn note_written(&mut self, written: Result<Written, RelayError>) -> Result<(), RelayError> {
        self.progress.writing = None;
        let written = written?;
        self.progress.checkpointed = written.confirmed;
        self.progress.last_written = Some(written);
        self.progress.unpassed.push_back(written);
        if self.progress.unpassed.len() > UNPASSED_MAX {
            // Any but the first and the last can go: they only move the
            // position in smaller steps.
            self.progress.unpassed.remove(1);
        }
        Ok(())
    }

    /// Confirms what a committed checkpoint names, once the stream has passed
    /// that commit.
    async fn confirm_passed(&mut self) -> Result<(), RelayError> {
        let mut passed = None;
        while let Some(first) = self.progress.unpassed.front()
            && first.wal <= self.progress.received
        {
            passed = Some(first.confirmed);
            self.progress.unpassed.pop_front();
        }
        if let Some(confirmed) = passed {
            self.source.confirm(confirmed).await?;
            self.progress.confirmed = confirmed;
        }
        Ok(())
    }

    /// Orderly stop, between two transactions where there is time for it:
    /// everything on its way settled, a last checkpoint, and its position
    /// confirmed if the stream passes it soon.
    async fn drain(&mut self, deadline: Instant) -> Result<Ended, RelayError> {
        let mut deliveries = Vec::new();
        while self.sink.outstanding() > 0 {
            let wait = self.sink.deliveries(&mut deliveries);
            if tokio::time::timeout_at(deadline, wait).await.is_err() {
                tracing::warn!(
                    outstanding = self.sink.outstanding(),
                    "stopping although the sink has not answered; these events come again"
                );
                break;
            }
            self.settle(&mut deliveries);
        }
        self.note_done();
        if let Some(writing) = self.progress.writing.take() {
            let written = writing.await.unwrap_or_else(|_| Err(interrupted()));
            self.note_written(written)?;
        }
        if self.progress.done > self.progress.checkpointed {
            let confirmed = self.progress.done;
            let wal = self.checkpoints.write(confirmed).await?;
            self.note_written(Ok(Written { confirmed, wal }))?;
        }
        self.confirm_last(deadline).await?;
        self.report();
        Ok(Ended::Stopped)
    }

    async fn confirm_last(&mut self, deadline: Instant) -> Result<(), RelayError> {
        let mut items = Vec::new();
        while !self.progress.unpassed.is_empty() {
            self.confirm_passed().await?;
            let next = self.source.next(&mut items);
            let Ok(read) = tokio::time::timeout_at(deadline, next).await else { break };
            read?;
            // Read for their position only: these events come again.
            for item in items.drain(..) {
                if let SourceItem::Commit { end_lsn: lsn }
                | SourceItem::KeepAlive { wal_end: lsn } = item
                {
                    self.progress.received = self.progress.received.max(lsn);
                }
            }
            self.confirm_passed().await?;
        }
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

async fn written(
    writing: &mut Option<JoinHandle<Result<Written, RelayError>>>,
) -> Result<Written, RelayError> {
    match writing {
        Some(task) => task.await.unwrap_or_else(|_| Err(interrupted())),
        None => std::future::pending().await,
    }
}

fn interrupted() -> RelayError {
    RelayError::Sink { detail: "writing the checkpoint was interrupted".into(), transient: true }
}
