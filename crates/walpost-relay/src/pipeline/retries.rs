//! Parked events that are sent on: from their rows to the sink, and what became
//! of them back to their rows.
//!
//! Beside the stream: statements run as tasks, one at a time, and a retry takes
//! no place from an event of the stream unless it has to go alone. Each is a
//! committed row that says `sending` before it is sent, so a start finds out
//! whether it landed.

mod fates;
mod message;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tokio::{
    task::{JoinError, JoinHandle},
    time::Instant,
};
use walpost_event::{Lsn, Message, Position};

use super::{Held, Pipeline};
use crate::{
    ack::Ticket,
    convert::Unmade,
    error::RelayError,
    parked::{Aggregate, Busy, Looked, Outcome, ParkReason, Parking, Room, SendingFloor, Verdict},
    sink::{DeliveryError, Sink, Unsent},
    source::Source,
};

/// Retries at hand at a time.
const AT_HAND_MAX: usize = 100;
/// Their bytes, without those that the sink has.
const AT_HAND_MAX_BYTES: usize = 16 << 20;
/// Between two looks at the table when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Without a place for so long, a retry gives its own to others.
const PLACE_MAX: Duration = Duration::from_secs(10);
/// Marks the tickets of retries; those of the stream count from 0.
const RETRY: Ticket = 1 << 63;

/// The retries of a session.
pub(super) struct Retries {
    enabled: bool,
    job: Option<Job>,
    next_look: Instant,
    /// Requests up to this row were looked at.
    after: i64,
    /// Their first rows stand above the committed position.
    above: BTreeMap<Aggregate, Lsn>,
    /// To be given a place.
    ready: Vec<Ready>,
    /// Their rows are being written.
    beginning: Vec<Ready>,
    begun: Vec<Begun>,
    on_way: HashMap<Ticket, Retry>,
    /// The only one on its way, and nothing else goes.
    alone: Option<Ticket>,
    failed: Vec<(Ticket, DeliveryError)>,
    settled: Vec<Outcome>,
    settling: Vec<(i64, Option<Aggregate>)>,
    next_ticket: Ticket,
}

/// A row, as far as it is needed to the end.
struct Retry {
    id: i64,
    position: Position,
    aggregate: Option<Aggregate>,
}

struct Ready {
    retry: Retry,
    message: Message,
    since: Instant,
}

/// May be in the sink, as its row says.
struct Begun {
    retry: Retry,
    message: Message,
    /// Behind the commit that says so.
    wal: Lsn,
}

enum Job {
    Look(JoinHandle<Result<Looked, RelayError>>),
    Begin(JoinHandle<Result<(Vec<i64>, Lsn), RelayError>>),
    Settle(JoinHandle<Result<Vec<Outcome>, RelayError>>),
}

/// What a statement has brought.
pub(super) enum Worked {
    Looked(Looked),
    /// Nothing was seen in time.
    Unseen,
    Begun(Vec<i64>, Lsn),
    Settled(Vec<Outcome>),
}

