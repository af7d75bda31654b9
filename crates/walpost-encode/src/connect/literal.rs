//! A text that has no schema yet, as Kafka Connect infers one.

mod collection;

use std::sync::Arc;

use self::collection::{Unread, collection};
use super::{
    decimal::Decimal,
    schema::{Kind, Schema},
    temporal::{self, MILLIS_PER_DAY},
    typed::TypedValue,
    value::Value,
};

/// What Kafka Connect takes a literal for, such as `value.literal` of
/// `InsertHeader`: `null`, a boolean, a number of the smallest type that has it,
/// a date, a time or a timestamp in ISO 8601, and else a text.
///
/// As there, what begins with a number is that number alone if one of
/// `,:"[]{}` follows it, and `[1, 2]` and `{"a": "b"}` are an array and a map.
/// `None` for those whose elements, keys or values have no type in common.
///
/// ```
/// use walpost_encode::connect::{Value, literal};
///
/// assert_eq!(literal("300").unwrap().value, Value::Int16(300));
/// assert_eq!(literal("v2").unwrap().value, Value::String("v2".into()));
/// assert_eq!(literal("[1]").unwrap().value, Value::Array(vec![Value::Int8(1)]));
/// assert_eq!(literal("[1, true]"), None);
/// ```
pub fn literal(text: &str) -> Option<TypedValue> {
    let trimmed = java_trim(text);
    if trimmed.starts_with(['[', '{']) {
        return match collection(text) {
            Ok(read) => Some(read),
            Err(Unread::NoSchema) => None,
            Err(Unread::Malformed) => {
                let blank = tokens(text, 1).filter(|token| java_trim(token).is_empty());
                Some(string(blank.unwrap_or(text)))
            }
        };
    }
    Some(match trimmed {
        "null" => TypedValue::NONE,
        "true" | "false" => typed(Schema::new(Kind::Boolean), Value::Boolean(trimmed == "true")),
        _ if trimmed.starts_with(|first: char| first.is_ascii_digit()) => {
            temporal(text).or_else(|| number(text)).unwrap_or_else(|| string(text))
        }
        _ if trimmed.starts_with(['+', '-']) => number(text).unwrap_or_else(|| string(text)),
        _ => string(text),
    })
}

fn typed(schema: Schema, value: Value) -> TypedValue {
    TypedValue { schema: Some(schema.into()), value }
}

fn string(text: &str) -> TypedValue {
    TypedValue::text(text.into())
}

/// Whatever is not above a space goes.
fn java_trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Where the first tokens end, that many: a delimiter is a token, and so is what
/// lies between two. `None` where there are fewer.
fn tokens(text: &str, count: usize) -> Option<&str> {
    let is_delimiter = |c: char| matches!(c, ':' | ',' | '{' | '}' | '[' | ']' | '"');
    let mut end = 0;
    for _ in 0..count {
        let rest = &text[end..];
        let first = rest.chars().next()?;
        if is_delimiter(first) {
            end += 1;
            continue;
        }
        let mut is_escaped = false;
        let len = rest.char_indices().find_map(|(at, c)| {
            let ends = is_delimiter(c) && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends.then_some(at)
        });
        end += len.unwrap_or(rest.len());
    }
    Some(&text[..end])
}

/// A number with an exponent, if need be, and nothing behind it in its token.
fn number(text: &str) -> Option<TypedValue> {
    let token = java_trim(tokens(text, 1)?);
    let (mantissa, exponent) = match token.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (token, 0),
    };
    let unsigned = mantissa.strip_prefix('+').unwrap_or(mantissa);
    if mantissa.starts_with('+') && unsigned.starts_with('-') {
        return None;
    }
    let decimal = Decimal::parse(unsigned)?;
    let decimal = decimal.scale().checked_sub(exponent).map(|_| decimal.shifted(exponent))?;
    if let Some(integer) = integer(&decimal) {
        return Some(integer);
    }
    let number = decimal.to_f64();
    // Not by way of 64 bits, which would round twice.
    let single: f32 = format!("{unsigned}e{exponent}").parse().ok()?;
    if single.is_finite() && decimal.scale() != 0 {
        return Some(typed(Schema::new(Kind::Float32), Value::Float32(single)));
    }
    if number.is_finite() && decimal.scale() != 0 {
        return Some(typed(Schema::new(Kind::Float64), Value::Float64(number)));
    }
    let schema = Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal", 1)
        .parameter("scale", &decimal.scale().to_string());
    Some(typed(schema, Value::Decimal(decimal)))
}

