//! Commits of offsets to Kafka: gathered over partitions, one request at a
//! time. librdkafka starts no partition and ends no rebalance while a commit
//! is on its way, so there must be pauses between them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::command::{AssignmentId, Commit, KafkaFailure, Reply};
use crate::TopicPartition;

/// After this long without an answer a commit counts as failed.
const ANSWER_LIMIT_MS: u64 = 30_000;

/// What waits, and what is on its way.
#[derive(Debug)]
pub(super) struct Commits {
    interval: Duration,
    last_sent: Option<Instant>,
    waiting: BTreeMap<TopicPartition, Commit>,
    in_flight: Vec<(TopicPartition, i64, Reply<()>)>,
}

impl Commits {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, last_sent: None, waiting: BTreeMap::new(), in_flight: Vec::new() }
    }

    /// Adds one; a partition has at most one, a second one replaces it.
    pub(super) fn add(&mut self, commit: Commit) {
        if let Some(old) = self.waiting.insert(commit.partition.clone(), commit) {
            let problem = "replaced by a later one".to_owned();
            let failure = KafkaFailure::Other { attempted: "committing an offset", problem };
            let _ = old.reply.send(Err(failure));
        }
    }

    /// A commit of the partition that waits no longer waits for the interval, only
    /// for what is on its way.
    pub(super) fn hurry(&mut self, partition: &TopicPartition) {
        if let Some(commit) = self.waiting.get_mut(partition) {
            commit.urgent = true;
        }
    }

    /// What to send now: everything, if nothing is on its way and the interval
    /// has passed or one is urgent. Nothing of those who no longer wait for an
    /// answer: they have decided anew by then.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Commit> {
        self.waiting.retain(|_, commit| !commit.reply.is_closed());
        if !self.in_flight.is_empty() && self.waited(now) >= Duration::from_millis(ANSWER_LIMIT_MS)
        {
            self.fail("no answer in time");
        }
        let urgent = self.waiting.values().any(|commit| commit.urgent);
        let due = self.in_flight.is_empty() && (urgent || self.waited(now) >= self.interval);
        if !due {
            return Vec::new();
        }
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Whether an offset of the partition's is on its way.
    pub(super) fn is_in_flight(&self, partition: &TopicPartition) -> bool {
        self.in_flight.iter().any(|(of, _, _)| of == partition)
    }

    /// How long until something may be due, if anything waits.
    pub(super) fn next_due(&self, now: Instant) -> Option<Duration> {
        let waits = !self.waiting.is_empty() && self.in_flight.is_empty();
        waits.then(|| self.interval.saturating_sub(self.waited(now)))
    }

    /// These were handed to librdkafka.
    pub(super) fn sent(&mut self, now: Instant, commits: Vec<Commit>) {
        self.last_sent = Some(now);
        self.in_flight = commits.into_iter().map(|c| (c.partition, c.offset, c.reply)).collect();
    }

    /// librdkafka has an answer for some.
    pub(super) fn answered(
        &mut self,
        result: &Result<(), String>,
        offsets: Vec<(String, i32, i64, Result<(), String>)>,
    ) {
        for (topic, partition, offset, own) in offsets {
            let matches = |(of, sent, _): &(TopicPartition, i64, Reply<()>)| {
                *of.topic == *topic && of.partition == partition && *sent == offset
            };
            let Some(index) = self.in_flight.iter().position(matches) else { continue };
            let (_, _, reply) = self.in_flight.swap_remove(index);
            let answer = result.clone().and(own).map_err(|problem| KafkaFailure::Other {
                attempted: "committing an offset to the group",
                problem,
            });
            let _ = reply.send(answer);
        }
    }

    /// Gives up what waits of an assignment.
    pub(super) fn forget(&mut self, partition: &TopicPartition, assignment: AssignmentId) {
        let is_its = |commit: &Commit| commit.assignment == assignment;
        if self.waiting.get(partition).is_some_and(is_its)
            && let Some(commit) = self.waiting.remove(partition)
        {
            let _ = commit.reply.send(Err(KafkaFailure::NotAssigned));
        }
    }

    fn waited(&self, now: Instant) -> Duration {
        self.last_sent.map_or(Duration::MAX, |sent| now.duration_since(sent))
    }

    fn fail(&mut self, problem: &str) {
        for (_, _, reply) in self.in_flight.drain(..) {
            let failure = KafkaFailure::Other {
                attempted: "committing an offset to the group",
                problem: problem.to_owned(),
            };
            let _ = reply.send(Err(failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    type Answer = oneshot::Receiver<Result<(), KafkaFailure>>;

    fn commit(partition: i32, offset: i64, urgent: bool) -> (Commit, Answer) {
        let (reply, answer) = oneshot::channel();
        let partition = TopicPartition { topic: "t".into(), partition };
        let marker = String::new();
        let assignment = AssignmentId(0);
        (Commit { partition, assignment, offset, marker, urgent, reply }, answer)
    }

    #[test]
    fn one_request_at_a_time_and_not_before_the_interval() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut commits = Commits::new(Duration::from_millis(100));
        let (first, mut first_answer) = commit(0, 5, false);
        commits.add(first);
        let due = commits.due(at(0));
        assert_eq!(due.len(), 1, "the first needs no interval");
        commits.sent(at(0), due);
        let (second, mut second_answer) = commit(1, 6, true);
        assert!(commits.is_in_flight(&TopicPartition { topic: "t".into(), partition: 0 }));
        assert!(!commits.is_in_flight(&second.partition));
        commits.add(second);
        assert!(commits.due(at(500)).is_empty(), "one is in flight");
        commits.answered(&Ok(()), vec![("t".into(), 0, 4, Ok(()))]);
        assert!(first_answer.try_recv().is_err(), "another offset");
        commits.answered(&Ok(()), vec![("t".into(), 0, 5, Ok(()))]);
        assert_eq!(first_answer.try_recv(), Ok(Ok(())));
        let due = commits.due(at(20));
        assert_eq!(due.len(), 1, "urgent");
        commits.sent(at(20), due);
        commits.answered(&Ok(()), vec![("t".into(), 1, 6, Err("no".into()))]);
        assert!(second_answer.try_recv().unwrap().is_err());
        let (third, _answer) = commit(1, 7, false);
        commits.add(third);
        assert!(commits.due(at(119)).is_empty());
        assert_eq!(commits.next_due(at(119)), Some(Duration::from_millis(1)));
        assert_eq!(commits.due(at(120)).len(), 1);
    }

    #[test]
    fn what_is_hurried_does_not_wait_for_the_interval() {
        let start = Instant::now();
        let mut commits = Commits::new(Duration::from_secs(60));
        let (first, _answer) = commit(0, 5, false);
        commits.add(first);
        let due = commits.due(start);
        commits.sent(start, due);
        let (second, _answer) = commit(1, 6, false);
        let partition = second.partition.clone();
        commits.add(second);
        commits.hurry(&partition);
        assert!(commits.due(start).is_empty(), "one is in flight");
        commits.answered(&Ok(()), vec![("t".into(), 0, 5, Ok(()))]);
        assert_eq!(commits.due(start).len(), 1);
    }

    #[test]
    fn without_an_answer_a_commit_fails() {
        let start = Instant::now();
        let mut commits = Commits::new(Duration::from_millis(100));
        let (first, mut answer) = commit(0, 5, false);
        commits.add(first);
        let due = commits.due(start);
        commits.sent(start, due);
        commits.due(start + Duration::from_secs(31));
        assert!(answer.try_recv().unwrap().is_err());
    }

    #[test]
    fn what_nobody_waits_for_is_not_sent() {
        let start = Instant::now();
        let mut commits = Commits::new(Duration::from_millis(100));
        let ((left, left_answer), (kept, _kept_answer)) = (commit(0, 5, true), commit(1, 6, true));
        commits.add(left);
        commits.add(kept);
        drop(left_answer);
        let due: Vec<i64> = commits.due(start).iter().map(|commit| commit.offset).collect();
        assert_eq!(due, [6]);
    }
}
