use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use walpost_event::{Generation, Header, Headers, Lsn};
use walpost_testkit::Seeded;

use super::{
    brokers::{Brokers, SETTLE_MS},
    condition::{self, Row},
    coordinator::LATE_MS,
    moves::{Filters, Moves},
    oracle::Oracle,
    schedule::{Event, Fault, Foreign, PIPELINES_MAX, Schedule},
    server::Rows,
    slot::Slot,
};
use crate::{
    headers::{ID_HEADER, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER},
    proven::sees,
};

pub(super) const PIPELINES: [&str; PIPELINES_MAX] = ["shop-a", "shop-b"];
pub(super) const GENERATION: u32 = 0x1f;
const OTHER_GENERATION: u32 = 0x2e;
/// That of [`IdSpaces::simulated`](crate::id_space::IdSpaces::simulated).
const SPACE: &str = "00000000-0000-0000-0000-000000000000";
/// Where the WAL begins.
const START: u64 = 0x1_0000_0000;
/// A commit record.
const COMMIT_BYTES: u64 = 0x30;

/// Everything outside of the relays, as one of them meets it.
#[derive(Clone)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    signals: Arc<Signals>,
    began: Instant,
    /// Index of its pipeline.
    pub(super) pipeline: usize,
}

#[derive(Default)]
struct Signals {
    /// For the stream of each pipeline.
    written: [Notify; PIPELINES_MAX],
    over: Notify,
}

pub(super) struct State {
    pub(super) now_ms: u64,
    pub(super) schedule: Arc<Schedule>,
    pub(super) wal: Vec<Entry>,
    /// By pipeline, as the slots.
    pub(super) rows: Vec<Rows>,
    pub(super) slots: Vec<Slot>,
    pub(super) brokers: Brokers,
    pub(super) oracle: Oracle,
    pub(super) chance: Seeded,
    /// Asked of the server so far.
    pub(super) statements: usize,
    /// Readings of the log so far.
    pub(super) read_backs: usize,
    /// Of the server, from one crash to the next.
    pub(super) epoch: u32,
    /// What goes on beside the sessions of relays: those that stand still or have
    /// woken beside their successors, and rows that leave the outbox.
    pub(super) beside: usize,
    /// Which aggregates each pipeline takes of what is committed now.
    pub(super) filters: Filters,
    pub(super) moves: Moves,
    committed: usize,
    commit_ms: u64,
    /// When each committed transaction becomes visible, which may be later than
    /// it is in the WAL.
    visible_ms: Vec<u64>,
    visibility: Seeded,
    /// Faults that have their time, by time.
    timed: Vec<(u64, Fault)>,
    happened: usize,
}

/// Something in the WAL.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Of its commit record.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Index of the transaction; others are of no interest to the slot.
    pub(super) transaction: Option<usize>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub(super) fn new(schedule: &Arc<Schedule>) -> Self {
        let began = Instant::now();
        let state = Arc::new(Mutex::new(State::new(schedule)));
        Self { state, signals: Arc::default(), began, pipeline: 0 }
    }

    /// The same world, as another pipeline meets it.
    pub(super) fn of(&self, pipeline: usize) -> Self {
        Self { pipeline, ..self.clone() }
    }

    /// The state of now.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let now_ms = self.began.elapsed().as_millis() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(now_ms);
        if state.is_over() {
            self.signals.over.notify_one();
        }
        state
    }

    pub(super) async fn pass(&self, ms: u64) {
        if ms > 0 {
            let now_ms = self.lock().now_ms;
            self.until(now_ms + ms).await;
        }
    }

    /// Now, for those who count from some instant.
    pub(super) fn instant() -> std::time::Instant {
        Instant::now().into_std()
    }

    pub(super) async fn until(&self, at_ms: u64) {
        sleep_until(self.began + Duration::from_millis(at_ms)).await;
    }

    /// The server has written WAL.
    pub(super) fn written(&self) {
        self.signals.written.iter().for_each(Notify::notify_one);
    }

    /// Waits until there is more WAL, or until something happens by itself.
    pub(super) async fn more(&self, next_ms: Option<u64>) {
        let written = &self.signals.written[self.pipeline];
        let Some(next_ms) = next_ms else { return written.notified().await };
        tokio::select! {
            biased;
            () = written.notified() => {}
            () = self.until(next_ms) => {}
        }
    }

    /// Until everything is done, or something is wrong.
    pub(super) async fn over(&self) {
        self.signals.over.notified().await;
    }

    /// What is wrong in the end. What was on its way has landed.
    pub(super) fn judge(&self) -> Option<String> {
        let mut state = self.lock();
        let end_ms = state.now_ms + SETTLE_MS + LATE_MS;
        state.advance(end_ms);
        state.oracle.finish();
        state.oracle.first_wrong().map(str::to_owned)
    }
}

