use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

/// Topics that are remembered; those beyond hold the others up.
const TOPICS_MAX: usize = 1_000;
/// After a topic has refused a record, before the next is tried there: a refusal
/// costs the whole session. Doubled each time.
const TRY_FIRST: Duration = Duration::from_secs(5);
const TRY_MAX: Duration = Duration::from_secs(300);
/// After which a topic that does not exist is told: brokers that create topics by
/// themselves say at first that it does not.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// Topics that cannot be used while others can: they do not exist, or refuse us.
///
/// Pure. Kept from one session to the next, so that a topic that refuses a
/// record does not end each of them.
#[derive(Debug, Default)]
pub(crate) struct AwayTopics {
    topics: HashMap<Arc<str>, Away>,
    /// Records that became durable while any topic was away.
    taken: u64,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    /// What `taken` was then.
    taken_before: u64,
    detail: Arc<str>,
    /// Records that were refused where the topic was said to be there.
    refusals: u32,
    next_try: Instant,
    /// It was told.
    told: bool,
}

impl AwayTopics {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// The topic is not there; whether there is room to remember it.
    pub(crate) fn missing(&mut self, topic: &Arc<str>, detail: Arc<str>, now: Instant) -> bool {
        if let Some(away) = self.topics.get_mut(topic) {
            away.detail = detail;
            return true;
        }
        if self.topics.len() >= TOPICS_MAX {
            return false;
        }
        let taken_before = self.taken;
        let (refusals, told) = (0, false);
        let away = Away { since: now, taken_before, detail, refusals, next_try: now, told };
        self.topics.insert(topic.clone(), away);
        true
    }

    /// Why a topic is not there, once for each that has not been for long enough.
    pub(crate) fn news(&mut self, now: Instant) -> impl Iterator<Item = Arc<str>> {
        self.topics.values_mut().filter_map(move |away| {
            let is_due = now.saturating_duration_since(away.since) >= TELL_AFTER;
            // A refusal was told when it came.
            let is_news = is_due && !away.told && away.refusals == 0;
            away.told |= is_news;
            is_news.then(|| away.detail.clone())
        })
    }

