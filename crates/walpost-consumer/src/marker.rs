use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What Walpost writes beside an offset that it commits to Kafka.
///
/// Kafka's own tools drop it when they set an offset; that is how a reset is
/// told from a commit of ours. One line of JSON, below 1 KiB for names of sane
/// length (Kafka's default limit is 4 KiB).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Version of this layout.
    walpost: u8,
    /// Name of the consumer, not of the group.
    pub consumer: String,
    /// Cluster that the offset belongs to.
    pub cluster: String,
    /// Id of the topic that the offset belongs to.
    pub topic: String,
    /// The offset it stands beside.
    pub offset: i64,
    /// Epoch of the claim that committed.
    pub epoch: i64,
    /// The last reset of the partition.
    pub reset: Option<Uuid>,
}

impl Marker {
    const VERSION: u8 = 1;

    /// `None` for metadata of others.
    pub fn parse(metadata: &[u8]) -> Option<Self> {
        let marker: Self = serde_json::from_slice(metadata).ok()?;
        (marker.walpost == Self::VERSION).then_some(marker)
    }

    /// Whether it was written by `owner`, for the offset `offset`.
    pub fn names(&self, owner: &Owner, offset: i64) -> bool {
        self.offset == offset
            && self.consumer == owner.consumer
            && self.cluster == owner.cluster
            && self.topic == owner.topic
    }

    /// Whether it stands beside `offset` of a topic that had the name before,
    /// and was deleted: a late commit goes by name.
    pub(crate) fn is_of_deleted_topic(&self, owner: &Owner, offset: i64) -> bool {
        self.offset == offset && self.cluster == owner.cluster && self.topic != owner.topic
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Whose offsets they are: the part of a [`Marker`] that a claim fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the consumer.
    pub consumer: String,
    /// Id of the cluster.
    pub cluster: String,
    /// Id of the topic.
    pub topic: String,
}

impl Owner {
    /// The marker that stands beside `offset`.
    pub fn marker(&self, offset: i64, epoch: i64, reset: Option<Uuid>) -> Marker {
        Marker {
            walpost: Marker::VERSION,
            consumer: self.consumer.clone(),
            cluster: self.cluster.clone(),
            topic: self.topic.clone(),
            offset,
            epoch,
            reset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { consumer: "shipping \"é\"".into(), cluster: "c".into(), topic: "t".into() }
    }

    #[test]
    fn reads_what_it_writes() {
        let marker = owner().marker(7, 3, Some(Uuid::from_u128(9)));
        assert_eq!(Marker::parse(marker.to_string().as_bytes()), Some(marker));
    }

    #[test]
    fn metadata_of_others_is_no_marker() {
        for metadata in [
            &b""[..],
            b"\xff\xfe",
            b"{}",
            b"NO_METADATA",
            br#"{"walpost":2,"consumer":"a","cluster":"c","topic":"t","offset":1,"epoch":1,"reset":null}"#,
        ] {
            assert_eq!(Marker::parse(metadata), None);
        }
    }

    #[test]
    fn names_its_own_offset_and_owner_alone() {
        let marker = owner().marker(7, 3, None);
        assert!(marker.names(&owner(), 7));
        assert!(!marker.names(&owner(), 8));
        for other in [
            Owner { consumer: "x".into(), ..owner() },
            Owner { cluster: "x".into(), ..owner() },
            Owner { topic: "x".into(), ..owner() },
        ] {
            assert!(!marker.names(&other, 7));
        }
    }
}
