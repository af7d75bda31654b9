//! Retries that may be in the sink or not, and what a start makes of them.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Value as Json, json};
use walpost_event::{Generation, Position};

use super::Aggregate;
use crate::{
    headers::parked_replay,
    published::Marks,
    sink::{Place, TopicFloors},
};

/// A row whose event may be in the sink.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) id: i64,
    pub(crate) generation: Generation,
    pub(crate) position: Position,
    /// Of those that keep an order.
    pub(crate) aggregate: Option<Aggregate>,
    pub(crate) floor: SendingFloor,
}

/// Where its record is, if it is anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendingFloor {
    topic: Arc<str>,
    topic_id: Option<Arc<str>>,
    partition: i32,
    /// At this offset or above it.
    offset: i64,
}

impl SendingFloor {
    pub(crate) fn new(place: &Place, offset: i64) -> Self {
        Self {
            topic: place.topic.clone(),
            topic_id: place.topic_id.clone(),
            partition: place.partition,
            offset,
        }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "topic": &*self.topic,
            "id": self.topic_id.as_deref(),
            "partition": self.partition,
            "offset": self.offset,
        })
    }

    /// Reads what [`to_json`](Self::to_json) wrote. `None` of anything else.
    pub(super) fn from_json(value: &Json) -> Option<Self> {
        let topic_id = match &value["id"] {
            Json::Null => None,
            Json::String(id) => Some(id.as_str().into()),
            _ => return None,
        };
        Some(Self {
            topic: value["topic"].as_str()?.into(),
            topic_id,
            partition: value["partition"].as_i64()?.try_into().ok()?,
            offset: value["offset"].as_i64()?,
        })
    }

    /// Lowers the floor of the partition to this one.
    fn lower(&self, topics: &mut Vec<TopicFloors>) {
        let Ok(partition) = usize::try_from(self.partition) else { return };
        let index = topics.iter().position(|topic| topic.name == self.topic).unwrap_or_else(|| {
            let (name, id) = (self.topic.clone(), self.topic_id.clone());
            topics.push(TopicFloors { name, id, floors: vec![0; partition] });
            topics.len() - 1
        });
        let topic = &mut topics[index];
        if let (Some(before), Some(now)) = (&self.topic_id, &topic.id)
            && before != now
        {
            // The record went with the topic that it was sent to.
            return;
        }
        match partition.cmp(&topic.floors.len()) {
            Ordering::Less => {
                let floor = &mut topic.floors[partition];
                *floor = self.offset.min(*floor);
            }
            Ordering::Equal => topic.floors.push(self.offset),
            // What is not named is read from its beginning.
            Ordering::Greater => {}
        }
    }
}

/// From where to read back so that the records of these are found, if they are
/// there.
pub(crate) fn lowered(mut topics: Vec<TopicFloors>, sending: &[Sending]) -> Vec<TopicFloors> {
    for one in sending {
        one.floor.lower(&mut topics);
    }
    topics
}

/// Which retries are found when the sink is read back.
#[derive(Debug, Default)]
pub(crate) struct Retried {
    /// By what their records say of themselves.
    wanted: HashMap<Bytes, i64>,
    found: BTreeSet<i64>,
}

impl Retried {
    pub(crate) fn new(sending: &[Sending]) -> Self {
        let says =
            |one: &Sending| parked_replay(one.id, one.generation, one.position).into_bytes().into();
        let wanted = sending.iter().map(|one| (says(one), one.id)).collect();
        Self { wanted, found: BTreeSet::new() }
    }

    /// Notes a record that was read back. It may be anybody's.
    pub(crate) fn note(&mut self, marks: &Marks<'_>) {
        if let Some(id) = marks.replay.and_then(|says| self.wanted.get(says)) {
            self.found.insert(*id);
        }
    }

    pub(crate) fn is_found(&self, id: i64) -> bool {
        self.found.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::Lsn;

    use super::*;

    fn sending(id: i64, topic: &str, topic_id: &str, partition: i32, offset: i64) -> Sending {
        let topic_id = Some(topic_id.into());
        Sending {
            id,
            generation: Generation::from(0x1f),
            position: Position { commit_lsn: Lsn::from(0x10), ordinal: 7 },
            aggregate: None,
            floor: SendingFloor { topic: topic.into(), topic_id, partition, offset },
        }
    }

    fn topic(name: &str, id: &str, floors: &[i64]) -> TopicFloors {
        TopicFloors { name: name.into(), id: Some(id.into()), floors: floors.to_vec() }
    }

    #[test]
    fn reading_starts_at_the_lowest_floor_of_each_partition() {
        let named = vec![topic("a", "x", &[5, 9])];
        let rows = [
            sending(1, "a", "x", 1, 7),
            sending(2, "a", "x", 1, 3),
            sending(3, "a", "x", 0, 6),
            sending(4, "a", "x", 2, 8),
            sending(5, "a", "x", 4, 8),
            sending(6, "a", "another", 0, 1),
            sending(7, "b", "y", 1, 4),
        ];
        assert_eq!(lowered(named, &rows), [topic("a", "x", &[5, 3, 8]), topic("b", "y", &[0, 4])]);
    }

    #[test]
    fn floors_come_back_from_the_row() {
        let floor = sending(1, "a", "x", 2, 3).floor;
        assert_eq!(SendingFloor::from_json(&floor.to_json()), Some(floor.clone()));
        let nameless = SendingFloor { topic_id: None, ..floor };
        assert_eq!(SendingFloor::from_json(&nameless.to_json()), Some(nameless));
        assert_eq!(SendingFloor::from_json(&json!({})), None);
    }

    #[test]
    fn a_retry_is_found_by_what_its_own_record_says() {
        let mut retried = Retried::new(&[sending(7, "a", "x", 0, 0), sending(8, "a", "x", 0, 0)]);
        let mut note = |says: Option<&str>| {
            let replay = Some(says.unwrap_or_default().as_bytes());
            retried.note(&Marks { replay, ..Marks::default() });
        };
        for says in
            [None, Some("1"), Some("parked:8:0000001f:0/10:6"), Some("parked:8:0000002f:0/10:7")]
        {
            note(says);
        }
        note(Some("parked:7:0000001f:0/10:7"));
        assert!(retried.is_found(7) && !retried.is_found(8));
    }
}
