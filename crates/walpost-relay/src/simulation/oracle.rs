use std::{collections::HashSet, fmt};

use walpost_event::Position;

use super::{
    moves::Filters,
    schedule::{Event, Kind, PARTITIONS, Schedule},
    world::xid,
};
use crate::{config::ParkMode, floors, proven::Pair};

/// Knows what was committed, what is in the log and what is parked, and says
/// what is wrong with it as soon as it is.
pub(super) struct Oracle {
    /// By pipeline, and there by number.
    events: Vec<Vec<State>>,
    /// Start and end of the commit record, and the events.
    transactions: Vec<Committed>,
    /// By pipeline.
    readers: Vec<Reader>,
    /// Events whose rows have left the outbox.
    pruned: HashSet<usize>,
    /// Several pipelines publish the same events, each in their order.
    is_shared: bool,
    park: ParkMode,
    first_wrong: Option<String>,
}

#[derive(Clone)]
struct State {
    event: Option<Event>,
    /// The pipeline is given it.
    is_taken: bool,
    landed: u32,
    /// Its place and offset.
    stands: Option<(usize, i64)>,
    is_parked: bool,
}

struct Committed {
    start: u64,
    end: u64,
    events: Vec<usize>,
}

/// How far a pipeline says that it is.
struct Reader {
    /// Transactions from the first on of which every event is safe.
    settled: usize,
    /// What a committed checkpoint says, and the end of that commit.
    checkpoints: Vec<(u64, u64)>,
    confirmed: u64,
}

impl State {
    fn is_safe(&self) -> bool {
        !self.is_taken || self.landed > 0 || self.is_parked
    }
}

impl Oracle {
    pub(super) fn new(schedule: &Schedule, start: u64) -> Self {
        let highest = schedule.events().map(|event| event.number + 1).max().unwrap_or_default();
        let nothing =
            State { event: None, is_taken: false, landed: 0, stands: None, is_parked: false };
        let mut events = vec![nothing; highest];
        for event in schedule.events() {
            events[event.number].event = Some(*event);
        }
        let reader =
            |_: &_| Reader { settled: 0, checkpoints: vec![(start, start)], confirmed: start };
        Self {
            events: vec![events; schedule.pipelines.len()],
            transactions: Vec::new(),
            readers: schedule.pipelines.iter().map(reader).collect(),
            pruned: HashSet::new(),
            is_shared: schedule.pipelines.iter().all(|pipeline| pipeline.aggregates.is_none()),
            park: schedule.settings.park,
            first_wrong: None,
        }
    }

    pub(super) fn first_wrong(&self) -> Option<&str> {
        self.first_wrong.as_deref()
    }

    pub(super) fn wrong(&mut self, what: impl fmt::Display) {
        self.first_wrong.get_or_insert_with(|| what.to_string());
    }

    pub(super) fn kind(&self, event: usize) -> Kind {
        self.events[0][event].event.map_or(Kind::Row, |event| event.kind)
    }

    /// Whether a pipeline is given the event.
    pub(super) fn is_taken(&self, pipeline: usize, event: usize) -> bool {
        self.events[pipeline][event].is_taken
    }

    /// Whether it has a row in the outbox.
    pub(super) fn is_row(&self, event: &Event) -> bool {
        let is_message = matches!(event.kind, Kind::Emitted | Kind::Undecodable);
        !is_message && !self.pruned.contains(&event.number)
    }

    /// Whether it is parked, and its row alone has its contents.
    pub(super) fn is_alone(&self, event: &Event) -> bool {
        event.kind == Kind::Oversize
            && self.events.iter().any(|events| events[event.number].is_parked)
    }

    /// Its row leaves the outbox.
    pub(super) fn pruned(&mut self, event: &Event) {
        let number = event.number;
        self.pruned.insert(number);
        if self.is_alone(event) {
            self.wrong(format_args!("e{number} is parked, and its row has left"));
        }
        if self.events.iter().any(|events| !events[number].is_safe()) {
            self.wrong(format_args!("e{number} has left, and is neither in the log nor parked"));
        }
    }

    /// Where an event stands, once it is committed.
    pub(super) fn position(&self, pipeline: usize, event: usize) -> Option<Position> {
        self.transactions.iter().find_map(|transaction| {
            let mut own =
                transaction.events.iter().filter(|number| self.is_taken(pipeline, **number));
            let ordinal = own.position(|number| *number == event)?;
            Some(Position { commit_lsn: transaction.start.into(), ordinal: ordinal as u32 })
        })
    }

