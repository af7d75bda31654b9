use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};
use walpost_event::Lsn;

use crate::{
    ack::Ticket,
    sink::{Lane, Place, TopicFloors},
};

/// For each lane the lowest offset that may hold an event above the confirmed
/// position: what a successor reads back from.
///
/// Pure. An event is sent behind everything that is known to be there, so the
/// known end at that moment is a lower bound of its offset. A floor is the
/// lowest bound of the events above the confirmed position, and the known end
/// where there is none.
///
/// Memory is an entry for each run of events that were sent between two
/// acknowledgements of their lane.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    lanes: Vec<LaneFloor>,
    /// Up to here the stream may bring events that were read back, which stand
    /// below where anything is sent now: until then no floor may rise.
    hold_until: Lsn,
}

#[derive(Debug)]
struct LaneFloor {
    /// Where a successor would read from if this run did nothing.
    start: i64,
    known_end: i64,
    /// Rising in both; each entry is the lowest bound of the tickets up to it.
    bounds: VecDeque<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    last: Ticket,
    offset: i64,
}

impl Floors {
    /// Floors of a run that read events back which the stream brings up to
    /// `hold_until`.
    pub(crate) fn holding_until(hold_until: Lsn) -> Self {
        Self { lanes: Vec::new(), hold_until }
    }

    /// The next lane: read back from `start`, and everything below `end` is
    /// there.
    pub(crate) fn open(&mut self, start: i64, end: i64) {
        let lane = LaneFloor { start, known_end: end, bounds: VecDeque::new() };
        self.lanes.push(lane);
    }

    /// Lanes that are open.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Everything below this offset of the lane is there.
    pub(crate) fn known_end(&self, lane: Lane) -> Option<i64> {
        self.lanes.get(lane as usize).map(|lane| lane.known_end)
    }

    /// An event goes to the end of the lane.
    pub(crate) fn sent(&mut self, lane: Lane, ticket: Ticket) {
        let lane = &mut self.lanes[lane as usize];
        let offset = lane.known_end;
        match lane.bounds.back_mut() {
            // Confirmed before this one is: it never decides.
            Some(bound) if bound.offset == offset => bound.last = ticket,
            _ => lane.bounds.push_back(Bound { last: ticket, offset }),
        }
    }

    /// Whether the stream may still bring events that were read back.
    pub(crate) fn is_holding(&self, confirmed: Lsn) -> bool {
        confirmed < self.hold_until
    }

    /// Something is known to be at this offset.
    pub(crate) fn landed(&mut self, lane: Lane, offset: i64) {
        let lane = &mut self.lanes[lane as usize];
        lane.known_end = lane.known_end.max(offset + 1);
    }

    /// Lanes that may have the event with this ticket.
    pub(crate) fn lanes_of(&self, ticket: Ticket) -> impl Iterator<Item = usize> {
        let may_have =
            move |lane: &LaneFloor| lane.bounds.back().is_some_and(|bound| bound.last >= ticket);
        self.lanes.iter().enumerate().filter(move |(_, lane)| may_have(lane)).map(|(lane, _)| lane)
    }

    /// The floors that go with the confirmed position `confirmed`, above which
    /// `first_above` is the first ticket.
    pub(crate) fn at(&mut self, confirmed: Lsn, first_above: Ticket) -> Vec<i64> {
        let holding = self.is_holding(confirmed);
        self.lanes.iter_mut().map(|lane| lane.floor(first_above, holding)).collect()
    }
}

impl LaneFloor {
    fn floor(&mut self, first_above: Ticket, holding: bool) -> i64 {
        while self.bounds.front().is_some_and(|bound| bound.last < first_above) {
            self.bounds.pop_front();
        }
        let floor = self.bounds.front().map_or(self.known_end, |bound| bound.offset);
        if holding { floor.min(self.start) } else { floor }
    }
}