    /// Whether it was told that the topic is away.
    pub(crate) fn is_told(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|away| away.told || away.refusals > 0)
    }

    /// The topic has refused a record; whether that is news.
    pub(crate) fn refused(&mut self, topic: &Arc<str>, detail: Arc<str>, now: Instant) -> bool {
        if !self.missing(topic, detail, now) {
            return false;
        }
        let away = self.topics.get_mut(topic).expect("it was just noted");
        // The others of the same batch say nothing more.
        if away.refusals > 0 && away.next_try > now {
            return false;
        }
        away.next_try = now + TRY_MAX.min(TRY_FIRST * 2_u32.pow(away.refusals.min(10)));
        away.refusals += 1;
        true
    }

    /// Whether a record may be tried there.
    pub(crate) fn may_try(&self, topic: &str, now: Instant) -> bool {
        self.topics.get(topic).is_none_or(|away| away.next_try <= now)
    }

    /// The topic has taken a record into its queue: it exists.
    pub(crate) fn found(&mut self, topic: &str) {
        if self.topics.get(topic).is_some_and(|away| away.refusals == 0) {
            self.topics.remove(topic);
        }
    }

    /// A record is durable there.
    pub(crate) fn delivered(&mut self, topic: &str) {
        self.topics.remove(topic);
        self.taken += 1;
    }

    /// Whether another topic has taken a record since this one is away: then it
    /// is no broker that is down as a whole.
    pub(crate) fn has_another_taken(&self, topic: &str) -> bool {
        // Had it been this one, it would not be away any more.
        self.topics.get(topic).is_some_and(|away| self.taken > away.taken_before)
    }

    /// Why it is away, where it has been for so long.
    pub(crate) fn overdue(&self, topic: &str, now: Instant, limit: Duration) -> Option<Arc<str>> {
        let away = self.topics.get(topic)?;
        (now.saturating_duration_since(away.since) >= limit).then(|| away.detail.clone())
    }

    /// What one of those that refuse us has said.
    pub(crate) fn trouble(&self) -> Option<String> {
        let mut refusing = self.topics.iter().filter(|(_, away)| away.refusals > 0);
        let (topic, away) = refusing.next()?;
        Some(format!("topic {topic:?} takes no records: {}", away.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_missing_topic_is_tried_at_any_time_and_overdue_from_the_first_time_on() {
        let (mut topics, start) = (AwayTopics::default(), Instant::now());
        let topic: Arc<str> = "a".into();
        assert!(topics.missing(&topic, "gone".into(), start));
        assert!(topics.missing(&topic, "still gone".into(), start + LIMIT / 2));
        assert!(topics.may_try("a", start) && topics.overdue("a", start, LIMIT).is_none());
        assert_eq!(topics.overdue("a", start + LIMIT, LIMIT).as_deref(), Some("still gone"));
        assert_eq!(topics.overdue("b", start + LIMIT, LIMIT), None);
        assert_eq!(topics.trouble(), None, "the sink says that itself");
        topics.found("a");
        assert!(topics.is_empty());
    }

    #[test]
    fn a_topic_that_is_missing_for_a_moment_is_not_told_and_another_once() {
        let (mut topics, start) = (AwayTopics::default(), Instant::now());
        let news = |topics: &mut AwayTopics, now| topics.news(now).collect::<Vec<_>>();
        for topic in ["created by the brokers", "missing"] {
            topics.missing(&topic.into(), topic.into(), start);
        }
        assert!(news(&mut topics, start + TELL_AFTER / 2).is_empty());
        topics.found("created by the brokers");
        assert_eq!(news(&mut topics, start + TELL_AFTER), [Arc::<str>::from("missing")]);
        assert!(topics.is_told("missing") && !topics.is_told("created by the brokers"));
        assert!(news(&mut topics, start + 2 * TELL_AFTER).is_empty(), "told once");
    }

    #[test]
    fn a_topic_that_refuses_is_tried_less_and_less_often_until_it_takes_a_record() {
        let (mut topics, mut now) = (AwayTopics::default(), Instant::now());
        let topic: Arc<str> = "a".into();
        for wait_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(topics.refused(&topic, "denied".into(), now));
            assert!(!topics.refused(&topic, "denied".into(), now), "of the same batch");
            let wait = Duration::from_secs(wait_s);
            assert!(!topics.may_try("a", now + wait - Duration::from_millis(1)), "{wait_s}");
            now += wait;
            assert!(topics.may_try("a", now), "{wait_s}");
        }
        topics.found("a");
        assert!(topics.trouble().unwrap().contains("\"a\" takes no records: denied"));
        topics.delivered("a");
        assert!(topics.is_empty());
    }

    #[test]
    fn what_another_topic_takes_counts_from_when_a_topic_is_away() {
        let (mut topics, now) = (AwayTopics::default(), Instant::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        topics.delivered("c");
        topics.missing(&a, "gone".into(), now);
        topics.missing(&b, "gone".into(), now);
        assert!(!topics.has_another_taken("a") && !topics.has_another_taken("c"));
        topics.delivered("b");
        assert!(topics.has_another_taken("a") && !topics.has_another_taken("b"));
        topics.missing(&a, "still gone".into(), now);
        topics.missing(&b, "gone again".into(), now);
        assert!(topics.has_another_taken("a") && !topics.has_another_taken("b"));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let (mut topics, now) = (AwayTopics::default(), Instant::now());
        for n in 0..TOPICS_MAX {
            assert!(topics.missing(&n.to_string().into(), "gone".into(), now));
        }
        assert!(!topics.missing(&"one more".into(), "gone".into(), now));
        assert!(topics.missing(&"0".into(), "gone".into(), now));
    }
}
