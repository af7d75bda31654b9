//! A sink in memory that does as the test tells it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;
use walpost_event::Message;
use walpost_relay::{Delivery, DeliveryError, DeliveryErrorKind, RelayError, Sink, Ticket, Unsent};

/// What all sessions of a pipeline share: the world outside.
#[derive(Clone, Default)]
pub(crate) struct World {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    landed: Vec<Message>,
    holding: bool,
    reject: HashSet<String>,
    never: HashSet<String>,
    sessions: usize,
}

impl World {
    pub(crate) async fn connect(&self) -> Result<MemorySink, RelayError> {
        self.state.lock().unwrap().sessions += 1;
        Ok(MemorySink { world: self.clone(), queue: Vec::new(), ended: false })
    }

    /// Values of what landed, in order.
    pub(crate) fn values(&self) -> Vec<String> {
        self.landed().iter().map(value).collect()
    }

    pub(crate) fn landed(&self) -> Vec<Message> {
        self.state.lock().unwrap().landed.clone()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().unwrap().sessions
    }

    /// Accept messages and acknowledge none, or go on.
    pub(crate) fn hold(&self, holding: bool) {
        self.state.lock().unwrap().holding = holding;
        self.changed.notify_one();
    }

    /// Refuse the message with this value for good, after accepting it.
    pub(crate) fn reject(&self, value: &str) {
        self.state.lock().unwrap().reject.insert(value.to_owned());
    }

    /// Never accept the message with this value.
    pub(crate) fn never(&self, value: &str) {
        self.state.lock().unwrap().never.insert(value.to_owned());
    }
}

pub(crate) struct MemorySink {
    world: World,
    queue: Vec<(Ticket, Message)>,
    ended: bool,
}

pub(crate) fn value(message: &Message) -> String {
    String::from_utf8_lossy(message.value.as_deref().unwrap_or(b"<null>")).into_owned()
}

impl Sink for MemorySink {
    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<(), Unsent> {
        if self.ended || self.queue.len() >= 100 {
            return Err(Unsent::Full(Box::new(message)));
        }
        if self.world.state.lock().unwrap().never.contains(&value(&message)) {
            return Err(Unsent::Never { topic: message.topic, detail: "too large".into() });
        }
        self.queue.push((ticket, message));
        self.world.changed.notify_one();
        Ok(())
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        loop {
            {
                let mut state = self.world.state.lock().unwrap();
                if !self.queue.is_empty() && !state.holding {
                    for (ticket, message) in self.queue.drain(..) {
                        let rejected = state.reject.contains(&value(&message));
                        let result = match (self.ended, rejected) {
                            (true, _) => Err(error(&message, DeliveryErrorKind::NotSent)),
                            (false, true) => Err(error(&message, DeliveryErrorKind::Rejected)),
                            (false, false) => Ok(()),
                        };
                        self.ended |= result.is_err();
                        if result.is_ok() {
                            state.landed.push(message);
                        }
                        deliveries.push(Delivery { ticket, result });
                    }
                    return;
                }
            }
            self.world.changed.notified().await;
        }
    }

    fn outstanding(&self) -> usize {
        self.queue.len()
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn close(self) {}
}

fn error(message: &Message, kind: DeliveryErrorKind) -> DeliveryError {
    DeliveryError { kind, topic: message.topic.clone(), detail: "as the test has it".into() }
}
