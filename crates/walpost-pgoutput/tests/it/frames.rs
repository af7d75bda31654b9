//! An encoder of pgoutput messages, written from the protocol's description.

use walpost_pgoutput::Bytes;

/// One value of a tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl Cell {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// A column of a relation frame.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSpec {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    pub(crate) type_modifier: i32,
    pub(crate) is_key: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    pub(crate) fn new(tag: u8) -> Self {
        Self(vec![tag])
    }

    pub(crate) fn byte(self, byte: u8) -> Self {
        self.raw(&[byte])
    }

    pub(crate) fn i16(self, value: i16) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i32(self, value: i32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i64(self, value: i64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn string(self, text: &str) -> Self {
        self.raw(text.as_bytes()).byte(0)
    }

    pub(crate) fn tuple(mut self, cells: &[Cell]) -> Self {
        self = self.i16(cells.len() as i16);
        for cell in cells {
            self = match cell {
                Cell::Null => self.byte(b'n'),
                Cell::Unchanged => self.byte(b'u'),
                Cell::Text(value) => self.byte(b't').i32(value.len() as i32).raw(value),
                Cell::Binary(value) => self.byte(b'b').i32(value.len() as i32).raw(value),
            };
        }
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn bytes(self) -> Bytes {
        self.0.into()
    }
}

pub(crate) fn begin(final_lsn: u64, time_us: i64, xid: u32) -> Bytes {
    Frame::new(b'B').u64(final_lsn).i64(time_us).u32(xid).bytes()
}

pub(crate) fn commit(commit_lsn: u64, end_lsn: u64, time_us: i64) -> Bytes {
    Frame::new(b'C').byte(0).u64(commit_lsn).u64(end_lsn).i64(time_us).bytes()
}

pub(crate) fn relation(oid: u32, schema: &str, name: &str, columns: &[ColumnSpec]) -> Bytes {
    let mut frame = Frame::new(b'R').u32(oid).string(schema).string(name).byte(b'd');
    frame = frame.i16(columns.len() as i16);
    for column in columns {
        frame = frame
            .byte(column.is_key.into())
            .string(&column.name)
            .u32(column.type_oid)
            .i32(column.type_modifier);
    }
    frame.bytes()
}

pub(crate) fn insert(oid: u32, cells: &[Cell]) -> Bytes {
    Frame::new(b'I').u32(oid).byte(b'N').tuple(cells).bytes()
}

pub(crate) fn update(oid: u32, old: Option<(u8, &[Cell])>, new: &[Cell]) -> Bytes {
    let mut frame = Frame::new(b'U').u32(oid);
    if let Some((tag, cells)) = old {
        frame = frame.byte(tag).tuple(cells);
    }
    frame.byte(b'N').tuple(new).bytes()
}

pub(crate) fn delete(oid: u32, tag: u8, cells: &[Cell]) -> Bytes {
    Frame::new(b'D').u32(oid).byte(tag).tuple(cells).bytes()
}

pub(crate) fn truncate(options: u8, oids: &[u32]) -> Bytes {
    let frame = Frame::new(b'T').i32(oids.len() as i32).byte(options);
    oids.iter().fold(frame, |frame, oid| frame.u32(*oid)).bytes()
}

pub(crate) fn type_name(oid: u32, schema: &str, name: &str) -> Bytes {
    Frame::new(b'Y').u32(oid).string(schema).string(name).bytes()
}

pub(crate) fn origin(lsn: u64, name: &str) -> Bytes {
    Frame::new(b'O').u64(lsn).string(name).bytes()
}

pub(crate) fn logical(flags: u8, lsn: u64, prefix: &str, content: &[u8]) -> Bytes {
    Frame::new(b'M')
        .byte(flags)
        .u64(lsn)
        .string(prefix)
        .i32(content.len() as i32)
        .raw(content)
        .bytes()
}

/// The relation that the tests write rows of: an `id` and a `payload`.
pub(crate) const OUTBOX: u32 = 16_400;

pub(crate) fn outbox() -> Bytes {
    let column = |name: &str, type_oid, is_key| ColumnSpec {
        name: name.into(),
        type_oid,
        type_modifier: -1,
        is_key,
    };
    relation(
        OUTBOX,
        "public",
        "outbox",
        &[column("id", 2950, true), column("payload", 3802, false)],
    )
}