impl State {
    fn new(schedule: &Arc<Schedule>) -> Self {
        let seed = schedule.seed;
        let timed = schedule.faults.iter().filter_map(|fault| match fault {
            Fault::Server { at_ms, .. }
            | Fault::Foreign { at_ms, .. }
            | Fault::Loss { at_ms, .. } => Some((*at_ms, *fault)),
            Fault::Batch { .. }
            | Fault::Ending { .. }
            | Fault::Statement { .. }
            | Fault::ReadBack { .. } => None,
        });
        let mut timed: Vec<_> = timed.collect();
        timed.sort_by_key(|(at_ms, _)| *at_ms);
        Self {
            now_ms: 0,
            schedule: schedule.clone(),
            wal: vec![Entry { start: START, end: START, transaction: None }],
            rows: (0..schedule.pipelines.len()).map(|of| Rows::new(of, START.into())).collect(),
            slots: schedule.pipelines.iter().map(|_| Slot::new(START)).collect(),
            brokers: Brokers::new(schedule),
            oracle: Oracle::new(schedule, START),
            chance: Seeded::new(seed ^ 2),
            statements: 0,
            read_backs: 0,
            epoch: 0,
            beside: schedule.pruning.len() + schedule.handings().count(),
            filters: schedule.pipelines.iter().map(|one| one.aggregates.clone()).collect(),
            moves: Moves::default(),
            committed: 0,
            visible_ms: Vec::new(),
            visibility: Seeded::new(seed ^ 3),
            commit_ms: schedule.transactions.first().map_or(0, |first| first.after_ms),
            timed,
            happened: 0,
        }
    }

    /// End of the WAL.
    pub(super) fn wal_end(&self) -> u64 {
        self.wal.last().map_or(START, |last| last.end)
    }

    pub(super) fn confirm(&mut self, pipeline: usize, position: u64, told: u64) {
        self.oracle.confirmed(pipeline, position, told);
        self.slots[pipeline].confirm(position);
    }

    /// Writes into the WAL, and returns the end of the commit record.
    pub(super) fn append(&mut self, bytes: u64, transaction: Option<usize>) -> u64 {
        let start = self.wal_end() + bytes;
        let end = start + COMMIT_BYTES;
        self.wal.push(Entry { start, end, transaction });
        end
    }

    /// Id of the next transaction.
    pub(super) fn next_xid(&self) -> u32 {
        100 + (self.committed + self.committed % 2) as u32
    }

    /// As `pg_current_snapshot()` has it.
    pub(super) fn snapshot(&self) -> String {
        self.snapshot_of(|index| self.is_visible_now(index))
    }

    fn snapshot_of(&self, is_seen: impl Fn(usize) -> bool) -> String {
        let indexes = 0..self.schedule.transactions.len();
        let (seen, open): (Vec<_>, Vec<_>) = indexes.partition(|index| is_seen(*index));
        let xmax = seen.into_iter().map(|index| xid(index) + 1).max().unwrap_or(xid(1));
        let mut open: Vec<u32> = open.into_iter().map(xid).filter(|xid| *xid < xmax).collect();
        open.sort_unstable();
        let xmin = open.first().copied().unwrap_or(xmax);
        let open: Vec<String> = open.iter().map(u32::to_string).collect();
        format!("{xmin}:{xmax}:{}", open.join(","))
    }

    /// Another slot under the name of the lost one: where it begins, and a
    /// snapshot of what was committed before, which is made of the WAL.
    pub(super) fn create_slot(&mut self, pipeline: usize) -> (u64, String) {
        let begin = self.wal_end();
        self.slots[pipeline].replace(begin);
        (begin, self.snapshot_of(|index| index < self.committed))
    }

    /// Whether everything that this snapshot sees is visible.
    pub(super) fn is_visible(&self, snapshot: &str) -> bool {
        let mut seen = (0..self.committed).filter(|index| sees(snapshot, xid(*index)));
        seen.all(|index| self.visible_ms[index] <= self.now_ms)
    }

    /// The rows of the outbox that a condition holds for, in the order in which
    /// they were written; `sees` has of the transactions those that count.
    pub(super) fn outbox(&self, condition: &str, sees: impl Fn(u32) -> bool) -> Vec<Event> {
        let committed = self.schedule.transactions[..self.committed].iter().enumerate();
        let committed = committed.filter(|(index, _)| sees(xid(*index)));
        let rows = committed.flat_map(|(index, one)| {
            one.events.iter().filter(|event| self.oracle.is_row(event)).map(move |event| {
                let (xid, is_alone) = (xid(index), self.oracle.is_alone(event));
                (Row { xid, aggregate: event.aggregate, is_alone }, *event)
            })
        });
        let rows = rows.filter(|(row, _)| condition::holds(condition, *row));
        let mut rows: Vec<Event> = rows.map(|(_, event)| event).collect();
        rows.sort_unstable_by_key(|event| event.number);
        rows
    }

    /// As [`outbox`](Self::outbox), of what is visible now.
    pub(super) fn visible_rows(&self, condition: &str) -> Vec<Event> {
        let snapshot = self.snapshot();
        self.outbox(condition, |xid| sees(&snapshot, xid))
    }

