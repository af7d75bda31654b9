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
    /// In the commit that asks for `reset`: the row that it was made from. `None`
    /// in every later commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
}

/// The row of a partition as a reset found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The stored offset.
    pub from: i64,
    /// The reset before: without it the row may have come back to the offset.
    pub after: Option<Uuid>,
}

/// What the row of a partition knows of commits to Kafka.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The stored offset.
    pub next_offset: Option<i64>,
    /// Other offsets that Kafka may hold.
    pub offsets: &'a [i64],
    /// The last epoch that may have committed.
    pub epoch: i64,
    /// The last reset.
    pub reset: Option<Uuid>,
    /// Whether the marker's reset was carried out.
    pub has_reset: bool,
}

impl Known<'_> {
    fn knows(&self, offset: i64) -> bool {
        self.next_offset == Some(offset) || self.offsets.contains(&offset)
    }
}

/// A marker of the consumer, compared with the row of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The row has made the commit.
    Known,
    /// The commit asks for this reset, and the row has not moved since.
    Pending(Uuid),
    /// The row does not know the reset, the epoch or the offset: the database is
    /// older than the group.
    Newer,
}

impl Marker {
    const VERSION: u8 = 1;

    /// `None` for metadata of others.
    pub fn parse(metadata: &[u8]) -> Option<Self> {
        let marker: Self = serde_json::from_slice(metadata).ok()?;
        (marker.walpost == Self::VERSION).then_some(marker)
    }

    /// Whether it was written by `owner`, for whichever offset.
    pub fn is_of(&self, owner: &Owner) -> bool {
        self.consumer == owner.consumer
            && self.cluster == owner.cluster
            && self.topic == owner.topic
    }

    /// Marks the commit that asks for its reset.
    #[must_use]
    pub fn pending(self, pending: Option<Pending>) -> Self {
        Self { pending, ..self }
    }

    /// Compares it with the row of its partition.
    pub fn standing(&self, row: &Known<'_>) -> Standing {
        match self.reset {
            Some(reset) if !row.has_reset => match self.pending {
                Some(Pending { from, after })
                    if row.next_offset == Some(from) && row.reset == after =>
                {
                    Standing::Pending(reset)
                }
                // A later reset has moved the row meanwhile.
                Some(Pending { from, .. }) if row.knows(from) => Standing::Known,
                _ => Standing::Newer,
            },
            _ if self.epoch > row.epoch => Standing::Newer,
            _ if row.knows(self.offset) => Standing::Known,
            _ => Standing::Newer,
        }
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
            pending: None,
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
    fn markers_without_a_pending_reset_are_read_and_written_as_before() {
        let text = r#"{"walpost":1,"consumer":"a","cluster":"c","topic":"t","offset":1,"epoch":1,"reset":null}"#;
        assert_eq!(Marker::parse(text.as_bytes()).unwrap().to_string(), text);
        let pending = Some(Pending { from: 40, after: None });
        let pending = owner().marker(7, 3, Some(Uuid::from_u128(9))).pending(pending);
        assert_eq!(Marker::parse(pending.to_string().as_bytes()), Some(pending));
    }

    #[test]
    fn a_marker_is_newer_if_the_row_lacks_its_reset_epoch_or_offset() {
        let id = Uuid::from_u128(9);
        let (next_offset, offsets) = (Some(40), &[7, 20]);
        let row = Known { next_offset, offsets, epoch: 3, reset: Some(id), has_reset: true };
        let of = |offset, epoch, reset| owner().marker(offset, epoch, reset);
        for offset in [7, 20, 40] {
            for reset in [None, Some(id)] {
                assert_eq!(of(offset, 3, reset).standing(&row), Standing::Known);
                assert_eq!(of(offset, 4, reset).standing(&row), Standing::Newer, "the epoch");
            }
        }
        assert_eq!(of(41, 3, None).standing(&row), Standing::Newer, "the offset");
        let without = Known { has_reset: false, ..row };
        assert_eq!(of(40, 3, Some(id)).standing(&without), Standing::Newer, "the reset");
        assert_eq!(of(40, 3, None).standing(&without), Standing::Known);
    }

    #[test]
    fn a_reset_is_pending_over_the_offset_that_it_starts_from_alone() {
        let id = Uuid::from_u128(9);
        let asks = owner().marker(7, 3, Some(id)).pending(Some(Pending { from: 40, after: None }));
        let (next_offset, offsets) = (Some(40), &[]);
        let row = Known { next_offset, offsets, epoch: 3, reset: None, has_reset: false };
        assert_eq!(asks.standing(&row), Standing::Pending(id));
        for next_offset in [None, Some(7), Some(39), Some(41)] {
            assert_eq!(asks.standing(&Known { next_offset, ..row }), Standing::Newer);
        }
        let overridden = Known { next_offset: Some(90), offsets: &[40], ..row };
        assert_eq!(asks.standing(&overridden), Standing::Known, "by a later reset");
        let back = Known { reset: Some(Uuid::from_u128(8)), ..row };
        assert_eq!(asks.standing(&back), Standing::Known, "it was elsewhere meanwhile");
        let done = Known { next_offset: Some(7), has_reset: true, ..row };
        assert_eq!(asks.standing(&done), Standing::Known);
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
    fn a_marker_is_of_its_owner_alone() {
        let marker = owner().marker(7, 3, None);
        assert!(marker.is_of(&owner()));
        for other in [
            Owner { consumer: "x".into(), ..owner() },
            Owner { cluster: "x".into(), ..owner() },
            Owner { topic: "x".into(), ..owner() },
        ] {
            assert!(!marker.is_of(&other));
        }
    }
}
