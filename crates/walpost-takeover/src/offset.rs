use serde_json::{Map, Value, json};
use walpost_event::Lsn;

use crate::error::OffsetError;

/// What Debezium 2 and 3 store for a PostgreSQL server. It belongs to the last
/// record that Kafka has acknowledged in order: that record and everything
/// before it is published.
///
/// Positions are those of the replication stream: a row's is the start of its WAL
/// record, which rows of one `COPY` share; a message's and a commit's is the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    /// `lsn`: of the last event.
    pub lsn: Lsn,
    /// `lsn_proc`: the last one that is completely processed.
    pub processed: Option<Lsn>,
    /// `lsn_commit`: end of the last transaction that has come whole.
    pub committed: Option<Lsn>,
    /// `txId`: transaction of the last event, as its 32 bits in the WAL.
    pub xid: Option<u32>,
    /// `messageType`: what the last event was.
    pub operation: Option<Operation>,
    /// `lsn_events_processed`, since Debezium 3.7: how many changes at `lsn`.
    pub events_at_lsn: Option<u64>,
    /// `ts_usec`: when the last event was committed, in microseconds since 1970.
    pub committed_at_us: Option<i64>,
    /// Of the initial snapshot.
    pub snapshot: SnapshotState,
    /// An incremental snapshot has tables left.
    pub is_incremental_snapshot: bool,
}

/// How far the initial snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// The offset is not of a snapshot.
    None,
    /// Rows may be missing.
    Running,
    /// All rows are published, and nothing of the stream.
    Completed,
}

/// What the last event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A transaction has begun.
    Begin,
    /// A row, or a `TRUNCATE`.
    Row,
    /// `pg_logical_emit_message`.
    Message,
    /// A transaction has ended.
    Commit,
}

impl StoredOffset {
    /// Reads the value of an offset. Fields that it does not know are left alone.
    ///
    /// # Errors
    /// [`OffsetError`] naming the field.
    pub fn parse(bytes: &[u8]) -> Result<Self, OffsetError> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else {
            return Err(OffsetError::NotAnObject);
        };
        let lsn = position(&fields, "lsn")?.ok_or(OffsetError::Missing { field: "lsn" })?;
        let events_at_lsn = number(&fields, "lsn_events_processed")?;
        let events_at_lsn = events_at_lsn.map(u64::try_from).transpose().map_err(|_| {
            OffsetError::Field { field: "lsn_events_processed", expected: "a count" }
        })?;
        Ok(Self {
            lsn,
            processed: position(&fields, "lsn_proc")?,
            committed: position(&fields, "lsn_commit")?,
            // Of 64 bits the WAL has the lower ones.
            xid: number(&fields, "txId")?.map(|xid| xid as u32),
            operation: operation(&fields)?,
            events_at_lsn,
            committed_at_us: number(&fields, "ts_usec")?,
            snapshot: snapshot(&fields)?,
            is_incremental_snapshot: fields
                .get("incremental_snapshot_collections")
                .is_some_and(|collections| !is_empty(collections)),
        })
    }

    /// What Debezium goes on from behind `end`, where everything below is published
    /// and nothing above: the offset of a transaction that ends there.
    ///
    /// `now_us` is the time, in microseconds since 1970; only people read it.
    pub fn at_end_of_transaction(end: Lsn, now_us: i64) -> Vec<u8> {
        // Signed, as Java has it.
        let end = u64::from(end) as i64;
        let value = json!({
            "transaction_id": null,
            "lsn_proc": end,
            "messageType": "COMMIT",
            "lsn_commit": end,
            "lsn": end,
            "ts_usec": now_us,
        });
        value.to_string().into_bytes()
    }
}

fn number(fields: &Map<String, Value>, field: &'static str) -> Result<Option<i64>, OffsetError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let expected = "a whole number of 64 bits";
            value.as_i64().map(Some).ok_or(OffsetError::Field { field, expected })
        }
    }
}

fn position(fields: &Map<String, Value>, field: &'static str) -> Result<Option<Lsn>, OffsetError> {
    Ok(number(fields, field)?.map(|lsn| Lsn::from(lsn as u64)))
}

fn flag(fields: &Map<String, Value>, field: &'static str) -> Result<bool, OffsetError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(OffsetError::Field { field, expected: "true or false" }),
    }
}

