use std::{fmt, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Relation;

/// One row change as a source read it.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// What happened to the row.
    pub operation: Operation,
    /// The new row of an insert or update, the old one of a delete (its key
    /// columns, or all under `REPLICA IDENTITY FULL`).
    pub row: Row,
    /// The old row of an update, where PostgreSQL sent one: under
    /// `REPLICA IDENTITY FULL`, or when a key column changed.
    pub old: Option<Row>,
}

impl RowChange {
    /// An insert of `row`.
    pub fn insert(row: Row) -> Self {
        Self { operation: Operation::Insert, row, old: None }
    }
}

/// What a [`RowChange`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `INSERT` or `COPY`.
    Insert,
    /// `UPDATE`.
    Update,
    /// `DELETE`.
    Delete,
}

/// The value of one column of a [`Row`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// SQL `NULL`, or a column that the source did not send.
    Null,
    /// A TOASTed value that the update did not change, and so not in the WAL.
    Unchanged,
    /// The type's text output, which is UTF-8.
    Text(&'a [u8]),
    /// The type's binary output.
    Binary(&'a [u8]),
    /// Text output that has no UTF-8 form.
    Undecodable {
        /// The bytes as the database holds them.
        bytes: &'a [u8],
        /// Offset of the first byte that has no UTF-8 form.
        at: usize,
    },
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Unchanged => f.write_str("Unchanged"),
            Self::Text(bytes) => write!(f, "Text({} bytes)", bytes.len()),
            Self::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
            Self::Undecodable { bytes, at } => {
                write!(f, "Undecodable({} bytes, at {at})", bytes.len())
            }
        }
    }
}

/// The values of one row, in the order of its relation's columns.
///
/// All values lie in one shared buffer: cloning a row or taking
/// [`Row::bytes`] copies no value. `Debug` shows sizes, never contents.
#[derive(Clone)]
pub struct Row {
    relation: Arc<Relation>,
    buffer: Bytes,
    cells: SmallVec<[Cell; 16]>,
}

#[derive(Clone, Copy)]
struct Cell {
    kind: Kind,
    start: u32,
    len: u32,
}

#[derive(Clone, Copy)]
enum Kind {
    Null,
    Unchanged,
    Text,
    Binary,
    /// Offset of the first byte that has no UTF-8 form.
    Undecodable(u32),
}

impl Row {
    /// Starts a row of `relation` whose values lie in `buffer`.
    pub fn builder(relation: Arc<Relation>, buffer: Bytes) -> RowBuilder {
        RowBuilder { row: Self { relation, buffer, cells: SmallVec::new() } }
    }

    /// A row with `values` as text, `None` for NULL: for sources other than
    /// the WAL, and for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use walpost_event::{Column, Relation, ReplicaIdentity, Row, Value, type_oid};
    ///
    /// let relation = Relation {
    ///     oid: 0,
    ///     schema: "public".into(),
    ///     name: "outbox".into(),
    ///     replica_identity: ReplicaIdentity::Default,
    ///     columns: vec![Column {
    ///         name: "id".into(),
    ///         type_oid: type_oid::TEXT,
    ///         type_modifier: -1,
    ///         is_key: true,
    ///     }],
    /// };
    /// let row = Row::from_text(Arc::new(relation), [Some("e1")]);
    /// assert_eq!(row.value(0), Value::Text(b"e1"));
    /// assert_eq!(row.value(1), Value::Null);
    /// ```
    pub fn from_text<V: AsRef<[u8]>>(
        relation: Arc<Relation>,
        values: impl IntoIterator<Item = Option<V>>,
    ) -> Self {
        let values: Vec<Option<V>> = values.into_iter().collect();
        let mut buffer = Vec::new();
        for value in values.iter().flatten() {
            buffer.extend_from_slice(value.as_ref());
        }
        let mut builder = Self::builder(relation, buffer.into());
        let mut start = 0;
        for value in &values {
            match value {
                Some(value) => {
                    let len = value.as_ref().len();
                    builder.push_text(start, len);
                    start += len;
                }
                None => builder.push_null(),
            }
        }
        builder.finish()
    }

