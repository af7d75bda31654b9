//! From an event that cannot be delivered to its committed row.

use tokio::time::Instant;
use walpost_event::{Position, RowChange, error_chain};

use super::{
    Ended, Held, Pipeline,
    stop::{SETTLE, attend},
};
use crate::{
    ack::Ticket,
    convert::{Origin, content},
    error::RelayError,
    parked::{Contents, ParkReason, ParkedEvent, Parking},
    policy::{Disposition, decide},
    sink::Sink,
    source::Source,
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Parks an event with the record that it would have become, or where there
    /// is none, with what it was made of.
    pub(super) fn park_origin(
        &mut self,
        ticket: Ticket,
        position: Position,
        origin: Origin,
        parking: Parking,
        attempts: u32,
    ) -> Result<(), RelayError> {
        let identity = self.converter.identity(&origin.row);
        let source = origin.source();
        let id_space = self.converter.id_space(origin.row.relation(), origin.emitted.is_some());
        let id_space = id_space.map(|space| space.id);
        let Origin { row, emitted } = origin;
        let change = RowChange::insert(row);
        let contents = match self.converter.message(&change, content(emitted.as_ref())) {
            Ok(mut message) => {
                self.headers.add(&mut message.headers, position);
                Contents::Record(message)
            }
            // Also where somebody would have to be asked: it is made a record when it
            // is sent on.
            Err(_) => Origin { row: change.row, emitted }.contents(),
        };
        self.park(ParkedEvent {
            ticket,
            position,
            identity,
            source,
            id_space,
            parking,
            attempts,
            contents,
        })
    }

    /// Puts an event into the next batch of rows, unless it is one too many.
    pub(super) fn park(&mut self, event: ParkedEvent) -> Result<(), RelayError> {
        // What waits behind a parked event is no sign of a fault, and what waits
        // for its topic is parked only where others are fine.
        let halt_after = self.config.parked_halt_after;
        if matches!(event.parking.reason, ParkReason::Behind | ParkReason::NoTopic)
            || self.carried.streak.may_park(event.position, halt_after)
        {
            return self.parked.add(event);
        }
        if self.sink.outstanding() > 0 {
            self.progress.held = Some(Held::OneTooMany(event));
            return Ok(());
        }
        Err(RelayError::Halted {
            count: halt_after,
            position: event.position,
            reason: event.parking.detail,
        })
    }

    /// The rows of these events are committed.
    pub(super) fn note_parked(&mut self, events: Vec<ParkedEvent>) {
        let (mut waiting, mut without_topic) = (0_usize, 0_usize);
        for event in &events {
            self.progress.tracker.done(event.ticket);
            if event.parking.reason == ParkReason::Behind {
                waiting += 1;
                continue;
            }
            if event.parking.reason == ParkReason::NoTopic {
                without_topic += 1;
                continue;
            }
            let id = event.identity.event_id.as_deref().map(String::from_utf8_lossy);
            tracing::warn!(
                position = %event.position,
                event_id = id.as_deref(),
                reason = event.parking.reason.as_str(),
                detail = event.parking.detail,
                "event parked; see it with `walpost parked list`"
            );
        }
        if waiting > 0 {
            tracing::warn!(
                events = waiting,
                "events parked behind earlier ones of their aggregates"
            );
        }
        if without_topic > 0 {
            tracing::warn!(
                events = without_topic,
                "events parked whose topics cannot be used; see them with `walpost parked list`"
            );
        }
        let count = events.len() as u64;
        self.metrics.parked.increment(count);
        self.status.update(|status| status.parked += count);
    }

    /// Waits until every event that was to be parked has its row; whether all
    /// have in time. Those that have not come again.
    pub(super) async fn finish_parking(&mut self, deadline: Instant) -> Result<bool, RelayError> {
        while self.parked.write_collected() {
            let wait = self.parked.written();
            let Some(parked) = attend(&mut self.source, deadline, wait).await else {
                tracing::warn!("parked rows were not written in time; their events come again");
                return Ok(false);
            };
            self.note_parked(parked?);
        }
        Ok(true)
    }

    /// After a fault that halts: the rows that show it.
    pub(super) async fn keep_what_led_here(&mut self) {
        if let Err(error) = self.keep_progress(Instant::now() + SETTLE).await {
            tracing::warn!(error = error_chain(&error), "the last parked events have no rows yet");
        }
    }

    /// Says what follows from the deliveries that failed: what was refused alone
    /// is parked, the others that were refused go alone in the next session.
    pub(super) fn judge_failures<R>(&mut self) -> Result<Ended<R>, RelayError> {
        let alone = self.progress.alone.take();
        let (mut suspects, mut convicted, mut retry) = (0_usize, None, None);
        let mut rejected = false;
        for (disposition, error) in self.judge_retries() {
            self.topic_refused(&error);
            match disposition {
                Disposition::Retry => retry = Some(error),
                Disposition::Park | Disposition::RetryAlone => {
                    self.carried.apart.refused_among_others(&error.topic);
                    rejected = true;
                }
            }
        }
        for (ticket, error) in std::mem::take(&mut self.progress.failed) {
            self.topic_refused(&error);
            let was_alone = alone.as_ref().is_some_and(|alone| alone.ticket == ticket);
            match decide(error.kind, was_alone) {
                Disposition::Retry => retry = Some(error),
                Disposition::Park => convicted = Some(error),
                Disposition::RetryAlone => {
                    self.carried.apart.refused_among_others(&error.topic);
                    if let Some(position) = self.progress.tracker.position(ticket) {
                        self.carried.suspects.add(position);
                        suspects += 1;
                    }
                }
            }
        }
        if suspects > 0 {
            tracing::warn!(
                events = suspects,
                "the sink refused events; they are sent again one at a time, to see which it refuses \
                 then"
            );
        }
        if let (Some(alone), Some(error)) = (alone, convicted) {
            let (ticket, position) = (alone.ticket, alone.position);
            let attempts = self.carried.suspects.refusals(position) + 1;
            let parking = Parking::rejected(error.to_string());
            self.park_origin(ticket, position, alone.origin, parking, attempts)?;
            return Ok(Ended::Rejected);
        }
        if suspects > 0 || rejected {
            return Ok(Ended::Rejected);
        }
        let detail = retry.map_or_else(|| "no reason given".to_owned(), |error| error.to_string());
        Err(RelayError::Sink { detail, transient: true })
    }
}