/// As the checkpoint's column has it: by topic its id and, by partition, the
/// floors.
pub(crate) fn to_json(places: &[Place], floors: &[i64]) -> Value {
    let mut topics: BTreeMap<&str, (Option<&str>, BTreeMap<i32, i64>)> = BTreeMap::new();
    for (place, floor) in places.iter().zip(floors) {
        let topic = topics.entry(&place.topic).or_default();
        topic.0 = place.topic_id.as_deref();
        topic.1.insert(place.partition, *floor);
    }
    let topics = topics.into_iter().map(|(name, (id, floors))| {
        let floors: Vec<i64> = floors.into_values().collect();
        (name.to_owned(), json!({ "id": id, "floors": floors }))
    });
    Value::Object(topics.collect())
}

/// Reads what [`to_json`] wrote. `None` of anything else.
pub(crate) fn from_json(value: &Value) -> Option<Vec<TopicFloors>> {
    let topic = |(name, topic): (&String, &Value)| {
        let id = match &topic["id"] {
            Value::Null => None,
            Value::String(id) => Some(Arc::from(id.as_str())),
            _ => return None,
        };
        let floors = topic["floors"].as_array()?;
        let floors = floors.iter().map(Value::as_i64).collect::<Option<_>>()?;
        Some(TopicFloors { name: name.as_str().into(), id, floors })
    };
    value.as_object()?.iter().map(topic).collect()
}

/// As [`to_json`] has it.
#[cfg(test)]
pub(crate) fn stored_json(topics: &[TopicFloors]) -> Value {
    let topic = |topic: &TopicFloors| {
        (topic.name.to_string(), json!({ "id": topic.id.as_deref(), "floors": topic.floors }))
    };
    Value::Object(topics.iter().map(topic).collect())
}

/// Adds a place that was found later, with where it begins, to what [`to_json`]
/// wrote. Whether it was not there.
pub(crate) fn add(floors: &mut Value, place: &Place) -> bool {
    let Some(topics) = floors.as_object_mut() else { return false };
    let topic = topics
        .entry(&*place.topic)
        .or_insert_with(|| json!({ "id": place.topic_id.as_deref(), "floors": [] }));
    let Some(floors) = topic["floors"].as_array_mut() else { return false };
    // Of a topic the places are found together; one that is left out is read
    // from its beginning.
    let is_next = usize::try_from(place.partition) == Ok(floors.len());
    if is_next {
        floors.push(json!(place.start));
    }
    is_next
}

