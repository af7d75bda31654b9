//! The WAL of a replication slot as a [`Source`](crate::Source).

mod client;
mod coalesce;
mod frames;
mod oversize;
mod pgwire;
mod source;
mod transaction;

pub(crate) mod preflight;
pub(crate) mod slot;
pub(crate) mod snapshot;

use walpost_event::Lsn;

pub use self::{pgwire::PgwireSource, source::WalSource};

/// What to stream and from where.
#[derive(Clone, Debug)]
pub struct StreamStart {
    /// Name of the replication slot.
    pub slot: String,
    /// Publications, without quotes.
    pub publications: Vec<String>,
    /// Where to start; the server starts at the slot's own position when that
    /// is later.
    pub position: Lsn,
    /// Whether to ask for `pg_logical_emit_message`.
    pub messages: bool,
    /// Larger rows come as [`Oversize`](crate::SourceItem::Oversize).
    pub max_event_bytes: usize,
    /// `wal_sender_timeout` of this session, in milliseconds.
    pub wal_sender_timeout_ms: u64,
}

impl StreamStart {
    fn command(&self) -> String {
        let names: Vec<String> =
            self.publications.iter().map(|name| quote_identifier(name)).collect();
        let messages = if self.messages { ", messages 'true'" } else { "" };
        format!(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {}{messages})",
            quote_identifier(&self.slot),
            self.position,
            quote_literal(&names.join(",")),
        )
    }
}

/// A name as an SQL identifier.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text as an SQL literal.
pub(crate) fn quote_literal(text: &str) -> String {
    if text.contains('\\') {
        return format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_the_command_and_within_the_list() {
        let start = StreamStart {
            slot: "my slot".into(),
            publications: vec!["a".into(), "b\"c".into()],
            position: Lsn::from(0x10),
            messages: true,
            max_event_bytes: 1,
            wal_sender_timeout_ms: 1,
        };
        assert_eq!(
            start.command(),
            "START_REPLICATION SLOT \"my slot\" LOGICAL 0/10 (proto_version '1', \
             publication_names '\"a\",\"b\"\"c\"', messages 'true')"
        );
    }
}
