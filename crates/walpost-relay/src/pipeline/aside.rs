//! Events whose topic cannot be used, or takes one at a time (`apart.rs`), set aside so
//! that the others go on.
//!
//! They wait in memory, within bounds, and hold their place in the position:
//! whoever dies meanwhile reads them again. All events of an aggregate go to one
//! topic, because the column that names the topic is part of what an aggregate
//! is; so what waits by topic waits by aggregate as well.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use walpost_event::{Message, error_chain};

use super::{Event, Offered, Pipeline};
#[cfg(test)]
use crate::simulation;
use crate::{
    ack::Ticket,
    error::RelayError,
    parked::Parking,
    sink::{DeliveryError, DeliveryErrorKind, Sink},
    source::Source,
};

/// Events that are set aside at a time.
const ASIDE_MAX_EVENTS: usize = 10_000;
/// Their bytes.
const ASIDE_MAX_BYTES: usize = 16 << 20;

/// Events that wait for their topics, each topic's in the order of the stream.
#[derive(Default)]
pub(super) struct Aside {
    topics: BTreeMap<Arc<str>, VecDeque<Event>>,
    events: usize,
    bytes: usize,
}

/// What one of them keeps in memory.
fn size_bytes(event: &Event) -> usize {
    Message::size_bytes(&event.message) + event.origin.row.size_bytes()
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Whether no more is read before some of them are gone.
    pub(super) fn is_full(&self) -> bool {
        self.events >= ASIDE_MAX_EVENTS || self.bytes >= ASIDE_MAX_BYTES
    }

    /// Where the first event of a topic goes, by its ticket.
    pub(super) fn topic_of(&self, ticket: Ticket) -> Option<Arc<str>> {
        let is_first =
            |queue: &VecDeque<Event>| queue.front().is_some_and(|event| event.ticket == ticket);
        let found = self.topics.iter().find(|(_, queue)| is_first(queue));
        found.map(|(topic, _)| topic.clone())
    }

    fn has(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    fn push(&mut self, event: Event) {
        self.events += 1;
        self.bytes += size_bytes(&event);
        self.topics.entry(event.message.topic.clone()).or_default().push_back(event);
    }

    fn push_front(&mut self, topic: &Arc<str>, event: Event) {
        self.events += 1;
        self.bytes += size_bytes(&event);
        self.topics.entry(topic.clone()).or_default().push_front(event);
    }

    fn pop(&mut self, topic: &Arc<str>) -> Option<Event> {
        let queue = self.topics.get_mut(topic)?;
        let event = queue.pop_front();
        if queue.is_empty() {
            self.topics.remove(topic);
        }
        let event = event?;
        self.events -= 1;
        self.bytes -= size_bytes(&event);
        Some(event)
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    /// The topic of the one that has waited longest.
    fn oldest(&self) -> Option<Arc<str>> {
        let first = |queue: &VecDeque<Event>| queue.front().map(|event| event.position);
        let oldest = self.topics.iter().min_by_key(|(_, queue)| first(queue));
        oldest.map(|(topic, _)| topic.clone())
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Whether an event waits for its topic, or behind others that do.
    pub(super) fn waits_aside(&self, event: &Event) -> bool {
        if self.progress.aside.is_empty() && self.carried.away.is_empty() {
            return false;
        }
        let topic = &event.message.topic;
        self.progress.aside.has(topic) || !self.carried.away.may_try(topic, Instant::now())
    }

    pub(super) fn set_aside(&mut self, event: Event) {
        self.progress.aside.push(event);
    }

    /// The topic of an event cannot be used: sets it aside, or says that there
    /// is no room to remember the topic.
    pub(super) fn miss_topic(&mut self, event: Event, detail: Arc<str>) -> Option<Event> {
        let topic = event.message.topic.clone();
        if !self.carried.away.missing(&topic, detail, Instant::now()) {
            return Some(event);
        }
        self.set_aside(event);
        None
    }

    /// Says which topics are not there.
    pub(super) fn tell_missing_topics(&mut self) {
        for reason in self.carried.away.news(Instant::now()) {
            tracing::warn!(
                reason = &*reason,
                parked_after_ms = self.config.missing_topic_timeout_ms,
                "events of one topic are set aside; the others go on"
            );
        }
    }

    /// Sends what can be sent again.
    pub(super) fn release_aside(&mut self) -> Result<(), RelayError> {
        if self.progress.aside.is_empty() || self.progress.stopping.is_some() {
            return Ok(());
        }
        for topic in self.progress.aside.names() {
            if !self.carried.away.may_try(&topic, Instant::now()) {
                continue;
            }
            let was_told = self.carried.away.is_told(&topic);
            while self.may_send()
                && let Some(event) = self.progress.aside.pop(&topic)
            {
                let Some(event) = self.unless_behind(event)? else { continue };
                match self.hand_over(event)? {
                    Offered::Settled => {}
                    Offered::Wait(event) | Offered::Alone(event) => {
                        self.progress.aside.push_front(&topic, event);
                        return Ok(());
                    }
                    Offered::Apart(event) | Offered::Away(event, _) => {
                        self.progress.aside.push_front(&topic, event);
                        break;
                    }
                }
            }
            if was_told && !self.progress.aside.has(&topic) {
                tracing::info!(topic = &*topic, "no event is set aside for this topic any more");
            }
        }
        Ok(())
    }

    /// Parks an event behind one of its aggregate that was parked since.
    fn unless_behind(&mut self, event: Event) -> Result<Option<Event>, RelayError> {
        if !self.parked.concerns(event.position) {
            return Ok(Some(event));
        }
        let identity = self.converter.identity(&event.origin.row);
        #[cfg(test)]
        if simulation::has(simulation::Bug::PassBehind) {
            return Ok(Some(event));
        }
        if !self.parked.holds_back(event.position, &identity) {
            return Ok(Some(event));
        }
        let Event { ticket, position, origin, .. } = event;
        self.park_origin(ticket, position, origin, Parking::behind(), 0)?;
        Ok(None)
    }

    /// Parks the events of topics that have been away for the stated time, or
    /// those that have waited longest when there is no room for more. Only where
    /// others go on, or would behind what there is no room for, or behind the
    /// end of a source that `is_over`: else nothing is held up, and it is no
    /// event that is at fault.
    pub(super) fn park_aside(&mut self, is_over: bool) -> Result<(), RelayError> {
        if self.progress.aside.is_empty() || self.progress.stopping.is_some() {
            return Ok(());
        }
        let limit = Duration::from_millis(self.config.missing_topic_timeout_ms);
        let is_pressed = self.progress.aside.is_full()
            || self.progress.tracker.span_events() >= self.config.in_flight_max_events / 2;
        let pressing = self.progress.aside.oldest().filter(|_| is_pressed);
        for topic in self.progress.aside.names() {
            let is_pressing = pressing.as_ref() == Some(&topic);
            let holds_others_up = self.carried.away.has_another_taken(&topic)
                || is_pressing && self.is_another_there(&topic)
                || is_over && (self.is_another_there(&topic) || self.are_few_aside());
            let limit = if is_pressing { Duration::ZERO } else { limit };
            let overdue = self.carried.away.overdue(&topic, Instant::now(), limit);
            let Some(detail) = overdue.filter(|_| holds_others_up) else { continue };
            while !self.parked.is_full()
                && let Some(event) = self.progress.aside.pop(&topic)
            {
                let Event { ticket, position, origin, .. } = event;
                let parking = Parking::no_topic(detail.to_string());
                self.park_origin(ticket, position, origin, parking, 0)?;
            }
        }
        Ok(())
    }

    /// Whether so few are set aside that their topics may be at fault. As many
    /// as would halt the pipeline are a wrong configuration, unless something
    /// else says that they are not.
    fn are_few_aside(&self) -> bool {
        self.progress.aside.events < self.config.parked_halt_after as usize
    }

    /// Whether the pipeline publishes to another topic that can be used.
    fn is_another_there(&self, topic: &str) -> bool {
        let now = Instant::now();
        let mut others = self.sink.places().iter().filter(|place| &*place.topic != topic);
        others.any(|place| self.carried.away.overdue(&place.topic, now, Duration::ZERO).is_none())
    }

    /// A delivery has failed for what its topic is.
    pub(super) fn topic_refused(&mut self, error: &DeliveryError) {
        if error.kind != DeliveryErrorKind::Unavailable {
            return;
        }
        let detail = error.detail.clone();
        if self.carried.away.refused(&error.topic, detail, Instant::now()) {
            tracing::warn!(
                topic = &*error.topic,
                error = error_chain(error),
                "a topic takes no records; its events are set aside"
            );
        }
    }
}