    /// The relation that the row belongs to.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.relation
    }

    /// The value of column `index`; [`Value::Null`] beyond the last.
    pub fn value(&self, index: usize) -> Value<'_> {
        let Some(cell) = self.cells.get(index) else {
            return Value::Null;
        };
        let slice = || &self.buffer[cell.start as usize..(cell.start + cell.len) as usize];
        match cell.kind {
            Kind::Null => Value::Null,
            Kind::Unchanged => Value::Unchanged,
            Kind::Text => Value::Text(slice()),
            Kind::Binary => Value::Binary(slice()),
            Kind::Undecodable(at) => Value::Undecodable { bytes: slice(), at: at as usize },
        }
    }

    /// The bytes of column `index`, sharing the row's buffer. `None` for
    /// NULL and for an unchanged TOASTed value.
    pub fn bytes(&self, index: usize) -> Option<Bytes> {
        match self.value(index) {
            Value::Null | Value::Unchanged => None,
            Value::Text(bytes) | Value::Binary(bytes) | Value::Undecodable { bytes, .. } => {
                Some(self.buffer.slice_ref(bytes))
            }
        }
    }

    /// The text of column `index` if it is text.
    pub fn text(&self, index: usize) -> Option<&str> {
        match self.value(index) {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns this row's values as a row of `relation`, whose column `n` is column `columns[n]`.
    pub fn project(&self, relation: Arc<Relation>, columns: &[usize]) -> Self {
        let cell = |index: &usize| {
            let null = Cell { kind: Kind::Null, start: 0, len: 0 };
            self.cells.get(*index).copied().unwrap_or(null)
        };
        let cells = columns.iter().map(cell).collect();
        Self { relation, buffer: self.buffer.clone(), cells }
    }

    /// Bytes of all values together.
    pub fn size_bytes(&self) -> usize {
        self.cells.iter().map(|cell| cell.len as usize).sum()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({}.{}, ", self.relation.schema, self.relation.name)?;
        f.debug_list().entries((0..self.cells.len()).map(|index| self.value(index))).finish()?;
        f.write_str(")")
    }
}

/// Collects the values of a [`Row`] in column order.
#[derive(Debug)]
pub struct RowBuilder {
    row: Row,
}

impl RowBuilder {
    /// A NULL.
    pub fn push_null(&mut self) {
        self.push(Kind::Null, 0, 0);
    }

    /// A TOASTed value that is not in the WAL.
    pub fn push_unchanged(&mut self) {
        self.push(Kind::Unchanged, 0, 0);
    }

    /// Text output at `start..start + len` of the buffer, or what is to be text: bytes that are
    /// not UTF-8 become [`Value::Undecodable`].
    ///
    /// # Panics
    /// If the range lies outside the buffer or beyond 4 GiB.
    pub fn push_text(&mut self, start: usize, len: usize) {
        let kind = match self.row.buffer.get(start..start.saturating_add(len)) {
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(_) => Kind::Text,
                // A row's buffer is below 4 GiB.
                Err(error) => Kind::Undecodable(error.valid_up_to() as u32),
            },
            // The panic below.
            None => Kind::Text,
        };
        self.push(kind, start, len);
    }

    /// Text output at `start..start + len` of the buffer, of which the byte at offset `at` has no
    /// UTF-8 form.
    ///
    /// # Panics
    /// If the range lies outside the buffer or beyond 4 GiB.
    pub fn push_undecodable(&mut self, start: usize, len: usize, at: usize) {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        self.push(Kind::Undecodable(at), start, len);
    }

    /// Binary output at `start..start + len` of the buffer.
    ///
    /// # Panics
    /// If the range lies outside the buffer or beyond 4 GiB.
    pub fn push_binary(&mut self, start: usize, len: usize) {
        self.push(Kind::Binary, start, len);
    }

    /// The finished row.
    pub fn finish(self) -> Row {
        self.row
    }

    fn push(&mut self, kind: Kind, start: usize, len: usize) {
        let end = start.checked_add(len).expect("a range within the address space");
        assert!(end <= self.row.buffer.len(), "value outside the row's buffer");
        u32::try_from(end).expect("a row buffer below 4 GiB");
        self.row.cells.push(Cell { kind, start: start as u32, len: len as u32 });
    }
}
