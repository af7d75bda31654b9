use std::collections::BTreeMap;

use crate::documented::Documented;

/// How many there are of each; a pair counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pairs that are alike in every member.
    pub equal: u64,
    /// Pairs that are not, by the members that differ, separated by commas; of
    /// events that Walpost would park, `parked by Walpost`.
    pub different: BTreeMap<String, u64>,
    /// Records that Debezium has and Walpost has not.
    pub missing: u64,
    /// Records that Walpost has and Debezium has not within the grace.
    pub extra: u64,
    /// Differences that are documented.
    pub documented: BTreeMap<Documented, u64>,
    /// Records that Debezium has written before.
    pub duplicates: u64,
    /// Records of Debezium's of events from before the start.
    pub older: u64,
    /// Records without the header `id`, in topics whose records have one: somebody
    /// else's.
    pub foreign: u64,
    /// Events and records whose partner may still have come at the end.
    pub pending: u64,
}

impl Summary {
    /// Whether anything differs that is not documented.
    pub fn differs(&self) -> bool {
        self.missing > 0 || self.extra > 0 || !self.different.is_empty()
    }

    /// Pairs.
    pub fn compared(&self) -> u64 {
        let orders = self.documented.get(&Documented::MemberOrder);
        self.equal + self.different.values().sum::<u64>() + orders.copied().unwrap_or_default()
    }
}
