//! Topics that have refused records: theirs go one at a time, by producers beside the
//! sink's own.
//!
//! A refusal ends the sink's own producer, since nothing behind the refused record
//! may land. Behind one that goes by itself there is nothing: its producer goes on.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use walpost_event::Message;

use crate::{
    config::KafkaConnector,
    deliveries::{Reports, lock},
    producer::{NotOpened, NotTaken, Producer},
    queue::Slot,
};

/// Producers, each with threads and connections of its own.
const PRODUCERS_MAX: usize = 4;

#[derive(Default)]
pub(crate) struct Apart {
    topics: HashSet<Arc<str>>,
    producers: Vec<Beside>,
    opening: Option<Opening>,
}

/// A producer, and the one record that it has.
struct Beside {
    producer: Producer,
    has: Option<(Slot, Arc<str>)>,
}

type Opening = Arc<Mutex<Option<Result<Producer, NotOpened>>>>;

impl Apart {
    pub(crate) fn has(&self, topic: &str) -> bool {
        !self.topics.is_empty() && self.topics.contains(topic)
    }

    pub(crate) fn add(&mut self, topic: &Arc<str>) {
        self.topics.insert(topic.clone());
    }

    /// Whether the topic's records may go with the others again: none is on its way.
    pub(crate) fn remove(&mut self, topic: &str) -> bool {
        let is_free = !self.is_busy(topic);
        if is_free {
            self.topics.remove(topic);
        }
        is_free
    }

    /// Whether a record of the topic may be sent now: none is on its way, and there is
    /// a producer for it. If there is none, one is opened.
    pub(crate) fn may_send(
        &mut self,
        topic: &str,
        connector: &KafkaConnector,
        reports: &Arc<Reports>,
    ) -> bool {
        if self.is_busy(topic) {
            return false;
        }
        self.take_opened();
        let is_free = self.producers.iter().any(|beside| beside.has.is_none());
        if !is_free && self.opening.is_none() && self.producers.len() < PRODUCERS_MAX {
            self.opening = Some(open(connector, reports));
        }
        is_free
    }

    /// Queues a record that may be sent.
    pub(crate) fn send(
        &mut self,
        message: &Message,
        partition: i32,
        slot: Slot,
    ) -> Result<(), NotTaken> {
        let beside = self.producers.iter_mut().find(|beside| beside.has.is_none());
        let beside = beside.expect("it was asked whether one is free");
        beside.producer.send(message, partition, slot)?;
        beside.has = Some((slot, message.topic.clone()));
        Ok(())
    }

    /// The fate of a record is known: whether it went apart.
    pub(crate) fn settled(&mut self, slot: Slot) -> bool {
        let of = |has: &Option<(Slot, _)>| has.as_ref().is_some_and(|(of, _)| *of == slot);
        let found = self.producers.iter_mut().find(|beside| of(&beside.has));
        found.is_some_and(|beside| beside.has.take().is_some())
    }

    /// What is queued is given up.
    pub(crate) fn give_up(&self) {
        self.producers.iter().for_each(|beside| beside.producer.give_up());
    }

    /// Their threads end by themselves, once they are told to.
    pub(crate) fn end(&mut self) {
        self.producers.iter_mut().for_each(|beside| drop(beside.producer.end()));
    }

    fn is_busy(&self, topic: &str) -> bool {
        let topics = self.producers.iter().filter_map(|beside| beside.has.as_ref());
        topics.into_iter().any(|(_, of)| &**of == topic)
    }

    fn take_opened(&mut self) {
        let Some(opened) = self.opening.as_ref().and_then(|opening| lock(opening).take()) else {
            return;
        };
        self.opening = None;
        match opened {
            Ok(producer) => self.producers.push(Beside { producer, has: None }),
            // The sink's own has the same trouble, and tells it.
            Err(error) => tracing::debug!(?error, "no producer beside the sink's own"),
        }
    }
}

fn open(connector: &KafkaConnector, reports: &Arc<Reports>) -> Opening {
    let opening = Opening::default();
    let (connector, reports, opened) = (connector.one_by_one(), reports.clone(), opening.clone());
    tokio::task::spawn_blocking(move || {
        let producer = Producer::open(&connector, reports.clone(), &AtomicBool::new(false));
        *lock(&opened) = Some(producer);
        reports.nudge();
    });
    opening
}
