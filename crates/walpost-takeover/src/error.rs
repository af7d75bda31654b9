/// A stored offset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffsetError {
    /// The value is no JSON object.
    #[error("the stored offset is no JSON object")]
    NotAnObject,
    /// A field is missing.
    #[error("the stored offset has no {field}")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field holds something else than it should.
    #[error("{field} of the stored offset is not {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The key is not that of a source partition.
    #[error("the key is no array of a connector's name and a source partition")]
    Key,
    /// The connector has stopped in its initial snapshot.
    #[error(
        "the connector stopped in the middle of its snapshot, so nobody knows which rows it has published"
    )]
    SnapshotRunning,
    /// The connector has stopped in an incremental snapshot.
    #[error(
        "the connector stopped in the middle of an incremental snapshot, whose other rows nobody would publish"
    )]
    IncrementalSnapshot,
}

impl OffsetError {
    /// What an operator can do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::SnapshotRunning => {
                "start the connector again, let it finish its snapshot and stream one event, and \
                 stop it in order; or delete its offset and slot and begin without it, with \
                 pipeline.initial = \"publish\", which publishes every row of the outbox table"
            }
            Self::IncrementalSnapshot => {
                "start the connector again and let it finish the incremental snapshot, or stop \
                 that by a signal; then stop the connector in order"
            }
            _ => {
                "check which connector and which offsets are named; what Kafka Connect holds is \
                 told by GET /connectors/<name>/offsets of its REST interface"
            }
        }
    }
}
