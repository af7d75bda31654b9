use super::{
    brokers::PLACES,
    log::Log,
    oracle::Oracle,
    schedule::{EndingFault, NAMES},
};
use crate::sink::transaction::{TransactionDecision as Decision, TransactionOutcome as Outcome};

/// How late a request of a transaction may come to the brokers.
pub(super) const LATE_MS: u64 = 400;
/// A transaction that lasts longer is aborted, and its producer fenced off.
const TRANSACTION_MAX_MS: u64 = 3_000;

/// What the brokers know of producers that write in transactions.
#[derive(Default)]
pub(super) struct Coordinator {
    /// By name the session that may write; all before it are fenced off.
    owners: [u32; NAMES],
    transactions: Vec<Transaction>,
    /// What the brokers are asked, and have not answered yet.
    endings: Vec<Ending>,
    faults: Vec<(usize, EndingFault)>,
    asked: usize,
}

struct Transaction {
    name: usize,
    session: u32,
    state: State,
    /// Its producer has said how it is to end.
    is_ending: bool,
    /// When its first record landed.
    began_ms: Option<u64>,
    /// Of its first record in each place.
    first: [Option<i64>; PLACES],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Committed,
    Aborted,
}

struct Ending {
    session: u32,
    transaction: usize,
    decision: Decision,
    fault: Option<EndingFault>,
    lands_ms: u64,
    told_ms: u64,
    outcome: Option<Outcome>,
    /// Somebody waits to be told.
    is_awaited: bool,
}

/// What happens by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// This request comes to the brokers.
    Ending(usize),
    /// This transaction has lasted too long.
    Timeout(usize),
}

impl Coordinator {
    pub(super) fn new(faults: Vec<(usize, EndingFault)>) -> Self {
        Self { faults, ..Self::default() }
    }

    /// From now on a session has the name, and whoever had it is fenced off: what
    /// it has not committed is aborted.
    pub(super) fn fence(&mut self, name: usize, session: u32, logs: &mut [Log; PLACES]) {
        self.owners[name] = session;
        for index in 0..self.transactions.len() {
            if self.transactions[index].name == name {
                self.abort(index, logs);
            }
        }
    }

    /// The transaction of what a session sends now.
    pub(super) fn current(&mut self, name: usize, session: u32) -> usize {
        let last = self.transactions.iter().rposition(|one| one.session == session);
        if let Some(last) = last.filter(|last| !self.transactions[*last].is_ending) {
            return last;
        }
        self.transactions.push(Transaction {
            name,
            session,
            state: State::Open,
            is_ending: false,
            began_ms: None,
            first: [None; PLACES],
        });
        self.transactions.len() - 1
    }

    /// Whether the brokers take what belongs to a transaction.
    pub(super) fn takes(&self, transaction: usize) -> bool {
        let Transaction { name, session, state, .. } = self.transactions[transaction];
        self.owners[name] == session && state == State::Open
    }

    /// A record of it stands there.
    pub(super) fn wrote(&mut self, transaction: usize, now_ms: u64, place: usize, offset: i64) {
        let transaction = &mut self.transactions[transaction];
        transaction.began_ms.get_or_insert(now_ms);
        transaction.first[place].get_or_insert(offset);
    }

    pub(super) fn is_committed(&self, transaction: usize) -> bool {
        self.transactions[transaction].state == State::Committed
    }

    /// Of the first record whose fate is open.
    pub(super) fn first_open(&self, place: usize) -> Option<i64> {
        let open = self.transactions.iter().filter(|one| one.state == State::Open);
        open.filter_map(|one| one.first[place]).min()
    }

    /// A session asks for the end of its transaction.
    pub(super) fn end(&mut self, session: u32, decision: Decision, lands_ms: u64, told_ms: u64) {
        let last = self.transactions.iter().rposition(|one| one.session == session);
        let transaction = last.expect("something was sent in it");
        self.transactions[transaction].is_ending = true;
        let fault = self.faults.iter().find(|(number, _)| *number == self.asked);
        let fault = fault.map(|(_, fault)| *fault);
        self.asked += 1;
        let (outcome, is_awaited) = (None, true);
        self.endings.push(Ending {
            session,
            transaction,
            decision,
            fault,
            lands_ms,
            told_ms,
            outcome,
            is_awaited,
        });
    }

