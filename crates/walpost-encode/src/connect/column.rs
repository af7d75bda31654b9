//! A column's type to the schema of its values, and to how they are read.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    default,
    description::{ColumnDescription, TypeDescription, TypeKind},
    hex, oid,
    options::{
        BinaryHandling, ColumnOptions, DecimalHandling, HstoreHandling, IntervalHandling,
        TimePrecision,
    },
    schema::{Kind, Schema},
    value::{Text, Value},
};
use crate::error::EncodeErrorKind;

/// The length that Debezium has for a `varbit` without one.
const NO_LENGTH: i32 = i32::MAX;

/// Fractional digits of a time whose column names no number of them.
const TIME_DIGITS: i32 = 6;

/// How the text of a column becomes a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Boolean,
    Text,
    Bytea(BinaryHandling),
    /// A single bit.
    Bit,
    Bits,
    /// With this scale.
    Decimal(DecimalHandling, i32),
    VariableDecimal,
    Money(DecimalHandling, i32),
    Date(TimePrecision),
    Time(TimePrecision, i32),
    Timestamp(TimePrecision, i32),
    ZonedTime,
    ZonedTimestamp(i32),
    Interval(IntervalHandling),
    Hstore(HstoreHandling),
    Point,
    Box,
    Segment,
    Path,
    Polygon,
    Circle,
    Line,
    Geometry,
    Geography,
    Vector64,
    Vector32,
    SparseVector,
    Array(Box<Self>, char),
    /// Debezium knows the type and yet sends no value.
    Nothing,
    /// Text of an unknown type.
    Unknown(BinaryHandling),
    /// Debezium fails on every value but NULL.
    Impossible,
}

/// A column: the schema of its values, and how they are read.
#[derive(Clone, Debug)]
pub struct Column {
    name: Arc<str>,
    schema: Arc<Schema>,
    codec: Codec,
    /// Text of the default.
    default: Option<String>,
    type_oid: u32,
}

impl Column {
    /// The column as Debezium has it under these options; `None` where Debezium
    /// leaves it out of the row, as it does not know the type.
    ///
    /// The default is part of the schema where Debezium can evaluate it: a
    /// literal; of a function, whatever it does, the zero of the type.
    pub fn new(description: &ColumnDescription, options: &ColumnOptions) -> Option<Self> {
        let ColumnDescription { name, data_type, modifier, nullable, default } = description;
        let (codec, mut schema) = resolve(data_type, *modifier, *options)?;
        let default_text = default.as_deref().and_then(|text| default::text(data_type, text));
        let default = default_text
            .and_then(|text| Some((codec.convert_slice(text.as_bytes()).ok()?, text)))
            .filter(|(value, _)| !matches!(value, Value::Null | Value::Struct(_)));
        schema.optional |= nullable;
        let (value, text) = default.unzip();
        schema.default = value;
        let type_oid = data_type.oid;
        Some(Self { name: Arc::clone(name), schema: schema.into(), codec, default: text, type_oid })
    }

