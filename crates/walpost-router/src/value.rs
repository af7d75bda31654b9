use bytes::Bytes;
use walpost_event::{Field, Row, Value, type_oid};

use crate::error::RouteErrorKind;

/// `name`, whose binary output is its text.
const NAME: u32 = 19;

/// Version byte before the text in the binary output of `jsonb`.
const JSONB_VERSION: u8 = 1;

/// Column `index` of `row` as a [`Field`]: the type's text output, except
/// `bytea`, which is the bytes themselves. Text and raw bytes stay shared with
/// the row.
pub(crate) fn field(row: &Row, index: usize) -> Result<Field, RouteErrorKind> {
    let column = &row.relation().columns[index];
    let bytes = match row.value(index) {
        Value::Null => None,
        Value::Unchanged => return Err(RouteErrorKind::UnchangedValue),
        Value::Undecodable { bytes, at } => return Err(undecodable(bytes, at)),
        Value::Text(text) if column.type_oid == type_oid::BYTEA => Some(decode_hex(text)?),
        Value::Text(_) => row.bytes(index),
        Value::Binary(value) => Some(match owned_text(value, column.type_oid)? {
            Some(text) => text.into(),
            None => shared(row, index, column.type_oid),
        }),
    };
    // A table has at most 1,600 columns.
    let of_column = u16::try_from(index).ok();
    let (type_oid, type_modifier) = (column.type_oid, column.type_modifier);
    Ok(Field { column: of_column, type_oid, type_modifier, bytes })
}

pub(crate) fn undecodable(bytes: &[u8], at: usize) -> RouteErrorKind {
    RouteErrorKind::UndecodableValue { len: bytes.len(), at }
}

/// Column `index` as text for people, `bytea` in hexadecimal; `None` where
/// there is none.
pub(crate) fn display_text(row: &Row, index: usize) -> Option<Bytes> {
    let is_bytea = row.relation().columns[index].type_oid == type_oid::BYTEA;
    match row.value(index) {
        Value::Text(_) | Value::Undecodable { .. } => row.bytes(index),
        Value::Binary(value) if is_bytea => Some(encode_hex(value).into()),
        Value::Binary(_) => field(row, index).ok()?.bytes,
        Value::Null | Value::Unchanged => None,
    }
}

/// The text of a binary value, or `None` if it is a part of the value itself.
fn owned_text(value: &[u8], oid: u32) -> Result<Option<String>, RouteErrorKind> {
    let malformed = || RouteErrorKind::MalformedBinary { type_oid: oid, len: value.len() };
    Ok(Some(match oid {
        type_oid::TEXT
        | type_oid::VARCHAR
        | type_oid::BPCHAR
        | type_oid::JSON
        | type_oid::BYTEA
        | NAME => return Ok(None),
        type_oid::JSONB if value.first() == Some(&JSONB_VERSION) => return Ok(None),
        type_oid::UUID => uuid_text(value.try_into().map_err(|_| malformed())?),
        type_oid::BOOL => match value {
            [0] => "f".to_owned(),
            [1] => "t".to_owned(),
            _ => return Err(malformed()),
        },
        type_oid::INT2 => number(value, i16::from_be_bytes).ok_or_else(malformed)?,
        type_oid::INT4 => number(value, i32::from_be_bytes).ok_or_else(malformed)?,
        type_oid::INT8 => number(value, i64::from_be_bytes).ok_or_else(malformed)?,
        type_oid::OID => number(value, u32::from_be_bytes).ok_or_else(malformed)?,
        type_oid::XID8 => number(value, u64::from_be_bytes).ok_or_else(malformed)?,
        type_oid::JSONB => return Err(malformed()),
        _ => return Err(RouteErrorKind::BinaryNotSupported { type_oid: oid }),
    }))
}

/// A binary value that is its own text, or its own bytes, but for a version.
fn shared(row: &Row, index: usize, oid: u32) -> Bytes {
    let bytes = row.bytes(index).unwrap_or_default();
    if oid == type_oid::JSONB { bytes.slice(1..) } else { bytes }
}

fn number<const N: usize, T: ToString>(value: &[u8], read: fn([u8; N]) -> T) -> Option<String> {
    value.try_into().ok().map(|bytes| read(bytes).to_string())
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        push_hex(byte, &mut text);
    }
    text
}

fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        push_hex(*byte, &mut text);
    }
    text
}