/// The floors of `pair` for all topics that the pipeline knows: one that is
/// not among them is read from its beginning.
pub(crate) fn with_all_topics(pair: &Value, known: &[TopicFloors]) -> Value {
    let mut floors = pair.clone();
    if let Some(topics) = floors.as_object_mut() {
        for TopicFloors { name, id, .. } in known {
            let from_the_start = || json!({ "id": id.as_deref(), "floors": [] });
            topics.entry(&**name).or_insert_with(from_the_start);
        }
    }
    floors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_lane(end: i64) -> Floors {
        let mut floors = Floors::default();
        floors.open(end, end);
        floors
    }

    #[test]
    fn without_events_the_floor_is_the_known_end() {
        let mut floors = one_lane(7);
        assert_eq!(floors.at(Lsn::ZERO, 0), [7]);
        floors.landed(0, 9);
        assert_eq!(floors.at(Lsn::ZERO, 0), [10]);
    }

    #[test]
    fn an_event_above_the_position_keeps_the_floor_down_until_it_is_confirmed() {
        let mut floors = one_lane(0);
        floors.sent(0, 0);
        floors.landed(0, 0);
        floors.sent(0, 1);
        floors.landed(0, 1);
        assert_eq!(floors.at(Lsn::ZERO, 0), [0]);
        assert_eq!(floors.at(Lsn::ZERO, 1), [1]);
        assert_eq!(floors.at(Lsn::ZERO, 2), [2]);
    }

    #[test]
    fn nothing_rises_before_everything_read_back_is_confirmed() {
        let mut floors = Floors::holding_until(Lsn::from(100));
        floors.open(3, 9);
        floors.open(9, 9);
        assert_eq!(floors.at(Lsn::from(99), 0), [3, 9]);
        assert_eq!(floors.at(Lsn::from(100), 0), [9, 9]);
    }

    #[test]
    fn floors_come_back_from_the_checkpoint() {
        let place = |topic: &str, id: Option<&str>, partition| Place {
            topic: topic.into(),
            topic_id: id.map(Into::into),
            partition,
            start: 0,
            end: 0,
        };
        let places = [place("b", Some("x1"), 1), place("a", None, 0), place("b", Some("x1"), 0)];
        let read = from_json(&to_json(&places, &[7, 5, 6])).unwrap();
        let b = TopicFloors { name: "b".into(), id: Some("x1".into()), floors: vec![6, 7] };
        assert_eq!(read, [TopicFloors { name: "a".into(), id: None, floors: vec![5] }, b]);
        assert_eq!(from_json(&json!({})), Some(Vec::new()));
        for value in [
            json!(null),
            json!([]),
            json!({ "a": { "id": 1, "floors": [] } }),
            json!({ "a": { "id": null } }),
            json!({ "a": { "id": null, "floors": ["1"] } }),
        ] {
            assert_eq!(from_json(&value), None, "{value}");
        }
    }

    #[test]
    fn a_place_is_added_once_and_in_its_turn() {
        let place = |topic: &str, partition, start| Place {
            topic: topic.into(),
            topic_id: None,
            partition,
            start,
            end: 99,
        };
        let mut floors = json!({ "a": { "id": "x", "floors": [5] } });
        assert!(!add(&mut floors, &place("a", 0, 7)));
        assert!(add(&mut floors, &place("a", 1, 0)) && add(&mut floors, &place("b", 0, 9)));
        assert!(!add(&mut floors, &place("b", 2, 9)), "read from its beginning");
        let expected = json!({
            "a": { "id": "x", "floors": [5, 0] },
            "b": { "id": null, "floors": [9] },
        });
        assert_eq!(floors, expected);
    }

    #[test]
    fn a_topic_that_a_pair_does_not_know_is_read_from_its_beginning() {
        let topic = |name: &str| TopicFloors { name: name.into(), id: None, floors: vec![7] };
        let pair = json!({ "a": { "id": null, "floors": [5] } });
        let all = with_all_topics(&pair, &[topic("a"), topic("b")]);
        let expected = json!({
            "a": { "id": null, "floors": [5] },
            "b": { "id": null, "floors": [] },
        });
        assert_eq!(all, expected);
    }

    proptest! {
        /// Against the definition: the lowest true offset of all events at or
        /// above the first ticket is never below the floor.
        #[test]
        fn no_event_above_the_position_is_below_its_floor(
            steps in prop::collection::vec((0_u8..2, 0_i64..4, 0_u64..4), 1..200)
        ) {
            let mut floors = one_lane(0);
            let (mut end, mut ticket, mut first_above) = (0_i64, 0_u64, 0_u64);
            let mut offsets: Vec<i64> = Vec::new();
            for (step, foreign, passed) in steps {
                match step {
                    // Sent, and lands behind what others wrote meanwhile.
                    0 => {
                        floors.sent(0, ticket);
                        end += foreign;
                        offsets.push(end);
                        end += 1;
                        ticket += 1;
                    }
                    // Something is acknowledged.
                    _ if end > 0 => floors.landed(0, end - 1),
                    _ => {}
                }
                first_above = (first_above + passed).min(ticket);
                let floor = floors.at(Lsn::ZERO, first_above)[0];
                let lowest = offsets[first_above as usize..].iter().min();
                prop_assert!(lowest.is_none_or(|lowest| floor <= *lowest));
                prop_assert!(floor <= end);
            }
        }
    }
}