    /// Name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        *self.name == *name
    }

    /// The schema of its values.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The text that stands for NULL where Debezium reads the column: it
    /// substitutes the default.
    pub fn default_text(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The value of a field of this column.
    ///
    /// # Errors
    /// [`EncodeErrorKind::Malformed`] for text that its type cannot have, and
    /// for values on which Debezium fails: `NaN` and the infinities of
    /// `numeric` under `precise`, a `timetz` whose offset has seconds, the
    /// infinities of `interval`, a `money` with a currency of several letters,
    /// arrays of arrays of text, NULL in an array of an enum, and arrays of
    /// geometric types.
    pub fn value(&self, text: Option<&Bytes>) -> Result<Value, EncodeErrorKind> {
        let Some(text) = text else {
            return Ok(Value::Null);
        };
        let decoded = self.bytes_of_domain(text)?;
        let text = decoded.as_ref().unwrap_or(text);
        let value = self.codec.convert(text).map_err(|error| error.of(self.type_oid, text))?;
        match value {
            Value::Null if !self.schema.optional && self.codec == Codec::Nothing => {
                Ok(Value::String(Text::default()))
            }
            value if self.allows(&value) => Ok(value),
            _ => Err(EncodeErrorKind::Malformed { type_oid: self.type_oid, len: text.len() }),
        }
    }

    /// What the text of a domain over `bytea` encodes; that of `bytea` itself comes
    /// decoded.
    fn bytes_of_domain(&self, text: &Bytes) -> Result<Option<Bytes>, EncodeErrorKind> {
        if !matches!(self.codec, Codec::Bytea(_)) || self.type_oid == oid::BYTEA {
            return Ok(None);
        }
        let digits = std::str::from_utf8(text).ok().and_then(|text| text.strip_prefix("\\x"));
        let malformed = EncodeErrorKind::Malformed { type_oid: self.type_oid, len: text.len() };
        digits.and_then(hex::parse).map(|bytes| Some(bytes.into())).ok_or(malformed)
    }

    /// NULL is where the schema has it.
    fn allows(&self, value: &Value) -> bool {
        match (value, &self.schema.kind) {
            (Value::Null, _) => self.schema.optional,
            (Value::Array(elements), Kind::Array(element)) => {
                element.optional || !elements.contains(&Value::Null)
            }
            _ => true,
        }
    }
}

/// Codec and schema, the latter required.
fn resolve(
    data_type: &TypeDescription,
    modifier: i32,
    options: ColumnOptions,
) -> Option<(Codec, Schema)> {
    match &data_type.kind {
        TypeKind::Domain { base, modifier: of_domain } => {
            let modifier = if modifier == -1 { *of_domain } else { modifier };
            resolve(base, modifier, options)
        }
        TypeKind::Enum { labels } => {
            let schema = Schema::logical(Kind::String, "io.debezium.data.Enum", 1);
            Some((Codec::Text, schema.parameter("allowed", &labels.join(","))))
        }
        TypeKind::Array { element, delimiter } => array(element, *delimiter, modifier, options),
        TypeKind::Base => built_in(data_type.oid, modifier, options)
            .or_else(|| of_extension(&data_type.name, options))
            .or_else(|| unknown(options)),
    }
}

fn unknown(options: ColumnOptions) -> Option<(Codec, Schema)> {
    let known = options.unknown_types;
    known.then(|| (Codec::Unknown(options.binary), binary(options.binary)))
}

fn array(
    element: &TypeDescription,
    delimiter: char,
    modifier: i32,
    options: ColumnOptions,
) -> Option<(Codec, Schema)> {
    match element.oid {
        oid::BIT => {
            let (_, schema) = bits(modifier);
            return Some((Codec::Impossible, schema));
        }
        oid::MONEY | oid::NAME | oid::INTERVAL | oid::VARBIT | oid::XML | oid::POINT => {
            return None;
        }
        _ => {}
    }
    let (codec, mut schema) = match element.kind {
        // Debezium does not know their elements.
        TypeKind::Domain { .. } => unknown(options)?,
        _ => resolve(element, modifier, options)?,
    };
    // Those are built apart, and may be NULL only where their type says so.
    let is_apart = matches!(element.kind, TypeKind::Enum { .. })
        || matches!(codec, Codec::Unknown(_))
        || matches!(element.oid, oid::BOX | oid::LSEG | oid::PATH | oid::POLYGON | oid::CIRCLE)
        || matches!(element.oid, oid::LINE | oid::TSVECTOR)
        || matches!(&*element.name, "vector" | "halfvec" | "sparsevec" | "isbn");
    schema.optional |= !is_apart;
    // Debezium takes its own structs for others in an array that is built apart.
    let is_broken = is_apart && matches!(schema.kind, Kind::Struct(_));
    let codec = if is_broken { Codec::Impossible } else { codec };
    Some((Codec::Array(Box::new(codec), delimiter), Schema::array(schema)))
}

