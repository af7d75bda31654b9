//! What a checkpoint commits, and how far a first start or a recovery has come, as
//! the row says it.

use serde_json::{Value, json};
use walpost_event::{Generation, Lsn};

use crate::proven::PairChanges;

/// What a checkpoint commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    pub(crate) confirmed: Lsn,
    pub(crate) floors: Value,
    pub(crate) pairs: PairChanges,
    /// Messages that are in no table were published.
    pub(crate) has_messages: bool,
}

/// How far the first start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// The slot is about to be created, or was and nobody noted it.
    Creating,
    /// The rows of this snapshot have to be published before the stream.
    Publish { boundary: String },
    /// Nothing is left to do.
    Done,
    /// A slot is about to be created in the place of a lost one, or was and
    /// nobody noted it.
    Recreating(Loss),
    /// The rows of this snapshot that the proven one does not see have to be
    /// published before the stream of the new slot.
    Recover { loss: Loss, boundary: String },
}

impl InitialState {
    pub(super) fn columns(&self) -> (&'static str, Option<&str>, Option<Value>) {
        match self {
            Self::Creating => ("creating", None, None),
            Self::Publish { boundary } => ("publish", Some(boundary), None),
            Self::Done => ("done", None, None),
            Self::Recreating(loss) => ("done", None, Some(loss.to_json(None))),
            Self::Recover { loss, boundary } => ("done", None, Some(loss.to_json(Some(boundary)))),
        }
    }
}

/// What is to be known of a slot that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Of what was published from it.
    pub(crate) generation: Generation,
    /// Where the server had left a timeline that the lost slot was on: what was
    /// published from there on is not in this database.
    pub(crate) left_at: Option<Lsn>,
}

impl Loss {
    fn to_json(self, boundary: Option<&str>) -> Value {
        json!({
            "generation": self.generation.to_string(),
            "left_at": self.left_at.map(|lsn| lsn.to_string()),
            "snapshot": boundary,
        })
    }

    pub(super) fn state_from_json(value: &Value) -> Option<InitialState> {
        let left_at = match &value["left_at"] {
            Value::Null => None,
            lsn => Some(lsn.as_str()?.parse().ok()?),
        };
        let loss = Self { generation: value["generation"].as_str()?.parse().ok()?, left_at };
        match &value["snapshot"] {
            Value::Null => Some(InitialState::Recreating(loss)),
            boundary => Some(InitialState::Recover { loss, boundary: boundary.as_str()?.into() }),
        }
    }
}

/// What somebody accepts who wants a lost slot to be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Messages that were in the lost WAL alone.
    pub(crate) messages: bool,
    /// Rows that were deleted before they were published.
    pub(crate) deleted: bool,
}

impl Accepted {
    pub(crate) fn to_json(self) -> Value {
        json!({ "messages": self.messages, "deleted": self.deleted })
    }

    pub(super) fn from_json(value: &Value) -> Self {
        let is = |key: &str| value[key].as_bool().unwrap_or(false);
        Self { messages: is("messages"), deleted: is("deleted") }
    }
}
