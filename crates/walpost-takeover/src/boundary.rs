use walpost_event::Lsn;

use crate::{
    error::OffsetError,
    offset::{Operation, SnapshotState, StoredOffset},
};

/// What is published by a stored offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Transactions that end at or below it are published. `None` where nothing of
    /// the stream is: the slot says where that begins.
    pub after: Option<Lsn>,
    /// A transaction behind that, of which the first events are published; those
    /// before it in the stream are too.
    pub inside: Option<Inside>,
    /// Why events may come a second time, where the offset is not exact.
    pub may_repeat: Option<Reason>,
}

/// How far a transaction is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Its id, 32 bits as in the WAL.
    pub xid: u32,
    /// Position of the last event that is published.
    pub lsn: Lsn,
    /// Which one that was, of those at the position.
    pub last: Last,
}

/// The last published event among those at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// So many rows of that WAL record: one `COPY` has several in one.
    Row {
        /// From 1.
        nth: u64,
    },
    /// A message, which ends where the row behind it begins.
    Message,
}

/// What stands at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A row, the so many-th of the transaction at this position, from 1.
    Row {
        /// From 1.
        nth: u64,
    },
    /// A message.
    Message,
}

/// Why events may come a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The offset does not tell what the last event was (Debezium before 2.6).
    NoMessageType,
    /// The offset does not tell how many rows of one WAL record are published
    /// (Debezium before 3.7); of a `COPY` the others of the record may be.
    NoCount,
    /// The connector was about to go on inside of a transaction.
    Begin,
}

impl Reason {
    /// In a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoMessageType => {
                "the offset does not tell what the last event was, so the events of its \
                 transaction come again"
            }
            Self::NoCount => {
                "the offset does not tell how many rows of one WAL record are published: if the \
                 last event came by COPY, up to a page of rows comes again"
            }
            Self::Begin => {
                "the connector was searching its place inside of a transaction, whose events come \
                 again"
            }
        }
    }
}

impl Inside {
    /// Whether an event of the transaction is published.
    pub fn covers(&self, lsn: Lsn, kind: Kind) -> bool {
        if lsn != self.lsn {
            return lsn < self.lsn;
        }
        match (self.last, kind) {
            (Last::Row { nth }, Kind::Row { nth: this }) => this <= nth,
            // It ends where the row begins, so it came before.
            (_, Kind::Message) => true,
            (Last::Message, Kind::Row { .. }) => false,
        }
    }
}

impl StoredOffset {
    /// What is published by this offset. Where it is not exact, nothing is missing
    /// and something comes again: see [`Boundary::may_repeat`].
    ///
    /// The last event decides: after a commit all of its transaction is published,
    /// after a row or message the transaction up to and with it, and then
    /// `lsn_commit` is still the end of the transaction before.
    ///
    /// # Errors
    /// [`OffsetError::SnapshotRunning`] and [`OffsetError::IncrementalSnapshot`], and
    /// [`OffsetError::Missing`] for a row without its transaction.
    pub fn boundary(&self) -> Result<Boundary, OffsetError> {
        if self.is_incremental_snapshot {
            return Err(OffsetError::IncrementalSnapshot);
        }
        let whole = |after, may_repeat| Ok(Boundary { after, inside: None, may_repeat });
        match self.snapshot {
            SnapshotState::Running => return Err(OffsetError::SnapshotRunning),
            // The stream goes on where the snapshot was taken, or where it had come
            // before.
            SnapshotState::Completed => {
                return whole(self.committed.or(self.processed).or(Some(self.lsn)), None);
            }
            SnapshotState::None => {}
        }
        match self.operation {
            Some(Operation::Commit) => whole(Some(self.committed.unwrap_or(self.lsn)), None),
            // No part of a transaction.
            Some(Operation::Message) if self.committed == Some(self.lsn) => {
                whole(Some(self.lsn), None)
            }
            Some(Operation::Row) => self.up_to(Last::Row { nth: self.events_at_lsn.unwrap_or(1) }),
            Some(Operation::Message) => self.up_to(Last::Message),
            Some(Operation::Begin) if self.processed == self.committed => {
                whole(self.committed, None)
            }
            Some(Operation::Begin) => whole(self.committed, Some(Reason::Begin)),
            None if self.committed.is_none_or(|committed| committed == self.lsn) => {
                whole(self.committed, None)
            }
            None => whole(self.committed, Some(Reason::NoMessageType)),
        }
    }