fn operation(fields: &Map<String, Value>) -> Result<Option<Operation>, OffsetError> {
    match fields.get("messageType") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => match name.as_str() {
            "BEGIN" => Ok(Some(Operation::Begin)),
            "COMMIT" => Ok(Some(Operation::Commit)),
            "MESSAGE" => Ok(Some(Operation::Message)),
            "INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" => Ok(Some(Operation::Row)),
            _ => Err(kind_unknown()),
        },
        Some(_) => Err(kind_unknown()),
    }
}

fn kind_unknown() -> OffsetError {
    let expected = "BEGIN, COMMIT, MESSAGE, INSERT, UPDATE, DELETE or TRUNCATE";
    OffsetError::Field { field: "messageType", expected }
}

/// `snapshot` was `true` once and is the kind of snapshot now.
fn snapshot(fields: &Map<String, Value>) -> Result<SnapshotState, OffsetError> {
    let is_snapshot = match fields.get("snapshot") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::String(kind)) => !kind.eq_ignore_ascii_case("false"),
        Some(_) => {
            return Err(OffsetError::Field { field: "snapshot", expected: "a kind of snapshot" });
        }
    };
    let is_over = flag(fields, "last_snapshot_record")? || flag(fields, "snapshot_completed")?;
    Ok(match (is_snapshot, is_over) {
        (false, _) => SnapshotState::None,
        (true, false) => SnapshotState::Running,
        (true, true) => SnapshotState::Completed,
    })
}

/// Debezium writes the list as text.
fn is_empty(collections: &Value) -> bool {
    match collections {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "[]"),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoredOffset, OffsetError> {
        StoredOffset::parse(text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read() {
        let end = Lsn::from(0x16_B374_D848);
        let offset = StoredOffset::parse(&StoredOffset::at_end_of_transaction(end, 7)).unwrap();
        assert_eq!((offset.lsn, offset.processed, offset.committed), (end, Some(end), Some(end)));
        assert_eq!((offset.operation, offset.xid), (Some(Operation::Commit), None));
        assert_eq!(offset.committed_at_us, Some(7));
        // A position above half of all is a negative number in Java.
        let high = Lsn::from(u64::MAX - 1);
        let offset = StoredOffset::parse(&StoredOffset::at_end_of_transaction(high, 7)).unwrap();
        assert_eq!(offset.lsn, high);
    }

    #[test]
    fn snapshots_of_all_versions_are_told_apart() {
        let state = |more: &str| parse(&format!(r#"{{"lsn":5{more}}}"#)).unwrap().snapshot;
        assert_eq!(state(""), SnapshotState::None);
        assert_eq!(state(r#","snapshot":true"#), SnapshotState::Running);
        assert_eq!(
            state(r#","snapshot":"INITIAL","snapshot_completed":false"#),
            SnapshotState::Running
        );
        assert_eq!(
            state(r#","snapshot":true,"last_snapshot_record":true"#),
            SnapshotState::Completed
        );
        assert_eq!(
            state(
                r#","snapshot":"INITIAL","last_snapshot_record":false,"snapshot_completed":true"#
            ),
            SnapshotState::Completed
        );
    }

    #[test]
    fn an_incremental_snapshot_is_seen() {
        let is = |list: &str| {
            let text = format!(r#"{{"lsn":5,"incremental_snapshot_collections":{list}}}"#);
            parse(&text).unwrap().is_incremental_snapshot
        };
        assert!(!is("null") && !is(r#""""#) && !is(r#""[]""#) && !is("[]"));
        assert!(is(r#""[{\"incremental_snapshot_collections_id\":\"public.a\"}]""#));
    }

    #[test]
    fn bad_input_names_the_field() {
        let field = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(parse("[1]"), Err(OffsetError::NotAnObject));
        assert_eq!(parse("\u{0}"), Err(OffsetError::NotAnObject));
        assert!(field("{}").contains("no lsn"));
        assert!(field(r#"{"lsn":"5"}"#).contains("lsn of"));
        assert!(field(r#"{"lsn":5.5}"#).contains("lsn of"));
        assert!(field(r#"{"lsn":5,"lsn_commit":[]}"#).contains("lsn_commit"));
        assert!(field(r#"{"lsn":5,"messageType":"X"}"#).contains("messageType"));
        assert!(field(r#"{"lsn":5,"snapshot":3}"#).contains("snapshot"));
        assert!(field(r#"{"lsn":5,"last_snapshot_record":3}"#).contains("last_snapshot_record"));
        assert!(field(r#"{"lsn":5,"lsn_events_processed":-1}"#).contains("lsn_events_processed"));
    }
}
