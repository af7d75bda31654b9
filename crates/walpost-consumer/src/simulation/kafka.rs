//! The logs, the group with its offsets, and commits that are on their way.

use super::{
    database::{Connection, PARTITIONS},
    oracle::Id,
};
use crate::Event;

/// Of a member, as the group knows it.
pub(super) type MemberId = u64;

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) events: Vec<Event>,
    pub(super) ids: Vec<Id>,
}

impl Log {
    pub(super) fn end(&self) -> i64 {
        i64::try_from(self.ids.len()).expect("a short log")
    }

    pub(super) fn append(&mut self, partition: usize, id: Id) {
        let part = i32::try_from(partition).expect("few partitions");
        let event = Event::builder("t").position(part, self.end());
        self.events.push(event.header("id", Some(id.to_string().as_bytes())).build());
        self.ids.push(id);
    }
}

/// A commit of an offset.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub(super) member: MemberId,
    pub(super) part: usize,
    /// Whose answer it is, while it lives.
    pub(super) asker: Connection,
    pub(super) generation: u64,
    pub(super) offset: i64,
    pub(super) metadata: String,
}

#[derive(Debug, Default)]
pub(super) struct Kafka {
    pub(super) logs: [Log; PARTITIONS],
    /// Offset and metadata.
    pub(super) committed: [Option<(i64, String)>; PARTITIONS],
    pub(super) members: Vec<MemberId>,
    pub(super) owners: [Option<MemberId>; PARTITIONS],
    pub(super) generation: u64,
    pub(super) on_their_way: Vec<Commit>,
}

impl Kafka {
    /// A commit arrives; whether it is taken.
    pub(super) fn take(&mut self, commit: &Commit) -> bool {
        let known = self.members.contains(&commit.member);
        let taken = known && commit.generation == self.generation;
        if taken {
            self.committed[commit.part] = Some((commit.offset, commit.metadata.clone()));
        }
        taken
    }

    pub(super) fn is_committing(&self, member: MemberId, part: usize) -> bool {
        self.on_their_way.iter().any(|commit| (commit.member, commit.part) == (member, part))
    }
}
