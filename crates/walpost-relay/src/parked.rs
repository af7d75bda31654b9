mod aggregates;
mod contents;
mod from_table;
mod gap;
mod look;
mod requests;
mod sending;
mod stored;
mod table;

use std::collections::HashMap;

use bytes::Bytes;
use tokio::task::JoinHandle;
use uuid::Uuid;
use walpost_event::{Generation, Identity, Lsn, Position};

pub(crate) use self::{
    aggregates::Aggregate,
    contents::Contents,
    from_table::OutboxRows,
    look::{Busy, Looked, Room},
    requests::{Outcome, Verdict},
    sending::{Retried, Sending, SendingFloor, lowered},
    stored::{StoredContents, StoredEvent},
    table::position,
};
use self::{aggregates::Waiting, gap::Gap, table::ParkedTable};
use crate::{
    ack::Ticket,
    checkpoint::{Checkpoint, CheckpointStore},
    config::{ParkMode, RelayConfig},
    error::RelayError,
    sql::Sql,
};

/// Events of one statement.
const BATCH_MAX_EVENTS: usize = 500;
/// Bytes of the contents of one statement; the event that goes beyond is in it.
const BATCH_MAX_BYTES: usize = 4 << 20;
/// Larger contents are left out: a statement is in memory several times.
const CONTENTS_MAX_BYTES: usize = 64 << 20;
/// Details name topics and ids, which come from the event.
const DETAIL_MAX_CHARS: usize = 1_000;

/// Events that could not be delivered, and the aggregates that wait for them.
///
/// A parked event is a committed row before the position passes it. Rows are
/// written in batches beside the pipeline, one at a time, while the next one
/// collects. A row keeps the event's position, so an event that is streamed
/// again is neither parked nor sent a second time.
pub(crate) struct Parked {
    table: ParkedTable,
    outbox: OutboxRows,
    mode: ParkMode,
    /// Ids of those with a row from an earlier session. A position has more than
    /// one where deleted rows shift the ordinals of a load.
    events: HashMap<Position, Vec<ParkedId>>,
    /// While a lost slot is recovered: by id those with a row, and whose
    /// aggregate waits behind them from their place on.
    by_id: HashMap<ParkedId, Option<Aggregate>>,
    /// Those with open rows. With `park = "event"` nothing waits for them.
    waiting: Waiting,
    /// What the run before this one was sending on.
    sending: Vec<Sending>,
    collected: Batch,
    writing: Option<JoinHandle<Result<Vec<ParkedEvent>, RelayError>>>,
}

/// The id of an event that has a row. Without an id space the row is of an earlier
/// version, and its event may be of any table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ParkedId {
    pub(crate) space: Option<Uuid>,
    pub(crate) id: Option<String>,
}

/// An event on its way to its row.
pub(crate) struct ParkedEvent {
    pub(crate) ticket: Ticket,
    pub(crate) position: Position,
    pub(crate) identity: Identity,
    /// Outbox table, or prefix of the logical message.
    pub(crate) source: String,
    pub(crate) id_space: Option<Uuid>,
    pub(crate) parking: Parking,
    /// Deliveries that the sink has refused.
    pub(crate) attempts: u32,
    pub(crate) contents: Contents,
}

/// Why an event is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parking {
    pub(crate) reason: ParkReason,
    /// What was wrong; never contents.
    pub(crate) detail: String,
}

impl Parking {
    /// The sink has refused the event.
    pub(crate) fn rejected(detail: String) -> Self {
        Self { reason: ParkReason::Rejected, detail }
    }

    /// Values of it were left out on the way.
    pub(crate) fn too_large(size_bytes: u64, limit: usize) -> Self {
        let detail = format!("the event has {size_bytes} bytes, max_event_bytes is {limit}");
        Self { reason: ParkReason::Oversize, detail }
    }

    /// Cuts what has no bound by itself.
    pub(crate) fn bound(&mut self) {
        self.detail = text(&self.detail).chars().take(DETAIL_MAX_CHARS).collect();
    }

    /// Its topic does not exist, or refuses us.
    pub(crate) fn no_topic(detail: String) -> Self {
        Self { reason: ParkReason::NoTopic, detail }
    }

