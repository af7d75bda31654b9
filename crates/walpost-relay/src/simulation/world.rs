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
    coordinator::LATE_MS,
    oracle::Oracle,
    schedule::{Fault, Foreign, Schedule},
    server::Rows,
};
use crate::{
    headers::{ID_HEADER, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER},
    proven::sees,
};

pub(super) const PIPELINE: &str = "shop";
pub(super) const GENERATION: u32 = 0x1f;
const OTHER_GENERATION: u32 = 0x2e;
/// Where the WAL begins.
const START: u64 = 0x1_0000_0000;
/// A commit record.
const COMMIT_BYTES: u64 = 0x30;

/// Everything outside of the relay.
#[derive(Clone)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    signals: Arc<Signals>,
    began: Instant,
}

#[derive(Default)]
struct Signals {
    written: Notify,
    over: Notify,
}

pub(super) struct State {
    pub(super) now_ms: u64,
    pub(super) schedule: Arc<Schedule>,
    pub(super) wal: Vec<Entry>,
    pub(super) rows: Rows,
    pub(super) brokers: Brokers,
    pub(super) oracle: Oracle,
    pub(super) chance: Seeded,
    /// Readings of the log so far.
    pub(super) read_backs: usize,
    /// Of the server, from one crash to the next.
    pub(super) epoch: u32,
    /// The session that may hold the slot, by number.
    pub(super) holder: u32,
    /// Sessions that stand still, or have woken beside their successors.
    pub(super) paused: usize,
    /// Until when those do not notice that the server has given them up.
    pub(super) unnoticed: Vec<(u32, u64)>,
    /// What the slot was told, and still knows.
    confirmations: Vec<u64>,
    committed: usize,
    commit_ms: u64,
    /// When each committed transaction becomes visible, which may be later than
    /// it is in the WAL.
    visible_ms: Vec<u64>,
    is_lost: bool,
    /// Slots that were lost.
    pub(super) losses: u32,
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
        Self { state: Arc::new(Mutex::new(State::new(schedule))), signals: Arc::default(), began }
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
        self.signals.written.notify_one();
    }

    /// Waits until there is more WAL, or until something happens by itself.
    pub(super) async fn more(&self, next_ms: Option<u64>) {
        let Some(next_ms) = next_ms else { return self.signals.written.notified().await };
        tokio::select! {
            biased;
            () = self.signals.written.notified() => {}
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
            Fault::Server { at_ms, .. } | Fault::Foreign { at_ms, .. } | Fault::Loss { at_ms } => {
                Some((*at_ms, *fault))
            }
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
            rows: Rows::new(START.into()),
            brokers: Brokers::new(schedule),
            oracle: Oracle::new(schedule, START),
            chance: Seeded::new(seed ^ 2),
            read_backs: 0,
            epoch: 0,
            holder: 0,
            paused: 0,
            unnoticed: Vec::new(),
            confirmations: vec![START],
            committed: 0,
            visible_ms: Vec::new(),
            is_lost: false,
            losses: 0,
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

    /// The slot's position.
    pub(super) fn slot(&self) -> u64 {
        self.confirmations.last().copied().unwrap_or(START)
    }

    pub(super) fn confirm(&mut self, position: u64, told: u64) {
        self.oracle.confirmed(position, told);
        self.confirmations.push(position);
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
        self.snapshot_of(|index| {
            self.visible_ms.get(index).is_some_and(|at_ms| *at_ms <= self.now_ms)
        })
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

    /// Whether the slot is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Another slot under the name of the lost one: where it begins, and a
    /// snapshot of what was committed before, which is made of the WAL.
    pub(super) fn create_slot(&mut self) -> (u64, String) {
        self.is_lost = false;
        let begin = self.wal_end();
        self.confirmations = vec![begin];
        (begin, self.snapshot_of(|index| index < self.committed))
    }

    /// Whether everything that this snapshot sees is visible.
    pub(super) fn is_visible(&self, snapshot: &str) -> bool {
        let mut seen = (0..self.committed).filter(|index| sees(snapshot, xid(*index)));
        seen.all(|index| self.visible_ms[index] <= self.now_ms)
    }

    /// When the server or somebody else does something next.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let commit = (self.committed < self.schedule.transactions.len()).then_some(self.commit_ms);
        let timed = self.timed.get(self.happened).map(|(at_ms, _)| *at_ms);
        commit.into_iter().chain(timed).min()
    }

    fn is_over(&self) -> bool {
        self.oracle.first_wrong().is_some()
            || self.next_ms().is_none()
                && self.paused == 0
                && !self.is_lost
                && self.rows.is_done()
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
        let index = self.committed;
        let schedule = self.schedule.clone();
        let transaction = &schedule.transactions[index];
        let end = self.append(transaction.wal_bytes, Some(index));
        self.oracle.committed(end - COMMIT_BYTES, end, &transaction.events);
        let late_ms = if self.visibility.chance(30) { self.visibility.below(400) } else { 0 };
        self.visible_ms.push(self.commit_ms + late_ms as u64);
        self.committed += 1;
        if let Some(next) = schedule.transactions.get(self.committed) {
            self.commit_ms += next.after_ms;
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Server { back, .. } => {
                self.epoch += 1;
                // What is committed is visible after a crash.
                self.visible_ms.fill(0);
                let kept = self.confirmations.len().saturating_sub(back).max(1);
                self.confirmations.truncate(kept);
                self.oracle.went_back(self.slot());
            }
            Fault::Loss { .. } => {
                self.is_lost = true;
                self.losses += 1;
            }
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
            let position = self.oracle.position(event).unwrap_or_default();
            header(POSITION_HEADER, format!("{}:{position}", Generation::from(generation)))
        };
        let id = |event: usize| header(ID_HEADER, format!("e{event}"));
        let source = |name: &str| header(SOURCE_HEADER, name.to_owned());
        match what {
            Foreign::Plain => Headers::new(),
            Foreign::OtherPipeline { event } => [id(event), source("other")].into_iter().collect(),
            Foreign::OtherGeneration { event } => {
                [id(event), position(event, OTHER_GENERATION), source(PIPELINE)]
                    .into_iter()
                    .collect()
            }
            Foreign::OtherId { event } => {
                [header(ID_HEADER, "other".to_owned()), position(event, GENERATION)]
                    .into_iter()
                    .collect()
            }
            Foreign::Replay { event } => [
                id(event),
                position(event, GENERATION),
                source(PIPELINE),
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
