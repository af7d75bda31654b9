//! Which parked events are due to be sent on.

use std::collections::BTreeSet;

use tokio::task::JoinHandle;
use walpost_event::{Lsn, Row, error_chain};

use super::{
    Aggregate, Contents, OutboxRows, Outcome, Parked, Parking, SendingFloor, StoredEvent,
    requests::{Head, Requested},
    table::ParkedTable,
};
use crate::{config::ParkMode, error::RelayError};

/// Requests of one look.
const REQUESTS_MAX: i64 = 100;
/// Aggregates of one look: with news, and of the round of all.
const NEWS_MAX: usize = 200;
const ROUND_MAX: usize = 200;
/// What a look at the table takes into account.
pub(crate) struct Look {
    /// Committed.
    pub(crate) confirmed: Lsn,
    /// Requests up to this row were looked at before.
    pub(crate) after: i64,
    pub(crate) busy: Busy,
    pub(crate) room: Room,
    mode: ParkMode,
    aggregates: Vec<Aggregate>,
    /// Rows that are there to be seen.
    written: u64,
}

/// What to bring at most; the event that goes beyond the bytes is in it.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

/// What is being sent on.
#[derive(Default)]
pub(crate) struct Busy {
    pub(crate) ids: BTreeSet<i64>,
    pub(crate) aggregates: BTreeSet<Aggregate>,
}

/// What a look has found.
pub(crate) struct Looked {
    /// From where the next look goes on.
    pub(crate) after: i64,
    pub(crate) discarded: Vec<(i64, Option<Aggregate>)>,
    /// The first of their aggregates that are due.
    pub(crate) events: Vec<StoredEvent>,
    free: Vec<Aggregate>,
    /// There was no room for the first of these.
    left: Vec<Aggregate>,
    /// The first of these stand above the committed position.
    pub(crate) above: Vec<(Aggregate, Lsn)>,
    written: u64,
}

impl Parked {
    /// Whether something has happened that wants a look without delay.
    pub(crate) fn has_news(&self) -> bool {
        self.waiting.is_suspecting()
    }

    /// Something has happened to a row of this aggregate.
    pub(crate) fn note_news(&mut self, aggregate: Aggregate) {
        self.waiting.suspect(aggregate);
    }

    /// Looks at the table, beside the pipeline.
    pub(crate) fn look(
        &mut self,
        confirmed: Lsn,
        after: i64,
        busy: Busy,
        room: Room,
    ) -> JoinHandle<Result<Looked, RelayError>> {
        let look = Look {
            confirmed,
            after,
            busy,
            room,
            mode: self.mode,
            aggregates: self.waiting.next_look(NEWS_MAX, ROUND_MAX),
            written: self.waiting.written_now(),
        };
        let (table, outbox) = (self.table.clone(), self.outbox.clone());
        tokio::spawn(async move { look.carry_out(&table, &outbox).await })
    }

    /// Takes what a look has found: the aggregates that are free now.
    pub(crate) fn note_looked(&mut self, looked: &mut Looked) -> usize {
        for (_, aggregate) in &mut looked.discarded {
            if let Some(aggregate) = aggregate.take() {
                self.waiting.suspect(aggregate);
            }
        }
        for aggregate in std::mem::take(&mut looked.left) {
            self.waiting.suspect(aggregate);
        }
        let free = std::mem::take(&mut looked.free).into_iter();
        free.filter(|one| self.waiting.has_no_row(one.clone(), looked.written)).count()
    }

    /// Commits, beside the pipeline, that these may be in the sink from now on;
    /// which of them, and a position behind that commit.
    pub(crate) fn begin_sending(
        &self,
        events: Vec<(i64, SendingFloor)>,
    ) -> JoinHandle<Result<(Vec<i64>, Lsn), RelayError>> {
        let table = self.table.clone();
        tokio::spawn(async move { table.begin(&events).await })
    }

