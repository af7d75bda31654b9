use std::{
    collections::HashMap,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use walpost_event::Message;
use walpost_relay::Place;

use crate::{
    deliveries::{Found, Origin, Unusable},
    lane::{Lane, LaneId},
    topic::TopicLimits,
};

/// Index of a topic within one sink.
pub(crate) type TopicId = usize;

/// Why a message is not sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It may be later.
    Later,
    /// Its topic cannot be used now, and why; others can.
    Away(Arc<str>),
    /// It never will be, and why.
    Never(String),
}

/// The topics of one sink, and the lanes of their partitions.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: Vec<Topic>,
    lanes: Vec<Lane>,
    /// By lane.
    places: Vec<Place>,
    /// Lanes below this may be used.
    allowed: usize,
    by_name: HashMap<Arc<str>, TopicId>,
    /// That of the last message: most often the next one's as well.
    last: Option<TopicId>,
}

#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    id: Option<Arc<str>>,
    /// By partition.
    lanes: Vec<LaneId>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Being asked for, with the reason why that takes long.
    Asked { trouble: Option<Unusable> },
    /// Usable.
    Known { limits: TopicLimits, keyless: u32 },
}

impl Topics {
    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn find(&mut self, name: &Arc<str>) -> Option<TopicId> {
        if let Some(last) = self.last
            && Arc::ptr_eq(&self.topics[last].name, name)
        {
            return Some(last);
        }
        let found = self.by_name.get(name).copied()?;
        // Equal names of one origin are one allocation, so that the next
        // comparison is one of pointers.
        self.topics[found].name = name.clone();
        self.last = Some(found);
        Some(found)
    }

    /// Adds a topic that is being asked for.
    pub(crate) fn add(&mut self, name: Arc<str>) {
        self.by_name.insert(name.clone(), self.topics.len());
        let state = State::Asked { trouble: None };
        self.topics.push(Topic { name, id: None, lanes: Vec::new(), state });
    }

