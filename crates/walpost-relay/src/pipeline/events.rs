//! From what the source yields to the sink, or to a parked row.

use walpost_event::{Identity, Operation, Position, RowChange};
use walpost_pgoutput::LogicalMessage;

use super::{Event, Pipeline};
use crate::{
    ack::Ticket,
    error::RelayError,
    parked::{ParkReason, Parking},
    sink::{Sink, Unsent},
    source::{Source, SourceItem},
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    pub(super) async fn take(&mut self, item: SourceItem) -> Result<(), RelayError> {
        match item {
            SourceItem::Begin { commit_lsn, committed_at_us, .. } => {
                self.progress.tracker.begin(commit_lsn, committed_at_us);
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
            SourceItem::Change(change) => self.change(change).await,
            SourceItem::Oversize { change, size_bytes } => self.oversize(change, size_bytes).await,
            SourceItem::Message(message) => self.logical_message(message).await,
            SourceItem::OversizeMessage { prefix, size_bytes } => {
                self.oversize_message(&prefix, size_bytes).await
            }
        }
    }

    pub(super) async fn change(&mut self, change: RowChange) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        match change.operation {
            Operation::Insert => self.event(change).await,
            Operation::Update | Operation::Delete => {
                self.metrics.skipped.increment(1);
                self.converter.other_operation(&change)
            }
        }
    }

    pub(super) async fn logical_message(
        &mut self,
        message: LogicalMessage,
    ) -> Result<(), RelayError> {
        if !self.converter.is_outbox_prefix(&message.prefix) {
            self.metrics.skipped.increment(1);
            return Ok(());
        }
        match self.converter.message_row(&message) {
            Ok(row) => self.event(RowChange::insert(row)).await,
            Err(parking) => {
                let (ticket, position) = self.progress.tracker.event();
                self.park(ticket, position, &Identity::default(), parking).await
            }
        }
    }

    pub(super) async fn oversize(
        &mut self,
        change: RowChange,
        size_bytes: u64,
    ) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            return Ok(());
        }
        let identity = self.converter.identity(&change.row);
        self.park_oversize(&identity, size_bytes).await
    }

    async fn oversize_message(&mut self, prefix: &str, size_bytes: u64) -> Result<(), RelayError> {
        if !self.converter.is_outbox_prefix(prefix) {
            return Ok(());
        }
        self.park_oversize(&Identity::default(), size_bytes).await
    }

    async fn park_oversize(
        &mut self,
        identity: &Identity,
        size_bytes: u64,
    ) -> Result<(), RelayError> {
        let (ticket, position) = self.progress.tracker.event();
        let limit = self.config.max_event_bytes;
        let detail = format!("the event has {size_bytes} bytes, max_event_bytes is {limit}");
        let parking = Parking { reason: ParkReason::Oversize, detail };
        self.park(ticket, position, identity, parking).await
    }

    /// An insert: its own ticket, then parked or sent.
    pub(super) async fn event(&mut self, change: RowChange) -> Result<(), RelayError> {
        let (ticket, position) = self.progress.tracker.event();
        self.progress.events_since_checkpoint = true;
        if !self.parked.is_empty() {
            let identity = self.converter.identity(&change.row);
            if self.parked.contains(position, &identity) {
                self.progress.tracker.done(ticket);
                return Ok(());
            }
            if let Some(parking) = self.parked.must_wait(position, &identity) {
                return self.park(ticket, position, &identity, parking).await;
            }
        }
        match self.converter.message(&change) {
            Ok(mut message) => {
                self.headers.add(&mut message.headers, position);
                self.offer(Event { ticket, position, message, row: change.row }).await
            }
            Err(parking) => {
                let identity = self.converter.identity(&change.row);
                self.park(ticket, position, &identity, parking).await
            }
        }
    }

    /// Sends the event, holds it until there is room, or parks it.
    pub(super) async fn offer(&mut self, event: Event) -> Result<(), RelayError> {
        let Event { ticket, position, message, row } = event;
        match self.sink.try_send(ticket, message) {
            Ok(()) => {
                self.progress.streak.sent();
                Ok(())
            }
            Err(Unsent::Full(message)) => {
                self.progress.held = Some(Event { ticket, position, message: *message, row });
                Ok(())
            }
            Err(Unsent::Never { topic, detail }) => {
                let detail = format!("{topic}: {detail}");
                let parking = Parking { reason: ParkReason::Rejected, detail };
                let identity = self.converter.identity(&row);
                self.park(ticket, position, &identity, parking).await
            }
        }
    }

    pub(super) async fn park(
        &mut self,
        ticket: Ticket,
        position: Position,
        identity: &Identity,
        parking: Parking,
    ) -> Result<(), RelayError> {
        if self.parked.contains(position, identity) {
            self.progress.tracker.done(ticket);
            return Ok(());
        }
        // What waits behind a parked event is no sign of a fault.
        if parking.reason != ParkReason::Behind && !self.progress.streak.may_park() {
            return Err(RelayError::Halted {
                count: self.config.parked_halt_after,
                position,
                reason: parking.detail,
            });
        }
        self.parked.park(position, identity, &parking).await?;
        self.progress.tracker.done(ticket);
        self.metrics.parked.increment(1);
        self.status.update(|status| status.parked += 1);
        Ok(())
    }
}