    pub(super) fn committed(&mut self, filters: &Filters, start: u64, end: u64, events: &[Event]) {
        for (filter, known) in filters.iter().zip(&mut self.events) {
            for event in events {
                let own = filter.as_ref().is_none_or(|own| own.contains(&event.aggregate));
                known[event.number].is_taken = own;
            }
        }
        let events = events.iter().map(|event| event.number).collect();
        self.transactions.push(Committed { start, end, events });
    }

    /// A record of a pipeline's that is no replay, and that every reader is given.
    pub(super) fn landed(&mut self, pipeline: usize, number: usize, place: usize, offset: i64) {
        let state = &mut self.events[pipeline][number];
        state.landed += 1;
        state.stands = Some((place, offset));
        if state.landed > 1 {
            return self.wrong(format_args!("e{number} is twice in the log, in place {place}"));
        }
        if !state.is_taken {
            return self.wrong(format_args!("e{number} is none of pipeline {pipeline}'s"));
        }
        let Some(Event { aggregate, .. }) = state.event else { return };
        // Of one aggregate all stand in one place.
        let is_later = |other: &State| {
            other.stands.is_some_and(|(_, before)| before < offset)
                && other.event.is_some_and(|other| other.aggregate == aggregate)
        };
        let later = self.alike(pipeline).find_map(|events| {
            events[number + 1..].iter().find(|other| is_later(other)).and_then(|later| later.event)
        });
        if let Some(Event { number: later, .. }) = later {
            self.wrong(format_args!("e{number} of a{aggregate} landed behind e{later}"));
        }
    }

    /// The events that have an order with those of a pipeline.
    fn alike(&self, pipeline: usize) -> impl Iterator<Item = &Vec<State>> {
        let pipelines = self.events.iter().enumerate();
        let alike = pipelines.filter(move |(other, _)| !self.is_shared || *other == pipeline);
        alike.map(|(_, events)| events)
    }

    /// The transaction of an event that has its row, once it is committed.
    pub(super) fn transaction_of(&self, event: usize) -> Option<usize> {
        let of = |transaction: &Committed| transaction.events.contains(&event);
        self.transactions.iter().position(of).filter(|_| !self.pruned.contains(&event))
    }

    /// A slot that was lost is replaced, and nothing of it is missing any more.
    pub(super) fn recovered(&mut self, pipeline: usize, position: u64, commit_end: u64) {
        self.checkpointed(pipeline, position, commit_end);
        self.readers[pipeline].confirmed = position;
    }

    pub(super) fn parked(&mut self, pipeline: usize, position: Position, id: Option<&str>) {
        let number = id.and_then(|id| id[1..].parse::<usize>().ok());
        let number = number.or_else(|| {
            let start = u64::from(position.commit_lsn);
            let found = self.transactions.iter().find(|transaction| transaction.start == start)?;
            let mut own = found.events.iter().filter(|number| self.is_taken(pipeline, **number));
            own.nth(position.ordinal as usize).copied()
        });
        match number.and_then(|number| self.events[pipeline].get_mut(number)) {
            Some(state) => state.is_parked = true,
            None => self.wrong(format_args!("{position} is parked, and no event stands there")),
        }
    }

    /// A checkpoint with this position was committed.
    pub(super) fn checkpointed(&mut self, pipeline: usize, position: u64, commit_end: u64) {
        self.readers[pipeline].checkpoints.push((position, commit_end));
        self.covers(pipeline, "a checkpoint", position);
    }

