//! A stream that ends at a position.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use walpost_event::Lsn;

use crate::{
    error::SourceError,
    filters::Prefixes,
    source::{Source, SourceItem},
};

/// What a source brings of the transactions that were committed below a position.
/// After these, and that position, it yields nothing more.
pub(crate) struct Until<S> {
    source: S,
    end: Lsn,
    is_over: bool,
    /// Of messages that are events.
    prefixes: Prefixes,
    /// One of them has come.
    messages: Arc<AtomicBool>,
}

impl<S> Until<S> {
    pub(crate) fn new(source: S, end: Lsn, prefixes: Prefixes, messages: Arc<AtomicBool>) -> Self {
        Self { source, end, is_over: false, prefixes, messages }
    }

    /// Cuts off what was appended behind `first`. In stream order: what follows
    /// the first transaction behind the end is behind it too.
    fn cut(&mut self, items: &mut Vec<SourceItem>, first: usize) {
        let is_behind = |item: &SourceItem| match item {
            SourceItem::Begin { commit_lsn, .. } => *commit_lsn >= self.end,
            SourceItem::KeepAlive { wal_end } => *wal_end >= self.end,
            _ => false,
        };
        if let Some(index) = items[first..].iter().position(is_behind) {
            items.truncate(first + index);
            items.push(SourceItem::KeepAlive { wal_end: self.end });
            self.is_over = true;
        }
        let is_event = |item: &SourceItem| match item {
            SourceItem::Message(message) => self.prefixes.takes(&message.prefix),
            SourceItem::OversizeMessage { prefix, .. } => self.prefixes.takes(prefix),
            _ => false,
        };
        if items[first..].iter().any(is_event) {
            self.messages.store(true, Ordering::Relaxed);
        }
    }
}

impl<S: Source> Source for Until<S> {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        if self.is_over {
            return std::future::pending().await;
        }
        let first = items.len();
        self.source.next(items).await?;
        self.cut(items, first);
        Ok(())
    }

    async fn confirm(&mut self, lsn: Lsn) -> Result<(), SourceError> {
        self.source.confirm(lsn).await
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        self.source.keep_alive().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RelayConfig;

    fn begin(commit_lsn: u64) -> SourceItem {
        let commit_lsn = Lsn::from(commit_lsn);
        SourceItem::Begin { commit_lsn, committed_at_us: 0, xid: 1, is_late: false }
    }

    fn commit(end_lsn: u64) -> SourceItem {
        SourceItem::Commit { end_lsn: Lsn::from(end_lsn) }
    }

    fn keep_alive(wal_end: u64) -> SourceItem {
        SourceItem::KeepAlive { wal_end: Lsn::from(wal_end) }
    }

    fn cut(items: Vec<SourceItem>) -> (String, bool) {
        let mut until = Until::new((), Lsn::from(100), Prefixes::default(), Arc::default());
        let mut items = items;
        until.cut(&mut items, 0);
        let short = |item: &SourceItem| match item {
            SourceItem::Begin { commit_lsn, .. } => format!("b{}", u64::from(*commit_lsn)),
            SourceItem::Commit { end_lsn } => format!("c{}", u64::from(*end_lsn)),
            SourceItem::KeepAlive { wal_end } => format!("k{}", u64::from(*wal_end)),
            _ => String::new(),
        };
        (items.iter().map(short).collect::<Vec<_>>().join(" "), until.is_over)
    }

    #[test]
    fn a_transaction_that_is_committed_at_the_position_is_not_brought() {
        let items = vec![begin(80), commit(100), begin(100), commit(120), keep_alive(200)];
        assert_eq!(cut(items), ("b80 c100 k100".to_owned(), true));
    }

    #[test]
    fn messages_below_the_position_that_are_events_are_told() {
        let message =
            |prefix: &str| SourceItem::OversizeMessage { prefix: prefix.to_owned(), size_bytes: 1 };
        let told = |mut items: Vec<SourceItem>| {
            let messages = Arc::new(AtomicBool::new(false));
            let mut config = RelayConfig::new("shop");
            config.message_prefixes = vec!["ours".to_owned()];
            let ours = Prefixes::new(&config);
            Until::new((), Lsn::from(100), ours, messages.clone()).cut(&mut items, 0);
            messages.load(Ordering::Relaxed)
        };
        assert!(told(vec![begin(80), message("ours"), commit(90)]));
        assert!(!told(vec![begin(80), message("another"), commit(90)]));
        assert!(!told(vec![begin(100), message("ours"), commit(190)]), "it stays in the WAL");
    }

    #[test]
    fn it_goes_on_below_the_position_and_ends_there() {
        assert_eq!(cut(vec![begin(80), commit(90)]), ("b80 c90".to_owned(), false));
        assert_eq!(cut(vec![keep_alive(99)]), ("k99".to_owned(), false));
        assert_eq!(cut(vec![keep_alive(180), begin(190)]), ("k100".to_owned(), true));
    }
}
