//! The text of a column to its value.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use bytes::Bytes;

use super::{
    array::{self, Element},
    column::Codec,
    decimal::Decimal,
    geometry, hex, hstore,
    interval::Interval,
    java_map::JavaMap,
    options::{BinaryHandling, DecimalHandling, HstoreHandling, IntervalHandling, TimePrecision},
    temporal,
    value::{Text, Value},
};
use crate::{error::EncodeErrorKind, raw::parse_bool};

/// Why text is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Not UTF-8.
    NotUtf8,
    /// Not of its type, or nothing that Debezium can convert.
    Malformed,
}

impl Unfit {
    pub(crate) fn of(self, type_oid: u32, text: &[u8]) -> EncodeErrorKind {
        match self {
            Self::NotUtf8 => EncodeErrorKind::NotUtf8 { len: text.len() },
            Self::Malformed => EncodeErrorKind::Malformed { type_oid, len: text.len() },
        }
    }
}

impl Codec {
    /// `text` is the bytes themselves for `bytea`; text and bytes stay shared.
    pub(crate) fn convert(&self, text: &Bytes) -> Result<Value, Unfit> {
        match self {
            Self::Text => {
                Text::try_from(text.clone()).map(Value::String).map_err(|_| Unfit::NotUtf8)
            }
            Self::Bytea(BinaryHandling::Bytes) | Self::Unknown(BinaryHandling::Bytes) => {
                Ok(Value::Bytes(text.clone()))
            }
            _ => self.convert_slice(text),
        }
    }

    /// The same of what is not shared.
    pub(crate) fn convert_slice(&self, text: &[u8]) -> Result<Value, Unfit> {
        match self {
            Self::Bytea(mode) => return Ok(binary(text, *mode)),
            Self::Unknown(mode) => return Ok(binary(text, *mode)),
            Self::Boolean => {
                return parse_bool(text).map(Value::Boolean).map_err(|_| Unfit::Malformed);
            }
            Self::Nothing => return Ok(Value::Null),
            Self::Impossible => return Err(Unfit::Malformed),
            _ => {}
        }
        let text = std::str::from_utf8(text).map_err(|_| Unfit::NotUtf8)?;
        self.convert_text(text).ok_or(Unfit::Malformed)
    }

    fn convert_text(&self, text: &str) -> Option<Value> {
        Some(match self {
            Self::Text => Value::String(text.into()),
            Self::Int16 => Value::Int16(text.parse().ok()?),
            Self::Int32 => Value::Int32(text.parse().ok()?),
            Self::Int64 => Value::Int64(text.parse().ok()?),
            Self::Float32 => Value::Float32(text.parse().ok()?),
            Self::Float64 => Value::Float64(text.parse().ok()?),
            Self::Bit => Value::Boolean(parse_bits(text)?.iter().any(|byte| *byte != 0)),
            Self::Bits => Value::Bytes(parse_bits(text)?.into()),
            Self::Decimal(mode, scale) => return decimal(text, *mode, *scale),
            Self::VariableDecimal => {
                let decimal = Decimal::parse(text)?.normalized();
                let integer = Bytes::from(decimal.unscaled_bytes());
                Value::Struct(vec![Value::Int32(decimal.scale()), Value::Bytes(integer)])
            }
            Self::Money(mode, scale) => return money(text, *mode, *scale),
            Self::Date(mode) => date(temporal::parse_date(text)?, *mode),
            Self::Time(mode, digits) => time(temporal::parse_time(text)?, *mode, *digits),
            Self::Timestamp(mode, digits) => {
                timestamp(temporal::parse_timestamp(text)?, *mode, *digits)
            }
            Self::ZonedTime => Value::String(temporal::zoned_time(text)?.into()),
            Self::ZonedTimestamp(digits) => zoned_timestamp(text, *digits)?,
            Self::Interval(IntervalHandling::Numeric) => {
                Value::Int64(Interval::parse(text)?.total_micros())
            }
            Self::Interval(IntervalHandling::String) => {
                Value::String(Interval::parse(text)?.iso().into())
            }
            Self::Hstore(HstoreHandling::Json) => {
                Value::String(hstore::json(&hstore::entries(text)?).into())
            }
            Self::Hstore(HstoreHandling::Map) => hstore::map(hstore::entries(text)?),
            Self::Vector64 => vector(text, |number| number.parse().ok().map(Value::Float64))?,
            Self::Vector32 => vector(text, |number| number.parse().ok().map(Value::Float32))?,
            Self::SparseVector => sparse_vector(text)?,
            Self::Array(element, delimiter) => return array(text, element, *delimiter),
            _ => return self.convert_geometric(text),
        })
    }

