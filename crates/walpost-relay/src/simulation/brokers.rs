use walpost_event::{Header, Headers};
use walpost_testkit::Seeded;

use super::{
    coordinator::{self, Coordinator, LATE_MS},
    log::{Log, Record},
    oracle::Oracle,
    schedule::{BatchFault, Fault, Mode, PARTITIONS, Schedule, TOPICS},
};
use crate::{
    ack::Ticket,
    sink::{
        DeliveryErrorKind,
        transaction::{TransactionDecision, TransactionOutcome},
    },
};

/// How long what a dead session has sent may take to land: what the relay waits
/// for, and no more.
pub(super) const SETTLE_MS: u64 = 50;

pub(super) const PLACES: usize = TOPICS * PARTITIONS;

/// The log, and what is on its way to it.
pub(super) struct Brokers {
    logs: [Log; PLACES],
    coordinator: Coordinator,
    /// In the order in which they were sent, per session and place.
    batches: Vec<Batch>,
    /// Behind which batch of a session and place nothing lands any more: that
    /// one has not, or nobody knows.
    broken: Vec<(u32, usize, usize)>,
    faults: Vec<(usize, BatchFault)>,
    sent: usize,
    sessions: u32,
    max_ms: u64,
    chance: Seeded,
}

struct Batch {
    /// Over all sessions.
    number: usize,
    session: u32,
    place: usize,
    /// In which it was sent.
    transaction: Option<usize>,
    fault: Option<BatchFault>,
    messages: Vec<Sent>,
    /// Takes more messages until then.
    leaves_ms: u64,
    lands_ms: u64,
    told_ms: u64,
    outcome: Option<Outcome>,
    /// Somebody waits to be told.
    is_awaited: bool,
}

#[derive(Clone)]
pub(super) struct Sent {
    pub(super) ticket: Ticket,
    /// Whose, and its number.
    pub(super) event: (usize, usize),
    pub(super) is_refused: bool,
    pub(super) headers: Headers,
}

#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Landed { first: i64, is_told: bool },
    Failed(DeliveryErrorKind),
}

/// What became of one message.
pub(super) struct Told {
    pub(super) ticket: Ticket,
    pub(super) place: usize,
    pub(super) result: Result<Option<i64>, DeliveryErrorKind>,
}

/// What happens by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// This batch lands.
    Batch(usize),
    Coordinator(coordinator::Due),
}