fn built_in(type_oid: u32, modifier: i32, options: ColumnOptions) -> Option<(Codec, Schema)> {
    let plain = |codec, kind| Some((codec, Schema::new(kind)));
    let named = |codec, kind, name: &str| Some((codec, Schema::logical(kind, name, 1)));
    match type_oid {
        oid::BOOL => plain(Codec::Boolean, Kind::Boolean),
        oid::INT2 => plain(Codec::Int16, Kind::Int16),
        oid::INT4 => plain(Codec::Int32, Kind::Int32),
        oid::INT8 | oid::OID => plain(Codec::Int64, Kind::Int64),
        oid::FLOAT4 => plain(Codec::Float32, Kind::Float32),
        oid::FLOAT8 => plain(Codec::Float64, Kind::Float64),
        oid::NAME if options.unknown_types => plain(Codec::Text, Kind::String),
        oid::NAME => plain(Codec::Nothing, Kind::String),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::CHAR => plain(Codec::Text, Kind::String),
        oid::INET | oid::CIDR | oid::MACADDR | oid::MACADDR8 => plain(Codec::Text, Kind::String),
        oid::INT4RANGE | oid::NUMRANGE | oid::TSRANGE => plain(Codec::Text, Kind::String),
        oid::TSTZRANGE | oid::DATERANGE | oid::INT8RANGE => plain(Codec::Text, Kind::String),
        oid::UUID => named(Codec::Text, Kind::String, "io.debezium.data.Uuid"),
        oid::JSON | oid::JSONB => named(Codec::Text, Kind::String, "io.debezium.data.Json"),
        oid::XML => named(Codec::Text, Kind::String, "io.debezium.data.Xml"),
        oid::TSVECTOR => named(Codec::Text, Kind::String, "io.debezium.data.Tsvector"),
        oid::BYTEA => Some((Codec::Bytea(options.binary), binary(options.binary))),
        oid::BIT => Some(bits(modifier)),
        oid::VARBIT => Some(bits(if modifier == -1 { NO_LENGTH } else { modifier })),
        oid::NUMERIC => Some(numeric(modifier, options.decimal)),
        oid::MONEY => Some(money(options)),
        oid::DATE | oid::TIME | oid::TIMESTAMP => Some(temporal(type_oid, modifier, options.time)),
        oid::TIMETZ => named(Codec::ZonedTime, Kind::String, "io.debezium.time.ZonedTime"),
        oid::TIMESTAMPTZ => {
            let codec = Codec::ZonedTimestamp(digits(modifier));
            named(codec, Kind::String, "io.debezium.time.ZonedTimestamp")
        }
        oid::INTERVAL => match options.interval {
            mode @ IntervalHandling::Numeric => {
                named(Codec::Interval(mode), Kind::Int64, "io.debezium.time.MicroDuration")
            }
            mode @ IntervalHandling::String => {
                named(Codec::Interval(mode), Kind::String, "io.debezium.time.Interval")
            }
        },
        _ => geometric(type_oid),
    }
}

fn geometric(type_oid: u32) -> Option<(Codec, Schema)> {
    let float = || Schema::new(Kind::Float64);
    Some(match type_oid {
        oid::POINT => (Codec::Point, point()),
        oid::BOX => (Codec::Box, geometry()),
        oid::LSEG => (Codec::Segment, geometry()),
        oid::PATH => (Codec::Path, geometry()),
        oid::POLYGON => (Codec::Polygon, geometry()),
        oid::CIRCLE => {
            let kind = Schema::fields([("center", point()), ("radius", float())]);
            let schema = Schema::logical(kind, "io.debezium.data.geometry.Circle", 1);
            (Codec::Circle, schema.documented("Geometry (CIRCLE)").optional())
        }
        oid::LINE => {
            let kind = Schema::fields([("a", float()), ("b", float()), ("c", float())]);
            let schema = Schema::logical(kind, "io.debezium.data.geometry.Line", 1);
            (Codec::Line, schema.documented("Geometry (LINE)").optional())
        }
        _ => return None,
    })
}