    /// What happens next by itself, and when.
    pub(super) fn next(&self) -> Option<(u64, Due)> {
        let endings = self.endings.iter().enumerate().filter(|(_, one)| one.outcome.is_none());
        let endings = endings.map(|(index, one)| (one.lands_ms, Due::Ending(index)));
        let open = self.transactions.iter().enumerate().filter(|(_, one)| one.state == State::Open);
        let late = open.filter_map(|(index, one)| {
            Some((one.began_ms? + TRANSACTION_MAX_MS, Due::Timeout(index)))
        });
        endings.chain(late).min()
    }

    pub(super) fn happen(
        &mut self,
        due: Due,
        late_ms: u64,
        logs: &mut [Log; PLACES],
        oracle: &mut Oracle,
    ) {
        match due {
            Due::Ending(index) => self.land(index, late_ms, logs, oracle),
            Due::Timeout(index) => {
                self.owners[self.transactions[index].name] = 0;
                self.abort(index, logs);
            }
        }
    }

    fn land(&mut self, index: usize, late_ms: u64, logs: &mut [Log; PLACES], oracle: &mut Oracle) {
        let Ending { session, transaction, decision, fault, told_ms, is_awaited, .. } =
            self.endings[index];
        let lost = || Outcome::Lost("as the schedule has it".to_owned());
        let aborted = || Outcome::Aborted("as the schedule has it".to_owned());
        let outcome = match (fault, decision) {
            _ if !self.takes(transaction) => lost(),
            (Some(EndingFault::Unknown { landed: false }), _) => lost(),
            (Some(EndingFault::Unknown { landed: true }), Decision::Commit) => {
                self.commit(transaction, logs, oracle);
                lost()
            }
            (Some(EndingFault::Late), _) if is_awaited => {
                let (lands_ms, outcome, fault) = (told_ms + late_ms, None, None);
                let is_awaited = false;
                self.endings.push(Ending {
                    session,
                    transaction,
                    decision,
                    fault,
                    lands_ms,
                    told_ms,
                    outcome,
                    is_awaited,
                });
                lost()
            }
            (Some(EndingFault::Refused), _) | (_, Decision::Abort) => {
                self.abort(transaction, logs);
                aborted()
            }
            (_, Decision::Commit) => {
                self.commit(transaction, logs, oracle);
                Outcome::Committed
            }
        };
        if is_awaited {
            self.endings[index].outcome = Some(outcome);
        } else {
            self.endings.remove(index);
        }
    }

    fn commit(&mut self, index: usize, logs: &mut [Log; PLACES], oracle: &mut Oracle) {
        let transaction = &mut self.transactions[index];
        transaction.state = State::Committed;
        for (place, first) in transaction.first.into_iter().enumerate() {
            let Some(first) = first else { continue };
            let own = logs[place].from(first).filter(|(_, one)| one.transaction == Some(index));
            for (offset, record) in own {
                if let Some((pipeline, event)) = record.event {
                    oracle.landed(pipeline, event, place, offset);
                }
            }
            logs[place].mark(index);
        }
    }

    fn abort(&mut self, index: usize, logs: &mut [Log; PLACES]) {
        let transaction = &mut self.transactions[index];
        if transaction.state != State::Open {
            return;
        }
        transaction.state = State::Aborted;
        for (place, first) in transaction.first.into_iter().enumerate() {
            if first.is_some() {
                logs[place].mark(index);
            }
        }
    }

    /// How a session's transaction has ended, once it is told.
    pub(super) fn tell(&mut self, now_ms: u64, session: u32) -> Option<Outcome> {
        let is_told =
            |one: &Ending| one.session == session && one.outcome.is_some() && one.told_ms <= now_ms;
        let index = self.endings.iter().position(is_told)?;
        self.endings.remove(index).outcome
    }

    /// When a session is told next.
    pub(super) fn tells(&self, session: u32) -> Option<u64> {
        let own = self.endings.iter().filter(|one| one.session == session && one.is_awaited);
        own.map(|one| one.told_ms).min()
    }

    /// A session is gone. What it has asked for comes late, where it comes.
    pub(super) fn abandon(&mut self, session: u32, mut lands_ms: impl FnMut() -> Option<u64>) {
        self.endings.retain_mut(|one| {
            if one.session != session || !one.is_awaited {
                return true;
            }
            one.is_awaited = false;
            match lands_ms() {
                Some(at_ms) if one.outcome.is_none() => {
                    one.lands_ms = at_ms;
                    true
                }
                _ => false,
            }
        });
    }
}
