//! The WAL of a replication slot as a [`Source`](crate::Source).

mod client;
mod coalesce;
mod frames;
mod identity;
mod load;
mod oversize;
#[cfg(feature = "pgwire")]
mod pgwire;
mod source;
mod timeline;
mod transaction;
mod transcode;

pub(crate) mod charset;
pub(crate) mod failover;
pub(crate) mod membership;
pub(crate) mod preflight;
pub(crate) mod publication;
pub(crate) mod relations;
pub(crate) mod rights;
pub(crate) mod row_filter;
pub(crate) mod slot;
pub(crate) mod snapshot;
pub(crate) mod stream_columns;

pub(crate) use postgres_protocol::escape::{
    escape_identifier as quote_identifier, escape_literal as quote_literal,
};
use walpost_event::Lsn;
use walpost_pgoutput::Decoder;

use crate::config::{StreamOrigin, TableName};

#[cfg(feature = "pgwire")]
pub(crate) use self::pgwire::PgwireSource;
pub(crate) use self::{
    client::ReplicationClient,
    identity::ServerIdentity,
    load::{Load, Loaded, Loader},
    source::WalSource,
    timeline::Switch,
};

/// `XLogData`: tag, start of the data, end of WAL, clock.
const XLOG_DATA_HEADER_BYTES: usize = 25;

/// What to stream and from where.
#[derive(Clone, Debug)]
pub(crate) struct StreamStart {
    /// The server that slot and position belong to.
    #[cfg_attr(
        not(feature = "pgwire"),
        expect(dead_code, reason = "pgwire alone checks it when it connects")
    )]
    pub(crate) server: ServerIdentity,
    /// Name of the replication slot.
    pub(crate) slot: String,
    /// Publications, without quotes.
    pub(crate) publications: Vec<String>,
    /// Where to start; the server starts at the slot's own position when that
    /// is later.
    pub(crate) position: Lsn,
    /// Whether to ask for `pg_logical_emit_message`.
    pub(crate) messages: bool,
    /// Larger rows come as [`Oversize`](crate::SourceItem::Oversize).
    #[cfg_attr(not(feature = "pgwire"), expect(dead_code, reason = "pgwire alone checks it here"))]
    pub(crate) max_event_bytes: usize,
    /// `wal_sender_timeout` of this session, in milliseconds.
    pub(crate) wal_sender_timeout_ms: u64,
    /// Where changes come from.
    pub(crate) origin: Option<StreamOrigin>,
    /// Whether the slot is told any position.
    pub(crate) confirms: bool,
    /// Whether columns of a domain have the type below it.
    pub(crate) base_types: bool,
    /// Tables by their object ids: their rows are theirs, whatever they are called at
    /// that moment.
    pub(crate) tables: Vec<(u32, TableName)>,
}

impl StreamStart {
    /// Calls the tables by their names of now.
    fn decoder(&self) -> Decoder {
        let names = self
            .tables
            .iter()
            .map(|(oid, table)| (*oid, (table.schema.clone(), table.name.clone())));
        let decoder = Decoder::naming(names.collect());
        match self.base_types {
            true => decoder.with_base_types(),
            false => decoder,
        }
    }

    fn command(&self) -> String {
        // The replication grammar knows no E'…' and takes a backslash as it is.
        let quoted = |text: String| format!("'{}'", text.replace('\'', "''"));
        let names: Vec<String> =
            self.publications.iter().map(|name| quote_identifier(name)).collect();
        let messages = if self.messages { ", messages 'true'" } else { "" };
        let origin = match self.origin {
            Some(StreamOrigin::None) => ", origin 'none'",
            Some(StreamOrigin::Any) => ", origin 'any'",
            None => "",
        };
        format!(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {}{messages}{origin})",
            quote_identifier(&self.slot),
            self.position,
            quoted(names.join(",")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(publications: &[&str]) -> StreamStart {
        StreamStart {
            server: ServerIdentity { system_id: "1".into(), timeline: 1, dbname: "shop".into() },
            slot: "my slot".into(),
            publications: publications.iter().map(|name| (*name).to_owned()).collect(),
            position: Lsn::from(0x10),
            messages: true,
            max_event_bytes: 1,
            wal_sender_timeout_ms: 1,
            origin: None,
            confirms: true,
            base_types: true,
            tables: Vec::new(),
        }
    }

    #[test]
    fn an_origin_is_asked_for_where_one_is_wanted() {
        let of = |origin| StreamStart { origin, ..start(&["a"]) }.command();
        assert!(of(Some(StreamOrigin::None)).ends_with(", messages 'true', origin 'none')"));
        assert!(of(Some(StreamOrigin::Any)).ends_with(", origin 'any')"));
        assert!(!of(None).contains("origin"));
    }

    #[test]
    fn a_backslash_stays_alone_and_a_quote_is_doubled() {
        let command = start(&["a\\b'c"]).command();
        assert!(command.contains("publication_names '\"a\\b''c\"'"), "{command}");
    }

    #[test]
    fn names_are_quoted_for_the_command_and_within_the_list() {
        assert_eq!(
            start(&["a", "b\"c"]).command(),
            "START_REPLICATION SLOT \"my slot\" LOGICAL 0/10 (proto_version '1', \
             publication_names '\"a\",\"b\"\"c\"', messages 'true')"
        );
    }
}