    /// Commits, beside the pipeline, what became of these.
    pub(crate) fn settle(
        &self,
        outcomes: Vec<Outcome>,
    ) -> JoinHandle<Result<Vec<Outcome>, RelayError>> {
        let table = self.table.clone();
        tokio::spawn(async move {
            table.settle(&outcomes).await?;
            Ok(outcomes)
        })
    }
}

impl Look {
    async fn carry_out(
        self,
        table: &ParkedTable,
        outbox: &OutboxRows,
    ) -> Result<Looked, RelayError> {
        let requested = table.requested(self.confirmed, self.after, REQUESTS_MAX).await?;
        let is_last = (requested.len() as i64) < REQUESTS_MAX;
        let after = requested.last().filter(|_| !is_last).map_or(0, |last| last.id);
        let discarded = match requested.iter().any(|one| one.discard) {
            true => table.discard().await?,
            false => Vec::new(),
        };
        let aggregates = self.aggregates(&requested);
        let heads = table.heads(self.confirmed, &aggregates).await?;
        let mut free = Vec::new();
        let mut due = Due::of(&self);
        for (aggregate, head) in aggregates.into_iter().zip(heads) {
            match head {
                None => free.push(aggregate),
                Some(head) => due.head(aggregate, &head),
            }
        }
        due.requested(requested);
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut left = std::mem::take(&mut due.chosen).into_iter();
        while events.len() < self.room.events
            && bytes <= self.room.bytes
            && let Some((id, _)) = left.next()
        {
            let Some(mut event) = table.event(id).await? else { continue };
            if event.from_table || event.is_incomplete() {
                let read = read_row(outbox, &mut event).await?;
                event.row = Some(read);
            }
            bytes += event.contents.as_ref().map_or(0, Contents::size_bytes);
            bytes += event.row.iter().flatten().map(Row::size_bytes).sum::<usize>();
            events.push(event);
        }
        let left = left.filter_map(|(_, aggregate)| aggregate).collect();
        let above = due.above;
        Ok(Looked { after, discarded, events, free, left, above, written: self.written })
    }

    /// Those whose first row is to be known.
    fn aggregates(&self, requested: &[Requested]) -> Vec<Aggregate> {
        let mut aggregates: BTreeSet<Aggregate> = self.aggregates.iter().cloned().collect();
        if self.mode == ParkMode::Aggregate {
            let retried = requested.iter().filter(|one| !one.discard);
            aggregates.extend(retried.filter_map(|one| one.aggregate.clone()));
        }
        aggregates.into_iter().collect()
    }
}

/// Reads the outbox row of an event. What its table, its row or a lock on them refuses
/// is about this event alone: an error would end the session, and the next one too.
async fn read_row(
    outbox: &OutboxRows,
    event: &mut StoredEvent,
) -> Result<Result<Row, Parking>, RelayError> {
    let error = match outbox.read(event).await {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    if error.is_transient() && !error.is_timeout() && !error.is_lock_timeout() {
        return Err(error);
    }
    // The row may have what the event lacks, so it is not sent without.
    event.from_table = true;
    let detail = format!("its row cannot be read from the outbox table: {}", error_chain(&error));
    Ok(Err(Parking { reason: event.reason, detail }))
}

/// Chooses one of each aggregate.
struct Due<'a> {
    look: &'a Look,
    chosen: Vec<(i64, Option<Aggregate>)>,
    taken: BTreeSet<Aggregate>,
    above: Vec<(Aggregate, Lsn)>,
}

impl<'a> Due<'a> {
    fn of(look: &'a Look) -> Self {
        Self { look, chosen: Vec::new(), taken: BTreeSet::new(), above: Vec::new() }
    }

    /// The first of an aggregate is due if somebody asks for it, or if it only
    /// waited.
    fn head(&mut self, aggregate: Aggregate, head: &Head) {
        if !head.open || head.discard || !(head.behind || head.retry) {
            return;
        }
        match head.passed {
            true => self.choose(head.id, Some(aggregate)),
            false => self.above.push((aggregate, head.commit_lsn)),
        }
    }

