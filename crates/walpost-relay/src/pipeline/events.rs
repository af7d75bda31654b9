//! From what the source yields to the sink, or to a parked row.

use std::time::Duration;

use tokio::time::Instant;

use uuid::Uuid;
use walpost_event::{Identity, Message, Position, Row, RowChange};
use walpost_pgoutput::LogicalMessage;

use super::{Alone, Event, Held, Offered, Pipeline, Unsent};
#[cfg(test)]
use crate::simulation;
use crate::{
    ack::Ticket,
    asking::Question,
    convert::{Origin, Sorted, Unmade, content, table_name},
    error::RelayError,
    filters,
    id_space::IdSpace,
    moves::crossing::PREFIX,
    parked::{Contents, ParkedEvent, Parking},
    published::Named,
    sink::{self, Landed, Sink},
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
                self.converter.begin(xid);
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
            SourceItem::Origin => {
                self.converter.replicated();
                Ok(())
            }
            SourceItem::Relation(relation) => {
                self.converter.forget(&relation);
                Ok(())
            }
            SourceItem::Change(change) => self.change(change, None),
            SourceItem::Oversize { change, size_bytes } => self.change(change, Some(size_bytes)),
            SourceItem::Message(message) => self.logical_message(message),
            SourceItem::OversizeMessage { prefix, size_bytes } => {
                self.oversize_message(prefix, size_bytes)
            }
        }
    }

    /// `too_large` are the bytes of a row whose large values were left out.
    fn change(&mut self, change: RowChange, too_large: Option<u64>) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            self.metrics.skipped.increment(1);
            let arrived = self.converter.arrival(change.row.relation());
            let passed = match arrived {
                Some(table) => Err(RelayError::NewTable { table }),
                None => filters::no_signal(self.config.signal_table.as_ref(), &change),
            };
            self.end_where(passed);
            return Ok(());
        }
        self.converter.note_delete(&change);
        // What was there before the stream is read, not inserted.
        match self.converter.sort(change, self.config.skipped, self.progress.is_load) {
            Sorted::Event(change) => match (self.converter.is_moved(&change), too_large) {
                (Err(error), _) => {
                    self.end_where(Err(error));
                    Ok(())
                }
                (Ok(true), _) => {
                    self.pass_by();
                    Ok(())
                }
                (Ok(false), None) => self.event(change, None),
                (Ok(false), Some(size_bytes)) => self.oversize(&change, size_bytes),
            },
            Sorted::Skipped => {
                self.metrics.skipped.increment(1);
                Ok(())
            }
            Sorted::Other(change) => {
                self.metrics.skipped.increment(1);
                let passed = self.converter.other_operation(&change);
                self.end_where(passed);
                Ok(())
            }
        }
    }

    /// Ends the session where something in the stream may not be passed, but not
    /// before what came before it is settled, as far as that comes to an end.
    fn end_where(&mut self, passed: Result<(), RelayError>) {
        if let Err(error) = passed {
            let limit = Duration::from_millis(self.config.drain_timeout_ms);
            self.progress.ending = Some((error, Instant::now() + limit));
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
                let at = self.next_event();
                let origin = (message.prefix, self.space_of_messages());
                self.park_unread(at, origin, Identity::default(), parking, contents)
            }
        }
    }

    /// What a session before this one may have published, with a higher limit.
    fn oversize(&mut self, change: &RowChange, size_bytes: u64) -> Result<(), RelayError> {
        let (ticket, position) = self.next_event();
        let identity = self.converter.identity(&change.row);
        let space = self.converter.id_space(change.row.relation(), false);
        let source = space.filter(|_| self.config.source_header).map(IdSpace::header);
        let event = || Named {
            source: source.and_then(|header| header.value),
            id: identity.event_id.clone(),
            ..Named::default()
        };
        if self.published.take(position, event) {
            self.metrics.resumed.increment(1);
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        let source = table_name(change.row.relation()).to_string();
        let parking = Parking::too_large(size_bytes, self.config.max_event_bytes);
        let space = self.converter.id_space(change.row.relation(), false).map(|space| space.id);
        let at = (ticket, position);
        self.park_unread(at, (source, space), identity, parking, Contents::LeftOut)
    }

    /// Its id is not known, and a position alone proves nothing: if it is published
    /// already, nobody can tell but by looking.
    fn oversize_message(&mut self, prefix: String, size_bytes: u64) -> Result<(), RelayError> {
        if !self.converter.is_outbox_prefix(&prefix) {
            return Ok(());
        }
        self.progress.has_messages = true;
        let (ticket, position) = self.next_event();
        let mut parking = Parking::too_large(size_bytes, self.config.max_event_bytes);
        if self.published.is_placed(position) {
            parking.detail.push_str("; a record with its position is published, maybe its own");
        }
        let identity = Identity::default();
        let origin = (prefix, self.space_of_messages());
        self.park_unread((ticket, position), origin, identity, parking, Contents::LeftOut)
    }

    /// Parks what never became a row that could be routed.
    fn park_unread(
        &mut self,
        (ticket, position): (Ticket, Position),
        (source, id_space): (String, Option<Uuid>),
        identity: Identity,
        parking: Parking,
        contents: Contents,
    ) -> Result<(), RelayError> {
        if self.published.is_taken_over(position)
            || self.parked.contains(position, &identity, id_space)?
        {
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        self.park(ParkedEvent {
            ticket,
            position,
            identity,
            source,
            id_space,
            parking,
            attempts: 0,
            contents,
        })
    }

    fn space_of_messages(&self) -> Option<Uuid> {
        self.converter.space_of_messages().map(|space| space.id)
    }

    /// An insert: parked or sent.
    fn event(
        &mut self,
        change: RowChange,
        emitted: Option<LogicalMessage>,
    ) -> Result<(), RelayError> {
        let (ticket, position) = self.next_event();
        self.advance(Unsent { ticket, position, change, emitted })
    }

    /// An event that was in the stream before.
    fn pass_by(&mut self) {
        self.metrics.skipped.increment(1);
        let (ticket, _) = self.next_event();
        self.progress.tracker.done(ticket);
    }

    /// A ticket of its own, and where it stands.
    fn next_event(&mut self) -> (Ticket, Position) {
        self.progress.events_since_checkpoint = true;
        self.progress.proofs.event();
        self.progress.tracker.event()
    }

    /// Parks or sends an event, or holds it until what its message needs is known.
    pub(super) fn advance(&mut self, event: Unsent) -> Result<(), RelayError> {
        let Unsent { ticket, position, change, emitted } = event;
        // Once at most: that the registry refuses a schema is told once.
        let mut made = None;
        if !self.published.is_empty() {
            let is_published = self.is_published(position, &change, emitted.as_ref(), &mut made);
            if is_published {
                self.progress.tracker.done(ticket);
                return Ok(());
            }
        }
        let mut is_behind = false;
        if self.parked.concerns(position) {
            let identity = self.converter.identity(&change.row);
            let space = self.converter.id_space(change.row.relation(), emitted.is_some());
            if self.parked.contains(position, &identity, space.map(|space| space.id))? {
                self.progress.tracker.done(ticket);
                return Ok(());
            }
            is_behind = self.parked.holds_back(position, &identity);
        }
        let made =
            made.unwrap_or_else(|| self.converter.message(&change, content(emitted.as_ref())));
        match made {
            Err(Unmade::Ask(question)) => {
                self.hold_unmade(Unsent { ticket, position, change, emitted }, question);
                Ok(())
            }
            Err(Unmade::Dropped) => self.drop_event(ticket, &change.row),
            Ok(_) | Err(Unmade::Park(_)) if is_behind => {
                let origin = Origin { row: change.row, emitted };
                self.park_origin(ticket, position, origin, Parking::behind(), 0)
            }
            Ok(mut message) => {
                self.headers.add(&mut message.headers, position);
                let origin = Origin { row: change.row, emitted };
                self.offer(Event { ticket, position, message, origin })
            }
            Err(Unmade::Park(parking)) => {
                let origin = Origin { row: change.row, emitted };
                self.park_origin(ticket, position, origin, parking, 0)
            }
        }
    }

    /// Nothing overtakes it, and what is on its way is settled meanwhile.
    fn hold_unmade(&mut self, event: Unsent, question: Question) {
        self.asker.ask(question);
        self.progress.held = Some(Held::Unmade(event));
    }

    /// By its transforms it is no event.
    fn drop_event(&mut self, ticket: Ticket, row: &Row) -> Result<(), RelayError> {
        self.metrics.skipped.increment(1);
        self.converter.log_dropped(row);
        self.progress.tracker.done(ticket);
        Ok(())
    }

    /// Whether the event was read back: by its position, or as the id that its
    /// record has. Where the latter is looked at, `made` is what the event is made
    /// of, which may be a question.
    fn is_published(
        &mut self,
        position: Position,
        change: &RowChange,
        emitted: Option<&LogicalMessage>,
        made: &mut Option<Result<Message, Unmade>>,
    ) -> bool {
        let event = || {
            let made = made.insert(self.converter.message(change, content(emitted)));
            made.as_ref().map_or_else(|_| Named::default(), Named::of)
        };
        let is_there = self.published.take(position, event);
        // Without an answer nobody knows its id.
        let is_published = is_there && !matches!(made, Some(Err(Unmade::Ask(_))));
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
            Offered::Apart(event) => {
                self.set_aside(event);
                None
            }
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
        let is_apart = self.progress.apart.has(&event.message.topic);
        let is_suspect = !is_apart && self.carried.suspects.contains(event.position);
        if is_suspect && self.sink.outstanding() > 0 {
            self.sink.hurry();
            return Ok(Offered::Alone(event));
        }
        let Event { ticket, position, message, origin } = event;
        let topic = (is_apart || !self.carried.away.is_empty()).then(|| message.topic.clone());
        match self.sink.try_send(ticket, message) {
            Ok(lane) => {
                self.progress.floors.sent(lane, ticket);
                #[cfg(test)]
                if simulation::has(simulation::Bug::AckWhenQueued) {
                    self.progress.tracker.done(ticket);
                }
                if let Some(topic) = &topic {
                    self.carried.away.found(topic);
                }
                if is_suspect {
                    self.progress.alone = Some(Alone { ticket, position, origin });
                    self.sink.hurry();
                } else if let Some(topic) = topic.filter(|_| is_apart) {
                    self.progress.apart.sent(ticket, position, topic, origin);
                }
                Ok(Offered::Settled)
            }
            Err(sink::Unsent::Full(message)) => {
                Ok(Offered::Wait(Event { ticket, position, message: *message, origin }))
            }
            Err(sink::Unsent::Apart(message)) => {
                Ok(Offered::Apart(Event { ticket, position, message: *message, origin }))
            }
            Err(sink::Unsent::Away { message, detail }) => {
                Ok(Offered::Away(Event { ticket, position, message: *message, origin }, detail))
            }
            Err(sink::Unsent::Never { topic, detail }) => {
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
        if (!self.carried.streak.is_empty() || !self.progress.apart.is_empty())
            && let Some(position) = self.progress.tracker.position(ticket)
        {
            self.carried.streak.delivered(position);
        }
        if !self.carried.away.is_empty()
            && let Some(place) = self.sink.places().get(landed.lane as usize)
        {
            self.carried.away.delivered(&place.topic);
        }
        if !self.progress.apart.is_empty() {
            self.note_taken_apart(ticket);
        }
        self.progress.alone.take_if(|alone| alone.ticket == ticket);
        self.progress.tracker.done(ticket);
    }
}