    /// An earlier event of the aggregate is parked.
    pub(crate) fn behind() -> Self {
        let detail = "an earlier event of this aggregate is parked".to_owned();
        Self { reason: ParkReason::Behind, detail }
    }
}

/// The class of reason for which an event is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkReason {
    /// No topic, or a column that the route needs is missing.
    Unroutable,
    /// Larger than `max_event_bytes`.
    Oversize,
    /// The sink looked at it and refused it.
    Rejected,
    /// It cannot be encoded, or is no event.
    Undecodable,
    /// Its topic does not exist, or refuses us.
    NoTopic,
    /// An earlier event of its aggregate is parked.
    Behind,
}

impl ParkReason {
    /// As the table has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unroutable => "unroutable",
            Self::Oversize => "oversize",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
            Self::NoTopic => "no_topic",
            Self::Behind => "behind",
        }
    }

    /// What [`as_str`](Self::as_str) gives. The table has no other.
    fn of(text: &str) -> Self {
        let all = [Self::Oversize, Self::Rejected, Self::Undecodable, Self::NoTopic, Self::Behind];
        all.into_iter().find(|one| one.as_str() == text).unwrap_or(Self::Unroutable)
    }
}

/// Rows that are written together.
#[derive(Default)]
struct Batch {
    events: Vec<ParkedEvent>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, event: ParkedEvent) {
        self.bytes += event.contents.size_bytes();
        self.events.push(event);
    }

    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_MAX_EVENTS || self.bytes >= BATCH_MAX_BYTES
    }
}

impl Parked {
    /// Reads what is parked at or above `confirmed`, and which aggregates wait.
    pub(crate) async fn load(
        sql: Sql,
        config: &RelayConfig,
        generation: Generation,
        confirmed: Lsn,
        checkpoints: &CheckpointStore,
        outbox: OutboxRows,
    ) -> Result<Self, RelayError> {
        let table = ParkedTable::new(sql, config, generation, checkpoints.token());
        // Before the aggregates are read, of which there may be too many.
        let mut discarded = 0;
        loop {
            match table.discard().await?.len() {
                0 => break,
                count => discarded += count,
            }
        }
        if discarded > 0 {
            tracing::info!(events = discarded, "parked events discarded, as was asked for");
        }
        let events = table.read_events(confirmed).await?;
        let waiting = table.read_aggregates(config).await?;
        let sending = table.sending().await?;
        let (by_id, collected, writing) = (HashMap::new(), Batch::default(), None);
        let mode = config.park;
        Ok(Self { table, outbox, mode, events, by_id, waiting, sending, collected, writing })
    }

    /// [`load`](Self::load) would refuse nothing. Changes nothing.
    pub(crate) async fn fits(
        sql: Sql,
        config: &RelayConfig,
        checkpoint: &Checkpoint,
        checkpoints: &CheckpointStore,
    ) -> Result<(), RelayError> {
        let table = ParkedTable::new(sql, config, checkpoint.generation, checkpoints.token());
        table.read_aggregates(config).await.map(drop)
    }

    /// What the run before this one was sending on, and may be in the sink.
    pub(crate) fn sending(&self) -> &[Sending] {
        &self.sending
    }

    /// Settles what the run before this one was sending on, now that the sink
    /// was read back: nothing of it is on its way any more.
    pub(crate) async fn settle_sending(&mut self, retried: &Retried) -> Result<(), RelayError> {
        let sending = std::mem::take(&mut self.sending);
        if sending.is_empty() {
            return Ok(());
        }
        let outcome = |one: &Sending| Outcome {
            id: one.id,
            position: one.position,
            aggregate: one.aggregate.clone(),
            verdict: if retried.is_found(one.id) { Verdict::Done } else { Verdict::Again },
        };
        let outcomes: Vec<Outcome> = sending.iter().map(outcome).collect();
        for one in &outcomes {
            let (id, position) = (one.id, one.position);
            match one.verdict {
                Verdict::Done => tracing::info!(id, %position, "parked event found sent on"),
                _ => tracing::info!(id, %position, "parked event not found sent on; once more"),
            }
        }
        self.table.settle(&outcomes).await?;
        let aggregates = outcomes.into_iter().filter_map(|one| one.aggregate);
        aggregates.for_each(|aggregate| self.waiting.suspect(aggregate));
        Ok(())
    }