    /// Adds a topic that was read back and is being asked for.
    pub(crate) fn add_read(&mut self, name: Arc<str>, origin: &Origin) {
        self.add(name);
        self.add_lanes(self.topics.len() - 1, origin.spans.len(), Some(origin));
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The first `lanes` may be used.
    pub(crate) fn allow(&mut self, lanes: usize) {
        self.allowed = self.allowed.max(lanes);
    }

    /// Takes an answer of the brokers; whether it is news to be told.
    pub(crate) fn answered(&mut self, name: &str, answer: Result<Found, Unusable>) -> bool {
        let Some(id) = self.by_name.get(name).copied() else { return false };
        match (&mut self.topics[id].state, answer) {
            (_, Ok(found)) => {
                self.learn(id, &found);
                false
            }
            (State::Asked { trouble }, Err(reason)) => {
                trouble.replace(reason.clone()).is_none_or(|before| before != reason)
            }
            // What is known stays: a delivery will tell if it holds no longer.
            (State::Known { .. }, Err(_)) => false,
        }
    }

    fn learn(&mut self, id: TopicId, found: &Found) {
        let new = found.limits;
        match &mut self.topics[id].state {
            State::Known { limits, .. } => *limits = new,
            state @ State::Asked { .. } => *state = State::Known { limits: new, keyless: 0 },
        }
        let partitions = usize::try_from(new.partitions).unwrap_or_default();
        self.add_lanes(id, partitions, found.origin.as_ref());
    }

    /// New partitions get lanes; a topic never has fewer than before. Where
    /// nothing is known of a new one, it counts from its beginning.
    fn add_lanes(&mut self, id: TopicId, partitions: usize, origin: Option<&Origin>) {
        let topic = &mut self.topics[id];
        if topic.lanes.is_empty() {
            topic.id = origin.and_then(|origin| origin.id.clone());
        }
        for partition in topic.lanes.len()..partitions {
            let span = origin.and_then(|origin| origin.spans.get(partition));
            let (start, end) = span.copied().unwrap_or_default();
            let number = partition as i32;
            topic.lanes.push(self.lanes.len() as LaneId);
            self.lanes.push(Lane::new(id, number));
            self.places.push(Place {
                topic: topic.name.clone(),
                topic_id: topic.id.clone(),
                partition: number,
                start,
                end,
            });
        }
    }

    /// The lane of a message with that many bytes, if one may be sent there.
    pub(crate) fn place(
        &mut self,
        id: TopicId,
        message: &Message,
        record_bytes: usize,
        now: impl FnOnce() -> Instant,
    ) -> Result<LaneId, Refusal> {
        let topic = &self.topics[id];
        let (limits, keyless) = match &topic.state {
            State::Known { limits, keyless } => (limits, keyless),
            State::Asked { trouble: Some(trouble) } if trouble.is_its_own => {
                return Err(Refusal::Away(trouble.reason.clone()));
            }
            State::Asked { .. } => return Err(Refusal::Later),
        };
        limits.check_size(record_bytes).map_err(Refusal::Never)?;
        limits.rules.check(message, now_ms).map_err(Refusal::Never)?;
        let partition = limits.partition(message, *keyless).map_err(Refusal::Never)?;
        let lane = topic.lanes[partition as usize];
        let may_send = (lane as usize) < self.allowed && self.lanes[lane as usize].may_send(now);
        if may_send { Ok(lane) } else { Err(Refusal::Later) }
    }

    /// Another producer sends to this topic from now on.
    pub(crate) fn begin_anew(&mut self, name: &str) {
        let Some(id) = self.by_name.get(name) else { return };
        for lane in &self.topics[*id].lanes {
            self.lanes[*lane as usize].begin_anew();
        }
    }

    /// Whether the brokers tell the settings of a lane's topic.
    pub(crate) fn are_told(&self, lane: LaneId) -> bool {
        match &self.topics[self.lanes[lane as usize].topic].state {
            State::Known { limits, .. } => limits.are_told(),
            State::Asked { .. } => true,
        }
    }

    /// The name of a lane's topic.
    pub(crate) fn name(&self, lane: LaneId) -> &Arc<str> {
        &self.topics[self.lanes[lane as usize].topic].name
    }

    /// A message is on its way.
    pub(crate) fn sent(&mut self, lane: LaneId, message: &Message) {
        let lane = &mut self.lanes[lane as usize];
        lane.sent();
        if message.key.is_none()
            && let State::Known { keyless, .. } = &mut self.topics[lane.topic].state
        {
            *keyless = keyless.wrapping_add(1);
        }
    }

    pub(crate) fn lane(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.lanes[lane as usize]
    }

    /// The largest batch that the topic of a lane takes, where that is known.
    pub(crate) fn max_batch_bytes(&self, lane: LaneId) -> Option<usize> {
        match &self.topics[self.lanes[lane as usize].topic].state {
            State::Known { limits, .. } => limits.max_message_bytes.told(),
            State::Asked { .. } => None,
        }
    }

    /// What keeps topics from being used: the reason of the first, and how
    /// many more there are.
    pub(crate) fn trouble(&self) -> Option<String> {
        let mut reasons = self.topics.iter().filter_map(|topic| match &topic.state {
            State::Asked { trouble } => trouble.as_ref().map(|trouble| &trouble.reason),
            State::Known { .. } => None,
        });
        let first = reasons.next()?;
        Some(match reasons.count() {
            0 => first.to_string(),
            more => format!("{first} (and {more} more of the kind)"),
        })
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use walpost_event::{Bytes, Headers};

    use super::*;
    use crate::{rules::Rules, topic::MaxMessageBytes};

    fn message(topic: &str, key: Option<&'static str>) -> Message {
        Message {
            topic: topic.into(),
            partition: None,
            key: key.map(|key| Bytes::from_static(key.as_bytes())),
            value: None,
            headers: Headers::new(),
            timestamp_ms: None,
        }
    }

    fn limits(partitions: i32) -> TopicLimits {
        let max_message_bytes = MaxMessageBytes::Told(1_000);
        TopicLimits { partitions, max_message_bytes, rules: Rules::default() }
    }

    fn found(partitions: i32) -> Found {
        Found { limits: limits(partitions), origin: None }
    }

    fn place(topics: &mut Topics, message: &Message) -> Result<LaneId, Refusal> {
        let id = topics.find(&message.topic).unwrap();
        topics.allow(topics.places().len());
        topics.place(id, message, message.size_bytes(), Instant::now)
    }

    #[test]
    fn a_place_is_used_once_it_is_allowed_and_tells_where_it_was_met() {
        let mut topics = Topics::default();
        topics.add_read("a".into(), &Origin { id: Some("x".into()), spans: vec![(3, 9)] });
        let span = |place: &Place| (place.partition, place.start, place.end);
        assert_eq!(topics.places().iter().map(span).collect::<Vec<_>>(), [(0, 3, 9)]);
        topics.answered("a", Ok(found(2)));
        let spans: Vec<_> = topics.places().iter().map(span).collect();
        assert_eq!(spans, [(0, 3, 9), (1, 0, 0)], "a new partition counts from its beginning");
        let mut message = message("a", Some("k"));
        message.partition = Some(1);
        topics.allow(1);
        let (id, size) = (topics.find(&message.topic).unwrap(), message.size_bytes());
        assert_eq!(topics.place(id, &message, size, Instant::now), Err(Refusal::Later));
        topics.allow(2);
        assert_eq!(topics.place(id, &message, size, Instant::now), Ok(1));
    }

    #[test]
    fn a_topic_is_found_by_its_name_whatever_holds_the_name() {
        let mut topics = Topics::default();
        for name in ["a", "b"] {
            assert_eq!(topics.find(&name.into()), None);
            topics.add(name.into());
        }
        for (name, id) in [("a", 0), ("b", 1), ("b", 1), ("a", 0)] {
            assert_eq!(topics.find(&name.into()), Some(id));
        }
        let name: Arc<str> = "b".into();
        assert_eq!((topics.find(&name), topics.find(&name)), (Some(1), Some(1)));
        assert_eq!(topics.find(&"c".into()), None);
    }

    #[test]
    fn nothing_is_sent_before_the_answer_and_the_trouble_is_that_of_the_topic() {
        let mut topics = Topics::default();
        topics.add("a".into());
        topics.add("b".into());
        let message = message("a", Some("k"));
        assert_eq!(place(&mut topics, &message), Err(Refusal::Later));
        assert_eq!(topics.trouble(), None);
        let unusable = |reason: &str, is_its_own| Unusable {
            reason: reason.into(),
            is_its_own,
            is_missing: is_its_own,
        };
        assert!(topics.answered("a", Err(unusable("no answer", false))), "news");
        assert_eq!(place(&mut topics, &message), Err(Refusal::Later), "of all topics, perhaps");
        assert!(topics.answered("a", Err(unusable("a is missing", true))), "news");
        assert!(!topics.answered("a", Err(unusable("a is missing", true))), "told already");
        assert_eq!(place(&mut topics, &message), Err(Refusal::Away("a is missing".into())));
        assert!(topics.answered("b", Err(unusable("b is missing", true))));
        assert_eq!(topics.trouble().unwrap(), "a is missing (and 1 more of the kind)");
        topics.answered("a", Ok(found(1)));
        assert_eq!(topics.trouble().unwrap(), "b is missing");
        assert_eq!(place(&mut topics, &message), Ok(0));
        assert!(!topics.answered("a", Err(unusable("away", true))), "what is known stays");
        assert_eq!(place(&mut topics, &message), Ok(0));
    }

    #[test]
    fn partitions_that_are_added_get_lanes_of_their_own() {
        let mut topics = Topics::default();
        for name in ["a", "b"] {
            topics.add(name.into());
            topics.answered(name, Ok(found(2)));
        }
        topics.answered("a", Ok(found(3)));
        let mut placed = message("a", Some("k"));
        let lanes: Vec<LaneId> = (0..3)
            .map(|partition| {
                placed.partition = Some(partition);
                place(&mut topics, &placed).unwrap()
            })
            .collect();
        assert_eq!(lanes, [0, 1, 4]);
        assert_eq!((topics.lane(4).topic, topics.lane(4).partition), (0, 2));
        assert_eq!(topics.max_batch_bytes(4), Some(1_000));
    }

    #[test]
    fn records_without_a_key_move_on_only_when_they_are_sent() {
        let mut topics = Topics::default();
        topics.add("a".into());
        topics.answered("a", Ok(found(2)));
        let message = message("a", None);
        for _ in 0..200 {
            assert_eq!(place(&mut topics, &message), Ok(0), "offered, and not sent");
        }
        for _ in 0..64 {
            topics.sent(0, &message);
        }
        assert_eq!(place(&mut topics, &message), Ok(1));
    }
}
