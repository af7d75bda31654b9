mod apart;
mod aside;
mod checkpoints;
mod crossing;
mod events;
mod flow;
mod parking;
mod retries;
mod stop;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use walpost_event::{Lsn, Message, Position, RowChange};
use walpost_pgoutput::LogicalMessage;

pub(crate) use self::stop::attend;
use self::{
    apart::Apart,
    aside::Aside,
    checkpoints::{Noted, Written, written},
    crossing::{Crossing, looked},
    retries::Retries,
    stop::Stopping,
};
#[cfg(test)]
use crate::simulation;
use crate::{
    ack::{AckTracker, Ticket},
    asking::Asker,
    checkpoint::CheckpointStore,
    config::RelayConfig,
    convert::{Converter, Origin},
    error::RelayError,
    floors::Floors,
    headers::OwnHeaders,
    metrics::PipelineMetrics,
    parked::{Parked, ParkedEvent},
    policy::Carried,
    proven::Proofs,
    published::Published,
    sink::{Delivery, DeliveryError, DeliveryErrorKind, Sink},
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
    pub(crate) asker: Asker,
    pub(crate) headers: OwnHeaders,
    pub(crate) parked: Parked,
    pub(crate) checkpoints: CheckpointStore,
    pub(crate) config: RelayConfig,
    pub(crate) status: StatusReporter,
    pub(crate) metrics: PipelineMetrics,
    pub(crate) progress: Progress,
    pub(crate) carried: Carried,
    /// What was read back.
    pub(crate) published: Published,
}

/// How far the session is.
pub(crate) struct Progress {
    tracker: AckTracker,
    floors: Floors,
    items: VecDeque<SourceItem>,
    held: Option<Held>,
    /// Their topics cannot be used.
    aside: Aside,
    /// Of topics whose events go one at a time.
    apart: Apart,
    /// Of a move: what is behind it waits for another pipeline.
    crossing: Option<Crossing>,
    /// Of the last move from this pipeline that has come.
    given_at: Option<Lsn>,
    /// A suspect that the sink has. Nothing else goes before its fate is known.
    alone: Option<Alone>,
    failed: HashMap<Ticket, DeliveryError>,
    /// What is published has no place in the stream.
    is_load: bool,
    /// Of the transaction that has begun last.
    xid: u32,
    received: Lsn,
    done: Lsn,
    checkpointed: Lsn,
    confirmed: Lsn,
    /// Checkpoints that the stream has not passed yet.
    unpassed: VecDeque<Written>,
    writing: Option<JoinHandle<Result<Noted, RelayError>>>,
    proofs: Proofs,
    /// Messages that are in no table have come.
    has_messages: bool,
    last_written: Option<Written>,
    last_checkpoint: Instant,
    events_since_checkpoint: bool,
    /// Delivered since the last report, which wakes whoever looks at it.
    unreported: u64,
    /// Items taken, keep-alives apart.
    items_taken: u64,
    retries: Retries,
    stopping: Option<Stopping>,
    /// Something in the stream ends the session, once what came before is
    /// settled, or after this moment.
    ending: Option<(RelayError, Instant)>,
}

/// An event that is ready to be sent.
struct Event {
    ticket: Ticket,
    position: Position,
    message: Message,
    origin: Origin,
}

/// An event before it is a message.
struct Unsent {
    ticket: Ticket,
    position: Position,
    change: RowChange,
    /// The logical message that the row stands for.
    emitted: Option<LogicalMessage>,
}

/// An event that cannot go on now; nothing overtakes it.
enum Held {
    /// Somebody is asked what its message needs.
    Unmade(Unsent),
    /// The sink has no room for it.
    Full(Event),
    /// It goes alone, and something is on its way.
    Suspect(Event),
    /// One too many in a row to be parked, unless something that is on its way
    /// is delivered.
    OneTooMany(ParkedEvent),
}

/// What became of an event that was offered to the sink.
enum Offered {
    /// It is on its way, or parked.
    Settled,
    /// The sink has no room for it.
    Wait(Event),
    /// It goes alone, and something is on its way.
    Alone(Event),
    /// Another one of its topic is on its way, and they go one at a time.
    Apart(Event),
    /// Its topic cannot be used, and why.
    Away(Event, Arc<str>),
}

/// A suspect on its way, with what it takes to park it.
struct Alone {
    ticket: Ticket,
    position: Position,
    origin: Origin,
}