    /// When the server or somebody else does something next.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let is_due = self.committed < self.schedule.transactions.len();
        let commit = (is_due && !self.moves.are_waited_for).then_some(self.commit_ms);
        let timed = self.timed.get(self.happened).map(|(at_ms, _)| *at_ms);
        commit.into_iter().chain(timed).min()
    }

    fn is_over(&self) -> bool {
        self.oracle.first_wrong().is_some()
            || self.next_ms().is_none()
                && self.beside == 0
                && !self.slots.iter().any(|slot| slot.is_lost)
                && self.rows.iter().all(Rows::is_done)
                && self.oracle.all_is_confirmed()
    }

    /// Lets everything happen that is due, in its order.
    fn advance(&mut self, now_ms: u64) {
        loop {
            let lands = self.brokers.next();
            let next = self.next_ms();
            match (next, lands) {
                (Some(next), lands) if next <= now_ms && lands.is_none_or(|l| next <= l.0) => {
                    self.happen();
                }
                (_, Some((at_ms, due))) if at_ms <= now_ms => {
                    self.brokers.happen(due, &mut self.oracle);
                }
                _ => break,
            }
        }
        self.now_ms = now_ms;
    }

    fn happen(&mut self) {
        if let Some((at_ms, fault)) = self.timed.get(self.happened).copied()
            && self.next_ms() == Some(at_ms)
        {
            self.happened += 1;
            return self.fault(fault);
        }
        if self.schedule.transactions[self.committed].handing.is_some() {
            self.moves.are_waited_for = true;
        } else {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let index = self.committed;
        let schedule = self.schedule.clone();
        let transaction = &schedule.transactions[index];
        let end = self.append(transaction.wal_bytes, Some(index));
        self.oracle.committed(&self.filters, end - COMMIT_BYTES, end, &transaction.events);
        let late_ms = if self.visibility.chance(30) { self.visibility.below(400) } else { 0 };
        self.visible_ms.push(self.commit_ms + late_ms as u64);
        self.committed += 1;
        if let Some(next) = schedule.transactions.get(self.committed) {
            self.commit_ms += next.after_ms;
        }
    }

    /// The transaction that writers wait for, also without a move in it. They go
    /// on once it is visible.
    pub(super) fn commit_move(&mut self) {
        let planned_ms = self.commit_ms;
        (self.commit_ms, self.moves.are_waited_for) = (self.now_ms, false);
        self.commit();
        let visible_ms = self.visible_ms.last().copied().unwrap_or_default();
        self.commit_ms = self.commit_ms.max(planned_ms).max(visible_ms);
    }

    /// Transactions that are committed, and so the index of the next one.
    pub(super) fn committed(&self) -> usize {
        self.committed
    }

    /// Whether statements see this transaction.
    pub(super) fn is_visible_now(&self, index: usize) -> bool {
        self.visible_ms.get(index).is_some_and(|at_ms| *at_ms <= self.now_ms)
    }

    pub(super) fn all_is_visible(&self) -> bool {
        (0..self.committed).all(|index| self.is_visible_now(index))
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Server { back, .. } => {
                self.epoch += 1;
                self.moves.give_up();
                // What is committed is visible after a crash.
                self.visible_ms.fill(0);
                for (pipeline, slot) in self.slots.iter_mut().enumerate() {
                    slot.go_back(back);
                    self.oracle.went_back(pipeline, slot.position());
                }
            }
            Fault::Loss { pipeline, .. } => self.slots[pipeline].lose(),
            Fault::Foreign { place, what, .. } => {
                let headers = self.foreign(what);
                self.brokers.write(place, headers);
            }
            Fault::Batch { .. }
            | Fault::Ending { .. }
            | Fault::Statement { .. }
            | Fault::ReadBack { .. } => {}
        }
    }

    fn foreign(&self, what: Foreign) -> Headers {
        let header = |name: &str, value: String| Header {
            name: name.into(),
            value: Some(value.into_bytes().into()),
        };
        let position = |event: usize, generation: u32| {
            let position = self.oracle.position(0, event).unwrap_or_default();
            header(POSITION_HEADER, format!("{}:{position}", Generation::from(generation)))
        };
        let id = |event: usize| header(ID_HEADER, format!("e{event}"));
        let source = |name: &str| header(SOURCE_HEADER, name.to_owned());
        match what {
            Foreign::Plain => Headers::new(),
            Foreign::OtherTable { event } => [id(event), source("other")].into_iter().collect(),
            Foreign::OtherGeneration { event } => {
                [id(event), position(event, OTHER_GENERATION), source(SPACE)].into_iter().collect()
            }
            Foreign::OtherId { event } => {
                [header(ID_HEADER, "other".to_owned()), position(event, GENERATION), source(SPACE)]
                    .into_iter()
                    .collect()
            }
            Foreign::Replay { event } => [
                id(event),
                position(event, GENERATION),
                source(SPACE),
                header(REPLAY_HEADER, String::new()),
            ]
            .into_iter()
            .collect(),
        }
    }
}

/// Id of a transaction: of each two the one that commits later has begun first.
pub(super) fn xid(index: usize) -> u32 {
    100 + (index ^ 1) as u32
}

/// As a position of the relay.
pub(super) fn lsn(position: u64) -> Lsn {
    Lsn::from(position)
}
