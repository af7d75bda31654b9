use std::sync::Arc;

use bytes::Bytes;
use walpost_event::{Relation, Row};

use crate::{
    error::{DecodeError, DecodeErrorKind},
    reader::Reader,
};

/// Kind of a value that has no UTF-8 form: the offset of the first such byte, then length and
/// bytes as of any other value. PostgreSQL sends none; a client that converts the texts of another
/// encoding writes it.
pub const UNDECODABLE: u8 = b'x';

/// Reads tuple data as a row of `relation`. `data` is the message that
/// `reader` reads; the row shares it.
pub(crate) fn read_row(
    reader: &mut Reader<'_>,
    relation: Arc<Relation>,
    data: &Bytes,
) -> Result<Row, DecodeError> {
    let at = reader.offset();
    let count = reader.count16("a column count")?;
    if count != relation.columns.len() {
        let kind = DecodeErrorKind::ColumnCount {
            schema: relation.schema.clone(),
            table: relation.name.clone(),
            expected: relation.columns.len(),
            found: count,
        };
        return Err(DecodeError::new(kind, at));
    }
    let mut row = Row::builder(relation, data.clone());
    for _ in 0..count {
        let at = reader.offset();
        let expected = "a value (n, u, t, b or x)";
        match reader.u8(expected)? {
            b'n' => row.push_null(),
            b'u' => row.push_unchanged(),
            b't' => {
                let range = read_value(reader)?;
                row.push_text(range.start, range.len());
            }
            b'b' => {
                let range = read_value(reader)?;
                row.push_binary(range.start, range.len());
            }
            UNDECODABLE => {
                let at = reader.count32("the offset of an undecodable byte")?;
                let range = read_value(reader)?;
                row.push_undecodable(range.start, range.len(), at);
            }
            found => {
                return Err(DecodeError::new(DecodeErrorKind::UnknownTag { expected, found }, at));
            }
        }
    }
    Ok(row.finish())
}

fn read_value(reader: &mut Reader<'_>) -> Result<std::ops::Range<usize>, DecodeError> {
    let len = reader.count32("the length of a value")?;
    reader.range(len, "a value")
}
