//! What the group has given to this member, and what it takes away: pure.

use std::collections::HashMap;

use super::command::{AssignmentId, KafkaFailure};
use crate::TopicPartition;

/// Partitions, each with the id of its assignment.
pub(super) type Assigned = Vec<(TopicPartition, AssignmentId)>;

/// Each assigned partition, and the revocations that are open.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    current: HashMap<TopicPartition, Current>,
    count: u64,
    /// Revocations that librdkafka told of and that are not released yet. As a
    /// rule one at most; a second one if something else has answered the first.
    open: usize,
}

#[derive(Debug)]
struct Current {
    id: AssignmentId,
    revoked: bool,
}

impl Assignments {
    /// These are this member's from now on.
    pub(super) fn assign(&mut self, partitions: Vec<(String, i32)>) -> Assigned {
        let mut assign = |(topic, partition): (String, i32)| {
            self.count += 1;
            let (of, id) =
                (TopicPartition { topic: topic.into(), partition }, AssignmentId(self.count));
            self.current.insert(of.clone(), Current { id, revoked: false });
            (of, id)
        };
        partitions.into_iter().map(&mut assign).collect()
    }

    /// These are to be given back, which opens a revocation.
    pub(super) fn revoke(&mut self, partitions: Vec<(String, i32)>) -> Assigned {
        self.open += 1;
        let mut revoke = |(topic, partition): (String, i32)| {
            let of = TopicPartition { topic: topic.into(), partition };
            let current = self.current.get_mut(&of)?;
            current.revoked = true;
            Some((of, current.id))
        };
        partitions.into_iter().filter_map(&mut revoke).collect()
    }

    /// What is to be given back and is not yet.
    pub(super) fn revoked(&self) -> Assigned {
        let revoked = self.current.iter().filter(|(_, current)| current.revoked);
        revoked.map(|(of, current)| (of.clone(), current.id)).collect()
    }

    /// Ends the oldest revocation, that of `partitions`. What has been assigned
    /// anew meanwhile stays.
    pub(super) fn release(&mut self, partitions: &[(TopicPartition, AssignmentId)]) {
        self.open = self.open.saturating_sub(1);
        for (of, id) in partitions {
            if self.current.get(of).is_some_and(|current| current.id == *id) {
                self.current.remove(of);
            }
        }
    }

    /// Whether librdkafka waits for the answer to a revocation.
    pub(super) fn is_revoking(&self) -> bool {
        self.open > 0
    }

    /// Whether the assignment still holds; it does until it is released.
    pub(super) fn check(&self, of: &TopicPartition, id: AssignmentId) -> Result<(), KafkaFailure> {
        self.find(of, id).map(|_| ())
    }

    /// The same for what begins with it, which nothing does once it is revoked.
    pub(super) fn check_to_start(
        &self,
        of: &TopicPartition,
        id: AssignmentId,
    ) -> Result<(), KafkaFailure> {
        let current = self.find(of, id)?;
        if current.revoked { Err(KafkaFailure::NotAssigned) } else { Ok(()) }
    }

    fn find(&self, of: &TopicPartition, id: AssignmentId) -> Result<&Current, KafkaFailure> {
        let current = self.current.get(of).filter(|current| current.id == id);
        current.ok_or(KafkaFailure::NotAssigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(partitions: &[i32]) -> Vec<(String, i32)> {
        partitions.iter().map(|partition| ("t".to_owned(), *partition)).collect()
    }

    #[test]
    fn a_release_leaves_what_was_assigned_anew() {
        let mut assignments = Assignments::default();
        let old = assignments.assign(of(&[0, 1]));
        let revoked = assignments.revoke(of(&[0, 1]));
        assert_eq!(revoked, old);
        // As when something else answers the revocation before the release does.
        let new = assignments.assign(of(&[0]));
        assignments.release(&revoked);
        assert!(!assignments.is_revoking());
        assert_eq!(assignments.check(&new[0].0, new[0].1), Ok(()));
        assert_eq!(assignments.check_to_start(&new[0].0, new[0].1), Ok(()));
        for (partition, id) in &old {
            assert_eq!(assignments.check(partition, *id), Err(KafkaFailure::NotAssigned));
        }
    }

    #[test]
    fn what_is_revoked_holds_until_its_release_and_starts_no_more() {
        let mut assignments = Assignments::default();
        let all = assignments.assign(of(&[0, 1]));
        let [(goes, goes_id), (stays, stays_id)] = &all[..] else { panic!("{all:?}") };
        let revoked = assignments.revoke(of(&[0]));
        assert!(assignments.is_revoking());
        assert_eq!(assignments.revoked(), revoked);
        assert_eq!(assignments.check(goes, *goes_id), Ok(()), "for its last commit");
        let refused = Err(KafkaFailure::NotAssigned);
        assert_eq!(assignments.check_to_start(goes, *goes_id), refused);
        assert_eq!(assignments.check_to_start(stays, *stays_id), Ok(()));
        assignments.release(&revoked);
        assert_eq!(assignments.check(goes, *goes_id), refused);
        assert_eq!(assignments.check(stays, *stays_id), Ok(()));
        assert_eq!(assignments.revoked(), []);
    }

    #[test]
    fn a_revocation_is_open_until_each_one_is_released() {
        let mut assignments = Assignments::default();
        assignments.assign(of(&[0]));
        let first = assignments.revoke(of(&[0]));
        let second_time = assignments.assign(of(&[0]));
        let second = assignments.revoke(of(&[0]));
        assert_eq!(second, second_time);
        assignments.release(&first);
        assert!(assignments.is_revoking());
        assert_eq!(assignments.revoked(), second);
        assignments.release(&second);
        assert!(!assignments.is_revoking());
        assert_eq!(assignments.revoke(of(&[7])), [], "of none of ours");
        assert!(assignments.is_revoking(), "librdkafka waits all the same");
    }
}