    /// Reads which rows stand for events that a lost slot may not have brought,
    /// as the snapshot `proven` does not see them. These come again, in their
    /// place, and only what is behind them waits; behind the others everything
    /// does.
    pub(crate) async fn recover(
        &mut self,
        config: &RelayConfig,
        proven: &str,
        id: &str,
    ) -> Result<(), RelayError> {
        self.waiting = Waiting::default();
        for row in self.table.read_gap(config, proven, id).await? {
            let Gap { event, aggregate } = row;
            match (event, aggregate) {
                (Some(event), aggregate) => {
                    self.by_id.insert(event, aggregate);
                }
                (None, Some(aggregate)) => self.waiting.load(aggregate, Position::default())?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Whether the event at `position` may have its row already or have to wait,
    /// so that it matters which event it is.
    pub(crate) fn concerns(&self, position: Position) -> bool {
        self.is_waited_for() || !self.by_id.is_empty() || self.events.contains_key(&position)
    }

    /// Whether this very event had its row before this session, in whatever
    /// state.
    pub(crate) fn contains(
        &mut self,
        position: Position,
        identity: &Identity,
        space: Option<Uuid>,
    ) -> Result<bool, RelayError> {
        let id = column_text(identity.event_id.as_ref());
        let known = [space, None].map(|space| ParkedId { space, id: id.clone() });
        if let Some(aggregate) = known.iter().find_map(|known| self.by_id.get(known)) {
            if let Some(aggregate) = aggregate {
                self.waiting.load(aggregate.clone(), position)?;
            }
            return Ok(true);
        }
        let Some(ids) = self.events.get(&position) else { return Ok(false) };
        let ascii = id.as_deref().map(|id| Texts::Ascii.of(id));
        let with_ascii = [space, None].map(|space| ParkedId { space, id: ascii.clone() });
        Ok(known.iter().chain(&with_ascii).any(|known| ids.contains(known)))
    }

    /// Whether the event has to wait behind one of its aggregate. What stands
    /// before that one, and comes again, has not.
    pub(crate) fn holds_back(&self, position: Position, identity: &Identity) -> bool {
        if !self.is_waited_for() {
            return false;
        }
        let aggregate = Aggregate::new(identity);
        self.waiting.holds_back(position, &aggregate)
            || self.waiting.holds_back(position, &aggregate.with(Texts::Ascii))
    }

    fn is_waited_for(&self) -> bool {
        self.mode == ParkMode::Aggregate && !self.waiting.is_empty()
    }

    /// Takes an event for the next batch. What comes behind it in its aggregate
    /// waits from now on.
    ///
    /// # Errors
    /// When more aggregates would wait than are remembered.
    pub(crate) fn add(&mut self, mut event: ParkedEvent) -> Result<(), RelayError> {
        event.bound();
        let keeps_order = self.mode == ParkMode::Aggregate && event.identity.aggregate_id.is_some();
        let aggregate = keeps_order.then(|| Aggregate::new(&event.identity));
        self.waiting.add(event.position, aggregate)?;
        self.collected.push(event);
        Ok(())
    }

    /// Whether the next batch takes nothing more.
    pub(crate) fn is_full(&self) -> bool {
        self.collected.is_full()
    }

    /// Begins to write what was collected, unless a batch is being written.
    /// Whether one is, now.
    pub(crate) fn write_collected(&mut self) -> bool {
        if self.writing.is_none() && !self.collected.events.is_empty() {
            let table = self.table.clone();
            let events = std::mem::take(&mut self.collected).events;
            self.writing = Some(tokio::spawn(async move {
                table.insert(&events).await?;
                Ok(events)
            }));
        }
        self.writing.is_some()
    }

    /// The events of the batch that is being written, once it is committed; for
    /// ever without one. Loses nothing when it is cancelled.
    pub(crate) async fn written(&mut self) -> Result<Vec<ParkedEvent>, RelayError> {
        let Some(task) = &mut self.writing else { return std::future::pending().await };
        let written = task.await;
        self.writing = None;
        let written = written.unwrap_or_else(|_| {
            let detail = "parking events was interrupted".to_owned();
            Err(RelayError::Sink { detail, transient: true })
        })?;
        self.waiting.written(written.len());
        Ok(written)
    }

    /// Waits no longer for a batch; its events come again, with or without
    /// their rows.
    pub(crate) fn give_up(&mut self) {
        if let Some(task) = self.writing.take() {
            task.abort();
        }
    }
}

impl ParkedEvent {
    /// Cuts what has no bound by itself.
    fn bound(&mut self) {
        self.parking.bound();
        let size_bytes = self.contents.size_bytes();
        if size_bytes > CONTENTS_MAX_BYTES {
            self.contents = Contents::LeftOut;
            let left_out = format!(
                "; its {size_bytes} bytes are more than the {CONTENTS_MAX_BYTES} that a parked \
                 row keeps"
            );
            self.parking.detail.push_str(&left_out);
        }
    }
}

/// Which characters a row of the table is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Texts {
    /// All but NUL, which PostgreSQL's text has not.
    Whole,
    /// Those of every encoding: the database may not have another one.
    Ascii,
}

impl Texts {
    fn of(self, whole: &str) -> String {
        match self {
            Self::Whole => text(whole),
            Self::Ascii => text(whole).replace(|character: char| !character.is_ascii(), "?"),
        }
    }
}

fn column_text(bytes: Option<&Bytes>) -> Option<String> {
    bytes.map(|bytes| match std::str::from_utf8(bytes) {
        Ok(whole) => text(whole),
        // In a character that every encoding has.
        Err(_) => text(&String::from_utf8_lossy(bytes).replace('\u{fffd}', "?")),
    })
}

/// PostgreSQL's text takes no NUL.
fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use walpost_event::Message;

    use super::*;

    fn event(value_bytes: usize, detail: &str) -> ParkedEvent {
        let position = Position { commit_lsn: Lsn::from(1), ordinal: 0 };
        ParkedEvent {
            ticket: 0,
            position,
            identity: Identity::default(),
            source: "walpost.outbox".to_owned(),
            id_space: None,
            parking: Parking { reason: ParkReason::Rejected, detail: detail.to_owned() },
            attempts: 0,
            contents: Contents::Record(Message {
                topic: "t".into(),
                partition: None,
                key: None,
                value: Some(vec![0; value_bytes].into()),
                headers: Default::default(),
                timestamp_ms: None,
            }),
        }
    }

    #[test]
    fn a_batch_is_full_of_events_or_of_bytes() {
        let mut batch = Batch::default();
        for _ in 1..BATCH_MAX_EVENTS {
            batch.push(event(0, ""));
        }
        assert!(!batch.is_full());
        batch.push(event(0, ""));
        assert!(batch.is_full());

        let mut batch = Batch::default();
        batch.push(event(BATCH_MAX_BYTES - 1, ""));
        assert!(!batch.is_full());
        batch.push(event(1, ""));
        assert!(batch.is_full());
    }

    #[test]
    fn contents_beyond_their_bound_are_left_out_and_the_detail_says_so() {
        let mut kept = event(CONTENTS_MAX_BYTES, "refused");
        kept.bound();
        assert_eq!(kept.contents.size_bytes(), CONTENTS_MAX_BYTES);
        assert_eq!(kept.parking.detail, "refused");

        let mut left_out = event(CONTENTS_MAX_BYTES + 1, "refused");
        left_out.bound();
        assert!(matches!(left_out.contents, Contents::LeftOut));
        assert!(left_out.parking.detail.starts_with("refused; its 67108865 bytes are more"));
    }

    #[test]
    fn a_detail_is_bounded_and_has_no_nul() {
        let mut event = event(0, &format!("a\0{}", "é".repeat(2 * DETAIL_MAX_CHARS)));
        event.bound();
        assert_eq!(event.parking.detail.chars().count(), DETAIL_MAX_CHARS);
        assert!(event.parking.detail.starts_with("a\u{fffd}é"));
    }
}