    /// Those that keep no order are due when somebody asks for them; of each
    /// aggregate the lowest nevertheless.
    fn requested(&mut self, mut requested: Vec<Requested>) {
        requested.sort_by_key(|one| one.place);
        for one in requested.into_iter().filter(|one| !one.discard && one.passed) {
            if one.aggregate.is_none() || self.look.mode == ParkMode::Event {
                self.choose(one.id, one.aggregate);
            }
        }
    }

    fn choose(&mut self, id: i64, aggregate: Option<Aggregate>) {
        let busy = &self.look.busy;
        if busy.ids.contains(&id) {
            return;
        }
        if let Some(aggregate) = &aggregate
            && (busy.aggregates.contains(aggregate) || !self.taken.insert(aggregate.clone()))
        {
            return;
        }
        self.chosen.push((id, aggregate));
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::Position;

    use super::*;

    fn named(id: &str) -> Aggregate {
        Aggregate { kind: None, id: Some(id.to_owned()) }
    }

    fn look(mode: ParkMode) -> Look {
        Look {
            confirmed: Lsn::from(10),
            after: 0,
            busy: Busy { ids: [9].into(), aggregates: [named("busy")].into() },
            room: Room { events: 10, bytes: 10 },
            mode,
            aggregates: Vec::new(),
            written: 0,
        }
    }

    fn head(id: i64) -> Head {
        Head {
            id,
            open: true,
            behind: false,
            retry: false,
            discard: false,
            passed: true,
            commit_lsn: Lsn::from(5),
        }
    }

    fn request(id: i64, aggregate: Option<&str>, ordinal: u32) -> Requested {
        let place = (true, Position { commit_lsn: Lsn::from(1), ordinal });
        Requested { id, discard: false, aggregate: aggregate.map(named), passed: true, place }
    }

    fn chosen(mode: ParkMode, choose: impl FnOnce(&mut Due<'_>)) -> Vec<i64> {
        let look = look(mode);
        let mut due = Due::of(&look);
        choose(&mut due);
        due.chosen.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_first_of_an_aggregate_is_due_when_it_only_waited_or_is_asked_for() {
        let is_due = |head: Head| {
            chosen(ParkMode::Aggregate, |due| due.head(named("a"), &head)) == [head.id]
        };
        assert!(!is_due(head(1)), "nobody asks for it");
        assert!(
            is_due(Head { behind: true, ..head(1) }) && is_due(Head { retry: true, ..head(1) })
        );
        let asked = || Head { retry: true, behind: true, ..head(1) };
        assert!(!is_due(Head { open: false, ..asked() }), "it is being sent");
        assert!(!is_due(Head { passed: false, ..asked() }), "events before it may come again");
        assert!(!is_due(Head { discard: true, ..asked() }));
        assert!(!is_due(Head { id: 9, ..asked() }), "it is at hand");
    }

    #[test]
    fn what_keeps_an_order_comes_by_its_first_alone() {
        let all = || vec![request(3, Some("a"), 2), request(4, Some("a"), 1), request(5, None, 3)];
        assert_eq!(chosen(ParkMode::Aggregate, |due| due.requested(all())), [5]);
        assert_eq!(chosen(ParkMode::Event, |due| due.requested(all())), [4, 5]);
        let with_head = |due: &mut Due<'_>| {
            due.head(named("a"), &Head { behind: true, ..head(1) });
            due.requested(all());
        };
        assert_eq!(chosen(ParkMode::Event, with_head), [1, 5]);
        let not_now = || {
            let discard = Requested { discard: true, ..request(6, None, 0) };
            let above = Requested { passed: false, ..request(7, None, 0) };
            vec![discard, above, request(9, None, 0), request(8, Some("busy"), 0)]
        };
        assert_eq!(chosen(ParkMode::Event, |due| due.requested(not_now())), [0_i64; 0]);
    }
}
