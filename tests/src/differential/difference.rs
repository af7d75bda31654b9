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
    /// Of what Debezium writes only a part of, Walpost parks the event.
    Loses,
    /// A record of the first millisecond of 1970 has the time of its sending.
    FirstMillisecond,
    /// Before version 19 Java writes more digits of some floating-point numbers.
    LongerNumbers,
    /// Walpost refuses a configuration that Debezium takes.
    Refused,
    /// Members of objects of an array have the order of a hash set in Debezium.
    MemberOrder,
    /// Logical messages that nobody decodes are records of a topic of their own in
    /// Debezium.
    PlainMessages,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::TaskFails,
        Self::JavaObject,
        Self::RefusedAtStart,
        Self::Accepted,
        Self::Loses,
        Self::FirstMillisecond,
        Self::LongerNumbers,
        Self::Refused,
        Self::MemberOrder,
        Self::PlainMessages,
    ];

    /// The section that documents it.
    #[must_use]
    pub fn section(self) -> &'static str {
        match self {
            Self::TaskFails => "Where Debezium's task fails",
            Self::JavaObject => "Bytes as text",
            Self::RefusedAtStart => "What is refused at the start",
            Self::Accepted => "What Debezium refuses and Walpost takes",
            Self::Loses => "What Debezium loses",
            Self::FirstMillisecond => "The first millisecond of 1970",
            Self::LongerNumbers => "Floating-point numbers of older Java",
            Self::Refused => "What Walpost refuses and Debezium takes",
            Self::MemberOrder => "The order of members in arrays of objects",
            Self::PlainMessages => "Logical messages that nobody decodes",
        }
    }

    /// Whether these two, of which nothing is left that differs from run to run,
    /// are different in this way alone.
    pub(super) fn explains(self, debezium: &ReadRecord, other: &ReadRecord) -> bool {
        match self {
            Self::TaskFails
            | Self::JavaObject
            | Self::RefusedAtStart
            | Self::Accepted
            | Self::Loses
            | Self::Refused
            | Self::PlainMessages => false,
            Self::FirstMillisecond => {
                let timeless = ReadRecord { timestamp_ms: None, ..debezium.clone() };
                debezium.timestamp_ms == Some(0) && timeless == *other
            }
            Self::LongerNumbers => {
                let parts = |record: &ReadRecord| -> Vec<Option<Vec<u8>>> {
                    let headers = record.headers.iter().map(|(_, value)| value.clone());
                    [record.key.clone(), record.value.clone()].into_iter().chain(headers).collect()
                };
                let names = |record: &ReadRecord| -> Vec<String> {
                    record.headers.iter().map(|(name, _)| name.clone()).collect()
                };
                let (one, two) = (parts(debezium), parts(other));
                names(debezium) == names(other)
                    && debezium.timestamp_ms == other.timestamp_ms
                    && one.len() == two.len()
                    && one.iter().zip(&two).all(|pair| match pair {
                        (Some(one), Some(two)) => one == two || says_the_same(one, two),
                        (one, two) => one == two,
                    })
            }
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

/// Digits that a single-precision number may need.
const SINGLE_DIGITS: usize = 9;

/// Whether two texts have the same numbers, of which the first has no fewer digits, and
/// nothing else that differs.
fn says_the_same(longer: &[u8], shorter: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".+-E".contains(byte);
    let chunks = |text: &[u8]| -> Vec<Vec<u8>> {
        text.chunk_by(|one, next| is_part(one) == is_part(next)).map(<[u8]>::to_vec).collect()
    };
    let same = |one: &[u8], two: &[u8]| {
        let [one, two] = [one, two].map(|text| std::str::from_utf8(text).unwrap_or_default());
        let digits = one.split('E').next().unwrap_or_default();
        let digits = digits.bytes().filter(u8::is_ascii_digit).count();
        let double = |text: &str| text.parse::<f64>().ok().map(f64::to_bits);
        let single = |text: &str| text.parse::<f32>().ok().map(f32::to_bits);
        let is_double = double(one).is_some() && double(one) == double(two);
        let is_single = single(one).is_some() && single(one) == single(two);
        one.len() >= two.len() && (is_double || is_single && digits <= SINGLE_DIGITS)
    };
    let (one, two) = (chunks(longer), chunks(shorter));
    one.len() == two.len() && one.iter().zip(&two).all(|(one, two)| one == two || same(one, two))
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

    #[test]
    fn a_number_of_more_digits_is_the_same_number_and_no_other() {
        let explains = |one: &str, other: &str| {
            Difference::LongerNumbers.explains(&record(one), &record(other))
        };
        assert!(explains(r#"{"a":-1.96122182E11,"b":1}"#, r#"{"a":-1.9612218E11,"b":1}"#));
        assert!(explains("8.9279398E10", "8.92794E10"));
        assert!(explains("1.9400994884341945E25", "1.9400994884341944E25"));
        assert!(!explains("8.92794E10", "8.9279398E10"), "Walpost has the shortest");
        assert!(!explains("8.9279398E10", "8.92795E10"));
        assert!(!explains("1.0000000001", "1.0"));
        assert!(!explains("1.50 x", "1.5 y"));
    }

    #[test]
    fn a_time_of_nothing_is_that_of_the_run_and_no_other() {
        let first = ReadRecord { timestamp_ms: Some(0), ..record("1") };
        let explains = |one: &ReadRecord, other: &ReadRecord| {
            Difference::FirstMillisecond.explains(one, other)
        };
        assert!(explains(&first, &record("1")));
        assert!(!explains(&first, &record("2")));
        assert!(!explains(&record("1"), &first));
        assert!(!explains(&first, &ReadRecord { timestamp_ms: Some(1), ..record("1") }));
        assert!(!explains(&ReadRecord { timestamp_ms: Some(1), ..record("1") }, &record("1")));
    }
}
