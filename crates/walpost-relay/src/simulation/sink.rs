use std::{sync::Arc, time::Duration};

use walpost_event::Message;

use super::{
    brokers::{Sent, header},
    schedule::{Fault, Kind, PARTITIONS},
    world::{State, World},
};
use crate::{
    ack::Ticket,
    error::RelayError,
    headers::{ID_HEADER, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER},
    published::Marks,
    sink::{Delivery, DeliveryError, Landed, Lane, NoteMarks, Place, Sink, TopicFloors, Unsent},
};

/// One producer of the brokers.
pub(super) struct Producer {
    world: World,
    session: u32,
    topics: Vec<Topic>,
    places: Vec<Place>,
    allowed: usize,
    outstanding: usize,
    has_failed: bool,
}

struct Topic {
    name: Arc<str>,
    /// When the brokers tell its partitions; none where they are known.
    answered_ms: Option<u64>,
    first_lane: usize,
}

impl Producer {
    pub(super) fn connect(world: &World) -> Self {
        let session = world.lock().brokers.connect();
        Self {
            world: world.clone(),
            session,
            topics: Vec::new(),
            places: Vec::new(),
            allowed: 0,
            outstanding: 0,
            has_failed: false,
        }
    }

    fn add_places(&mut self, name: &Arc<str>, spans: [(i64, i64); PARTITIONS]) {
        for ((start, end), partition) in spans.into_iter().zip(0..) {
            let topic_id = Some("id".into());
            self.places.push(Place { topic: name.clone(), topic_id, partition, start, end });
        }
    }

    /// The lane of a message, if its topic is known and may be used.
    fn lane(&mut self, state: &mut State, message: &Message) -> Option<usize> {
        let Some(topic) = self.topics.iter().find(|topic| topic.name == message.topic) else {
            let answered_ms = Some(state.now_ms + state.brokers.delay_ms());
            let (name, first_lane) = (message.topic.clone(), 0);
            self.topics.push(Topic { name, answered_ms, first_lane });
            return None;
        };
        if topic.answered_ms.is_some() {
            return None;
        }
        let lane = topic.first_lane + partition(message);
        (lane < self.allowed).then_some(lane)
    }

    /// Whether there is news of topics.
    fn learn(&mut self, state: &State) -> bool {
        let mut is_news = false;
        for index in 0..self.topics.len() {
            let topic = &mut self.topics[index];
            if topic.answered_ms.is_none_or(|at_ms| at_ms > state.now_ms) {
                continue;
            }
            topic.answered_ms = None;
            topic.first_lane = self.places.len();
            let name = topic.name.clone();
            let spans = std::array::from_fn(|partition| {
                let end = state.brokers.end(place(&name, partition));
                (end, end)
            });
            self.add_places(&name, spans);
            is_news = true;
        }
        is_news
    }

    fn settle(&mut self, state: &mut State, deliveries: &mut Vec<Delivery>) -> bool {
        let told = state.brokers.tell(state.now_ms, self.session);
        let is_news = !told.is_empty();
        for told in told {
            self.outstanding -= 1;
            if told.result.is_err() && !self.has_failed {
                self.has_failed = true;
                state.brokers.give_up(state.now_ms, self.session);
            }
            let lane = self
                .places
                .iter()
                .position(|of| place(&of.topic, of.partition as usize) == told.place);
            let lane = lane.expect("a place that something was sent to") as Lane;
            let result = told.result.map(|offset| Landed { lane, offset });
            let result = result.map_err(|kind| DeliveryError {
                kind,
                topic: self.places[lane as usize].topic.clone(),
                detail: "as the schedule has it".into(),
            });
            deliveries.push(Delivery { ticket: told.ticket, result });
        }
        is_news
    }

    /// Reads one partition to its end of now.
    fn read(&self, topic: &str, partition: usize, from: i64, note: &mut NoteMarks) -> i64 {
        let state = self.world.lock();
        let place = place(topic, partition);
        for headers in state.brokers.records(place, from) {
            note(Marks {
                position: header(headers, POSITION_HEADER),
                id: header(headers, ID_HEADER),
                source: header(headers, SOURCE_HEADER),
                replay: header(headers, REPLAY_HEADER),
            });
        }
        state.brokers.end(place)
    }
}

