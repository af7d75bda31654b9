//! A consumer that is stopped past the take-over of its partitions, and wakes
//! beside their new owners. What the database has refused it is read from the
//! server's log, whose lines name the session's member and the SQLSTATE.

use walpost_testkit::{until, until_some};

use super::{blows::Pause, members::Member, membership::Membership, run::Run};
use crate::{LIMIT, STOPS_AFTER_COMMIT};

/// What the database has refused to consumers that woke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// Batches, for their epoch: the compare-and-set missed.
    pub(super) by_epoch: u64,
    /// Open transactions, ended by the successor whose claim they blocked.
    pub(super) ended: u64,
}

impl Refused {
    /// What the log says of the sessions of a member.
    pub(super) fn of(log: &str, member: &str) -> Self {
        let count = |what: &str| log.matches(&format!(" {member} {what}:")).count() as u64;
        Self { by_epoch: count("WP001 ERROR"), ended: count("57P01 FATAL") }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { by_epoch: self.by_epoch + other.by_epoch, ended: self.ended + other.ended }
    }

    pub(super) fn all(self) -> u64 {
        self.by_epoch + self.ended
    }
}

impl Run {
    pub(super) async fn wake_a_zombie(&mut self, pause: Pause) {
        let index = self.some_owner().await;
        let mut zombie = self.members.remove(index);
        if pause == Pause::AfterCommit {
            // What has come meanwhile is more than its first batches take.
            zombie.kill();
            let (membership, instance) = (self.membership, Some(zombie.instance.as_str()));
            let stops = Some(STOPS_AFTER_COMMIT);
            zombie = self.stage.member_with(membership, instance, stops);
            self.counts.kills += 1;
            self.production.release();
        }
        let replaced = self.membership == Membership::Static && self.seeded.chance(50);
        let logged = self.stage.log_length();
        zombie.pause(pause).await;
        if replaced {
            // As a new pod under the name of one that hangs.
            self.members.push(self.stage.member(self.membership, Some(&zombie.instance)));
        }
        until(LIMIT, "a take-over of all its partitions", async || {
            self.stage.owners().await.is_some_and(|owners| !owners.contains(&zombie.name))
        })
        .await;
        zombie.resume();
        let name = zombie.name.clone();
        let left = match replaced {
            true => self.until_one_is_left(zombie).await,
            false => self.until_owner(zombie).await,
        };
        let log = self.stage.log_since(logged);
        self.refused = self.refused.plus(Refused::of(&log, &name));
        self.counts.zombies += 1;
        self.members.push(left);
    }

    /// Of two under one `group.instance.id` the one that joins last fences the
    /// other, which ends: mostly the one that slept, but it may also wake, find
    /// its session over, and join again. Returns the one that is left.
    async fn until_one_is_left(&mut self, zombie: Member) -> Member {
        let replacement = self.members.pop().expect("it was started last");
        until(LIMIT, "the end of one of two under one id", async || {
            !zombie.is_running() || !replacement.is_running()
        })
        .await;
        let [left, ended] = match zombie.is_running() {
            true => [zombie, replacement],
            false => [replacement, zombie],
        };
        assert!(ended.was_fenced(), "{} ended by itself: {}", ended.name, ended.printed());
        left
    }

    /// A random one of those that own a partition.
    async fn some_owner(&mut self) -> usize {
        let first = self.seeded.below(self.members.len());
        until_some(LIMIT, "a consumer that owns a partition", async || {
            let owners = self.stage.owners().await?;
            (0..self.members.len())
                .map(|next| (first + next) % self.members.len())
                .find(|index| owners.contains(&self.members[*index].name))
        })
        .await
    }

    /// Waits until it has committed last in some partition. A static one may have to
    /// be started again for that.
    pub(super) async fn until_owner(&mut self, mut member: Member) -> Member {
        until(LIMIT, "a consumer that gets partitions", async || {
            if !member.is_running() {
                member = self.start_again(&member);
            }
            self.stage.owners().await.is_some_and(|owners| owners.contains(&member.name))
        })
        .await;
        member
    }

    /// Members that have ended are started again, see [`Member::was_fenced`].
    pub(super) fn start_fenced_again(&mut self) {
        for index in 0..self.members.len() {
            if !self.members[index].is_running() {
                let ended = self.members.remove(index);
                let again = self.start_again(&ended);
                self.members.insert(index, again);
            }
        }
    }

    /// For no other reason one may have ended.
    fn start_again(&mut self, ended: &Member) -> Member {
        assert!(ended.was_fenced(), "{} ended by itself: {}", ended.name, ended.printed());
        self.counts.fenced += 1;
        self.stage.member(self.membership, Some(&ended.instance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_the_zombies_own_sessions_count() {
        let log = "\
2026-01-01 00:00:00 UTC [7] member-001 WP001 ERROR:  partition given up
2026-01-01 00:00:00 UTC [7] member-001 WP001 CONTEXT:  PL/pgSQL function
2026-01-01 00:00:00 UTC [7] member-001 WP001 STATEMENT:  select 1
2026-01-01 00:00:00 UTC [8] member-001 57P01 FATAL:  terminating connection
2026-01-01 00:00:00 UTC [9] member-002 WP001 ERROR:  partition given up
2026-01-01 00:00:00 UTC [9] member-001 23505 ERROR:  duplicate key
";
        assert_eq!(Refused::of(log, "member-001"), Refused { by_epoch: 1, ended: 1 });
        assert_eq!(Refused::of(log, "member-002").all(), 1);
        assert_eq!(Refused::of(log, "member-003").all(), 0);
    }
}