    fn convert_geometric(&self, text: &str) -> Option<Value> {
        match self {
            Self::Point => geometry::point(text),
            Self::Box => geometry::rectangle(text),
            Self::Segment => geometry::segment(text),
            Self::Path => geometry::path(text),
            Self::Polygon => geometry::polygon(text),
            Self::Circle => geometry::circle(text),
            Self::Line => geometry::line(text),
            Self::Geometry => geometry::postgis(text, true),
            Self::Geography => geometry::postgis(text, false),
            _ => None,
        }
    }
}

fn binary(bytes: &[u8], mode: BinaryHandling) -> Value {
    match mode {
        BinaryHandling::Bytes => Value::Bytes(Bytes::copy_from_slice(bytes)),
        BinaryHandling::Base64 => Value::String(STANDARD.encode(bytes).into()),
        BinaryHandling::Base64UrlSafe => Value::String(URL_SAFE.encode(bytes).into()),
        BinaryHandling::Hex => Value::String(hex::text(bytes).into()),
    }
}

/// Least significant bit and byte first, without zeros at the end.
fn parse_bits(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; text.len().div_ceil(8)];
    for (at, digit) in text.bytes().rev().enumerate() {
        match digit {
            b'1' => bytes[at / 8] |= 1 << (at % 8),
            b'0' => {}
            _ => return None,
        }
    }
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(len);
    Some(bytes)
}

/// A negative scale is none.
fn decimal(text: &str, mode: DecimalHandling, scale: i32) -> Option<Value> {
    let special = match text {
        "NaN" => Some((f64::NAN, "NAN")),
        "Infinity" => Some((f64::INFINITY, "POSITIVE_INFINITY")),
        "-Infinity" => Some((f64::NEG_INFINITY, "NEGATIVE_INFINITY")),
        _ => None,
    };
    if let Some((number, name)) = special {
        return match mode {
            DecimalHandling::Precise => None,
            DecimalHandling::Double => Some(Value::Float64(number)),
            DecimalHandling::String => Some(Value::String(name.into())),
        };
    }
    let parsed = Decimal::parse(text)?;
    let decimal = if scale < 0 { parsed } else { parsed.with_scale(scale)? };
    Some(decimal_value(decimal, mode))
}

fn decimal_value(decimal: Decimal, mode: DecimalHandling) -> Value {
    match mode {
        DecimalHandling::Precise => Value::Decimal(decimal),
        DecimalHandling::Double => Value::Float64(decimal.to_f64()),
        DecimalHandling::String => Value::String(decimal.plain().into()),
    }
}

/// A sign or parentheses, at most one character of a currency, and commas
/// between thousands.
fn money(text: &str, mode: DecimalHandling, scale: i32) -> Option<Value> {
    let is_negative = text.starts_with(['-', '(']);
    let unsigned = text.trim_start_matches(['-', '(']).trim_end_matches(')');
    let mut chars = unsigned.chars();
    let amount = match chars.next()? {
        c if c.is_ascii_digit() || c == '.' => unsigned,
        _ => chars.as_str(),
    };
    let sign = if is_negative { "-" } else { "" };
    let decimal = Decimal::parse(&format!("{sign}{}", amount.replace(',', "")))?;
    Some(match mode {
        DecimalHandling::Precise => Value::Decimal(decimal.rounded(scale)),
        _ => decimal_value(decimal, mode),
    })
}

fn date(days: i64, mode: TimePrecision) -> Value {
    match mode {
        TimePrecision::Connect => Value::Date(i64::from(days as i32) * temporal::MILLIS_PER_DAY),
        TimePrecision::IsoString => {
            let mut text = String::with_capacity(16);
            temporal::write_date(days, &mut text);
            text.push('Z');
            Value::String(text.into())
        }
        _ => Value::Int32(days as i32),
    }
}

