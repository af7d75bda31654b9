//! A sink in memory that does as the test tells it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Notify;
use walpost_event::Message;
use walpost_relay::{
    Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, Marks, NoteMarks, POSITION_HEADER,
    Place, REPLAY_HEADER, RelayError, SOURCE_HEADER, Sink, Ticket, TopicFloors, Unsent,
};

/// What all sessions of a pipeline share: the world outside.
#[derive(Clone, Default)]
pub(crate) struct World {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    landed: Vec<Message>,
    read_back: usize,
    settled: Vec<bool>,
    holding: bool,
    queued: usize,
    hold_after: Option<usize>,
    reject: HashSet<String>,
    spoil: HashSet<String>,
    never: HashSet<String>,
    missing: HashSet<String>,
    sessions: usize,
    keeping_open: bool,
    closing: usize,
    fence_id: Option<String>,
    fenced: Vec<String>,
    refuse_to_fence: bool,
    away: bool,
}

impl World {
    pub(crate) async fn connect(&self) -> Result<MemorySink, RelayError> {
        let mut state = self.state.lock().unwrap();
        if state.away {
            return Err(RelayError::Sink { detail: "nobody answers".to_owned(), transient: true });
        }
        state.sessions += 1;
        Ok(MemorySink {
            world: self.clone(),
            fence_id: state.fence_id.clone(),
            queue: Vec::new(),
            ended: false,
            places: Vec::new(),
            allowed: 0,
        })
    }

    /// Whether it cannot be connected to.
    pub(crate) fn be_away(&self, away: bool) {
        self.state.lock().unwrap().away = away;
    }

    /// Under which name the next sessions can be fenced off.
    pub(crate) fn fence_as(&self, name: Option<&str>) {
        self.state.lock().unwrap().fence_id = name.map(str::to_owned);
    }

    /// Those that were fenced off.
    pub(crate) fn fenced(&self) -> Vec<String> {
        self.state.lock().unwrap().fenced.clone()
    }

    /// Whether nobody can be fenced off.
    pub(crate) fn refuse_to_fence(&self, refuse: bool) {
        self.state.lock().unwrap().refuse_to_fence = refuse;
    }

    /// Values of what landed, in order.
    pub(crate) fn values(&self) -> Vec<String> {
        self.landed().iter().map(value).collect()
    }

    /// How many landed.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().landed.len()
    }

    pub(crate) fn landed(&self) -> Vec<Message> {
        self.state.lock().unwrap().landed.clone()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().unwrap().sessions
    }

    /// Messages that were read back by all sessions.
    pub(crate) fn read_back(&self) -> usize {
        self.state.lock().unwrap().read_back
    }

    /// For each session, whether it waited for what another had on its way.
    pub(crate) fn settled(&self) -> Vec<bool> {
        self.state.lock().unwrap().settled.clone()
    }

    /// Messages that all sessions have accepted.
    pub(crate) fn queued(&self) -> usize {
        self.state.lock().unwrap().queued
    }

    /// Somebody else, or a predecessor that is not dead yet, writes a message.
    pub(crate) fn land(&self, message: Message) {
        self.state.lock().unwrap().landed.push(message);
    }

    /// Accept messages and acknowledge none, or go on.
    pub(crate) fn hold(&self, holding: bool) {
        let mut state = self.state.lock().unwrap();
        state.holding = holding;
        state.hold_after = None;
        drop(state);
        self.changed.notify_one();
    }

    /// Acknowledge no more than so many.
    pub(crate) fn hold_after(&self, messages: usize) {
        self.state.lock().unwrap().hold_after = Some(messages);
    }

    /// The log loses a message that was acknowledged.
    pub(crate) fn lose(&self, lost: &str) {
        self.state.lock().unwrap().landed.retain(|message| value(message) != lost);
    }

    /// Refuse the message with this value for good, after accepting it.
    pub(crate) fn reject(&self, value: &str) {
        self.state.lock().unwrap().reject.insert(value.to_owned());
    }

    /// Take every message again.
    pub(crate) fn mend(&self) {
        let mut state = self.state.lock().unwrap();
        state.never.clear();
        state.reject.clear();
        state.spoil.clear();
    }

    /// Refuse the message with this value for good, and with it all that are
    /// accepted and not acknowledged.
    pub(crate) fn spoil(&self, value: &str) {
        self.state.lock().unwrap().spoil.insert(value.to_owned());
    }

    /// Let no session end, or go on.
    pub(crate) fn keep_open(&self, keeping_open: bool) {
        self.state.lock().unwrap().keeping_open = keeping_open;
        self.changed.notify_one();
    }

    /// Sessions that have ended or are about to.
    pub(crate) fn closing(&self) -> usize {
        self.state.lock().unwrap().closing
    }

    /// The topic is not there.
    pub(crate) fn remove_topic(&self, topic: &str) {
        self.state.lock().unwrap().missing.insert(topic.to_owned());
    }

    /// It is there again.
    pub(crate) fn create_topic(&self, topic: &str) {
        self.state.lock().unwrap().missing.remove(topic);
    }

    /// Never accept the message with this value.
    pub(crate) fn never(&self, value: &str) {
        self.state.lock().unwrap().never.insert(value.to_owned());
    }
}

