use std::{fmt, sync::Arc};

use walpost_event::{Bytes, Header, Headers, Message};

use crate::{
    partitions::Partitions,
    record::{Expected, Observed},
};

/// One for each start of a task of Debezium's: any UUID.
const RUN_ID: &str = "__debezium.context.runId";
const UUID_BYTES: usize = 36;

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// The topic.
    Topic,
    /// The partition.
    Partition,
    /// The place among the records of the partition.
    Order,
    /// The key.
    Key,
    /// The value.
    Value,
    /// The timestamp, in milliseconds since 1970.
    Timestamp,
    /// The names of the headers, in order.
    HeaderNames,
    /// The value of the header with this name.
    Header(Arc<str>),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Order => "order",
            Self::Key => "key",
            Self::Value => "value",
            Self::Timestamp => "timestamp",
            Self::HeaderNames => "names of headers",
            Self::Header(name) => return write!(f, "header {name}"),
        })
    }
}

/// What one side has of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// No contents of an event: names, numbers.
    Plain(String),
    /// Contents, or a null.
    Contents(Option<Bytes>),
}

/// A member that is not alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub member: Member,
    /// What Debezium has.
    pub debezium: Part,
    /// What Walpost has.
    pub walpost: Part,
}

impl Difference {
    /// Of contents, where the first byte is that is not alike.
    pub fn first_at(&self) -> Option<usize> {
        match (&self.debezium, &self.walpost) {
            (Part::Contents(Some(one)), Part::Contents(Some(other))) => {
                Some(one.iter().zip(other).take_while(|(one, other)| one == other).count())
            }
            _ => None,
        }
    }
}

/// How a key finds its partition among so many.
pub(crate) type Partitioner = fn(&[u8], i32) -> i32;

/// What is not alike in the two, in the order of the members.
pub(crate) fn differences(
    expected: &Expected,
    observed: &Observed,
    partitions: &Partitions,
    partitioner: Partitioner,
) -> Vec<Difference> {
    let (ours, theirs) = (&expected.message, &observed.message);
    let mut all = Vec::new();
    let mut plain = |member: Member, debezium: String, walpost: String| {
        if debezium != walpost {
            let (debezium, walpost) = (Part::Plain(debezium), Part::Plain(walpost));
            all.push(Difference { member, debezium, walpost });
        }
    };
    plain(Member::Topic, theirs.topic.to_string(), ours.topic.to_string());
    if ours.topic == theirs.topic
        && let Some(partition) = partition_of(ours, partitions, partitioner)
    {
        plain(Member::Partition, observed.partition.to_string(), partition.to_string());
    }
    if let (Some(one), Some(other)) = (theirs.timestamp_ms, ours.timestamp_ms) {
        plain(Member::Timestamp, one.to_string(), other.to_string());
    }
    plain(Member::HeaderNames, names(&theirs.headers), names(&ours.headers));
    let mut contents = |member: Member, debezium: &Option<Bytes>, walpost: &Option<Bytes>| {
        if debezium != walpost {
            let parts = [debezium, walpost].map(|part| Part::Contents(part.clone()));
            let [debezium, walpost] = parts;
            all.push(Difference { member, debezium, walpost });
        }
    };
    contents(Member::Key, &theirs.key, &ours.key);
    contents(Member::Value, &theirs.value, &ours.value);
    for (one, other) in theirs.headers.iter().zip(&ours.headers) {
        if one.name == other.name && !are_run_ids(one, other) {
            contents(Member::Header(one.name.clone()), &one.value, &other.value);
        }
    }
    all.sort_by(|one, other| one.member.cmp(&other.member));
    all
}

/// Where the producer would put it, if that follows from the record.
fn partition_of(
    message: &Message,
    partitions: &Partitions,
    partitioner: Partitioner,
) -> Option<i32> {
    message.partition.or_else(|| {
        let count = partitions.count(&message.topic)?;
        Some(partitioner(message.key.as_ref()?, count))
    })
}

fn names(headers: &Headers) -> String {
    headers.iter().map(|header| &*header.name).collect::<Vec<_>>().join(", ")
}

/// Whether both have the UUID of a start, in the same writing.
fn are_run_ids(one: &Header, other: &Header) -> bool {
    let steady = |header: &Header| header.value.as_deref().and_then(without_uuid);
    &*one.name == RUN_ID && steady(one).is_some() && steady(one) == steady(other)
}

