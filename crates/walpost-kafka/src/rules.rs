//! What a topic takes, by its settings; and what its refusals tell where these are not.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use walpost_event::Message;

/// The settings that say it, in the order in which they are read.
pub(crate) const SETTINGS: [&str; 6] = [
    "max.message.bytes",
    "cleanup.policy",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    // Of brokers before Kafka 4.0, which has the two instead.
    "message.timestamp.difference.max.ms",
];
/// A broker compares with a clock of its own: what is so near the bound, it decides.
const CLOCKS_MS: i64 = 60_000;
/// Records without a key that are refused, and none taken, before others are not
/// sent any more.
const REFUSALS: u32 = 3;
/// Then one is tried again.
const HOLDS_FOR: Duration = Duration::from_secs(60);

/// What a topic's settings say of a record, beside its size. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// It is compacted.
    pub(crate) needs_key: bool,
    /// How far a timestamp may be in the past.
    pub(crate) past_max_ms: Option<i64>,
    /// And in the future.
    pub(crate) future_max_ms: Option<i64>,
}

impl Rules {
    /// By the values of [`SETTINGS`] behind the first.
    pub(crate) fn read(values: &[Option<String>]) -> Self {
        let value = |index: usize| values.get(index)?.as_deref();
        let bound = |index: usize| {
            let bound = value(index)?.parse().ok()?;
            (bound < i64::MAX).then_some(bound)
        };
        let needs_key = value(0).is_some_and(|policy| policy.contains("compact"));
        if value(1) == Some("LogAppendTime") {
            return Self { needs_key, ..Self::default() };
        }
        let difference = bound(4);
        Self {
            needs_key,
            past_max_ms: bound(2).or(difference),
            future_max_ms: bound(3).or(difference),
        }
    }

    /// Whether the topic takes a record.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(
        &self,
        message: &Message,
        now_ms: impl FnOnce() -> i64,
    ) -> Result<(), String> {
        if self.needs_key && message.key.is_none() {
            return Err("the topic is compacted, so it takes no record without a key; give the \
                        event a key, or change cleanup.policy"
                .to_owned());
        }
        let (Some(timestamp_ms), true) = (
            message.timestamp_ms.filter(|timestamp_ms| *timestamp_ms > 0),
            self.past_max_ms.is_some() || self.future_max_ms.is_some(),
        ) else {
            return Ok(());
        };
        let past_ms = now_ms().saturating_sub(timestamp_ms);
        let is_beyond = |ms: i64, bound: Option<i64>| {
            bound.is_some_and(|bound| ms.saturating_sub(CLOCKS_MS) > bound)
        };
        let (which, where_to) = if is_beyond(past_ms, self.past_max_ms) {
            ("before", "past")
        } else if is_beyond(past_ms.saturating_neg(), self.future_max_ms) {
            ("after", "future")
        } else {
            return Ok(());
        };
        Err(format!(
            "its timestamp is farther in the {where_to} than message.timestamp.{which}.max.ms of \
             the topic allows; raise that, or set message.timestamp.type to LogAppendTime"
        ))
    }
}

/// What refusals have told of topics whose settings are not told. Pure.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    without_key: HashMap<Arc<str>, Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    count: u32,
    until: Option<Instant>,
}

impl Learnt {
    /// A record without a key was refused, by itself, as invalid.
    pub(crate) fn refused(&mut self, topic: &Arc<str>, now: Instant) {
        let refusals = self.without_key.entry(topic.clone()).or_default();
        refusals.count += 1;
        if refusals.count >= REFUSALS {
            refusals.until = Some(now + HOLDS_FOR);
        }
    }

    /// A record without a key was taken.
    pub(crate) fn taken(&mut self, topic: &str) {
        self.without_key.remove(topic);
    }

    /// Why a record is not sent.
    pub(crate) fn refuses(
        &self,
        message: &Message,
        now: impl FnOnce() -> Instant,
    ) -> Option<String> {
        if message.key.is_some() {
            return None;
        }
        let refusals = self.without_key.get(&message.topic)?;
        let holds = refusals.until.is_some_and(|until| now() < until);
        holds.then(|| {
            "the broker has refused records without a key in this topic as invalid, and the \
             topic's settings are not told, so this one was not sent; give the event a key, or \
             change cleanup.policy, and grant DescribeConfigs on the topic"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Bytes, Headers};

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn message(key: Option<&'static str>, timestamp_ms: Option<i64>) -> Message {
        Message {
            topic: "t".into(),
            partition: None,
            key: key.map(|key| Bytes::from_static(key.as_bytes())),
            value: None,
            headers: Headers::new(),
            timestamp_ms,
        }
    }

    fn rules(values: [&str; 5]) -> Rules {
        Rules::read(&values.map(|value| (!value.is_empty()).then(|| value.to_owned())))
    }

    fn check(rules: Rules, message: &Message) -> Result<(), String> {
        rules.check(message, || NOW_MS)
    }

    #[test]
    fn a_compacted_topic_takes_no_record_without_a_key() {
        for policy in ["compact", "compact,delete", "delete,compact"] {
            let rules = rules([policy, "", "", "", ""]);
            assert!(
                check(rules, &message(None, None)).unwrap_err().contains("give the event a key")
            );
            assert_eq!(check(rules, &message(Some(""), None)), Ok(()), "an empty key is one");
        }
        assert_eq!(check(rules(["delete", "", "", "", ""]), &message(None, None)), Ok(()));
        assert_eq!(Rules::read(&[]), Rules::default());
    }

    #[test]
    fn a_timestamp_out_of_range_is_known_and_one_near_the_bound_is_the_brokers() {
        let hour_ms = 3_600_000;
        let rules = |values| rules(values);
        let newer = rules(["", "CreateTime", "9223372036854775807", "3600000", ""]);
        let older = rules(["", "CreateTime", "", "", "3600000"]);
        let at = |ms: i64| message(None, Some(NOW_MS + ms));
        for rules in [newer, older] {
            assert!(check(rules, &at(2 * hour_ms)).unwrap_err().contains("after.max.ms"));
            assert_eq!(check(rules, &at(hour_ms + CLOCKS_MS)), Ok(()));
        }
        assert_eq!(check(newer, &at(-1_000 * hour_ms)), Ok(()));
        assert!(check(older, &at(-2 * hour_ms)).unwrap_err().contains("before.max.ms"));
        assert!(check(older, &message(None, Some(1))).is_err());
        assert_eq!(check(older, &message(None, None)), Ok(()), "librdkafka sets it");
        let of_the_log = rules(["", "LogAppendTime", "1", "1", "1"]);
        assert_eq!(check(of_the_log, &at(9 * hour_ms)), Ok(()));
    }

    #[test]
    fn what_was_refused_a_few_times_and_never_taken_is_not_sent_for_a_while() {
        let (mut learnt, start, topic) = (Learnt::default(), Instant::now(), Arc::from("t"));
        let refuses = |learnt: &Learnt, key, now| learnt.refuses(&message(key, None), || now);
        for _ in 0..REFUSALS {
            assert_eq!(refuses(&learnt, None, start), None);
            learnt.refused(&topic, start);
        }
        assert!(refuses(&learnt, None, start).unwrap().contains("DescribeConfigs"));
        assert_eq!(refuses(&learnt, Some("k"), start), None);
        let later = start + HOLDS_FOR;
        assert_eq!(refuses(&learnt, None, later), None, "one is tried again");
        learnt.refused(&topic, later);
        assert!(refuses(&learnt, None, later).is_some());
        learnt.taken("t");
        assert!(refuses(&learnt, None, later).is_none() && learnt.without_key.is_empty());
    }
}
