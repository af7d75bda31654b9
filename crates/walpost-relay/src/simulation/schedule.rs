use std::fmt;

use walpost_testkit::Seeded;

use crate::config::ParkMode;

/// Aggregates of a world; each has its topic and its partition.
const AGGREGATES: usize = 6;
pub(super) const TOPICS: usize = 2;
pub(super) const PARTITIONS: usize = 2;
/// By which producers can be fenced off.
pub(super) const NAMES: usize = 2;

/// Everything that happens to a relay, in the order of its parts. Delays follow
/// from the seed.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) settings: Settings,
    pub(super) transactions: Vec<Transaction>,
    /// How sessions end, one after another; the last one runs on.
    pub(super) lives: Vec<Life>,
    pub(super) faults: Vec<Fault>,
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

#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// Behind the one before it.
    pub(super) after_ms: u64,
    pub(super) wal_bytes: u64,
    /// Changes in it that are no events, before those that are.
    pub(super) noise: usize,
    pub(super) events: Vec<Event>,
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
    /// The n-th reading of the log fails.
    ReadBack { number: usize },
    /// The server dies; the slot goes back by so many confirmations.
    Server { at_ms: u64, back: usize },
    /// The slot is lost, with all the WAL before the next one.
    Loss { at_ms: u64 },
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
    OtherPipeline { event: usize },
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
        let lives = (0..chance.below(5)).map(|_| life(chance, in_transactions)).collect();
        let last_ms: u64 = transactions.iter().map(|transaction| transaction.after_ms).sum();
        let mut faults: Vec<_> =
            (0..chance.below(5)).map(|_| fault(chance, last_ms, events)).collect();
        if in_transactions {
            faults.extend((0..chance.below(3)).map(|_| ending(chance)));
        }
        if faults.iter().any(|fault| matches!(fault, Fault::Loss { .. })) {
            // What is in no table is lost with the slot.
            let events = transactions.iter_mut().flat_map(|one| &mut one.events);
            events.for_each(|event| event.kind = event.kind.in_table());
        }
        Self { seed, settings, transactions, lives, faults }
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

fn fault(chance: &mut Seeded, last_ms: u64, events: usize) -> Fault {
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
        65..70 => Fault::ReadBack { number: chance.below(4) },
        70..80 => Fault::Server { at_ms, back: chance.below(4) },
        80..87 => Fault::Loss { at_ms },
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
        1 => Foreign::OtherPipeline { event },
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
            let Transaction { wal_bytes, noise, events, .. } = transaction;
            write!(f, "  at {at_ms} ms a commit of {wal_bytes} bytes, {noise} other changes:")?;
            for Event { number, aggregate, kind } in events {
                write!(f, " e{number} of a{aggregate}")?;
                if *kind != Kind::Row {
                    write!(f, " ({kind:?})")?;
                }
            }
            writeln!(f)?;
        }
        for (index, life) in self.lives.iter().enumerate() {
            match life {
                Life::Crash { polls } => writeln!(f, "  session {index} is killed at poll {polls}"),
                Life::Stop { after_ms } => {
                    writeln!(f, "  session {index} is told to stop after {after_ms} ms")
                }
                Life::Pause { polls, for_ms, unnoticed_ms } => writeln!(
                    f,
                    "  session {index} stands still for {for_ms} ms at poll {polls}, and notices \
                     {unnoticed_ms} ms later that it has lost the slot"
                ),
            }?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault:?}"))
    }
}
