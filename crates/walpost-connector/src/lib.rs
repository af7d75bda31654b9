//! The configuration of Debezium's PostgreSQL connector with the Outbox Event
//! Router: read, judged property by property, and made settings.
//!
//! [`Properties::read`] takes the file, in any form that Kafka Connect takes,
//! and [`Properties::resolve`] replaces its placeholders by what [`Providers`]
//! may read. [`judge`](judge()) gives every property a [`Verdict`] by the table
//! [`SECTIONS`], and the [`Connector`] if none is refused: a layer of Walpost's
//! own configuration, and what no key of it can say. Nothing is passed
//! over in silence: Debezium does not look at names that it does not know, and
//! so it takes a misspelt one for its default.
//!
//! ```
//! use walpost_connector::{Properties, Unknown, judge};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/orders.json");
//! # let file = std::fs::read(path)?;
//! let properties = Properties::read(&file)?;
//! let (connector, verdicts) = judge(&properties, None, Unknown::Refuse).into_connector()?;
//! let slot = connector.settings.iter().find(|setting| setting.key == "slot").unwrap();
//! assert_eq!((slot.section, slot.value.as_text()), ("pipeline", Some("orders")));
//! assert_eq!((&*slot.property, slot.at.map(|at| at.line)), ("slot.name", Some(14)));
//! assert_eq!(connector.transforms.router.alias, "outbox");
//! assert_eq!(verdicts.counts().refused, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No I/O, but for `providers.rs`, which reads files and the environment as far
//! as it is allowed. What the settings do is not here.

mod check;
mod choices;
mod connector;
mod error;
mod java_properties;
mod json;
mod judge;
mod layer;
mod lists;
mod manual;
mod nearest;
mod placeholders;
mod properties;
mod providers;
mod secret;
mod settings;
mod table;
mod verdicts;

pub use crate::{
    choices::*,
    connector::{Connector, Judgement, judge},
    error::{Position, ReadError, ReadProblem},
    judge::Unknown,
    layer::{Setting, SettingValue},
    manual::manual,
    placeholders::{MAX_PLACEHOLDERS, Reference, ResolveError},
    properties::{InitialState, MAX_BYTES, MAX_PROPERTIES, Properties, Property},
    providers::{Allowed, ProviderError, Providers},
    secret::{HIDDEN, Secret},
    settings::*,
    table::{
        ConverterClass, Kind, Native, Of, PredicateClass, Rule, SECTIONS, Section, Standing,
        TransformClass, When,
    },
    verdicts::{Counts, Origin, Refused, Row, Verdict, Verdicts},
};