/// How a session ended without an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<R> {
    /// It was told to stop, and everything that was on its way is settled.
    Stopped,
    /// As much is durable as was asked for.
    /// The floors go with it.
    Reached(R, Value),
    /// The sink refused events: what it refused alone is parked, the others
    /// are suspects in the next session.
    Rejected,
}

impl Progress {
    /// At `confirmed`; what was read back comes below `published_until`.
    pub(crate) fn new(confirmed: Lsn, published_until: Lsn, proofs: Proofs) -> Self {
        Self {
            tracker: AckTracker::default(),
            floors: Floors::holding_until(published_until),
            items: VecDeque::new(),
            held: None,
            aside: Aside::default(),
            apart: Apart::default(),
            crossing: None,
            given_at: None,
            alone: None,
            failed: HashMap::new(),
            is_load: confirmed == Lsn::ZERO,
            xid: 0,
            received: confirmed,
            done: confirmed,
            checkpointed: confirmed,
            confirmed,
            unpassed: VecDeque::new(),
            writing: None,
            proofs,
            has_messages: false,
            last_written: None,
            last_checkpoint: Instant::now(),
            events_since_checkpoint: false,
            unreported: 0,
            items_taken: 0,
            retries: Retries::new(confirmed > Lsn::ZERO),
            stopping: None,
            ending: None,
        }
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Runs until `stop` is true, until `reached` says that what is durable is
    /// enough, or until an error. Also returns what the next session needs.
    pub(crate) async fn run<R>(
        mut self,
        mut stop: watch::Receiver<bool>,
        reached: impl Fn(Lsn) -> Option<R>,
    ) -> (Result<Ended<R>, RelayError>, Carried) {
        self.set_topics_apart();
        let ended = self.serve(&mut stop, reached).await;
        if matches!(ended, Err(RelayError::Halted { .. })) {
            self.keep_what_led_here().await;
        }
        if let Some(crossing) = self.progress.crossing.take() {
            crossing.give_up();
        }
        self.asker.give_up();
        self.report();
        if let Some(writing) = self.progress.writing.take() {
            writing.abort();
        }
        self.parked.give_up();
        self.progress.retries.give_up();
        self.sink.close().await;
        (ended, self.carried)
    }

    async fn serve<R>(
        &mut self,
        stop: &mut watch::Receiver<bool>,
        reached: impl Fn(Lsn) -> Option<R>,
    ) -> Result<Ended<R>, RelayError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deliveries = Vec::new();
        let mut items = Vec::new();
        loop {
            if !self.progress.failed.is_empty() || self.progress.retries.has_failed() {
                return self.settle_failures().await;
            }
            let is_settled = self.is_settled();
            if let Some((error, _)) =
                self.progress.ending.take_if(|(_, until)| is_settled || Instant::now() >= *until)
            {
                return Err(error);
            }
            if let Some(stopping) = self.progress.stopping
                && (self.may_stop() || Instant::now() >= stopping.read_until())
            {
                return self.drain(stopping).await;
            }
            self.send_items()?;
            self.name_places();
            self.parked.write_collected();
            self.advance_retries();
            self.note_done();
            self.checkpoint_for_retries();
            self.confirm_passed().await?;
            if let Some(reached) = reached(self.progress.done) {
                return Ok(Ended::Reached(reached, self.floors()));
            }
            let reading = self.may_read();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop), if self.progress.stopping.is_none() => {
                    let limit = Duration::from_millis(self.config.drain_timeout_ms);
                    self.progress.stopping = Some(Stopping::new(Instant::now(), limit));
                }
                () = self.sink.deliveries(&mut deliveries) => self.settle(&mut deliveries),
                written = written(&mut self.progress.writing) => self.note_written(written)?,
                parked = self.parked.written() => self.note_parked(parked?),
                worked = self.progress.retries.worked() => self.note_worked(worked?),
                looked = looked(&mut self.progress.crossing) => self.note_crossing(looked?),
                answer = self.asker.answered() => self.converter.learn(answer?),
                _ = ticks.tick() => {
                    let is_over = self.is_over(&reached);
                    self.tick(is_over).await?;
                }
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
        let stuck = matches!(self.progress.held, Some(Held::Full(_) | Held::Unmade(_)))
            || self.progress.aside.is_full()
            || self.progress.crossing.is_some();
        !self.progress.tracker.is_open() || stuck && self.sink.outstanding() == 0
    }

    /// Nothing that was taken is on its way, or waits to be.
    fn is_settled(&self) -> bool {
        self.progress.held.is_none()
            && self.progress.aside.is_empty()
            && !self.progress.apart.has_refused()
            && self.sink.outstanding() == 0
    }