fn time(micros: i64, mode: TimePrecision, digits: i32) -> Value {
    let millis = micros / 1_000;
    match mode {
        TimePrecision::Adaptive if digits <= 3 => Value::Int32(millis as i32),
        TimePrecision::Adaptive
        | TimePrecision::AdaptiveTimeMicroseconds
        | TimePrecision::Microseconds => Value::Int64(micros),
        TimePrecision::Nanoseconds => Value::Int64(micros * 1_000),
        TimePrecision::IsoString => Value::String(temporal::iso_time(micros).into()),
        TimePrecision::Connect => Value::Date(millis),
    }
}

/// NULL where nanoseconds do not fit into 64 bits.
fn timestamp(micros: temporal::Micros, mode: TimePrecision, digits: i32) -> Value {
    let millis = temporal::millis(micros);
    match mode {
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds if digits <= 3 => {
            Value::Int64(millis)
        }
        TimePrecision::Adaptive
        | TimePrecision::AdaptiveTimeMicroseconds
        | TimePrecision::Microseconds => Value::Int64(temporal::wrapped(micros)),
        TimePrecision::Nanoseconds => temporal::nanos(micros).map_or(Value::Null, Value::Int64),
        TimePrecision::IsoString => Value::String(temporal::iso_timestamp(micros, None).into()),
        TimePrecision::Connect => Value::Date(millis),
    }
}

fn zoned_timestamp(text: &str, digits: i32) -> Option<Value> {
    if matches!(text, "infinity" | "-infinity") {
        return Some(Value::String(text.into()));
    }
    let micros = temporal::parse_zoned_timestamp(text)?;
    let digits = u32::try_from(digits).ok().filter(|digits| *digits > 0);
    Some(Value::String(temporal::iso_timestamp(micros, digits).into()))
}

fn vector(text: &str, number: impl Fn(&str) -> Option<Value>) -> Option<Value> {
    let body = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    body.split(',').map(|part| number(part.trim())).collect::<Option<_>>().map(Value::Array)
}

/// `{1:0.5,7:2}/10`
fn sparse_vector(text: &str) -> Option<Value> {
    let (body, dimensions) = text.trim().split_once('/')?;
    let dimensions: i16 = dimensions.trim().parse().ok()?;
    let body = body.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let parts: Vec<&str> = if body.is_empty() { Vec::new() } else { body.split(',').collect() };
    let mut map = JavaMap::with_capacity(parts.len());
    for part in parts {
        let (index, number) = part.split_once(':')?;
        let index: i16 = index.trim().parse().ok()?;
        let number: f64 = number.trim().parse().ok()?;
        map.insert(i32::from(index) as u32, index, Value::Float64(number));
    }
    let entries = map.into_entries().map(|(index, number)| (Value::Int16(index), number));
    let vector = Value::Map(entries.collect());
    Some(Value::Struct(vec![Value::Int16(dimensions), vector]))
}

/// An array within the array becomes NULL, as in Debezium, but where Debezium
/// would write the name of a Java object.
fn array(text: &str, codec: &Codec, delimiter: char) -> Option<Value> {
    let convert = |element: Element| match element {
        Element::Null => Some(Value::Null),
        Element::Array if *codec == Codec::Text => None,
        Element::Array => Some(Value::Null),
        Element::Text(text) => convert_element(&text, codec),
    };
    let elements = array::elements(text, delimiter)?;
    elements.into_iter().map(convert).collect::<Option<_>>().map(Value::Array)
}

fn convert_element(text: &str, codec: &Codec) -> Option<Value> {
    match codec {
        Codec::Bytea(mode) => {
            hex::parse(text.strip_prefix("\\x")?).map(|bytes| binary(&bytes, *mode))
        }
        Codec::Date(mode) => Some(date(temporal::parse_array_date(text)?, *mode)),
        // Debezium reads them as a type that has milliseconds alone.
        Codec::Time(mode, digits) => {
            let micros = temporal::parse_time(text)?;
            Some(time(micros / 1_000 * 1_000 % temporal::MICROS_PER_DAY, *mode, *digits))
        }
        _ => codec.convert_slice(text.as_bytes()).ok(),
    }
}