fn push_hex(byte: u8, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

fn decode_hex(text: &[u8]) -> Result<Bytes, RouteErrorKind> {
    let malformed = || RouteErrorKind::MalformedBytea { len: text.len() };
    let digits = text.strip_prefix(b"\\x").ok_or_else(malformed)?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(malformed());
    }
    let decode = |[high, low]: &[u8; 2]| Some(nibble(*high)? << 4 | nibble(*low)?);
    pairs.iter().map(decode).collect::<Option<Vec<u8>>>().map(Bytes::from).ok_or_else(malformed)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use walpost_event::{Column, Relation, ReplicaIdentity};

    use super::*;

    fn row(type_oid: u32, value: Value<'_>) -> Row {
        let relation = Relation {
            oid: 1,
            schema: "s".into(),
            name: "t".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: vec![Column { name: "c".into(), type_oid, type_modifier: 7, is_key: false }],
        };
        let bytes = match value {
            Value::Text(bytes) | Value::Binary(bytes) | Value::Undecodable { bytes, .. } => bytes,
            Value::Null | Value::Unchanged => &[],
        };
        let mut row = Row::builder(Arc::new(relation), Bytes::copy_from_slice(bytes));
        match value {
            Value::Null => row.push_null(),
            Value::Unchanged => row.push_unchanged(),
            Value::Text(_) => row.push_text(0, bytes.len()),
            Value::Binary(_) => row.push_binary(0, bytes.len()),
            Value::Undecodable { at, .. } => row.push_undecodable(0, bytes.len(), at),
        }
        row.finish()
    }

    fn bytes(type_oid: u32, value: Value<'_>) -> Result<Option<Bytes>, RouteErrorKind> {
        let field = field(&row(type_oid, value), 0)?;
        assert_eq!((field.type_oid, field.type_modifier), (type_oid, 7));
        Ok(field.bytes)
    }

    #[test]
    fn text_stays_as_it_is_and_bytea_becomes_its_bytes() {
        let cases: [(u32, &[u8], &[u8]); 5] = [
            (type_oid::JSONB, b"{\"a\": 1}", b"{\"a\": 1}"),
            (600, b"(1,2)", b"(1,2)"),
            (type_oid::BYTEA, b"\\x", b""),
            (type_oid::BYTEA, b"\\x62696e21", b"bin!"),
            (type_oid::BYTEA, b"\\x00fFAb", b"\x00\xff\xab"),
        ];
        for (oid, text, expected) in cases {
            assert_eq!(bytes(oid, Value::Text(text)).unwrap().as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_bytea_that_is_not_hexadecimal_is_an_error() {
        for text in ["", "bin!", "\\x0", "\\xzz", "\\X00", "x00"] {
            let expected = Err(RouteErrorKind::MalformedBytea { len: text.len() });
            assert_eq!(bytes(type_oid::BYTEA, Value::Text(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn binary_becomes_the_text_that_postgres_prints() {
        let uuid = *b"\x59\xa4\x2e\xfd\xb0\x15\x44\xa9\x9d\xde\xcb\x36\xd9\x00\x24\x25";
        let cases: [(u32, &[u8], &[u8]); 15] = [
            (type_oid::TEXT, b"a", b"a"),
            (type_oid::VARCHAR, b"", b""),
            (type_oid::BPCHAR, b"a ", b"a "),
            (NAME, b"n", b"n"),
            (type_oid::JSON, b"{}", b"{}"),
            (type_oid::JSONB, b"\x01{\"a\": 1}", b"{\"a\": 1}"),
            (type_oid::BYTEA, b"\x00\xff", b"\x00\xff"),
            (type_oid::UUID, &uuid, b"59a42efd-b015-44a9-9dde-cb36d9002425"),
            (type_oid::BOOL, b"\x01", b"t"),
            (type_oid::BOOL, b"\x00", b"f"),
            (type_oid::INT2, &[0xff, 0xff], b"-1"),
            (type_oid::INT4, &[0x80, 0, 0, 0], b"-2147483648"),
            (type_oid::INT8, &[0, 0, 0, 0, 0, 0, 0, 42], b"42"),
            (type_oid::OID, &[0xff, 0xff, 0xff, 0xff], b"4294967295"),
            (type_oid::XID8, &[0, 0, 0, 1, 0, 0, 0, 0], b"4294967296"),
        ];
        for (oid, value, expected) in cases {
            assert_eq!(bytes(oid, Value::Binary(value)).unwrap().as_deref(), Some(expected));
        }
    }

    #[test]
    fn binary_of_the_wrong_size_is_an_error() {
        let cases: [(u32, &[u8]); 8] = [
            (type_oid::INT2, &[1]),
            (type_oid::INT4, &[1, 2]),
            (type_oid::INT8, &[]),
            (type_oid::BOOL, &[2]),
            (type_oid::BOOL, &[]),
            (type_oid::UUID, &[0; 15]),
            (type_oid::JSONB, &[]),
            (type_oid::JSONB, b"\x02{}"),
        ];
        for (oid, value) in cases {
            let expected = RouteErrorKind::MalformedBinary { type_oid: oid, len: value.len() };
            assert_eq!(bytes(oid, Value::Binary(value)), Err(expected));
        }
    }

    #[test]
    fn binary_of_another_type_is_an_error() {
        for oid in [type_oid::NUMERIC, type_oid::TIMESTAMPTZ, 90_001] {
            let expected = RouteErrorKind::BinaryNotSupported { type_oid: oid };
            assert_eq!(bytes(oid, Value::Binary(&[0; 8])), Err(expected));
        }
    }

    #[test]
    fn null_is_kept_and_an_unchanged_value_is_an_error() {
        assert_eq!(bytes(type_oid::BYTEA, Value::Null), Ok(None));
        let unchanged = bytes(type_oid::TEXT, Value::Unchanged);
        assert_eq!(unchanged, Err(RouteErrorKind::UnchangedValue));
    }

    #[test]
    fn the_text_for_people_shows_bytea_in_hexadecimal() {
        let text = |oid, value| display_text(&row(oid, value), 0);
        assert_eq!(text(type_oid::BYTEA, Value::Binary(b"\x00\xff")).unwrap(), "\\x00ff");
        assert_eq!(text(type_oid::BYTEA, Value::Text(b"\\x00ff")).unwrap(), "\\x00ff");
        assert_eq!(text(type_oid::INT2, Value::Binary(&[0, 7])).unwrap(), "7");
        assert_eq!(text(type_oid::TEXT, Value::Text(b"e1")).unwrap(), "e1");
        assert_eq!(text(type_oid::NUMERIC, Value::Binary(b"?")), None);
        assert_eq!(text(type_oid::TEXT, Value::Null), None);
    }
}