pub(crate) struct MemorySink {
    world: World,
    fence_id: Option<String>,
    queue: Vec<(Ticket, Message)>,
    ended: bool,
    places: Vec<Place>,
    allowed: usize,
}

const TOPIC: &str = "memory";

pub(crate) fn value(message: &Message) -> String {
    String::from_utf8_lossy(message.value.as_deref().unwrap_or(b"<null>")).into_owned()
}

impl Sink for MemorySink {
    const NAME: &'static str = "memory";

    fn fence_id(&self) -> Option<&str> {
        self.fence_id.as_deref()
    }

    async fn fence(&mut self, predecessor: &str) -> Result<(), RelayError> {
        let mut state = self.world.state.lock().unwrap();
        if state.refuse_to_fence {
            return Err(RelayError::Sink { detail: "denied".into(), transient: true });
        }
        state.fenced.push(predecessor.to_owned());
        Ok(())
    }

    async fn read_back(
        &mut self,
        topics: Vec<TopicFloors>,
        settle: Option<Duration>,
        mut note: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        let mut state = self.world.state.lock().unwrap();
        state.settled.push(settle.is_some());
        let Some(topic) = topics.first() else { return Ok(()) };
        assert_eq!((&*topic.name, topics.len(), topic.floors.len()), (TOPIC, 1, 1));
        let floor = topic.floors[0];
        for (offset, message) in (floor..).zip(&state.landed[floor as usize..]) {
            let header = |name: &str| {
                let header = message.headers.iter().find(|header| &*header.name == name)?;
                header.value.as_deref()
            };
            note(Marks {
                position: header(POSITION_HEADER),
                id: header("id"),
                source: header(SOURCE_HEADER),
                replay: header(REPLAY_HEADER),
                topic: &message.topic,
                partition: 0,
                offset,
            });
        }
        let end = state.landed.len();
        state.read_back += end - floor as usize;
        self.places.push(place(floor, end as i64));
        Ok(())
    }

    fn places(&self) -> &[Place] {
        &self.places
    }

    fn allow(&mut self, places: usize) {
        self.allowed = places;
    }

    fn lane_of(&mut self, message: &Message) -> Result<Option<Lane>, String> {
        self.meet();
        if self.world.state.lock().unwrap().never.contains(&value(message)) {
            return Err("too large".to_owned());
        }
        let is_missing = self.world.state.lock().unwrap().missing.contains(&*message.topic);
        Ok((self.allowed > 0 && !is_missing).then_some(0))
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        if self.world.state.lock().unwrap().missing.contains(&*message.topic) {
            let detail = format!("topic {} is missing", message.topic).into();
            return Err(Unsent::Away { message: Box::new(message), detail });
        }
        self.meet();
        if self.allowed == 0 || self.ended || self.queue.len() >= 100 {
            return Err(Unsent::Full(Box::new(message)));
        }
        if self.world.state.lock().unwrap().never.contains(&value(&message)) {
            return Err(Unsent::Never { topic: message.topic, detail: "too large".into() });
        }
        self.world.state.lock().unwrap().queued += 1;
        self.queue.push((ticket, message));
        self.world.changed.notify_one();
        Ok(0)
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        loop {
            {
                let mut state = self.world.state.lock().unwrap();
                let held = state.hold_after.is_some_and(|limit| state.landed.len() >= limit);
                if !self.queue.is_empty() && !state.holding && !held {
                    let mut values = self.queue.iter().map(|(_, message)| value(message));
                    let spoilt = values.any(|value| state.spoil.contains(&value));
                    for (ticket, message) in self.queue.drain(..) {
                        let refused = state.reject.contains(&value(&message)) && !self.ended;
                        let result = if spoilt || refused {
                            Err(error(&message, DeliveryErrorKind::Rejected))
                        } else if self.ended {
                            Err(error(&message, DeliveryErrorKind::NotSent))
                        } else {
                            Ok(Landed { lane: 0, offset: Some(state.landed.len() as i64) })
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

    async fn close(self) {
        self.world.state.lock().unwrap().closing += 1;
        while self.world.state.lock().unwrap().keeping_open {
            self.world.changed.notified().await;
        }
    }
}

impl MemorySink {
    fn meet(&mut self) {
        if self.places.is_empty() {
            let end = self.world.state.lock().unwrap().landed.len() as i64;
            self.places.push(place(end, end));
        }
    }
}

fn place(start: i64, end: i64) -> Place {
    Place { topic: TOPIC.into(), topic_id: None, partition: 0, start, end }
}

fn error(message: &Message, kind: DeliveryErrorKind) -> DeliveryError {
    DeliveryError { kind, topic: message.topic.clone(), detail: "as the test has it".into() }
}
