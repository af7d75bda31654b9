//! From what the source yields to the sink, or to a parked row.

use walpost_event::{Identity, Operation, Position, RowChange};
use walpost_pgoutput::LogicalMessage;

use super::{Alone, Event, Held, Offered, Pipeline};
#[cfg(test)]
use crate::simulation;
use crate::{
    ack::Ticket,
    convert::{Origin, table_name},
    error::RelayError,
    headers::ID_HEADER,
    moves::crossing::PREFIX,
    parked::{Contents, ParkReason, ParkedEvent, Parking},
    sink::{Landed, Sink, Unsent},
    source::{Source, SourceItem},
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    pub(super) fn take(&mut self, item: SourceItem) -> Result<(), RelayError> {
        if !matches!(item, SourceItem::KeepAlive { .. }) {
            self.progress.items_taken += 1;
        }
        match item {
            SourceItem::Begin { commit_lsn, committed_at_us, xid, is_late } => {
                self.progress.tracker.begin(commit_lsn, committed_at_us);
                self.progress.proofs.begin(xid);
                self.progress.xid = xid;
                self.sink.gather(is_late);
                self.metrics.transactions.increment(1);
                Ok(())
            }
            SourceItem::Commit { end_lsn } => {
                self.progress.tracker.commit(end_lsn);
                self.progress.received = self.progress.received.max(end_lsn);
                Ok(())
            }
            SourceItem::KeepAlive { wal_end } => {
                self.progress.tracker.keep_alive(wal_end);
                self.progress.received = self.progress.received.max(wal_end);
                Ok(())
            }
            SourceItem::Change(change) => self.change(change),
            SourceItem::Oversize { change, size_bytes } => self.oversize(&change, size_bytes),
            SourceItem::Message(message) => self.logical_message(message),
            SourceItem::OversizeMessage { prefix, size_bytes } => {
                self.oversize_message(prefix, size_bytes)
            }
        }
    }

    fn change(&mut self, change: RowChange) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        match change.operation {
            Operation::Insert => self.event(change, None),
            Operation::Update | Operation::Delete => {
                self.metrics.skipped.increment(1);
                self.converter.other_operation(&change)
            }
        }
    }

    fn logical_message(&mut self, message: LogicalMessage) -> Result<(), RelayError> {
        if message.transactional && message.prefix == PREFIX {
            self.meet_boundary(&message.content);
            return Ok(());
        }
        if !self.converter.is_outbox_prefix(&message.prefix) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        self.progress.has_messages = true;
        match self.converter.message_row(&message) {
            Ok(row) => self.event(RowChange::insert(row), Some(message)),
            Err(parking) => {
                let contents = Contents::Message(message.content);
                self.park_unread(message.prefix, Identity::default(), parking, contents)
            }
        }
    }

    fn oversize(&mut self, change: &RowChange, size_bytes: u64) -> Result<(), RelayError> {
        let relation = change.row.relation();
        if !self.converter.is_outbox(relation) {
            return Ok(());
        }
        let (source, identity) =
            (table_name(relation).to_string(), self.converter.identity(&change.row));
        self.park_unread(source, identity, self.too_large(size_bytes), Contents::LeftOut)
    }

    fn oversize_message(&mut self, prefix: String, size_bytes: u64) -> Result<(), RelayError> {
        if !self.converter.is_outbox_prefix(&prefix) {
            return Ok(());
        }
        self.progress.has_messages = true;
        let parking = self.too_large(size_bytes);
        self.park_unread(prefix, Identity::default(), parking, Contents::LeftOut)
    }

    fn too_large(&self, size_bytes: u64) -> Parking {
        let limit = self.config.max_event_bytes;
        let detail = format!("the event has {size_bytes} bytes, max_event_bytes is {limit}");
        Parking { reason: ParkReason::Oversize, detail }
    }

    /// Parks what never became a row that could be routed, under a ticket of
    /// its own.
    fn park_unread(
        &mut self,
        source: String,
        identity: Identity,
        parking: Parking,
        contents: Contents,
    ) -> Result<(), RelayError> {
        let (ticket, position) = self.progress.tracker.event();
        self.progress.events_since_checkpoint = true;
        self.progress.proofs.event();
        if self.published.is_taken_over(position) || self.parked.contains(position, &identity)? {
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        let attempts = 0;
        self.park(ParkedEvent { ticket, position, identity, source, parking, attempts, contents })
    }

    /// An insert: its own ticket, then parked or sent.
    fn event(
        &mut self,
        change: RowChange,
        emitted: Option<LogicalMessage>,
    ) -> Result<(), RelayError> {
        let (ticket, position) = self.progress.tracker.event();
        self.progress.events_since_checkpoint = true;
        self.progress.proofs.event();
        if !self.published.is_empty() && self.is_published(position, &change) {
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        if self.parked.concerns(position) {
            let identity = self.converter.identity(&change.row);
            if self.parked.contains(position, &identity)? {
                self.progress.tracker.done(ticket);
                return Ok(());
            }
            if self.parked.holds_back(position, &identity) {
                let origin = Origin { row: change.row, emitted };
                return self.park_origin(ticket, position, origin, Parking::behind(), 0);
            }
        }
        let message = self.converter.message(&change);
        let origin = Origin { row: change.row, emitted };
        match message {
            Ok(mut message) => {
                self.headers.add(&mut message.headers, position);
                self.offer(Event { ticket, position, message, origin })
            }
            Err(parking) => self.park_origin(ticket, position, origin, parking, 0),
        }
    }

    /// Whether the event was read back: by its position, or as the id that its
    /// record has.
    fn is_published(&mut self, position: Position, change: &RowChange) -> bool {
        let id = || {
            let message = self.converter.message(change).ok()?;
            let id = message.headers.iter().find(|header| &*header.name == ID_HEADER)?;
            id.value.clone()
        };
        let is_published = self.published.take(position, id);
        self.metrics.resumed.increment(is_published.into());
        is_published
    }

    /// Sends the event, holds it until it can go, sets it aside, or parks it.
    pub(super) fn offer(&mut self, event: Event) -> Result<(), RelayError> {
        if self.waits_aside(&event) {
            self.set_aside(event);
            return Ok(());
        }
        self.offer_now(event)
    }

    /// The same of an event that waits behind no other of its topic.
    pub(super) fn offer_now(&mut self, event: Event) -> Result<(), RelayError> {
        let held = match self.hand_over(event)? {
            Offered::Settled => None,
            Offered::Wait(event) => Some(Held::Full(event)),
            Offered::Alone(event) => Some(Held::Suspect(event)),
            Offered::Away(event, detail) => self.miss_topic(event, detail).map(Held::Full),
        };
        // What was parked may be held as one too many.
        if held.is_some() {
            self.progress.held = held;
        }
        Ok(())
    }

    /// Sends the event or parks it, or gives it back.
    pub(super) fn hand_over(&mut self, event: Event) -> Result<Offered, RelayError> {
        let is_suspect = self.carried.suspects.contains(event.position);
        if is_suspect && self.sink.outstanding() > 0 {
            self.sink.hurry();
            return Ok(Offered::Alone(event));
        }
        let Event { ticket, position, message, origin } = event;
        let topic = (!self.carried.away.is_empty()).then(|| message.topic.clone());
        match self.sink.try_send(ticket, message) {
            Ok(lane) => {
                self.progress.floors.sent(lane, ticket);
                #[cfg(test)]
                if simulation::has(simulation::Bug::AckWhenQueued) {
                    self.progress.tracker.done(ticket);
                }
                if is_suspect {
                    self.progress.alone = Some(Alone { ticket, position, origin });
                    self.sink.hurry();
                }
                topic.inspect(|topic| self.carried.away.found(topic));
                Ok(Offered::Settled)
            }
            Err(Unsent::Full(message)) => {
                Ok(Offered::Wait(Event { ticket, position, message: *message, origin }))
            }
            Err(Unsent::Away { message, detail }) => {
                Ok(Offered::Away(Event { ticket, position, message: *message, origin }, detail))
            }
            Err(Unsent::Never { topic, detail }) => {
                let parking = Parking::rejected(format!("{topic}: {detail}"));
                let attempts = self.carried.suspects.refusals(position);
                self.park_origin(ticket, position, origin, parking, attempts)?;
                Ok(Offered::Settled)
            }
        }
    }

    /// The sink has made an event durable.
    pub(super) fn note_delivered(&mut self, ticket: Ticket, landed: Landed) {
        if let Some(offset) = landed.offset {
            self.progress.floors.landed(landed.lane, offset);
        }
        if !self.carried.streak.is_empty()
            && let Some(position) = self.progress.tracker.position(ticket)
        {
            self.carried.streak.delivered(position);
        }
        if !self.carried.away.is_empty()
            && let Some(place) = self.sink.places().get(landed.lane as usize)
        {
            self.carried.away.delivered(&place.topic);
        }
        self.progress.alone.take_if(|alone| alone.ticket == ticket);
        self.progress.tracker.done(ticket);
    }
}
