use std::{collections::BTreeMap, sync::Arc};

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
    /// Events that Walpost has and Debezium has not within the grace.
    pub extra: u64,
    /// Records of events that were told as extra: Debezium lags by more than the grace.
    pub late: u64,
    /// Differences that are documented.
    pub documented: BTreeMap<Documented, u64>,
    /// Records that Debezium has written before.
    pub duplicates: u64,
    /// Records of Debezium's of events from before the start.
    pub older: u64,
    /// Records without a partner that may be somebody else's: in topics that Walpost
    /// has no record for, or without the header `id` where records have one.
    pub foreign: u64,
    /// Of these, how many there are in topics that Walpost has no record for; of
    /// [`FOREIGN_TOPICS_MOST`](Self::FOREIGN_TOPICS_MOST) topics.
    pub foreign_topics: BTreeMap<Arc<str>, u64>,
    /// Records that were let go with their events: more waited on both sides than
    /// may.
    pub uncompared: u64,
    /// Events and records whose partner may still have come at the end.
    pub pending: u64,
}

impl Summary {
    /// So many topics of others are named.
    pub const FOREIGN_TOPICS_MOST: usize = 20;

    /// Whether anything differs that is not documented.
    pub fn differs(&self) -> bool {
        self.missing > 0 || self.extra > 0 || !self.different.is_empty()
    }

    /// Pairs.
    pub fn compared(&self) -> u64 {
        let orders = self.documented.get(&Documented::MemberOrder);
        self.equal + self.different.values().sum::<u64>() + orders.copied().unwrap_or_default()
    }

    /// A record of somebody else; of a topic that may be none of the connector's.
    pub(crate) fn add_foreign(&mut self, topic: Option<&Arc<str>>) {
        self.foreign += 1;
        let Some(topic) = topic else { return };
        if let Some(count) = self.foreign_topics.get_mut(topic) {
            *count += 1;
        } else if self.foreign_topics.len() < Self::FOREIGN_TOPICS_MOST {
            self.foreign_topics.insert(topic.clone(), 1);
        }
    }
}