impl Brokers {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let batches = schedule.faults.iter().filter_map(|fault| match fault {
            Fault::Batch { number, what } => Some((*number, *what)),
            _ => None,
        });
        let endings = schedule.faults.iter().filter_map(|fault| match fault {
            Fault::Ending { number, what } => Some((*number, *what)),
            _ => None,
        });
        Self {
            logs: Default::default(),
            coordinator: Coordinator::new(endings.collect()),
            batches: Vec::new(),
            broken: Vec::new(),
            faults: batches.collect(),
            sent: 0,
            sessions: 0,
            max_ms: schedule.settings.brokers_max_ms,
            chance: Seeded::new(schedule.seed ^ 1),
        }
    }

    /// A producer begins; whoever had its name is fenced off.
    pub(super) fn connect(&mut self, mode: Mode) -> u32 {
        self.sessions += 1;
        if let Mode::Transactional { name } = mode {
            self.coordinator.fence(name, self.sessions, &mut self.logs);
        }
        self.sessions
    }

    pub(super) fn delay_ms(&mut self) -> u64 {
        self.chance.below(self.max_ms as usize + 1) as u64
    }

    pub(super) fn end(&self, place: usize) -> i64 {
        self.logs[place].end()
    }

    /// What readers of committed records are given from an offset on, up to
    /// another; none while the fate of a record is open.
    pub(super) fn committed(
        &self,
        place: usize,
        from: i64,
        to: i64,
    ) -> Option<impl Iterator<Item = &Headers>> {
        if self.coordinator.first_open(place).is_some_and(|open| open < to) {
            return None;
        }
        let records = self.logs[place].from(from).take_while(move |(offset, _)| *offset < to);
        let is_committed = |record: &Record| {
            record.transaction.is_none_or(|index| self.coordinator.is_committed(index))
        };
        let records = records.filter(move |(_, record)| is_committed(record));
        Some(records.map(|(_, record)| &record.headers))
    }

    /// Somebody else writes.
    pub(super) fn write(&mut self, place: usize, headers: Headers) {
        self.logs[place].append(headers, None, None);
    }

    pub(super) fn send(
        &mut self,
        now_ms: u64,
        session: u32,
        mode: Mode,
        place: usize,
        message: Sent,
        max: usize,
    ) {
        let transaction = match mode {
            Mode::Idempotent => None,
            Mode::Transactional { name } => Some(self.coordinator.current(name, session)),
        };
        let own = |batch: &&mut Batch| batch.session == session && batch.place == place;
        let last = self.batches.iter_mut().rev().find(own);
        let (mut lands_ms, mut told_ms) = (0, 0);
        if let Some(last) = last {
            if last.leaves_ms > now_ms && last.messages.len() < max {
                last.messages.push(message);
                return;
            }
            (lands_ms, told_ms) = (last.lands_ms, last.told_ms);
        }
        let leaves_ms = now_ms + self.delay_ms() / 4;
        lands_ms = lands_ms.max(leaves_ms + self.delay_ms());
        told_ms = told_ms.max(lands_ms + self.delay_ms());
        let fault = self.faults.iter().find(|(number, _)| *number == self.sent);
        self.batches.push(Batch {
            session,
            place,
            transaction,
            number: self.sent,
            fault: fault.map(|(_, fault)| *fault),
            messages: vec![message],
            leaves_ms,
            lands_ms,
            told_ms,
            outcome: None,
            is_awaited: true,
        });
        self.sent += 1;
    }

    /// The transaction of a session is to end.
    pub(super) fn end_transaction(
        &mut self,
        now_ms: u64,
        session: u32,
        decision: TransactionDecision,
    ) {
        let lands_ms = now_ms + self.delay_ms();
        let told_ms = lands_ms + self.delay_ms();
        self.coordinator.end(session, decision, lands_ms, told_ms);
    }

    /// What happens next, and when.
    pub(super) fn next(&self) -> Option<(u64, Due)> {
        let open = self.batches.iter().enumerate().filter(|(_, batch)| batch.outcome.is_none());
        let first = open.min_by_key(|(_, batch)| (batch.lands_ms, batch.number));
        let first = first.map(|(index, batch)| (batch.lands_ms, Due::Batch(index)));
        let ending = self.coordinator.next().map(|(at_ms, due)| (at_ms, Due::Coordinator(due)));
        first.into_iter().chain(ending).min()
    }

    pub(super) fn happen(&mut self, due: Due, oracle: &mut Oracle) {
        match due {
            Due::Batch(index) => self.land(index, oracle),
            Due::Coordinator(due) => {
                let late_ms = self.chance.below(LATE_MS as usize) as u64;
                self.coordinator.happen(due, late_ms, &mut self.logs, oracle);
            }
        }
    }

    fn land(&mut self, index: usize, oracle: &mut Oracle) {
        let batch = &self.batches[index];
        let (is_awaited, is_broken) = (batch.is_awaited, self.is_broken(batch));
        let is_refused = batch.messages.iter().any(|message| message.is_refused);
        let is_fenced = batch.transaction.is_some_and(|index| !self.coordinator.takes(index));
        let outcome = match batch.fault {
            _ if is_fenced => Outcome::Failed(DeliveryErrorKind::Refused),
            _ if is_broken => Outcome::Failed(DeliveryErrorKind::NotSent),
            _ if is_refused => Outcome::Failed(DeliveryErrorKind::Rejected),
            _ if !is_awaited => self.append(index, true, oracle),
            None => self.append(index, true, oracle),
            Some(BatchFault::WithoutOffset) => self.append(index, false, oracle),
            Some(BatchFault::Refused) => Outcome::Failed(DeliveryErrorKind::Refused),
            Some(BatchFault::Unknown { landed }) => {
                if landed {
                    self.append(index, false, oracle);
                }
                Outcome::Failed(DeliveryErrorKind::Unknown)
            }
            Some(BatchFault::Late) => self.put_off(index),
        };
        if matches!(outcome, Outcome::Failed(_)) {
            self.breaks_behind(index);
        }
        if is_awaited {
            self.batches[index].outcome = Some(outcome);
        } else {
            self.batches.remove(index);
        }
    }

    fn append(&mut self, index: usize, is_told: bool, oracle: &mut Oracle) -> Outcome {
        let Batch { place, transaction, messages, lands_ms, .. } = &self.batches[index];
        let log = &mut self.logs[*place];
        let first = log.end();
        for Sent { event, headers, .. } in messages {
            let offset = log.append(headers.clone(), Some(*event), *transaction);
            match transaction {
                None => oracle.landed(event.0, event.1, *place, offset),
                Some(index) => self.coordinator.wrote(*index, *lands_ms, *place, offset),
            }
        }
        Outcome::Landed { first, is_told }
    }

    /// Lands once nobody is told any more, and behind what was sent before.
    fn put_off(&mut self, index: usize) -> Outcome {
        let Batch { number, session, place, transaction, told_ms, .. } = self.batches[index];
        let before = self.batches[..index].iter();
        let before = before.filter(|batch| (batch.session, batch.place) == (session, place));
        let earliest = before.map(|batch| batch.lands_ms).max().unwrap_or_default();
        let lands_ms = told_ms + self.chance.below(SETTLE_MS as usize) as u64;
        let late = Batch {
            number,
            session,
            place,
            transaction,
            fault: None,
            messages: self.batches[index].messages.clone(),
            leaves_ms: 0,
            lands_ms: lands_ms.max(earliest),
            told_ms,
            outcome: None,
            is_awaited: false,
        };
        self.batches.insert(index + 1, late);
        Outcome::Failed(DeliveryErrorKind::Unknown)
    }

    /// What a session is told by now.
    pub(super) fn tell(&mut self, now_ms: u64, session: u32) -> Vec<Told> {
        let mut told = Vec::new();
        self.batches.retain(|batch| {
            let Some(outcome) = batch.outcome else { return true };
            if batch.session != session || batch.told_ms > now_ms {
                return true;
            }
            for (message, offset) in batch.messages.iter().zip(0..) {
                let result = match outcome {
                    Outcome::Landed { first, is_told } => Ok(is_told.then_some(first + offset)),
                    Outcome::Failed(kind) => Err(kind),
                };
                told.push(Told { ticket: message.ticket, place: batch.place, result });
            }
            false
        });
        told
    }

    /// When a session is told next.
    pub(super) fn tells(&self, session: u32) -> Option<u64> {
        let own = |batch: &&Batch| batch.session == session && batch.is_awaited;
        let batches = self.batches.iter().filter(own).map(|batch| batch.told_ms);
        batches.chain(self.coordinator.tells(session)).min()
    }

    /// How the transaction of a session has ended, once it is told.
    pub(super) fn ended(&mut self, now_ms: u64, session: u32) -> Option<TransactionOutcome> {
        self.coordinator.tell(now_ms, session)
    }

    /// A producer of another name is fenced off.
    pub(super) fn fence(&mut self, name: usize) {
        self.sessions += 1;
        self.coordinator.fence(name, self.sessions, &mut self.logs);
    }

    /// A session purges what it has on its way.
    pub(super) fn give_up(&mut self, now_ms: u64, session: u32) {
        let mut index = 0;
        while let Some(batch) = self.batches.get(index) {
            let is_open = batch.session == session && batch.outcome.is_none() && batch.is_awaited;
            let is_broken = self.is_broken(batch);
            if is_open && (is_broken || self.chance.chance(50)) {
                self.batches[index].told_ms = now_ms;
                let outcome = match is_broken || self.chance.chance(50) {
                    true => Outcome::Failed(DeliveryErrorKind::NotSent),
                    false => self.put_off(index),
                };
                self.breaks_behind(index);
                self.batches[index].outcome = Some(outcome);
            }
            index += 1;
        }
    }

    /// A session is gone. What it had on its way lands soon, from the front of
    /// each place, or never; where it can be fenced off, also late.
    pub(super) fn abandon(&mut self, now_ms: u64, session: u32, mode: Mode) {
        let late_ms = if mode == Mode::Idempotent { SETTLE_MS } else { LATE_MS };
        let last_ms = now_ms + late_ms - 1;
        let chance = &mut self.chance;
        let lands_ms = || chance.chance(50).then(|| now_ms + chance.below(late_ms as usize) as u64);
        self.coordinator.abandon(session, lands_ms);
        let mut lands_ms = [now_ms; PLACES];
        for mut batch in std::mem::take(&mut self.batches) {
            if batch.session == session && batch.is_awaited {
                if batch.outcome.is_some() {
                    continue;
                }
                if self.is_broken(&batch) || self.chance.chance(50) {
                    self.broken.push((session, batch.place, batch.number));
                    continue;
                }
                let earliest = lands_ms[batch.place];
                let later_ms = self.chance.below((last_ms - earliest + 1) as usize) as u64;
                batch.lands_ms = earliest + later_ms;
                batch.is_awaited = false;
            }
            if batch.session == session {
                batch.lands_ms = batch.lands_ms.clamp(lands_ms[batch.place], last_ms);
                lands_ms[batch.place] = batch.lands_ms;
            }
            self.batches.push(batch);
        }
    }

    fn is_broken(&self, batch: &Batch) -> bool {
        let mut breaks = self.broken.iter();
        breaks.any(|(session, place, number)| {
            (*session, *place) == (batch.session, batch.place) && *number < batch.number
        })
    }

    fn breaks_behind(&mut self, index: usize) {
        let Batch { session, place, number, .. } = self.batches[index];
        self.broken.push((session, place, number));
    }
}

/// The value of the first header of that name.
pub(super) fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let header: &Header = headers.iter().find(|header| &*header.name == name)?;
    header.value.as_deref()
}
