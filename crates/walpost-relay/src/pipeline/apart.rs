//! Events of topics that have refused records: they go one at a time, by
//! themselves, so that one that is refused is parked and nothing else waits.
//!
//! Those behind the one on its way wait aside, in order. What is refused has its
//! row before the next one of its aggregate is looked at.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use walpost_event::Position;

use super::Pipeline;
#[cfg(test)]
use crate::simulation;
use crate::{
    ack::Ticket,
    convert::Origin,
    error::RelayError,
    parked::Parking,
    sink::{DeliveryError, Sink},
    source::Source,
};

/// What goes apart in this session.
#[derive(Default)]
pub(super) struct Apart {
    topics: HashSet<Arc<str>>,
    /// On their way, with what it takes to park them.
    sent: HashMap<Ticket, Sent>,
    /// To be parked.
    refused: VecDeque<(Sent, DeliveryError)>,
}

struct Sent {
    ticket: Ticket,
    position: Position,
    topic: Arc<str>,
    origin: Origin,
}

impl Apart {
    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(super) fn has(&self, topic: &str) -> bool {
        self.topics.contains(topic)
    }

    pub(super) fn sent(
        &mut self,
        ticket: Ticket,
        position: Position,
        topic: Arc<str>,
        origin: Origin,
    ) {
        self.sent.insert(ticket, Sent { ticket, position, topic, origin });
    }

    pub(super) fn refused(&mut self, ticket: Ticket, error: DeliveryError) {
        self.refused.extend(self.sent.remove(&ticket).map(|sent| (sent, error)));
    }

    /// Whether what was refused waits to be parked.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// As the sessions before have it.
    pub(super) fn set_topics_apart(&mut self) {
        let topics: Vec<Arc<str>> = self.carried.apart.topics().cloned().collect();
        for topic in topics {
            if self.sink.set_apart(&topic, true) {
                tracing::warn!(
                    topic = &*topic,
                    "a topic has refused records; its events go one at a time, and the others go on"
                );
                self.progress.apart.topics.insert(topic);
            }
        }
    }

    /// An event that went apart is durable.
    pub(super) fn note_taken_apart(&mut self, ticket: Ticket) {
        let Some(Sent { topic, .. }) = self.progress.apart.sent.remove(&ticket) else { return };
        if !self.carried.apart.taken(&topic) || self.sink.set_apart(&topic, false) {
            return;
        }
        self.carried.apart.joined(&topic);
        self.progress.apart.topics.remove(&topic);
        tracing::info!(topic = &*topic, "the topic takes records; its events go with the others");
    }

    /// Parks what was refused, as far as nothing is held.
    pub(super) fn park_refused(&mut self) -> Result<(), RelayError> {
        while self.progress.held.is_none()
            && let Some((sent, error)) = self.progress.apart.refused.pop_front()
        {
            let Sent { ticket, position, topic, origin } = sent;
            self.carried.apart.refused(&topic);
            #[cfg(test)]
            if simulation::has(simulation::Bug::PassRefused) {
                self.progress.tracker.done(ticket);
                continue;
            }
            let attempts = self.carried.suspects.refusals(position) + 1;
            let parking = Parking::rejected(error.to_string());
            self.park_origin(ticket, position, origin, parking, attempts)?;
        }
        Ok(())
    }
}