fn without_uuid(value: &[u8]) -> Option<Vec<u8>> {
    let at = value.windows(UUID_BYTES).position(is_uuid)?;
    Some([&value[..at], b"-", &value[at + UUID_BYTES..]].concat())
}

/// In lower case, as Java prints it.
fn is_uuid(value: &[u8]) -> bool {
    value.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        Event,
        testing::{made, message, observed},
    };

    fn told(ours: Message, theirs: Observed) -> Vec<String> {
        let Event::Made(expected) = made(1, ours) else { unreachable!() };
        let mut partitions = Partitions::default();
        partitions.set_count("t", 3);
        let partitioner: Partitioner = |key, count| i32::from(key[0]) % count;
        let all = differences(&expected, &theirs, &partitions, partitioner);
        all.iter().map(|one| one.member.to_string()).collect()
    }

    fn one() -> Message {
        Message { key: Some("\u{3}".into()), ..message("t", "7", "v") }
    }

    type Change = fn(&mut Message);

    #[test]
    fn every_member_is_compared() {
        assert!(told(one(), observed(0, one())).is_empty());
        let changes: [(Change, &str); 7] = [
            (|message| message.key = None, "key"),
            (|message| message.value = Some("v ".into()), "value"),
            (|message| message.value = None, "value"),
            (|message| message.timestamp_ms = Some(2), "timestamp"),
            (|message| message.headers[0].value = None, "header id"),
            (|message| message.headers[0].name = "ID".into(), "names of headers"),
            (|message| message.topic = "u".into(), "topic"),
        ];
        for (change, member) in changes {
            let mut theirs = one();
            change(&mut theirs);
            assert_eq!(told(one(), observed(0, theirs)), [member]);
        }
        assert_eq!(told(one(), Observed { partition: 1, ..observed(0, one()) }), ["partition"]);
    }

    #[test]
    fn headers_have_an_order_and_names_may_come_again() {
        let mut ours = one();
        ours.headers.push(Header { name: "a".into(), value: None });
        let mut theirs = ours.clone();
        theirs.headers.reverse();
        assert_eq!(told(ours.clone(), observed(0, theirs)), ["names of headers"]);
        let mut theirs = ours.clone();
        theirs.headers.push(Header { name: "a".into(), value: None });
        assert_eq!(told(ours, observed(0, theirs)), ["names of headers"]);
    }

    #[test]
    fn what_does_not_follow_from_the_record_is_not_compared() {
        let keyless = Message { key: None, ..one() };
        assert!(
            told(keyless.clone(), Observed { partition: 2, ..observed(0, keyless) }).is_empty()
        );
        let of_now = Message { timestamp_ms: None, ..one() };
        assert!(told(of_now.clone(), observed(0, one())).is_empty());
        assert!(told(one(), observed(0, of_now)).is_empty());
        let placed = Message { partition: Some(2), ..one() };
        assert!(told(placed.clone(), Observed { partition: 2, ..observed(0, one()) }).is_empty());
        assert_eq!(told(placed, observed(0, one())), ["partition"]);
    }

    #[test]
    fn a_run_has_an_id_of_its_own_and_nothing_else_is_one() {
        let with = |value: &str| {
            let mut message = one();
            message
                .headers
                .push(Header { name: RUN_ID.into(), value: Some(value.to_owned().into()) });
            message
        };
        let ids = ["59a42efd-b015-44a9-9dde-cb36d9002425", "00000000-0000-4000-8000-000000000001"];
        let [first, second] = ids;
        assert!(told(with(first), observed(0, with(second))).is_empty());
        let quoted = format!("\"{second}\"");
        let member = [format!("header {RUN_ID}")];
        assert_eq!(told(with(first), observed(0, with(&quoted))), member);
        assert_eq!(told(with("x"), observed(0, with("y"))), member);
    }

    #[test]
    fn the_first_byte_that_differs_is_told() {
        let of = |debezium: Option<&'static str>, walpost: Option<&'static str>| {
            let [debezium, walpost] =
                [debezium, walpost].map(|part| Part::Contents(part.map(Into::into)));
            Difference { member: Member::Value, debezium, walpost }.first_at()
        };
        assert_eq!(of(Some("abc"), Some("abd")), Some(2));
        assert_eq!(of(Some("ab"), Some("abd")), Some(2));
        assert_eq!(of(None, Some("")), None);
    }
}
