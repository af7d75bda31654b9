//! Finds, in the stream, the transaction that another program has published a
//! part of. Pure.

use walpost_event::{Lsn, Position, RowChange};
use walpost_takeover::{Boundary, Inside, Kind};

use crate::{
    convert::{Converter, Sorted},
    filters::SkippedOperations,
    source::SourceItem,
};

/// What the stream says of a boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Events that the slot would bring although they are published, in whole
    /// transactions.
    pub(crate) whole_events: u64,
    /// The transaction that the boundary is in, once it has come.
    pub(crate) part: Option<Part>,
}

/// A transaction of which the first events are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) commit_lsn: Lsn,
    pub(crate) end_lsn: Lsn,
    /// Events of it that are published, and all of them.
    pub(crate) published: u32,
    pub(crate) events: u32,
}

impl Part {
    /// The last event that is published, where others follow it.
    pub(crate) fn last(self) -> Option<Position> {
        let ordinal = self.published.checked_sub(1).filter(|_| !self.is_whole())?;
        Some(Position { commit_lsn: self.commit_lsn, ordinal })
    }

    pub(crate) fn is_whole(self) -> bool {
        self.published == self.events
    }
}

/// Takes the items of a stream one by one.
pub(crate) struct Scan {
    /// Says what is an event, as in the pipeline, whose ordinals these are.
    converter: Converter,
    skipped: SkippedOperations,
    boundary: Boundary,
    /// Everything that was committed when the scan began lies below.
    until: Lsn,
    open: Open,
    scanned: Scanned,
}

/// The transaction at hand.
#[derive(Default)]
struct Open {
    xid: u32,
    commit_lsn: Lsn,
    events: u32,
    published: u32,
    /// Position of the last row, and how many there were at it.
    last_row: (Lsn, u64),
}

impl Scan {
    pub(crate) fn new(
        converter: Converter,
        skipped: SkippedOperations,
        boundary: Boundary,
        until: Lsn,
    ) -> Self {
        Self {
            converter,
            skipped,
            boundary,
            until,
            open: Open::default(),
            scanned: Scanned::default(),
        }
    }

    /// Takes an item at its position; what was found, once nothing more is to be
    /// found.
    pub(crate) fn take(&mut self, at: Lsn, item: &SourceItem) -> Option<Scanned> {
        match item {
            SourceItem::Begin { commit_lsn, xid, .. } => {
                self.open = Open { xid: *xid, commit_lsn: *commit_lsn, ..Open::default() };
                (*commit_lsn >= self.until).then_some(self.scanned)
            }
            SourceItem::Commit { end_lsn } => self.commit(*end_lsn),
            SourceItem::KeepAlive { wal_end } => (*wal_end >= self.until).then_some(self.scanned),
            SourceItem::Relation(_) | SourceItem::Origin => None,
            SourceItem::Change(change) | SourceItem::Oversize { change, .. } => {
                let (before, count) = self.open.last_row;
                let nth = if before == at { count + 1 } else { 1 };
                self.open.last_row = (at, nth);
                let is_event = self.is_event(change);
                self.event(at, Kind::Row { nth }, is_event);
                None
            }
            SourceItem::Message(message) => {
                let is_event = self.converter.is_outbox_prefix(&message.prefix);
                self.event(at, Kind::Message, is_event);
                None
            }
            SourceItem::OversizeMessage { prefix, .. } => {
                let is_event = self.converter.is_outbox_prefix(prefix);
                self.event(at, Kind::Message, is_event);
                None
            }
        }
    }

    fn is_event(&mut self, change: &RowChange) -> bool {
        self.converter.is_outbox(change.row.relation())
            && matches!(self.converter.sort(change.clone(), self.skipped, false), Sorted::Event(_))
    }

    fn event(&mut self, at: Lsn, kind: Kind, is_event: bool) {
        if is_event {
            self.open.events += 1;
            let is_published = self.inside().is_some_and(|inside| inside.covers(at, kind));
            self.open.published += u32::from(is_published);
        }
    }