fn point() -> Schema {
    let kind = Schema::fields([
        ("x", Schema::new(Kind::Float64)),
        ("y", Schema::new(Kind::Float64)),
        ("wkb", Schema::new(Kind::Bytes).optional()),
        ("srid", Schema::new(Kind::Int32).optional()),
    ]);
    Schema::logical(kind, "io.debezium.data.geometry.Point", 1).documented("Geometry (POINT)")
}

fn geometry() -> Schema {
    let text = || Arc::new(Schema::new(Kind::String));
    let kind = Schema::fields([
        ("wkb", Schema::new(Kind::Bytes)),
        ("srid", Schema::new(Kind::Int32).optional()),
        ("extensions", Schema::new(Kind::Map(text(), text())).optional()),
    ]);
    let schema = Schema::logical(kind, "io.debezium.data.geometry.Geometry", 2);
    schema.documented("Geometry").optional()
}

fn of_extension(name: &str, options: ColumnOptions) -> Option<(Codec, Schema)> {
    let shared = |schema: Schema| Arc::new(schema);
    Some(match name {
        "citext" | "isbn" => (Codec::Text, Schema::new(Kind::String)),
        "ltree" => (Codec::Text, Schema::logical(Kind::String, "io.debezium.data.Ltree", 1)),
        "hstore" => {
            let text = Schema::new(Kind::String);
            let schema = match options.hstore {
                HstoreHandling::Json => Schema::logical(Kind::String, "io.debezium.data.Json", 1),
                HstoreHandling::Map => {
                    Schema::new(Kind::Map(shared(text.clone()), shared(text.optional())))
                }
            };
            (Codec::Hstore(options.hstore), schema)
        }
        "vector" => {
            let kind = Kind::Array(shared(Schema::new(Kind::Float64)));
            (Codec::Vector64, Schema::logical(kind, "io.debezium.data.DoubleVector", 1))
        }
        "halfvec" => {
            let kind = Kind::Array(shared(Schema::new(Kind::Float32)));
            (Codec::Vector32, Schema::logical(kind, "io.debezium.data.FloatVector", 1))
        }
        "sparsevec" => {
            let (index, number) = (Schema::new(Kind::Int16), Schema::new(Kind::Float64));
            let vector = Schema::new(Kind::Map(shared(index.clone()), shared(number)));
            let kind = Schema::fields([("dimensions", index), ("vector", vector)]);
            let schema = Schema::logical(kind, "io.debezium.data.SparseDoubleVector", 1);
            (Codec::SparseVector, schema.documented("Sparse double vector"))
        }
        "geometry" => (Codec::Geometry, geometry()),
        "geography" => {
            let kind = Schema::fields([
                ("wkb", Schema::new(Kind::Bytes)),
                ("srid", Schema::new(Kind::Int32).optional()),
            ]);
            let schema = Schema::logical(kind, "io.debezium.data.geometry.Geography", 1);
            (Codec::Geography, schema.documented("Geography"))
        }
        _ => return None,
    })
}

fn binary(mode: BinaryHandling) -> Schema {
    match mode {
        BinaryHandling::Bytes => Schema::new(Kind::Bytes),
        BinaryHandling::Base64 | BinaryHandling::Base64UrlSafe | BinaryHandling::Hex => {
            Schema::new(Kind::String)
        }
    }
}

fn bits(length: i32) -> (Codec, Schema) {
    if length <= 1 {
        return (Codec::Bit, Schema::new(Kind::Boolean));
    }
    let schema = Schema::logical(Kind::Bytes, "io.debezium.data.Bits", 1);
    (Codec::Bits, schema.parameter("length", &length.to_string()))
}

