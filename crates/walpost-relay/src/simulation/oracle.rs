use std::fmt;

use walpost_event::Position;

use super::{
    schedule::{Event, Kind, PARTITIONS, Schedule},
    world::xid,
};
use crate::{
    config::ParkMode,
    floors,
    proven::{Pair, sees},
};

/// Knows what was committed, what is in the log and what is parked, and says
/// what is wrong with it as soon as it is.
pub(super) struct Oracle {
    events: Vec<State>,
    /// Start and end of the commit record, and the events.
    transactions: Vec<Committed>,
    /// Transactions from the first on of which every event is safe.
    settled: usize,
    /// What a committed checkpoint says, and the end of that commit.
    checkpoints: Vec<(u64, u64)>,
    confirmed: u64,
    park: ParkMode,
    first_wrong: Option<String>,
}

#[derive(Clone)]
struct State {
    event: Option<Event>,
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

impl State {
    fn is_safe(&self) -> bool {
        self.landed > 0 || self.is_parked
    }
}

impl Oracle {
    pub(super) fn new(schedule: &Schedule, start: u64) -> Self {
        let highest = schedule.events().map(|event| event.number + 1).max().unwrap_or_default();
        let mut events =
            vec![State { event: None, landed: 0, stands: None, is_parked: false }; highest];
        for event in schedule.events() {
            events[event.number].event = Some(*event);
        }
        Self {
            events,
            transactions: Vec::new(),
            settled: 0,
            checkpoints: vec![(start, start)],
            confirmed: start,
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
        self.events[event].event.map_or(Kind::Row, |event| event.kind)
    }

    /// Where an event stands, once it is committed.
    pub(super) fn position(&self, event: usize) -> Option<Position> {
        self.transactions.iter().find_map(|transaction| {
            let ordinal = transaction.events.iter().position(|number| *number == event)?;
            Some(Position { commit_lsn: transaction.start.into(), ordinal: ordinal as u32 })
        })
    }

    pub(super) fn committed(&mut self, start: u64, end: u64, events: &[Event]) {
        let events = events.iter().map(|event| event.number).collect();
        self.transactions.push(Committed { start, end, events });
    }

    /// A record of ours that is no replay, and that every reader is given.
    pub(super) fn landed(&mut self, number: usize, place: usize, offset: i64) {
        let state = &mut self.events[number];
        state.landed += 1;
        state.stands = Some((place, offset));
        if state.landed > 1 {
            return self.wrong(format_args!("e{number} is twice in the log, in place {place}"));
        }
        let Some(Event { aggregate, .. }) = self.events[number].event else { return };
        // Of one aggregate all stand in one place.
        let later = self.events[number + 1..].iter().find(|other| {
            other.stands.is_some_and(|(_, before)| before < offset)
                && other.event.is_some_and(|other| other.aggregate == aggregate)
        });
        if let Some(later) = later.and_then(|later| later.event) {
            let later = later.number;
            self.wrong(format_args!("e{number} of a{aggregate} landed behind e{later}"));
        }
    }

    /// The transaction of an event, once it is committed.
    pub(super) fn transaction_of(&self, event: usize) -> Option<usize> {
        self.transactions.iter().position(|transaction| transaction.events.contains(&event))
    }

    /// Events of committed transactions that a snapshot does not see, and that
    /// stand below an end of the WAL, in the order in which they were written.
    pub(super) fn rows_of(&self, boundary: &str, proven: &str) -> Vec<Event> {
        let transactions = self.transactions.iter().enumerate();
        let missing = transactions
            .filter(|(index, _)| sees(boundary, xid(*index)) && !sees(proven, xid(*index)));
        let mut numbers: Vec<usize> =
            missing.flat_map(|(_, transaction)| transaction.events.clone()).collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| self.events[number].event).collect()
    }

    /// A slot that was lost is replaced, and nothing of it is missing any more.
    pub(super) fn recovered(&mut self, position: u64, commit_end: u64) {
        self.checkpointed(position, commit_end);
        self.confirmed = position;
    }

