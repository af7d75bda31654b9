use std::fmt;

use walpost_testkit::Seeded;

use crate::config::ParkMode;

/// Aggregates of a world; each has its topic and its partition.
const AGGREGATES: usize = 6;
pub(super) const TOPICS: usize = 2;
pub(super) const PARTITIONS: usize = 2;
pub(super) const PIPELINES_MAX: usize = 2;
/// By which producers can be fenced off, two for each pipeline.
pub(super) const NAMES: usize = 2 * PIPELINES_MAX;

/// Everything that happens to a relay, in the order of its parts. Delays follow
/// from the seed.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) settings: Settings,
    pub(super) transactions: Vec<Transaction>,
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) pruning: Vec<Pruning>,
    pub(super) faults: Vec<Fault>,
}

/// A pipeline of the outbox.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    /// Those whose rows it takes; none for all.
    pub(super) aggregates: Option<Vec<usize>>,
    /// Nobody runs it before.
    pub(super) starts_ms: u64,
    /// How its sessions end, one after another; the last one runs on.
    pub(super) lives: Vec<Life>,
}

/// Rows leave the outbox, for a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pruning {
    pub(super) pipeline: usize,
    pub(super) at_ms: u64,
    /// Killed at this await point.
    pub(super) polls: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Of sessions, in turns.
    pub(super) modes: [Mode; 2],
    pub(super) commit_interval_ms: u64,
    /// Records tell their position, or only their pipeline.
    pub(super) position_header: bool,
    pub(super) park: ParkMode,
    pub(super) in_flight_max_events: usize,
    pub(super) checkpoint_interval_ms: u64,
    pub(super) queue_max_events: usize,
    pub(super) batch_max_events: usize,
    /// Items that the source hands over at once.
    pub(super) read_max_items: usize,
    /// Bounds on the delays of the two servers.
    pub(super) brokers_max_ms: u64,
    pub(super) server_max_ms: u64,
}

/// How a session publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Idempotent,
    /// Under one of the names.
    Transactional {
        name: usize,
    },
}