    fn up_to(&self, last: Last) -> Result<Boundary, OffsetError> {
        let xid = self.xid.ok_or(OffsetError::Missing { field: "txId" })?;
        let is_counted = matches!(last, Last::Message) || self.events_at_lsn.is_some();
        Ok(Boundary {
            after: self.committed,
            inside: Some(Inside { xid, lsn: self.lsn, last }),
            may_repeat: (!is_counted).then_some(Reason::NoCount),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(fields: &str) -> Result<Boundary, OffsetError> {
        StoredOffset::parse(format!("{{{fields}}}").as_bytes()).unwrap().boundary()
    }

    fn inside(last: Last) -> Inside {
        Inside { xid: 9, lsn: Lsn::from(100), last }
    }

    #[test]
    fn after_a_commit_nothing_of_another_transaction_is_published() {
        let at_end = r#""lsn":121,"lsn_proc":121,"lsn_commit":121,"messageType":"COMMIT","txId":8"#;
        let expected = Boundary { after: Some(Lsn::from(121)), inside: None, may_repeat: None };
        assert_eq!(boundary(at_end), Ok(expected));
        let begun = r#""lsn":100,"lsn_proc":121,"lsn_commit":121,"messageType":"BEGIN","txId":9"#;
        assert_eq!(boundary(begun), Ok(expected));
        let lone = r#""lsn":121,"lsn_proc":121,"lsn_commit":121,"messageType":"MESSAGE""#;
        assert_eq!(boundary(lone), Ok(expected));
        let searching = r#""lsn":90,"lsn_proc":100,"lsn_commit":121,"messageType":"BEGIN""#;
        let repeats = Boundary { may_repeat: Some(Reason::Begin), ..expected };
        assert_eq!(boundary(searching), Ok(repeats));
        let old = r#""lsn":130,"lsn_proc":130,"lsn_commit":121"#;
        let repeats = Boundary { may_repeat: Some(Reason::NoMessageType), ..expected };
        assert_eq!(boundary(old), Ok(repeats));
    }

    #[test]
    fn a_row_of_a_long_transaction_may_stand_before_the_last_commit() {
        let row = r#""lsn":100,"lsn_proc":100,"lsn_commit":121,"messageType":"INSERT","txId":9"#;
        let expected = Boundary {
            after: Some(Lsn::from(121)),
            inside: Some(inside(Last::Row { nth: 3 })),
            may_repeat: None,
        };
        assert_eq!(boundary(&format!(r#"{row},"lsn_events_processed":3"#)), Ok(expected));
        let uncounted = Boundary {
            inside: Some(inside(Last::Row { nth: 1 })),
            may_repeat: Some(Reason::NoCount),
            ..expected
        };
        assert_eq!(boundary(row), Ok(uncounted));
        let message = row.replace("INSERT", "MESSAGE");
        let expected = Boundary { inside: Some(inside(Last::Message)), ..expected };
        assert_eq!(boundary(&message), Ok(expected));
        // The lower half of a 64-bit transaction id is in the WAL.
        let wrapped = boundary(&row.replace(":9", ":4294967305")).unwrap();
        assert_eq!(wrapped.inside.unwrap().xid, 9);
    }

    #[test]
    fn before_anything_has_come_the_slot_says_where_to_begin() {
        let nothing = Boundary { after: None, inside: None, may_repeat: None };
        assert_eq!(boundary(r#""lsn":100,"txId":9"#), Ok(nothing));
        let begun = r#""lsn":100,"lsn_proc":90,"messageType":"BEGIN""#;
        let repeats = Boundary { may_repeat: Some(Reason::Begin), ..nothing };
        assert_eq!(boundary(begun), Ok(repeats));
        let row = boundary(r#""lsn":100,"lsn_proc":100,"messageType":"INSERT","txId":9"#).unwrap();
        assert_eq!((row.after, row.inside.unwrap().lsn), (None, Lsn::from(100)));
    }

    #[test]
    fn a_snapshot_is_over_or_refused() {
        let snapshot = r#""lsn":100,"txId":9,"snapshot":"INITIAL""#;
        assert_eq!(boundary(snapshot), Err(OffsetError::SnapshotRunning));
        let over = boundary(&format!(r#"{snapshot},"snapshot_completed":true"#)).unwrap();
        assert_eq!((over.after, over.inside), (Some(Lsn::from(100)), None));
        let incremental = r#""lsn":100,"incremental_snapshot_collections":"[{}]""#;
        assert_eq!(boundary(incremental), Err(OffsetError::IncrementalSnapshot));
        assert_eq!(
            boundary(r#""lsn":1,"messageType":"INSERT""#),
            Err(OffsetError::Missing { field: "txId" })
        );
    }

    #[test]
    fn at_one_position_rows_are_counted_and_a_message_comes_first() {
        let at = |lsn: u64| Lsn::from(lsn);
        let rows = inside(Last::Row { nth: 2 });
        assert!(rows.covers(at(99), Kind::Row { nth: 7 }));
        assert!(rows.covers(at(100), Kind::Row { nth: 2 }));
        assert!(!rows.covers(at(100), Kind::Row { nth: 3 }));
        assert!(!rows.covers(at(101), Kind::Row { nth: 1 }));
        assert!(rows.covers(at(100), Kind::Message));
        assert!(!rows.covers(at(101), Kind::Message));
        let message = inside(Last::Message);
        assert!(message.covers(at(100), Kind::Message));
        assert!(!message.covers(at(100), Kind::Row { nth: 1 }));
    }
}