/// The smallest type that has it, if it is an integer of 64 bits.
fn integer(decimal: &Decimal) -> Option<TypedValue> {
    // More zeros than that are no integer of 64 bits, unless they are all there is.
    if decimal.scale() < -20 && decimal.to_f64() != 0.0 {
        return None;
    }
    let number: i64 = decimal.with_scale(0)?.plain().parse().ok()?;
    Some(if let Ok(number) = i8::try_from(number) {
        typed(Schema::new(Kind::Int8), Value::Int8(number))
    } else if let Ok(number) = i16::try_from(number) {
        typed(Schema::new(Kind::Int16), Value::Int16(number))
    } else if let Ok(number) = i32::try_from(number) {
        typed(Schema::new(Kind::Int32), Value::Int32(number))
    } else {
        typed(Schema::new(Kind::Int64), Value::Int64(number))
    })
}

const DATE_LEN: usize = 10;
const TIME_LEN: usize = 13;
const TIMESTAMP_LEN: usize = 24;

/// A date, a time or a timestamp: of the first five tokens, or of the first, as
/// a colon is one.
fn temporal(text: &str) -> Option<TypedValue> {
    let of = |token: &str| of_length(&token.replace("\\:", ":"));
    let five = tokens(text, 5).map(|token| token.trim_start_matches(|c: char| c <= ' '));
    five.and_then(of).or_else(|| of(java_trim(tokens(text, 1)?)))
}

fn of_length(text: &str) -> Option<TypedValue> {
    let (name, kind, millis) = match text.len() {
        DATE_LEN => ("Date", Kind::Int32, date(text)?),
        TIME_LEN => ("Time", Kind::Int32, time(text)?),
        TIMESTAMP_LEN => {
            let (date_text, time_text) = text.split_once('T')?;
            ("Timestamp", Kind::Int64, date(date_text)? + time(time_text)?)
        }
        _ => return None,
    };
    let schema = Schema::logical(kind, &format!("org.apache.kafka.connect.data.{name}"), 1);
    Some(TypedValue { schema: Some(Arc::new(schema)), value: Value::Date(millis) })
}

/// Milliseconds since 1970 of `2020-01-31`. As lenient as Java: what is no month
/// or day counts on, and what follows is passed over.
fn date(text: &str) -> Option<i64> {
    let (year, text) = leading_number(text)?;
    let (month, text) = leading_number(text.strip_prefix('-')?)?;
    let (day, _) = leading_number(text.strip_prefix('-')?)?;
    let months = year * 12 + month - 1;
    let first = temporal::days_of((months.div_euclid(12), months.rem_euclid(12) as u32 + 1, 1));
    Some((first + day - 1) * MILLIS_PER_DAY)
}

/// Milliseconds since midnight of `12:00:00.000Z`, as lenient.
fn time(text: &str) -> Option<i64> {
    let (hours, text) = leading_number(text)?;
    let (minutes, text) = leading_number(text.strip_prefix(':')?)?;
    let (seconds, text) = leading_number(text.strip_prefix(':')?)?;
    let (millis, text) = leading_number(text.strip_prefix('.')?)?;
    text.strip_prefix('Z')?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis)
}

