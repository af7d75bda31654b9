//! What the session has in hand, for those who ask why nothing moves.

use super::{Held, Pipeline};
use crate::{
    ack::Ticket,
    sight::{Flow, Oldest},
    sink::Sink,
    source::Source,
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    pub(super) fn flow(&self) -> Flow {
        let progress = &self.progress;
        let first = progress.tracker.first_open();
        let oldest = progress
            .tracker
            .position(first)
            .map(|position| Oldest { position, topic: self.topic_of(first) });
        Flow {
            settled: first,
            pending: progress.tracker.span_events() as u64,
            open: progress.tracker.is_open().then_some(progress.items_taken),
            is_due: self.worth_a_checkpoint(),
            is_writing: progress.writing.is_some(),
            unpassed: progress.unpassed.front().map(|written| written.wal),
            oldest,
        }
    }

    /// Where an event that is not done goes, if only one topic can have it.
    fn topic_of(&self, ticket: Ticket) -> Option<std::sync::Arc<str>> {
        if let Some(Held::Full(event) | Held::Suspect(event)) = &self.progress.held
            && event.ticket == ticket
        {
            return Some(event.message.topic.clone());
        }
        if let Some(topic) = self.progress.aside.topic_of(ticket) {
            return Some(topic);
        }
        let places = self.sink.places();
        let mut topics = self.progress.floors.lanes_of(ticket);
        let topic = &places.get(topics.next()?)?.topic;
        let is_only =
            topics.all(|lane| places.get(lane).is_some_and(|other| other.topic == *topic));
        is_only.then(|| topic.clone())
    }
}
