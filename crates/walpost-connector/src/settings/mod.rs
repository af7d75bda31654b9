//! The settings of a connector, by what they are about.

pub(crate) mod converters;
pub(crate) mod database;
pub(crate) mod filters;
pub(crate) mod handling;
mod jaas;
pub(crate) mod kafka;
pub(crate) mod operations;
mod registry;
pub(crate) mod router;
pub(crate) mod slot;
pub(crate) mod snapshot;
pub(crate) mod topics;
pub(crate) mod transforms;

pub use self::{
    converters::{Avro, Converter, Converters, HeaderConverter, Json, JsonSchema, Protobuf},
    database::Database,
    filters::{SignalTable, Tables},
    handling::{ContextHeaders, Handling, SkippedOperations},
    operations::{Heartbeat, Messages, Offsets},
    registry::{Login, Registry, SubjectStrategy},
    router::{JsonExpansion, OutboxRouter},
    slot::{Progress, Publication, Slot},
    snapshot::{SelectOverride, Snapshot, SnapshotConfiguration},
    topics::{TopicCreation, TopicGroup},
    transforms::{Action, Condition, Test, Transform, Transforms},
};