impl Mode {
    /// With the names of a pipeline.
    pub(super) fn of(self, pipeline: usize) -> Self {
        match self {
            Self::Idempotent => self,
            Self::Transactional { name } => Self::Transactional { name: 2 * pipeline + name },
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// Behind the one before it.
    pub(super) after_ms: u64,
    pub(super) wal_bytes: u64,
    /// Changes in it that are no events, before those that are.
    pub(super) noise: usize,
    pub(super) events: Vec<Event>,
    /// It is to be a move, and has no events.
    pub(super) handing: Option<Handing>,
}

/// Aggregates go from one pipeline to the other.
#[derive(Clone, Debug)]
pub(super) struct Handing {
    pub(super) from: usize,
    pub(super) aggregates: Vec<usize>,
    /// The command is killed at this await point, and given once more.
    pub(super) polls: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// Unique in the schedule.
    pub(super) number: usize,
    pub(super) aggregate: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Row,
    /// `pg_logical_emit_message`.
    Emitted,
    /// The broker refuses its batch.
    Refused,
    /// The sink knows beforehand.
    Unsendable,
    Unroutable,
    Oversize,
    Undecodable,
}

impl Kind {
    fn in_table(self) -> Self {
        match self {
            Self::Emitted => Self::Row,
            Self::Undecodable => Self::Unroutable,
            kind => kind,
        }
    }
}

/// How a session ends by itself, if nothing else ends it before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Life {
    /// Killed at the await point that it has come to.
    Crash { polls: u64 },
    /// Told to stop.
    Stop { after_ms: u64 },
    /// Stands still at the await point that it has come to, and wakes beside its
    /// successor. One that cannot be fenced off is killed there.
    Pause { polls: u64, for_ms: u64, unnoticed_ms: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Of the n-th batch that goes to the brokers.
    Batch { number: usize, what: BatchFault },
    /// Of the n-th time that a transaction is to end.
    Ending { number: usize, what: EndingFault },
    /// The n-th statement gets no answer.
    Statement { number: usize, happens: bool },
    /// The n-th reading of the log fails, or one broker denies what is to be read.
    ReadBack { number: usize, denied: bool },
    /// The server dies; the slot goes back by so many confirmations.
    Server { at_ms: u64, back: usize },
    /// The slot is lost, with all the WAL before the next one.
    Loss { at_ms: u64, pipeline: usize },
    /// Somebody else writes a record.
    Foreign { at_ms: u64, place: usize, what: Foreign },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchFault {
    /// Nobody is told; it has landed, or has not.
    Unknown { landed: bool },
    /// Nobody is told, and it lands when the session is over.
    Late,
    /// The brokers refuse the producer.
    Refused,
    /// Acknowledged as a repetition, without an offset.
    WithoutOffset,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EndingFault {
    /// Nobody is told; it has, or has not.
    Unknown { landed: bool },
    /// Nobody is told, and the brokers come to it later.
    Late,
    /// The brokers have it aborted.
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Foreign {
    /// Without any mark.
    Plain,
    /// With the id of the event, and the name of another pipeline.
    OtherTable { event: usize },
    /// With the event's place and id in another generation.
    OtherGeneration { event: usize },
    /// With the event's place in this generation, and another id.
    OtherId { event: usize },
    /// The event, published once more on purpose.
    Replay { event: usize },
}

impl Schedule {
    pub(super) fn of(seed: u64) -> Self {
        let chance = &mut Seeded::new(seed);
        let settings = settings(chance);
        let poison = [0, 0, 4, 20][chance.below(4)];
        let mut events = 0;
        let mut transactions: Vec<_> =
            (0..=chance.below(8)).map(|_| transaction(chance, poison, &mut events)).collect();
        let in_transactions = settings.modes.iter().any(|mode| *mode != Mode::Idempotent);
        let pipelines = pipelines(chance, in_transactions);
        let last_ms: u64 = transactions.iter().map(|transaction| transaction.after_ms).sum();
        let mut faults: Vec<_> =
            (0..chance.below(5)).map(|_| fault(chance, last_ms, events, pipelines.len())).collect();
        if in_transactions {
            faults.extend((0..chance.below(3)).map(|_| ending(chance)));
        }
        if pipelines.iter().all(|pipeline| pipeline.aggregates.is_some()) && chance.chance(85) {
            moves(chance, &mut transactions);
        }
        if faults.iter().any(|fault| matches!(fault, Fault::Loss { .. })) {
            // What is in no table is lost with the slot.
            let events = transactions.iter_mut().flat_map(|one| &mut one.events);
            events.for_each(|event| event.kind = event.kind.in_table());
        }
        let prunings = [0, 0, 0, 1, 2, 4][chance.below(6)];
        let pruning = (0..prunings).map(|_| pruning(chance, last_ms, pipelines.len())).collect();
        Self { seed, settings, transactions, pipelines, pruning, faults }
    }

    /// Without any but the first pipeline.
    pub(super) fn with_one_pipeline(&mut self) {
        self.pipelines.truncate(1);
        self.transactions.iter_mut().for_each(|one| one.handing = None);
        self.pipelines[0].aggregates = None;
        self.pruning.iter_mut().for_each(|pruning| pruning.pipeline = 0);
        for fault in &mut self.faults {
            if let Fault::Loss { pipeline, .. } = fault {
                *pipeline = 0;
            }
        }
    }

    /// The transactions that are to be moves.
    pub(super) fn handings(&self) -> impl Iterator<Item = (usize, &Handing)> {
        let transactions = self.transactions.iter().enumerate();
        transactions.filter_map(|(index, one)| Some((index, one.handing.as_ref()?)))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.transactions.iter().flat_map(|transaction| &transaction.events)
    }
}

fn settings(chance: &mut Seeded) -> Settings {
    Settings {
        modes: modes(chance),
        commit_interval_ms: [1, 20, 100][chance.below(3)],
        position_header: !chance.chance(25),
        park: if chance.chance(80) { ParkMode::Aggregate } else { ParkMode::Event },
        in_flight_max_events: [3, 10, 1_000][chance.below(3)],
        checkpoint_interval_ms: [0, 100, 300][chance.below(3)],
        queue_max_events: [1, 3, 8, 100][chance.below(4)],
        batch_max_events: [1, 2, 5, 50][chance.below(4)],
        read_max_items: [1, 3, 10, 100][chance.below(4)],
        brokers_max_ms: [1, 10, 60, 250][chance.below(4)],
        server_max_ms: [0, 0, 3, 40][chance.below(4)],
    }
}

fn pipelines(chance: &mut Seeded, in_transactions: bool) -> Vec<Pipeline> {
    let mut pipeline = |max| {
        let lives = (0..chance.below(max)).map(|_| life(chance, in_transactions)).collect();
        Pipeline { aggregates: None, starts_ms: 0, lives }
    };
    let mut pipelines = vec![pipeline(5), pipeline(3)];
    pipelines.truncate(if chance.chance(12) { 2 } else { 1 });
    if pipelines.len() > 1 && chance.chance(40) {
        pipelines[1].starts_ms = chance.below(900) as u64;
    }
    if pipelines.len() > 1 && chance.chance(65) {
        let is_first: Vec<bool> = (0..AGGREGATES).map(|_| chance.chance(50)).collect();
        for (pipeline, of) in pipelines.iter_mut().zip([true, false]) {
            let own = (0..AGGREGATES).filter(|aggregate| is_first[*aggregate] == of);
            pipeline.aggregates = Some(own.collect());
        }
    }
    pipelines
}

/// Transactions that hand aggregates over. Nobody settles what is parked, and
/// what a giver has parked is waited for: so nothing is.
fn moves(chance: &mut Seeded, transactions: &mut Vec<Transaction>) {
    let events = transactions.iter_mut().flat_map(|one| &mut one.events);
    events.for_each(|event| event.kind = Kind::Row);
    for _ in 0..=chance.below(2) {
        let aggregates = (0..AGGREGATES).filter(|_| chance.chance(50)).collect();
        let polls = chance.chance(40).then(|| 1 + chance.below(40) as u64);
        let handing = Handing { from: chance.below(PIPELINES_MAX), aggregates, polls };
        let (after_ms, wal_bytes, noise) = (chance.below(100) as u64, 1_000, 0);
        let (events, handing) = (Vec::new(), Some(handing));
        let moving = Transaction { after_ms, wal_bytes, noise, events, handing };
        transactions.insert(chance.below(transactions.len() + 1), moving);
    }
}

fn pruning(chance: &mut Seeded, last_ms: u64, pipelines: usize) -> Pruning {
    let at_ms = chance.below(last_ms as usize + 600) as u64;
    let polls = chance.chance(30).then(|| 1 + chance.below(12) as u64);
    Pruning { pipeline: chance.below(pipelines), at_ms, polls }
}

fn modes(chance: &mut Seeded) -> [Mode; 2] {
    let [first, second] = [0, 1].map(|name| Mode::Transactional { name });
    match chance.below(10) {
        0..5 => [Mode::Idempotent; 2],
        5 | 6 => [first; 2],
        7 | 8 => [first, second],
        _ => [first, Mode::Idempotent],
    }
}

fn transaction(chance: &mut Seeded, poison: usize, events: &mut usize) -> Transaction {
    let count = match chance.below(100) {
        0..15 => 0,
        15..75 => 1 + chance.below(3),
        75..97 => 4 + chance.below(5),
        _ => 16 + chance.below(6),
    };
    let after_ms = if chance.chance(60) { chance.below(4) } else { chance.below(250) };
    let event =
        |number| Event { number, aggregate: chance.below(AGGREGATES), kind: kind(chance, poison) };
    let first = *events;
    *events += count;
    let events = (first..*events).map(event).collect();
    Transaction {
        after_ms: after_ms as u64,
        wal_bytes: [100, 1_000, 1 << 17][chance.below(3)],
        noise: chance.below(8).saturating_sub(5),
        events,
        handing: None,
    }
}

fn kind(chance: &mut Seeded, poison: usize) -> Kind {
    if chance.chance(poison) {
        let refused = [Kind::Unsendable, Kind::Unroutable, Kind::Oversize, Kind::Undecodable];
        return refused.get(chance.below(8)).copied().unwrap_or(Kind::Refused);
    }
    if chance.chance(5) { Kind::Emitted } else { Kind::Row }
}

fn life(chance: &mut Seeded, in_transactions: bool) -> Life {
    if chance.chance(15) {
        return Life::Stop { after_ms: chance.below(400) as u64 };
    }
    // As often within the first few as within the first few hundred.
    let bits = chance.below(9);
    let polls = 1 + chance.below(1 << bits) as u64;
    if in_transactions && chance.chance(60) {
        // With a buffer, and beside a successor that has read back.
        let polls = 8 + polls / 2;
        let (for_ms, unnoticed_ms) = (chance.below(500) as u64, [0, 500, 900][chance.below(3)]);
        return Life::Pause { polls, for_ms, unnoticed_ms };
    }
    Life::Crash { polls }
}

fn ending(chance: &mut Seeded) -> Fault {
    let what = match chance.below(4) {
        0 => EndingFault::Unknown { landed: true },
        1 => EndingFault::Unknown { landed: false },
        2 => EndingFault::Late,
        _ => EndingFault::Refused,
    };
    Fault::Ending { number: chance.below(8), what }
}

fn fault(chance: &mut Seeded, last_ms: u64, events: usize, pipelines: usize) -> Fault {
    let at_ms = chance.below(last_ms as usize + 400) as u64;
    match chance.below(100) {
        0..45 => {
            let what = match chance.below(5) {
                0 => BatchFault::Unknown { landed: true },
                1 => BatchFault::Unknown { landed: false },
                2 => BatchFault::Late,
                3 => BatchFault::Refused,
                _ => BatchFault::WithoutOffset,
            };
            Fault::Batch { number: chance.below(12), what }
        }
        45..65 => Fault::Statement { number: chance.below(40), happens: chance.chance(50) },
        65..70 => Fault::ReadBack { number: chance.below(4), denied: chance.chance(50) },
        70..80 => Fault::Server { at_ms, back: chance.below(4) },
        80..87 => Fault::Loss { at_ms, pipeline: chance.below(pipelines) },
        _ => {
            let place = chance.below(TOPICS * PARTITIONS);
            Fault::Foreign { at_ms, place, what: foreign(chance, events) }
        }
    }
}

fn foreign(chance: &mut Seeded, events: usize) -> Foreign {
    if events == 0 {
        return Foreign::Plain;
    }
    let event = chance.below(events);
    match chance.below(5) {
        0 => Foreign::Plain,
        1 => Foreign::OtherTable { event },
        2 => Foreign::OtherGeneration { event },
        3 => Foreign::OtherId { event },
        _ => Foreign::Replay { event },
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}", self.settings)?;
        let mut at_ms = 0;
        for transaction in &self.transactions {
            at_ms += transaction.after_ms;
            let Transaction { wal_bytes, noise, events, handing, .. } = transaction;
            if let Some(Handing { from, aggregates, polls }) = handing {
                let killed = polls.map(|polls| format!(", killed at poll {polls}"));
                let killed = killed.unwrap_or_default();
                writeln!(f, "  at {at_ms} ms pipeline {from} gives {aggregates:?} away{killed}")?;
                continue;
            }
            write!(f, "  at {at_ms} ms a commit of {wal_bytes} bytes, {noise} other changes:")?;
            for Event { number, aggregate, kind } in events {
                write!(f, " e{number} of a{aggregate}")?;
                if *kind != Kind::Row {
                    write!(f, " ({kind:?})")?;
                }
            }
            writeln!(f)?;
        }
        for (index, pipeline) in self.pipelines.iter().enumerate() {
            if let Some(aggregates) = &pipeline.aggregates {
                writeln!(f, "  pipeline {index} takes aggregates {aggregates:?}")?;
            }
            if pipeline.starts_ms > 0 {
                writeln!(f, "  pipeline {index} starts after {} ms", pipeline.starts_ms)?;
            }
            for (number, life) in pipeline.lives.iter().enumerate() {
                writeln!(f, "  session {number} of pipeline {index} {life}")?;
            }
        }
        for Pruning { pipeline, at_ms, polls } in &self.pruning {
            write!(f, "  at {at_ms} ms rows leave for pipeline {pipeline}")?;
            match polls {
                Some(polls) => writeln!(f, ", killed at poll {polls}"),
                None => writeln!(f),
            }?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault:?}"))
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash { polls } => write!(f, "is killed at poll {polls}"),
            Self::Stop { after_ms } => write!(f, "is told to stop after {after_ms} ms"),
            Self::Pause { polls, for_ms, unnoticed_ms } => write!(
                f,
                "stands still for {for_ms} ms at poll {polls}, and notices {unnoticed_ms} ms \
                 later that it has lost the slot"
            ),
        }
    }
}