    fn may_read(&self) -> bool {
        self.progress.items.is_empty()
            && self.progress.ending.is_none()
            && self.may_send()
            && !self.progress.aside.is_full()
            && self.progress.tracker.span_events() < self.config.in_flight_max_events
    }

    fn may_send(&self) -> bool {
        self.progress.held.is_none()
            && self.progress.crossing.is_none()
            && self.progress.alone.is_none()
            && !self.progress.retries.is_alone()
            && !self.retry_wants_alone()
            && !self.parked.is_full()
    }

    /// Hands what was read to the sink, or to the parked events, until it has to
    /// wait for either.
    fn send_items(&mut self) -> Result<(), RelayError> {
        if !self.parked.is_full()
            && !self.progress.retries.is_alone()
            && let Some(held) = self.progress.held.take()
        {
            match held {
                Held::Full(event) | Held::Suspect(event) => self.offer_now(event)?,
                Held::OneTooMany(event) => self.park(event)?,
                // Whoever else has asked comes first.
                Held::Unmade(event) if self.asker.is_asking() => {
                    self.progress.held = Some(Held::Unmade(event));
                }
                Held::Unmade(event) => self.advance(event)?,
            }
        }
        // Before what comes behind them is released.
        self.park_refused()?;
        self.release_aside()?;
        while self.may_send()
            && self.progress.ending.is_none()
            && !self.progress.aside.is_full()
            && let Some(item) = self.progress.items.pop_front()
        {
            self.take(item)?;
            if self.progress.stopping.is_some() && !self.progress.tracker.is_open() {
                break;
            }
        }
        Ok(())
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        let mut published = 0;
        for delivery in deliveries.drain(..) {
            let Some(delivery) = self.retry_delivered(delivery) else { continue };
            match delivery.result {
                Ok(landed) => {
                    published += 1;
                    self.note_delivered(delivery.ticket, landed);
                }
                #[cfg(test)]
                Err(_) if simulation::has(simulation::Bug::AckPastFailedBatch) => {
                    self.progress.tracker.done(delivery.ticket);
                }
                Err(error) if error.kind == DeliveryErrorKind::RefusedAlone => {
                    self.progress.apart.refused(delivery.ticket, error);
                }
                Err(error) => {
                    self.progress.failed.insert(delivery.ticket, error);
                }
            }
        }
        self.metrics.published.increment(published);
        self.progress.unreported += published;
    }

    fn note_done(&mut self) {
        if let Some(done) = self.progress.tracker.take_confirmed() {
            self.progress.done = self.progress.done.max(done);
            if !self.progress.floors.is_holding(self.progress.done) && !self.published.is_empty() {
                self.published.clear();
            }
        }
    }

    /// Whether all that the source will ever bring was taken.
    fn is_over<R>(&self, reached: impl Fn(Lsn) -> Option<R>) -> bool {
        self.progress.items.is_empty() && reached(self.progress.received).is_some()
    }

    async fn tick(&mut self, is_over: bool) -> Result<(), RelayError> {
        self.source.keep_alive().await?;
        self.tell_missing_topics();
        self.park_aside(is_over)?;
        self.look_across();
        let due = self.progress.last_checkpoint.elapsed()
            >= Duration::from_millis(self.config.checkpoint_interval_ms);
        if due && self.progress.writing.is_none() {
            if self.worth_a_checkpoint() {
                self.start_checkpoint();
            } else if self.progress.proofs.wants_snapshot() {
                self.start_looking();
            }
        }
        self.report();
        Ok(())
    }

    fn report(&mut self) {
        let published = std::mem::take(&mut self.progress.unreported);
        let progress = &self.progress;
        let outstanding = self.sink.outstanding() as u64;
        let trouble = self.sink.trouble().or_else(|| self.carried.away.trouble());
        let oldest = progress.tracker.oldest_committed_at_us();
        let waits = progress.crossing.as_ref().and_then(Crossing::waits);
        let waits = waits.or_else(|| self.asker.waits());
        let flow = self.flow();
        self.status.update(|status| {
            status.published += published;
            status.received = progress.received;
            status.done = progress.done;
            // A load confirms nothing, and its slot stands where it stands.
            status.confirmed = status.confirmed.max(progress.confirmed);
            status.outstanding = outstanding;
            status.oldest_pending_us = oldest;
            status.trouble = trouble;
            status.waits = waits;
            status.flow = flow;
        });
    }
}