impl Retries {
    /// None where nothing is confirmed, as in a load.
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            job: None,
            next_look: Instant::now(),
            after: 0,
            above: BTreeMap::new(),
            ready: Vec::new(),
            beginning: Vec::new(),
            begun: Vec::new(),
            on_way: HashMap::new(),
            alone: None,
            failed: Vec::new(),
            settled: Vec::new(),
            settling: Vec::new(),
            next_ticket: RETRY,
        }
    }

    /// Whether one has the sink for itself.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// What a statement brings, once it has ended; for ever without one. Loses
    /// nothing when it is cancelled.
    pub(super) async fn worked(&mut self) -> Result<Worked, RelayError> {
        let worked = match &mut self.job {
            None => std::future::pending().await,
            Some(Job::Look(task)) => looked(ended(task.await)),
            Some(Job::Begin(task)) => ended(task.await).map(|(ids, wal)| Worked::Begun(ids, wal)),
            Some(Job::Settle(task)) => ended(task.await).map(Worked::Settled),
        };
        self.job = None;
        worked
    }

    /// Waits no longer for a statement.
    pub(super) fn give_up(&mut self) {
        match self.job.take() {
            Some(Job::Look(task)) => task.abort(),
            Some(Job::Begin(task)) => task.abort(),
            Some(Job::Settle(task)) => task.abort(),
            None => {}
        }
    }

    fn at_hand(&self) -> impl Iterator<Item = (i64, Option<&Aggregate>)> {
        let ready = self.ready.iter().chain(&self.beginning).map(|ready| &ready.retry);
        let sent = self.begun.iter().map(|begun| &begun.retry).chain(self.on_way.values());
        let settled = self.settled.iter().map(|one| (one.id, one.aggregate.as_ref()));
        let settling = self.settling.iter().map(|(id, aggregate)| (*id, aggregate.as_ref()));
        let retries = ready.chain(sent).map(|retry| (retry.id, retry.aggregate.as_ref()));
        retries.chain(settled).chain(settling)
    }

    fn room(&self) -> Option<Room> {
        let messages = self.ready.iter().chain(&self.beginning).map(|ready| &ready.message);
        let messages = messages.chain(self.begun.iter().map(|begun| &begun.message));
        let bytes: usize = messages.map(Message::size_bytes).sum();
        let room = Room {
            events: AT_HAND_MAX.saturating_sub(self.at_hand().count()),
            bytes: AT_HAND_MAX_BYTES.saturating_sub(bytes),
        };
        (room.events > 0 && room.bytes > 0).then_some(room)
    }

    fn busy(&self) -> Busy {
        let mut busy = Busy::default();
        for (id, aggregate) in self.at_hand() {
            busy.ids.insert(id);
            busy.aggregates.extend(aggregate.cloned());
        }
        busy
    }

    fn settle(&mut self, retry: Retry, verdict: Verdict) {
        let Retry { id, position, aggregate } = retry;
        self.settled.push(Outcome { id, position, aggregate, verdict });
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Does what can be done for retries now, without waiting.
    pub(super) fn advance_retries(&mut self) {
        if !self.progress.retries.enabled {
            return;
        }
        let stopping = self.progress.stopping.is_some();
        if !stopping {
            self.send_begun();
        }
        if self.progress.retries.job.is_some() || self.settle_retries() || stopping {
            return;
        }
        self.begin_ready();
        if self.progress.retries.job.is_none() {
            self.look_for_retries();
        }
    }

    /// Whether a retry that has to go alone waits for the sink to be empty.
    pub(super) fn retry_wants_alone(&self) -> bool {
        let retries = &self.progress.retries;
        retries.begun.iter().any(|begun| {
            begun.wal <= self.progress.received && self.carried.retries.contains(begun.retry.id)
        })
    }

    /// Sends those whose rows the stream has passed.
    fn send_begun(&mut self) {
        let waits = matches!(self.progress.held, Some(Held::Suspect(_) | Held::OneTooMany(_)));
        if waits || self.progress.alone.is_some() || self.progress.retries.begun.is_empty() {
            return;
        }
        // Others would keep the sink from being empty.
        let alone_first = self.retry_wants_alone();
        if alone_first {
            self.sink.hurry();
        }
        for begun in std::mem::take(&mut self.progress.retries.begun) {
            let suspect = self.carried.retries.contains(begun.retry.id);
            let retries = &mut self.progress.retries;
            if begun.wal > self.progress.received
                || retries.alone.is_some()
                || alone_first && !suspect
                || suspect && self.sink.outstanding() > 0
            {
                retries.begun.push(begun);
                continue;
            }
            let Begun { retry, message, wal } = begun;
            let ticket = retries.next_ticket;
            match self.sink.try_send(ticket, message) {
                Ok(_) => {
                    retries.next_ticket += 1;
                    retries.alone = suspect.then_some(ticket);
                    retries.on_way.insert(ticket, retry);
                    if suspect {
                        self.sink.hurry();
                    }
                }
                Err(
                    Unsent::Full(message) | Unsent::Apart(message) | Unsent::Away { message, .. },
                ) => {
                    retries.begun.push(Begun { retry, message: *message, wal });
                }
                Err(Unsent::Never { topic, detail }) => {
                    self.refuse(retry, 1, Parking::rejected(format!("{topic}: {detail}")));
                }
            }
        }
    }

    fn refuse(&mut self, retry: Retry, attempts: u32, mut parking: Parking) {
        parking.bound();
        let attempts = attempts + self.carried.retries.settled(retry.id);
        self.progress.retries.settle(retry, Verdict::Refused { attempts, parking });
    }

    /// Begins to write what became of retries, if there are any.
    fn settle_retries(&mut self) -> bool {
        let retries = &mut self.progress.retries;
        if retries.settled.is_empty() {
            return false;
        }
        let outcomes = std::mem::take(&mut retries.settled);
        retries.settling = outcomes.iter().map(|one| (one.id, one.aggregate.clone())).collect();
        retries.job = Some(Job::Settle(self.parked.settle(outcomes)));
        true
    }

    /// Notes in their rows that those with a place are about to be sent there.
    fn begin_ready(&mut self) {
        let mut begin = Vec::new();
        for mut ready in std::mem::take(&mut self.progress.retries.ready) {
            let may_try = self.carried.away.may_try(&ready.message.topic, Instant::now());
            let lane = match self.sink.lane_of(&ready.message) {
                Ok(lane) => lane.filter(|_| may_try),
                Err(detail) => {
                    let place = self.sink.place_name(&ready.message);
                    let parking = Parking::rejected(format!("{place}: {detail}"));
                    self.refuse(ready.retry, 1, parking);
                    continue;
                }
            };
            let known = lane.and_then(|lane| {
                let place = self.sink.places().get(lane as usize)?;
                Some((place, self.progress.floors.known_end(lane)?))
            });
            let retries = &mut self.progress.retries;
            match known {
                Some((place, end)) => {
                    ready.message.partition = Some(place.partition);
                    begin.push((ready.retry.id, SendingFloor::new(place, end)));
                    retries.beginning.push(ready);
                }
                // It stays as it is, and is found again.
                None if ready.since.elapsed() > PLACE_MAX => {}
                None => retries.ready.push(ready),
            }
        }
        if !begin.is_empty() {
            self.progress.retries.job = Some(Job::Begin(self.parked.begin_sending(begin)));
        }
    }

    fn look_for_retries(&mut self) {
        let retries = &mut self.progress.retries;
        let is_due = Instant::now() >= retries.next_look || self.parked.has_news();
        if !is_due {
            return;
        }
        let Some(room) = retries.room() else { return };
        retries.next_look = Instant::now() + LOOK_EVERY;
        let (confirmed, busy) = (self.progress.checkpointed, retries.busy());
        let look = self.parked.look(confirmed, retries.after, busy, room);
        self.progress.retries.job = Some(Job::Look(look));
    }

    /// Has a checkpoint written for retries that wait for nothing else.
    pub(super) fn checkpoint_for_retries(&mut self) {
        let progress = &self.progress;
        let waits = progress.done > progress.checkpointed
            && progress.retries.above.values().any(|commit_lsn| *commit_lsn < progress.done);
        if waits && progress.writing.is_none() {
            self.start_checkpoint();
        }
    }

    /// A checkpoint was committed.
    pub(super) fn note_passed(&mut self) {
        let confirmed = self.progress.checkpointed;
        let above = std::mem::take(&mut self.progress.retries.above);
        let (passed, above) = above.into_iter().partition(|(_, lsn)| *lsn < confirmed);
        self.progress.retries.above = above;
        let passed: BTreeMap<Aggregate, Lsn> = passed;
        passed.into_keys().for_each(|aggregate| self.parked.note_news(aggregate));
    }

    /// Goes on with what a statement has brought.
    pub(super) fn note_worked(&mut self, worked: Worked) {
        match worked {
            Worked::Looked(looked) => self.note_looked(looked),
            Worked::Unseen => {}
            Worked::Begun(ids, wal) => {
                let ids: BTreeSet<i64> = ids.into_iter().collect();
                let retries = &mut self.progress.retries;
                let beginning = std::mem::take(&mut retries.beginning).into_iter();
                let begun = beginning.filter(|ready| ids.contains(&ready.retry.id));
                retries.begun.extend(begun.map(|Ready { retry, message, .. }| Begun {
                    retry,
                    message,
                    wal,
                }));
            }
            Worked::Settled(outcomes) => self.note_settled(outcomes),
        }
    }

    fn note_looked(&mut self, mut looked: Looked) {
        for (id, _) in &looked.discarded {
            tracing::info!(id, "parked event discarded, as was asked for");
        }
        if !looked.discarded.is_empty() || looked.after != 0 && !looked.events.is_empty() {
            self.progress.retries.next_look = Instant::now();
        }
        self.progress.retries.after = looked.after;
        self.progress.retries.above.extend(std::mem::take(&mut looked.above));
        let free = self.parked.note_looked(&mut looked);
        if free > 0 {
            tracing::info!(aggregates = free, "no parked event is left of them; they are free");
        }
        for event in looked.events {
            let (id, position, aggregate) = (event.id, event.position, event.aggregate.clone());
            let retry = Retry { id, position, aggregate };
            match self.retried_message(event) {
                Ok(message) => {
                    let since = Instant::now();
                    self.progress.retries.ready.push(Ready { retry, message, since });
                }
                Err(Unmade::Park(parking)) => self.refuse(retry, 0, parking),
                // It stays as it is, and is found again.
                Err(Unmade::Ask(question)) => self.asker.ask(question),
                Err(Unmade::Dropped) => {
                    let detail = "the transforms drop it; discard it, or change them".to_owned();
                    self.refuse(retry, 0, Parking { reason: ParkReason::Unroutable, detail });
                }
            }
        }
    }
}

/// Nobody depends on a look: whether the session is alive, others find out who
/// write.
fn looked(looked: Result<Looked, RelayError>) -> Result<Worked, RelayError> {
    match looked {
        Err(RelayError::SqlTimeout { attempt, limit }) => {
            let limit_s = limit.as_secs();
            tracing::warn!(attempt, limit_s, "the parked events could not be looked at in time");
            Ok(Worked::Unseen)
        }
        looked => looked.map(Worked::Looked),
    }
}

fn ended<T>(joined: Result<Result<T, RelayError>, JoinError>) -> Result<T, RelayError> {
    joined.unwrap_or_else(|_| {
        let detail = "sending parked events on was interrupted".to_owned();
        Err(RelayError::Sink { detail, transient: true })
    })
}