/// The digits that the text begins with, of which there are few.
fn leading_number(text: &str) -> Option<(i64, &str)> {
    let len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(len);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `Values.parseString` of Kafka Connect has them.
    #[test]
    fn a_literal_has_the_smallest_type_that_has_it() {
        let cases = [
            ("", Value::String("".into())),
            ("null", Value::Null),
            (" true ", Value::Boolean(true)),
            ("false", Value::Boolean(false)),
            ("true}", Value::String("true}".into())),
            ("True", Value::String("True".into())),
            ("127", Value::Int8(127)),
            ("+128", Value::Int16(128)),
            ("-32769", Value::Int32(-32_769)),
            ("2147483648", Value::Int64(2_147_483_648)),
            ("1e2", Value::Int8(100)),
            ("1.0", Value::Int8(1)),
            ("0e-30", Value::Int8(0)),
            ("1.5", Value::Float32(1.5)),
            ("1e30", Value::Float32(1e30)),
            ("1e300", Value::Float64(1e300)),
            ("1.", Value::Int8(1)),
            (".5", Value::String(".5".into())),
            ("-", Value::String("-".into())),
            ("1 2", Value::String("1 2".into())),
            ("1,2", Value::Int8(1)),
            ("10:30", Value::Int8(10)),
            ("+-1", Value::String("+-1".into())),
            ("v1", Value::String("v1".into())),
            (" v1", Value::String(" v1".into())),
            ("1970-01-02", Value::Date(MILLIS_PER_DAY)),
            ("2019-13-32", Value::Date(1_580_515_200_000)),
            ("1234567890", Value::Int32(1_234_567_890)),
            ("00:00:01.500Z", Value::Date(1_500)),
            ("1970-01-02T00:00:00.001Z", Value::Date(MILLIS_PER_DAY + 1)),
            ("1970-01-02T00\\:00\\:00.001Z", Value::Date(MILLIS_PER_DAY + 1)),
        ];
        for (text, expected) in cases {
            assert_eq!(literal(text).unwrap().value, expected, "{text:?}");
        }
    }

    #[test]
    fn a_number_that_no_type_has_is_a_decimal_of_its_scale() {
        for (text, scale) in [("99999999999999999999", "0"), ("1e400", "-400")] {
            let TypedValue { schema, value } = literal(text).unwrap();
            assert!(matches!(value, Value::Decimal(_)), "{text}");
            assert_eq!(&*schema.unwrap().parameters[0].1, scale);
        }
    }

    #[test]
    fn arrays_and_maps_have_the_type_that_their_values_have_in_common() {
        let array = |values: &[Value]| Value::Array(values.to_vec());
        let string = |text: &str| Value::String(text.into());
        let cases = [
            ("[1, 300]", array(&[Value::Int16(1), Value::Int16(300)])),
            (r#" ["a", " b"] x"#, array(&[string("a"), string(" b")])),
            ("[[1], [2]]", array(&[array(&[Value::Int8(1)]), array(&[Value::Int8(2)])])),
            ("[10:30:00.000Z]", array(&[Value::Date(37_800_000)])),
            (
                r#"{"a": 1, "b": 2.5}"#,
                Value::Map(vec![
                    (string("a"), Value::Float32(1.0)),
                    (string("b"), Value::Float32(2.5)),
                ]),
            ),
            (
                r#"{"a": 1 "b": 2 "a": 3}"#,
                Value::Map(vec![(string("a"), Value::Int8(3)), (string("b"), Value::Int8(2))]),
            ),
            ("[a]", string("[a]")),
            ("[", string("[")),
            ("[1, null]", string("[1, null]")),
            ("[1,]x", Value::Array(vec![Value::Int8(1)])),
            ("[,1]", string("[,1]")),
            (" [x", string(" ")),
        ];
        for (text, expected) in cases {
            assert_eq!(literal(text).map(|read| read.value), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_type_in_common_is_not_inferred() {
        for text in ["[]", "{}", "[null]", r#"[1, "a"]"#, r#"{"a": 1, "b": true}"#] {
            assert_eq!(literal(text), None, "{text}");
        }
        assert_eq!(literal(&"[".repeat(100_000)), None);
    }
}