    /// The boundary, if it is in the transaction at hand.
    fn inside(&self) -> Option<Inside> {
        let is_here =
            |inside: &Inside| inside.xid == self.open.xid && inside.lsn < self.open.commit_lsn;
        self.boundary.inside.filter(is_here)
    }

    fn commit(&mut self, end_lsn: Lsn) -> Option<Scanned> {
        let Open { commit_lsn, events, published, .. } = self.open;
        if self.boundary.after.is_some_and(|after| end_lsn <= after) {
            self.scanned.whole_events += u64::from(events);
            return None;
        }
        // Before it nothing else can have come that is published.
        self.inside()?;
        self.scanned.part = Some(Part { commit_lsn, end_lsn, published, events });
        Some(self.scanned)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use walpost_encode::{
        Encoder, Encoding,
        connect::{
            Converter as Written, Converters, HeaderConverter, ShapeOptions, Transforms,
            TypingOptions,
        },
    };
    use walpost_event::{Operation, Relation, ReplicaIdentity, Row};
    use walpost_pgoutput::LogicalMessage;
    use walpost_router::{Router, RouterConfig};
    use walpost_takeover::Last;

    use super::*;
    use crate::{
        config::RelayConfig,
        encoding::{ConnectOptions, ContextHeaders, EventEncoding, Registries},
    };

    fn lsn(lsn: u64) -> Lsn {
        Lsn::from(lsn)
    }

    fn begin(commit_lsn: u64, xid: u32) -> (u64, SourceItem) {
        let commit_lsn = lsn(commit_lsn);
        (0, SourceItem::Begin { commit_lsn, committed_at_us: 0, xid, is_late: false })
    }

    fn commit(end: u64) -> (u64, SourceItem) {
        (end, SourceItem::Commit { end_lsn: lsn(end) })
    }

    fn row_of(table: &str) -> Row {
        let relation = Relation {
            oid: 1,
            schema: "walpost".into(),
            name: table.into(),
            replica_identity: ReplicaIdentity::Default,
            columns: Vec::new(),
        };
        Row::from_text(Arc::new(relation), [] as [Option<&str>; 0])
    }

    fn insert(at: u64, table: &str) -> (u64, SourceItem) {
        (at, SourceItem::Change(RowChange::insert(row_of(table))))
    }

    /// PostgreSQL sends the key of before with it.
    fn update_of_key(at: u64) -> (u64, SourceItem) {
        let (row, old) = (row_of("outbox"), Some(row_of("outbox")));
        (at, SourceItem::Change(RowChange { operation: Operation::Update, row, old }))
    }

    fn message(at: u64) -> (u64, SourceItem) {
        let message = LogicalMessage {
            transactional: true,
            lsn: lsn(at),
            prefix: "walpost".into(),
            content: Default::default(),
        };
        (at, SourceItem::Message(message))
    }

    fn boundary(after: u64, inside: Option<(u32, u64, Last)>) -> Boundary {
        let inside = inside.map(|(xid, at, last)| Inside { xid, lsn: lsn(at), last });
        Boundary { after: Some(lsn(after)), inside, may_repeat: None }
    }

    fn plain() -> EventEncoding {
        Encoding { key: Encoder::Raw, value: Encoder::Raw }.into()
    }

    fn connect() -> EventEncoding {
        let (key, value) = (Written::String, Written::String);
        let options = ConnectOptions {
            shape: ShapeOptions::default(),
            typing: TypingOptions::default(),
            transforms: Transforms::default(),
            converters: Converters { key, value, header: HeaderConverter::Simple },
            registries: Registries::default(),
            context_headers: ContextHeaders::None,
        };
        options.into()
    }

    fn scan_as(
        encoding: &EventEncoding,
        skipped: SkippedOperations,
        boundary: Boundary,
        items: Vec<(u64, SourceItem)>,
    ) -> Option<Scanned> {
        let router = Router::new(RouterConfig::default()).unwrap();
        let converter = Converter::new(router, encoding, &RelayConfig::new("shop"));
        let mut scan = Scan::new(converter, skipped, boundary, lsn(1_000));
        items.into_iter().find_map(|(at, item)| scan.take(lsn(at), &item))
    }

    fn scan(boundary: Boundary, items: Vec<(u64, SourceItem)>) -> Option<Scanned> {
        scan_as(&plain(), SkippedOperations::default(), boundary, items)
    }

    fn row(nth: u64) -> Last {
        Last::Row { nth }
    }

    #[test]
    fn of_a_long_transaction_the_events_up_to_the_position_are_published() {
        // Transaction 9 began before 8 was committed, and is committed after it.
        let items = || {
            let first = vec![begin(120, 8), insert(110, "outbox"), commit(121)];
            let second = vec![begin(140, 9), insert(100, "outbox"), insert(104, "orders")];
            let rest = vec![insert(130, "outbox"), insert(130, "outbox"), commit(150)];
            [first, second, rest].concat_all()
        };
        let found = |at, last| scan(boundary(121, Some((9, at, last))), items()).unwrap();
        let part = |published| {
            Some(Part { commit_lsn: lsn(140), end_lsn: lsn(150), published, events: 3 })
        };
        assert_eq!(found(100, row(1)), Scanned { whole_events: 1, part: part(1) });
        assert_eq!(found(104, row(1)).part, part(1));
        assert_eq!(found(130, row(1)).part, part(2));
        let whole = found(130, row(2)).part.unwrap();
        assert!(whole.is_whole() && whole.last().is_none());
        let last = part(2).unwrap().last().unwrap();
        assert_eq!(last.to_string(), "0/8C:1");
    }

    /// Of a transaction that counted as whole the rest would be published by nobody.
    #[test]
    fn events_are_those_of_the_pipeline() {
        let items = || {
            vec![
                begin(140, 9),
                update_of_key(100),
                message(105),
                insert(110, "outbox"),
                update_of_key(120),
                commit(150),
            ]
        };
        let boundary = boundary(121, Some((9, 110, row(1))));
        let part = |encoding: &EventEncoding, skipped: SkippedOperations| {
            let part = scan_as(encoding, skipped, boundary, items()).unwrap().part.unwrap();
            (part.published, part.events)
        };
        let all = SkippedOperations::default();
        assert_eq!(part(&connect(), all), (2, 3), "a new key is a new event, and no message is");
        assert_eq!(part(&plain(), all), (2, 2), "an update is none, and a message is");
        assert_eq!(part(&connect(), SkippedOperations { update: true, ..all }), (1, 1));
        assert_eq!(part(&connect(), SkippedOperations { insert: true, ..all }), (1, 2));
    }

    #[test]
    fn a_message_ends_where_a_row_begins() {
        let items = || vec![begin(140, 9), message(130), insert(130, "outbox"), commit(150)];
        let published = |last| {
            scan(boundary(121, Some((9, 130, last))), items()).unwrap().part.unwrap().published
        };
        assert_eq!(published(Last::Message), 1);
        assert_eq!(published(row(1)), 2);
    }

    #[test]
    fn a_transaction_that_does_not_come_is_not_waited_for() {
        let inside = Some((9, 130, row(1)));
        let others = vec![begin(140, 10), insert(130, "outbox"), commit(150)];
        assert_eq!(scan(boundary(121, inside), others), None);
        let late = vec![begin(1_000, 10)];
        assert_eq!(scan(boundary(121, inside), late), Some(Scanned::default()));
        let idle = vec![(1_000, SourceItem::KeepAlive { wal_end: lsn(1_000) })];
        assert_eq!(scan(boundary(121, inside), idle), Some(Scanned::default()));
        // Another one with the same id, from before the ids wrapped.
        let wrapped = vec![begin(125, 9), insert(124, "outbox"), commit(126)];
        assert_eq!(scan(boundary(121, inside), wrapped), None);
    }

    trait ConcatAll {
        fn concat_all(self) -> Vec<(u64, SourceItem)>;
    }

    impl<const N: usize> ConcatAll for [Vec<(u64, SourceItem)>; N] {
        fn concat_all(self) -> Vec<(u64, SourceItem)> {
            self.into_iter().flatten().collect()
        }
    }
}