/// Kafka Connect's decimal with this scale.
fn decimal(scale: i32) -> Schema {
    Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal", 1)
        .parameter("scale", &scale.to_string())
}

fn numeric(modifier: i32, mode: DecimalHandling) -> (Codec, Schema) {
    let (precision, scale) = match modifier {
        -1 => (0, 0),
        _ => ((modifier.wrapping_sub(4)) >> 16, modifier.wrapping_sub(4) & 0xffff),
    };
    let is_variable = precision == 0 && scale == 0;
    let codec = if is_variable && mode == DecimalHandling::Precise {
        Codec::VariableDecimal
    } else {
        Codec::Decimal(mode, if is_variable { -1 } else { scale })
    };
    let schema = match mode {
        DecimalHandling::Double => Schema::new(Kind::Float64),
        DecimalHandling::String => Schema::new(Kind::String),
        DecimalHandling::Precise if is_variable => {
            let kind = Schema::fields([
                ("scale", Schema::new(Kind::Int32)),
                ("value", Schema::new(Kind::Bytes)),
            ]);
            Schema::logical(kind, "io.debezium.data.VariableScaleDecimal", 1)
                .documented("Variable scaled decimal")
        }
        DecimalHandling::Precise => {
            decimal(scale).parameter("connect.decimal.precision", &precision.to_string())
        }
    };
    (codec, schema)
}

fn money(options: ColumnOptions) -> (Codec, Schema) {
    let scale = i32::from(options.money_fraction_digits);
    let schema = match options.decimal {
        DecimalHandling::Double => Schema::new(Kind::Float64),
        DecimalHandling::String => Schema::new(Kind::String),
        DecimalHandling::Precise => decimal(scale),
    };
    (Codec::Money(options.decimal, scale), schema)
}

fn digits(modifier: i32) -> i32 {
    if modifier == -1 { TIME_DIGITS } else { modifier }
}

fn temporal(type_oid: u32, modifier: i32, mode: TimePrecision) -> (Codec, Schema) {
    use TimePrecision as Mode;
    let digits = digits(modifier);
    let is_milli = digits <= 3;
    let (kind, name) = match (type_oid, mode) {
        (oid::DATE, Mode::Connect) => (Kind::Int32, "org.apache.kafka.connect.data.Date"),
        (oid::DATE, Mode::IsoString) => (Kind::String, "io.debezium.time.IsoDate"),
        (oid::DATE, _) => (Kind::Int32, "io.debezium.time.Date"),
        (oid::TIME, Mode::Connect) => (Kind::Int32, "org.apache.kafka.connect.data.Time"),
        (oid::TIME, Mode::IsoString) => (Kind::String, "io.debezium.time.IsoTime"),
        (oid::TIME, Mode::Nanoseconds) => (Kind::Int64, "io.debezium.time.NanoTime"),
        (oid::TIME, Mode::Adaptive) if is_milli => (Kind::Int32, "io.debezium.time.Time"),
        (oid::TIME, _) => (Kind::Int64, "io.debezium.time.MicroTime"),
        (_, Mode::Connect) => (Kind::Int64, "org.apache.kafka.connect.data.Timestamp"),
        (_, Mode::IsoString) => (Kind::String, "io.debezium.time.IsoTimestamp"),
        (_, Mode::Nanoseconds) => (Kind::Int64, "io.debezium.time.NanoTimestamp"),
        (_, Mode::Adaptive | Mode::AdaptiveTimeMicroseconds) if is_milli => {
            (Kind::Int64, "io.debezium.time.Timestamp")
        }
        _ => (Kind::Int64, "io.debezium.time.MicroTimestamp"),
    };
    let codec = match type_oid {
        oid::DATE => Codec::Date(mode),
        oid::TIME => Codec::Time(mode, digits),
        _ => Codec::Timestamp(mode, digits),
    };
    (codec, Schema::logical(kind, name, 1))
}