    /// A committed checkpoint calls this pair proven: what the snapshot sees is
    /// safe, and what it does not see stands above the floors.
    pub(super) fn proven(&mut self, pipeline: usize, pair: &Pair) {
        let floors = floors::from_json(&pair.floors).unwrap_or_default();
        let floor = |place: usize| {
            let name = format!("outbox.event.t{}", place / PARTITIONS);
            let topic = floors.iter().find(|topic| *topic.name == *name);
            let floor = topic.and_then(|topic| topic.floors.get(place % PARTITIONS));
            floor.copied().unwrap_or_default()
        };
        let mut wrong = None;
        for (index, committed) in self.transactions.iter().enumerate() {
            let sees = pair.sees(xid(index));
            for number in &committed.events {
                let state = &self.events[pipeline][*number];
                if sees && !state.is_safe() {
                    wrong = Some(format!("e{number} is proven, and neither in the log nor parked"));
                }
                if let Some((place, offset)) = state.stands
                    && !sees
                    && offset < floor(place)
                {
                    wrong = Some(format!("e{number} is not proven, and stands below the floors"));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.wrong(wrong);
        }
    }

    /// The slot is told this position, and the stream has come to `told`.
    pub(super) fn confirmed(&mut self, pipeline: usize, position: u64, told: u64) {
        self.covers(pipeline, "a confirmation", position);
        let is_passed = |(known, end): &(u64, u64)| *known >= position && *end <= told;
        if !self.readers[pipeline].checkpoints.iter().any(is_passed) {
            self.wrong(format_args!(
                "{position:#x} is confirmed without a committed checkpoint that the stream has \
                 passed"
            ));
        }
        self.readers[pipeline].confirmed = position;
    }

    /// The slot's position is what it was before.
    pub(super) fn went_back(&mut self, pipeline: usize, position: u64) {
        self.readers[pipeline].confirmed = position;
    }

    /// From this position on the stream leaves everything out that was committed
    /// below it.
    fn covers(&mut self, pipeline: usize, what: &str, position: u64) {
        let (events, reader) = (&self.events[pipeline], &mut self.readers[pipeline]);
        while let Some(first) = self.transactions.get(reader.settled)
            && first.events.iter().all(|number| events[*number].is_safe())
        {
            reader.settled += 1;
        }
        let settled = reader.settled;
        let below = self.transactions.iter().filter(|committed| committed.start < position);
        let count = below.count();
        if count > settled {
            let numbers = &self.transactions[settled].events;
            let lost = numbers.iter().find(|number| !events[**number].is_safe());
            let lost = lost.copied().unwrap_or_default();
            return self.wrong(format_args!(
                "{what} passes e{lost}, which is neither in the log nor parked"
            ));
        }
        if count > 0 && self.transactions[count - 1].end > position {
            self.wrong(format_args!("{what} stands within a transaction, at {position:#x}"));
        }
    }

    /// The last event, and whatever was before it. What is in the WAL behind
    /// it is confirmed with the next one.
    pub(super) fn all_is_confirmed(&self) -> bool {
        self.readers.iter().zip(&self.events).all(|(reader, events)| {
            let is_own =
                |one: &&Committed| one.events.iter().any(|number| events[*number].is_taken);
            let last = self.transactions.iter().rfind(is_own);
            last.is_none_or(|last| reader.confirmed >= last.end)
        })
    }

    /// The last look, when nothing comes any more.
    pub(super) fn finish(&mut self) {
        let all = || self.events.iter().flatten().filter(|state| state.event.is_some());
        let safe = all().filter(|state| state.is_taken);
        let never = all().find(|state| self.is_nobodys(state)).and_then(|state| state.event);
        let lost = safe.clone().find(|state| !state.is_safe()).and_then(|state| state.event);
        let both = safe.clone().find(|state| state.landed > 0 && state.is_parked);
        let both = both.and_then(|state| state.event);
        let overtaken = (0..self.events.len()).find_map(|pipeline| self.overtaken(pipeline));
        if let Some(Event { number, .. }) = lost.or(never) {
            self.wrong(format_args!("e{number} is neither in the log nor parked"));
        }
        if let Some(Event { number, .. }) = both {
            self.wrong(format_args!("e{number} is in the log and parked"));
        }
        if let Some((earlier, later)) = overtaken {
            self.wrong(format_args!("e{later} is in the log, and e{earlier} before it is parked"));
        }
    }

    fn is_nobodys(&self, state: &State) -> bool {
        let number = state.event.map(|event| event.number).unwrap_or_default();
        !self.events.iter().any(|events| events[number].is_taken)
    }

    /// An event in the log that had to wait behind a parked one of a pipeline.
    fn overtaken(&self, pipeline: usize) -> Option<(usize, usize)> {
        if self.park == ParkMode::Event {
            return None;
        }
        let has_aggregate = |state: &&State| {
            state
                .event
                .is_some_and(|event| !matches!(event.kind, Kind::Unroutable | Kind::Undecodable))
        };
        let parked = self.events[pipeline].iter().filter(has_aggregate);
        parked.filter(|state| state.is_parked).find_map(|parked| {
            let parked = parked.event?;
            let behind = |state: &&State| {
                state.landed > 0
                    && state.event.is_some_and(|event| {
                        event.aggregate == parked.aggregate && event.number > parked.number
                    })
            };
            let mut later = self.alike(pipeline).flatten().filter(has_aggregate);
            Some((parked.number, later.find(behind)?.event?.number))
        })
    }
}