impl Sink for Producer {
    async fn read_back(
        &mut self,
        topics: Vec<TopicFloors>,
        settle: Option<Duration>,
        mut note: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        let world = self.world.clone();
        let is_failing = {
            let mut state = world.lock();
            let number = state.read_backs;
            state.read_backs += 1;
            let fails =
                |fault: &Fault| matches!(fault, Fault::ReadBack { number: of } if *of == number);
            state.schedule.faults.iter().any(fails)
        };
        let spans = |topic: &TopicFloors| -> [(i64, i64); PARTITIONS] {
            std::array::from_fn(|partition| {
                let floor = topic.floors.get(partition).copied().unwrap_or_default();
                (floor, floor)
            })
        };
        let mut read: Vec<_> =
            topics.iter().map(|topic| (topic.name.clone(), spans(topic))).collect();
        for pass in 0..2 {
            for (name, spans) in &mut read {
                for (partition, span) in spans.iter_mut().enumerate() {
                    let delay_ms = world.lock().brokers.delay_ms() / 8;
                    world.pass(delay_ms).await;
                    span.1 = self.read(name, partition, span.1, &mut note);
                }
            }
            match settle {
                Some(settle) if pass == 0 => world.pass(settle.as_millis() as u64).await,
                _ => break,
            }
        }
        if is_failing {
            let detail = "the brokers do not answer".to_owned();
            return Err(RelayError::Sink { detail, transient: true });
        }
        for (name, spans) in read {
            let first_lane = self.places.len();
            self.add_places(&name, spans);
            self.topics.push(Topic { name, answered_ms: None, first_lane });
        }
        Ok(())
    }

    fn places(&self) -> &[Place] {
        &self.places
    }

    fn allow(&mut self, places: usize) {
        self.allowed = self.allowed.max(places);
    }

    fn lane_of(&mut self, _: &Message) -> Result<Option<Lane>, String> {
        unreachable!("nobody asks for a parked event to be sent on")
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        let world = self.world.clone();
        let mut state = world.lock();
        let max = state.schedule.settings.queue_max_events;
        let lane = self.lane(&mut state, &message).filter(|_| !self.has_failed);
        let Some(lane) = lane.filter(|_| self.outstanding < max) else {
            return Err(Unsent::Full(Box::new(message)));
        };
        let event = event(&message);
        let kind = state.oracle.kind(event);
        if kind == Kind::Unsendable {
            let detail = "as the schedule has it".to_owned();
            return Err(Unsent::Never { topic: message.topic, detail });
        }
        if !state.rows.names(&message.topic) {
            state.oracle.wrong(format_args!("e{event} goes where no checkpoint leads to"));
        }
        let (now_ms, max) = (state.now_ms, state.schedule.settings.batch_max_events);
        let place = place(&message.topic, partition(&message));
        let is_refused = kind == Kind::Refused;
        let sent = Sent { ticket, event, is_refused, headers: message.headers };
        state.brokers.send(now_ms, self.session, place, sent, max);
        self.outstanding += 1;
        Ok(lane as Lane)
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        let world = self.world.clone();
        loop {
            let next_ms = {
                let mut state = world.lock();
                let (is_told, is_learnt) =
                    (self.settle(&mut state, deliveries), self.learn(&state));
                if is_told || is_learnt {
                    return;
                }
                let answers = self.topics.iter().filter_map(|topic| topic.answered_ms);
                answers.chain(state.brokers.tells(self.session)).min()
            };
            match next_ms {
                Some(next_ms) => world.until(next_ms).await,
                None => std::future::pending().await,
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn close(self) {}
}

impl Drop for Producer {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let now_ms = state.now_ms;
        state.brokers.abandon(now_ms, self.session);
    }
}

/// The place of a partition of `outbox.event.t1`.
fn place(topic: &str, partition: usize) -> usize {
    number(topic.as_bytes()) * PARTITIONS + partition
}

/// By the key, which is `a4`.
fn partition(message: &Message) -> usize {
    number(message.key.as_deref().unwrap_or_default()) / 2 % PARTITIONS
}

fn event(message: &Message) -> usize {
    let id = header(&message.headers, ID_HEADER).unwrap_or_default();
    std::str::from_utf8(&id[1..]).ok().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The digit at the end.
fn number(text: &[u8]) -> usize {
    usize::from(text.last().copied().unwrap_or(b'0') - b'0')
}
