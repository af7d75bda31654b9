//! An outbox row to a record, under the configuration of Debezium's Outbox
//! Event Router.
//!
//! No I/O, no clock, no log. What makes Debezium's task die (a NULL route
//! value, a missing column, a value of the wrong type) is a [`RouteError`]
//! here, so that the event can be parked; what Debezium finds only at its first
//! row (a misspelt placement, an unknown group in the replacement) is a
//! [`ConfigError`].
//!
//! ```
//! use std::sync::Arc;
//! use walpost_event::{Column, Relation, ReplicaIdentity, Row, RowChange, type_oid};
//! use walpost_router::{Routed, Router, RouterConfig};
//!
//! let columns = ["id", "aggregatetype", "aggregateid", "type", "payload"].map(|name| Column {
//!     name: name.into(),
//!     type_oid: type_oid::TEXT,
//!     type_modifier: -1,
//!     is_key: name == "id",
//! });
//! let relation = Arc::new(Relation {
//!     oid: 16_400,
//!     schema: "public".into(),
//!     name: "outbox".into(),
//!     replica_identity: ReplicaIdentity::Default,
//!     columns: columns.into(),
//! });
//! let row = Row::from_text(
//!     relation,
//!     [Some("e1"), Some("order"), Some("42"), Some("OrderPlaced"), Some("{}")],
//! );
//!
//! let mut router = Router::new(RouterConfig::default())?;
//! let Routed::Record(record) = router.route(&RowChange::insert(row))? else {
//!     panic!("an insert is routed")
//! };
//! assert_eq!(&*record.topic, "outbox.event.order");
//! assert_eq!(record.key.and_then(|key| key.bytes).as_deref(), Some(&b"42"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: JSON expansion of the payload (`table.expand.json.payload`),
//! tracing spans (`tracing.*`) and Connect schema versions
//! (`table.field.event.schema.version`). [`RouterConfig::from_properties`]
//! refuses them.

mod config;
mod error;
mod headers;
mod java_regex;
mod message;
mod name_filter;
mod names;
mod pattern;
mod placement;
mod plan;
mod properties;
mod replacement;
mod rewrite;
mod route;
mod timestamp;
mod topic;
mod value;

pub use crate::{
    config::{InvalidOperation, MissingColumn, NullHeader, RouterConfig},
    error::{ConfigError, RouteError, RouteErrorKind},
    java_regex::{GaveUp, JavaOnly},
    message::{MESSAGE_RELATION, MESSAGE_SCHEMA},
    name_filter::NameFilter,
    names::NameAdjustment,
    pattern::{Pattern, PatternError},
    placement::PlacementProblem,
    replacement::ReplacementError,
    rewrite::{Rewrite, RewriteError},
    route::{Routed, Router, SkipReason},
};