    pub(super) fn parked(&mut self, position: Position, id: Option<&str>) {
        let number = id.and_then(|id| id[1..].parse::<usize>().ok());
        if let Some(state) = number.and_then(|number| self.events.get_mut(number)) {
            state.is_parked = true;
            return;
        }
        let found = self
            .transactions
            .iter()
            .find(|transaction| transaction.start == u64::from(position.commit_lsn));
        match found.and_then(|found| found.events.get(position.ordinal as usize)) {
            Some(number) => self.events[*number].is_parked = true,
            None => self.wrong(format_args!("{position} is parked, and no event stands there")),
        }
    }

    /// A checkpoint with this position was committed.
    pub(super) fn checkpointed(&mut self, position: u64, commit_end: u64) {
        self.checkpoints.push((position, commit_end));
        self.covers("a checkpoint", position);
    }

    /// A committed checkpoint calls this pair proven: what the snapshot sees is
    /// safe, and what it does not see stands above the floors.
    pub(super) fn proven(&mut self, pair: &Pair) {
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
                let state = &self.events[*number];
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
    pub(super) fn confirmed(&mut self, position: u64, told: u64) {
        self.covers("a confirmation", position);
        let is_passed = |(known, end): &(u64, u64)| *known >= position && *end <= told;
        if !self.checkpoints.iter().any(is_passed) {
            self.wrong(format_args!(
                "{position:#x} is confirmed without a committed checkpoint that the stream has \
                 passed"
            ));
        }
        self.confirmed = position;
    }

    /// The slot's position is what it was before.
    pub(super) fn went_back(&mut self, position: u64) {
        self.confirmed = position;
    }

    /// From this position on the stream leaves everything out that was committed
    /// below it.
    fn covers(&mut self, what: &str, position: u64) {
        while let Some(first) = self.transactions.get(self.settled)
            && first.events.iter().all(|number| self.events[*number].is_safe())
        {
            self.settled += 1;
        }
        let below = self.transactions.iter().filter(|committed| committed.start < position);
        let count = below.count();
        if count > self.settled {
            let events = &self.transactions[self.settled].events;
            let lost = events.iter().find(|number| !self.events[**number].is_safe());
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
        let last = self.transactions.iter().rfind(|committed| !committed.events.is_empty());
        last.is_none_or(|last| self.confirmed >= last.end)
    }

    /// The last look, when nothing comes any more.
    pub(super) fn finish(&mut self) {
        let safe = self.events.iter().filter(|state| state.event.is_some());
        let lost = safe.clone().find(|state| !state.is_safe()).and_then(|state| state.event);
        let both = safe.clone().find(|state| state.landed > 0 && state.is_parked);
        let both = both.and_then(|state| state.event);
        let overtaken = self.overtaken();
        if let Some(Event { number, .. }) = lost {
            self.wrong(format_args!("e{number} is neither in the log nor parked"));
        }
        if let Some(Event { number, .. }) = both {
            self.wrong(format_args!("e{number} is in the log and parked"));
        }
        if let Some((earlier, later)) = overtaken {
            self.wrong(format_args!("e{later} is in the log, and e{earlier} before it is parked"));
        }
    }

    /// An event in the log that had to wait behind a parked one.
    fn overtaken(&self) -> Option<(usize, usize)> {
        if self.park == ParkMode::Event {
            return None;
        }
        let has_aggregate =
            |event: &Event| !matches!(event.kind, Kind::Unroutable | Kind::Undecodable);
        let events =
            || self.events.iter().filter(|state| state.event.as_ref().is_some_and(has_aggregate));
        events().filter(|state| state.is_parked).find_map(|parked| {
            let parked = parked.event?;
            let behind = |state: &&State| {
                state.landed > 0
                    && state.event.is_some_and(|event| {
                        event.aggregate == parked.aggregate && event.number > parked.number
                    })
            };
            Some((parked.number, events().find(behind)?.event?.number))
        })
    }
}
