//! What Debezium and Kafka Connect make of a row, byte for byte.
//!
//! Three steps, each with its own configuration:
//!
//! 1. A column becomes a [`Value`] with a [`Schema`], as Debezium's PostgreSQL
//!    connector has it: [`Column`], [`ColumnOptions`], and for a whole table
//!    [`RowShape`]. What the stream does not say of a column comes from the
//!    catalog: [`CatalogColumn`], [`TypeDescription`].
//! 2. The parts of a record become one value: the envelope, and the payload if
//!    its JSON is expanded ([`Expander`]). [`Typing`] makes a [`TypedRecord`],
//!    which transforms may change.
//! 3. A [`Converter`] makes bytes of each part: [`Converters`].
//!
//! [`ConnectEncoding`] is the last two at once.
//!
//! ```
//! use std::sync::Arc;
//! use walpost_encode::connect::{
//!     Column, ColumnDescription, ColumnOptions, Converter, JsonConverter, JsonConverterOptions,
//! };
//! use walpost_event::type_oid;
//!
//! let described = ColumnDescription::from_type("payload".into(), type_oid::JSONB, -1);
//! let column = Column::new(&described, &ColumnOptions::default()).expect("a known type");
//! let value = column.value(Some(&r#"{"a": 1}"#.into()))?;
//!
//! let mut converter = Converter::Json(JsonConverter::new(JsonConverterOptions::default()));
//! let bytes = converter.convert("topic", Some(column.schema()), &value)?.expect("a value");
//! assert_eq!(
//!     bytes,
//!     concat!(
//!         r#"{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","#,
//!         r#""version":1},"payload":"{\"a\": 1}"}"#
//!     )
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where Debezium's task dies on a value, it is an error here, and the event is
//! to be parked. Where it loses a part of the payload, [`Difference`] says so.
//! Numbers are written as Java 19 and later writes them; before, Java did not
//! always find the shortest text of a floating-point number.
//! What looks at the time zone of the machine in Java is in UTC here.

mod array;
mod charset;
mod column;
mod convert;
mod converter;
mod decimal;
mod default;
mod description;
mod encoding;
mod envelope;
mod expand;
mod geometry;
mod hex;
mod hstore;
mod interval;
mod java_map;
mod json;
mod literal;
mod oid;
mod options;
mod origin;
mod schema;
mod shape;
mod temporal;
mod text;
mod transforms;
mod typed;
mod typing;
mod value;

pub use self::{
    charset::Charset,
    column::Column,
    converter::{Converter, HeaderConverter, Unconverted},
    decimal::Decimal,
    description::{ColumnDescription, TypeDescription, TypeKind},
    encoding::{ConnectEncoding, Converters},
    envelope::EnvelopeNames,
    expand::{Difference, EmptyArray, ExpandOptions, Expander, NullField, OnDifference},
    json::{DecimalFormat, JsonConverter, JsonConverterOptions},
    literal::literal,
    options::{
        BinaryHandling, ColumnOptions, DecimalHandling, HstoreHandling, IntervalHandling,
        NameAdjustment, TimePrecision,
    },
    schema::{Kind, Schema, SchemaField},
    shape::{CatalogColumn, RowShape, ShapeOptions},
    transforms::{
        Action, Condition, HeaderOperation, Inserted, InsertedField, Test, Transform,
        TransformChain, Transformed, Transforms,
    },
    typed::{TypedHeader, TypedRecord, TypedValue},
    typing::{Typing, TypingOptions},
    value::{Text, Value},
};
#[cfg(feature = "avro")]
pub(crate) use self::{
    java_map::{JavaMap, hash_of_text, in_java_order},
    json::{date_number, decimal_scale},
    temporal::{MILLIS_PER_DAY, civil_of},
};
