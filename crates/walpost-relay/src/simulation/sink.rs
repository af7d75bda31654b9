use std::{collections::BTreeSet, sync::Arc, time::Duration};

use walpost_event::Message;

use super::{
    Bug,
    brokers::{Sent, header},
    has,
    schedule::{Fault, Kind, Mode, NAMES, PARTITIONS},
    world::{State, World},
};
use crate::{
    ack::Ticket,
    error::RelayError,
    headers::{ID_HEADER, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER},
    published::Marks,
    sink::{
        Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, NoteMarks, Place, Sink,
        TopicFloors, Unsent,
        transaction::{Transaction, TransactionOutcome},
    },
};

/// By which producers can be fenced off.
const FENCE_IDS: [&str; NAMES] = ["shop-0", "shop-1", "shop-2", "shop-3"];
/// Between two looks whether the fate of all records is known.
const LOOK_MS: u64 = 7;

/// One producer of the brokers.
pub(super) struct Producer {
    world: World,
    session: u32,
    mode: Mode,
    /// Where it writes in transactions.
    transaction: Option<Transaction>,
    topics: Vec<Topic>,
    places: Vec<Place>,
    allowed: usize,
    outstanding: usize,
    has_failed: bool,
    /// By themselves go the events of these.
    apart: BTreeSet<Arc<str>>,
    /// As another producer, and of which topic one is on its way.
    beside: (u32, Option<Arc<str>>),
}

struct Topic {
    name: Arc<str>,
    /// When the brokers tell its partitions; none where they are known.
    answered_ms: Option<u64>,
    first_lane: usize,
}

