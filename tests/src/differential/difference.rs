//! How Walpost differs from Debezium on purpose.

use serde_json::Value;
use walpost_testkit::ReadRecord;

/// A difference that is documented in `docs/from-debezium.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Where Debezium's task fails, Walpost parks the event and goes on.
    TaskFails,
    /// Where Debezium writes the name of a Java object instead of bytes, Walpost parks
    /// the event.
    JavaObject,
    /// A configuration under which Debezium's task fails at the first event is refused
    /// by Walpost before it reads any.
    RefusedAtStart,
    /// Walpost takes a configuration that Debezium refuses.
    Accepted,
    /// Members of objects of an array have the order of a hash set in Debezium.
    MemberOrder,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::TaskFails,
        Self::JavaObject,
        Self::RefusedAtStart,
        Self::Accepted,
        Self::MemberOrder,
    ];

    /// The section that documents it.
    #[must_use]
    pub fn section(self) -> &'static str {
        match self {
            Self::TaskFails => "Where Debezium's task fails",
            Self::JavaObject => "Bytes as text",
            Self::RefusedAtStart => "What is refused at the start",
            Self::Accepted => "What Debezium refuses and Walpost takes",
            Self::MemberOrder => "The order of members in arrays of objects",
        }
    }

    /// Whether these two, of which nothing is left that differs from run to run,
    /// are different in this way alone.
    pub(super) fn explains(self, debezium: &ReadRecord, other: &ReadRecord) -> bool {
        match self {
            Self::TaskFails | Self::JavaObject | Self::RefusedAtStart | Self::Accepted => false,
            Self::MemberOrder => {
                let json = |record: &ReadRecord| -> Option<Value> {
                    serde_json::from_slice(record.value.as_deref()?).ok()
                };
                let rest = |record: &ReadRecord| ReadRecord { value: None, ..record.clone() };
                let (one, two) = (json(debezium), json(other));
                one.is_some() && one == two && rest(debezium) == rest(other)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/from-debezium.md");

    fn record(value: &str) -> ReadRecord {
        ReadRecord {
            partition: 0,
            offset: 0,
            key: None,
            value: Some(value.into()),
            headers: Vec::new(),
            timestamp_ms: None,
        }
    }

    #[test]
    fn every_difference_has_its_section() {
        for difference in Difference::ALL {
            let is_there = PAGE.lines().any(|line| {
                line.starts_with('#') && line.trim_start_matches('#').trim() == difference.section()
            });
            assert!(is_there, "docs/from-debezium.md has no section {:?}", difference.section());
        }
    }

    #[test]
    fn another_order_of_members_is_all_that_it_explains() {
        let [one, other] = [r#"{"a":1,"b":[2]}"#, r#"{"b":[2],"a":1}"#].map(record);
        assert!(Difference::MemberOrder.explains(&one, &other));
        assert!(!Difference::MemberOrder.explains(&one, &record(r#"{"b":[3],"a":1}"#)));
        assert!(!Difference::MemberOrder.explains(&record("x"), &record("y")));
        assert!(!Difference::TaskFails.explains(&one, &other));
    }
}