impl Producer {
    pub(super) async fn connect(world: &World, mode: Mode) -> Self {
        let delay_ms = world.lock().brokers.delay_ms();
        world.pass(delay_ms / 4).await;
        let mut state = world.lock();
        let session = state.brokers.connect(mode);
        let beside = state.brokers.connect(Mode::Idempotent);
        let interval = Duration::from_millis(state.schedule.settings.commit_interval_ms);
        drop(state);
        Self {
            world: world.clone(),
            session,
            mode,
            transaction: (mode != Mode::Idempotent).then(|| Transaction::new(interval)),
            topics: Vec::new(),
            places: Vec::new(),
            allowed: 0,
            outstanding: 0,
            has_failed: false,
            apart: BTreeSet::new(),
            beside: (beside, None),
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
        let mut told = state.brokers.tell(state.now_ms, self.session);
        let mut apart = state.brokers.tell(state.now_ms, self.beside.0);
        let is_news = !told.is_empty() || !apart.is_empty();
        if let Some(refused) = apart.pop_if(|told| told.result == Err(DeliveryErrorKind::Rejected))
        {
            self.outstanding -= 1;
            self.beside = (state.brokers.connect(Mode::Idempotent), None);
            let (kind, detail) = (DeliveryErrorKind::RefusedAlone, "as the schedule has it".into());
            let error = DeliveryError { kind, topic: topic_of(refused.place), detail };
            deliveries.push(Delivery { ticket: refused.ticket, result: Err(error) });
        }
        if !apart.is_empty() {
            self.beside.1 = None;
        }
        told.append(&mut apart);
        for told in told {
            self.outstanding -= 1;
            if told.result.is_err() && !self.has_failed {
                self.has_failed = true;
                if self.transaction.is_none() {
                    state.brokers.give_up(state.now_ms, self.session);
                    state.brokers.give_up(state.now_ms, self.beside.0);
                }
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
            let delivery = Delivery { ticket: told.ticket, result };
            match &mut self.transaction {
                Some(transaction) => transaction.take(delivery, deliveries),
                None => deliveries.push(delivery),
            }
        }
        is_news
    }

    /// Ends the transaction when it is time, and takes note of how it ended.
    fn advance(
        &mut self,
        state: &mut State,
        outcome: Option<TransactionOutcome>,
        deliveries: &mut Vec<Delivery>,
    ) -> bool {
        let Some(transaction) = &mut self.transaction else { return false };
        let is_news = outcome.is_some();
        if let Some(outcome) = outcome {
            self.has_failed |= outcome != TransactionOutcome::Committed;
            if matches!(outcome, TransactionOutcome::Lost(_)) {
                state.brokers.give_up(state.now_ms, self.session);
            }
            transaction.ended(outcome, deliveries);
        }
        let now = World::instant();
        if let Some(decision) = transaction.due(now, self.outstanding, self.has_failed) {
            state.brokers.end_transaction(state.now_ms, self.session, decision);
        }
        is_news
    }

    /// Reads one partition to its end of now.
    async fn read(&self, topic: &str, partition: usize, from: i64, note: &mut NoteMarks) -> i64 {
        let place = place(topic, partition);
        let end = self.world.lock().brokers.end(place);
        loop {
            if let Some(records) = self.world.lock().brokers.committed(place, from, end) {
                for headers in records {
                    note(Marks {
                        position: header(headers, POSITION_HEADER),
                        id: header(headers, ID_HEADER),
                        source: header(headers, SOURCE_HEADER),
                        replay: header(headers, REPLAY_HEADER),
                        topic,
                        ..Marks::default()
                    });
                }
                return end;
            }
            self.world.pass(LOOK_MS).await;
        }
    }
}

impl Sink for Producer {
    fn fence_id(&self) -> Option<&str> {
        match self.mode {
            Mode::Idempotent => None,
            Mode::Transactional { name } => Some(FENCE_IDS[name]),
        }
    }

    async fn fence(&mut self, predecessor: &str) -> Result<(), RelayError> {
        if self.fence_id() != Some(predecessor) {
            let delay_ms = self.world.lock().brokers.delay_ms();
            self.world.pass(delay_ms).await;
            self.world.lock().brokers.fence(number(predecessor.as_bytes()));
        }
        Ok(())
    }

    async fn read_back(
        &mut self,
        topics: Vec<TopicFloors>,
        settle: Option<Duration>,
        mut note: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        let world = self.world.clone();
        let fault = {
            let mut state = world.lock();
            let number = state.read_backs;
            state.read_backs += 1;
            let of = |fault: &Fault| match fault {
                Fault::ReadBack { number: of, denied } if *of == number => Some(*denied),
                _ => None,
            };
            state.schedule.faults.iter().find_map(of)
        };
        let is_believed = has(Bug::BelieveDenial) && fault.is_some_and(|denied| denied);
        let spans = |topic: &TopicFloors| -> [(i64, i64); PARTITIONS] {
            std::array::from_fn(|partition| {
                let floor = topic.floors.get(partition).copied().unwrap_or_default();
                (floor, floor)
            })
        };
        let exist = topics.iter().take(if is_believed { 0 } else { topics.len() });
        let mut read: Vec<_> = exist.map(|topic| (topic.name.clone(), spans(topic))).collect();
        for pass in 0..2 {
            for (name, spans) in &mut read {
                for (partition, span) in spans.iter_mut().enumerate() {
                    let delay_ms = world.lock().brokers.delay_ms() / 8;
                    world.pass(delay_ms).await;
                    span.1 = self.read(name, partition, span.1, &mut note).await;
                }
            }
            match settle {
                Some(settle) if pass == 0 => world.pass(settle.as_millis() as u64).await,
                _ => break,
            }
        }
        if fault.is_some() && !is_believed {
            let detail = "the brokers do not answer, or not with one voice".to_owned();
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

    fn set_apart(&mut self, topic: &Arc<str>, apart: bool) -> bool {
        if self.mode != Mode::Idempotent {
            return false;
        }
        if apart {
            self.apart.insert(topic.clone());
        } else if self.beside.1.as_ref() != Some(topic) {
            self.apart.remove(topic);
        }
        self.apart.contains(topic)
    }

    fn lane_of(&mut self, _: &Message) -> Result<Option<Lane>, String> {
        unreachable!("nobody asks for a parked event to be sent on")
    }

    fn hurry(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.hurry();
        }
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        let world = self.world.clone();
        let mut state = world.lock();
        let max = state.schedule.settings.queue_max_events;
        let may_send = self.transaction.as_ref().is_none_or(Transaction::may_send);
        let lane = self.lane(&mut state, &message).filter(|_| !self.has_failed && may_send);
        let is_apart = self.apart.contains(&message.topic);
        let is_busy = is_apart && self.beside.1.is_some();
        let Some(lane) = lane.filter(|_| self.outstanding < max && !is_busy) else {
            let message = Box::new(message);
            return Err(if is_apart { Unsent::Apart(message) } else { Unsent::Full(message) });
        };
        let event = event(&message);
        let kind = state.oracle.kind(event);
        if kind == Kind::Unsendable {
            let detail = "as the schedule has it".to_owned();
            return Err(Unsent::Never { topic: message.topic, detail });
        }
        let pipeline = world.pipeline;
        if !state.rows[pipeline].names(&message.topic) {
            state.oracle.wrong(format_args!("e{event} goes where no checkpoint leads to"));
        }
        let (now_ms, max) = (state.now_ms, state.schedule.settings.batch_max_events);
        let place = place(&message.topic, partition(&message));
        let is_refused = kind == Kind::Refused;
        let (event, headers) = ((pipeline, event), message.headers);
        let sent = Sent { ticket, event, is_refused, headers };
        let session = if is_apart { self.beside.0 } else { self.session };
        state.brokers.send(now_ms, session, self.mode, place, sent, max);
        if is_apart {
            self.beside.1 = Some(message.topic);
        }
        self.outstanding += 1;
        if let Some(transaction) = &mut self.transaction {
            transaction.sent(World::instant);
        }
        Ok(lane as Lane)
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        let world = self.world.clone();
        loop {
            let next_ms = {
                let mut state = world.lock();
                let (now_ms, session) = (state.now_ms, self.session);
                // Before what is told of records, which all comes before it.
                let outcome = state.brokers.ended(now_ms, session);
                let (is_told, is_learnt) =
                    (self.settle(&mut state, deliveries), self.learn(&state));
                let has_ended = self.advance(&mut state, outcome, deliveries);
                if is_told || is_learnt || has_ended {
                    return;
                }
                let answers = self.topics.iter().filter_map(|topic| topic.answered_ms);
                let due_in = self.transaction.as_ref().and_then(|one| one.due_in(World::instant()));
                let due_ms = due_in.map(|due_in| now_ms + due_in.as_millis() as u64 + 1);
                let told = [session, self.beside.0].map(|session| state.brokers.tells(session));
                answers.chain(told.into_iter().flatten()).chain(due_ms).min()
            };
            match next_ms {
                Some(next_ms) => world.until(next_ms).await,
                None => std::future::pending().await,
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.outstanding + self.transaction.as_ref().map_or(0, Transaction::held)
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
        state.brokers.abandon(now_ms, self.session, self.mode);
        state.brokers.abandon(now_ms, self.beside.0, Mode::Idempotent);
    }
}

fn topic_of(place: usize) -> Arc<str> {
    format!("outbox.event.t{}", place / PARTITIONS).into()
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
