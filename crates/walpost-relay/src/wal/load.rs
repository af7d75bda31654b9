use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{Stream, StreamExt};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use walpost_event::{Relation, RowChange};

use super::{
    charset::{Charset, statement_failed},
    oversize::KEPT_VALUE_BYTES,
};
use crate::{error::SourceError, source::SourceItem, status::StatusReporter};

/// Rows of one fetch: between two, the server runs nothing for us.
const FETCH_ROWS: usize = 1_000;
/// Rows and bytes handed on at a time. Their number in memory is bounded by
/// this and by the socket: a row is read when there is room for it.
const BATCH_ROWS: usize = 1_000;
const BATCH_BYTES: usize = 1024 * 1024;
/// Between two words about how far the load is.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// What a [`Loader`] says. Its silence is no end.
pub(crate) enum Loaded {
    Rows(Vec<SourceItem>),
    End,
    Failed(SourceError),
}

/// One table, read through a cursor of its own.
pub(crate) struct Load {
    pub(crate) relation: Arc<Relation>,
    pub(crate) cursor: String,
}

/// Reads the tables of a load, one after the other.
pub(crate) struct Loader {
    pub(crate) client: Arc<Client>,
    pub(crate) loaded: mpsc::Sender<Loaded>,
    /// Of the columns that the cursors select.
    pub(crate) charset: Charset,
    pub(crate) status: StatusReporter,
    /// Larger rows come without the values that make them so.
    pub(crate) max_event_bytes: usize,
    /// Bound on the wait for the first row of a table, which is sorted first.
    pub(crate) first_limit: Duration,
    /// Bound on the wait for each further row.
    pub(crate) limit: Duration,
    pub(crate) rows: u64,
    pub(crate) reported: Instant,
}

impl Loader {
    /// Sends all rows, then the end; or an error.
    pub(crate) async fn run(mut self, loads: Vec<Load>) {
        let last = match self.tables(&loads).await {
            Ok(()) => Loaded::End,
            Err(error) => Loaded::Failed(error),
        };
        // Nobody may want to know any more.
        let _ = self.loaded.send(last).await;
    }

    async fn tables(&mut self, loads: &[Load]) -> Result<(), SourceError> {
        for load in loads {
            let mut limit = self.first_limit;
            while self.fetch(load, limit).await? > 0 {
                limit = self.limit;
            }
        }
        self.report();
        Ok(())
    }

    /// The number of rows that came.
    async fn fetch(&mut self, load: &Load, mut limit: Duration) -> Result<usize, SourceError> {
        let sql = format!("fetch {FETCH_ROWS} from {}", load.cursor);
        let client = self.client.clone();
        let mut stream = pin!(client.simple_query_raw(&sql).await.map_err(statement_failed)?);
        let (mut fetched, mut batch, mut bytes) = (0, Vec::new(), 0);
        while let Some(message) = self.next(stream.as_mut(), limit).await? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let (item, size_bytes) = self.item(&load.relation, &row).await?;
            batch.push(item);
            bytes += size_bytes;
            fetched += 1;
            limit = self.limit;
            if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
                bytes = 0;
                self.hand_on(std::mem::take(&mut batch)).await?;
            }
        }
        if !batch.is_empty() {
            self.hand_on(batch).await?;
        }
        Ok(fetched)
    }

    async fn next(
        &mut self,
        mut stream: Pin<&mut impl Stream<Item = Result<SimpleQueryMessage, tokio_postgres::Error>>>,
        limit: Duration,
    ) -> Result<Option<SimpleQueryMessage>, SourceError> {
        let deadline = Instant::now() + limit;
        loop {
            let report_at = self.reported + REPORT_INTERVAL;
            match timeout_at(deadline.min(report_at), stream.next()).await {
                Ok(message) => return message.transpose().map_err(statement_failed),
                Err(_) if report_at < deadline => self.report(),
                Err(_) => return Err(SourceError::Silent(limit)),
            }
        }
    }

    async fn hand_on(&mut self, batch: Vec<SourceItem>) -> Result<(), SourceError> {
        let rows = batch.len() as u64;
        self.loaded.send(Loaded::Rows(batch)).await.map_err(|_| SourceError::Ended)?;
        self.rows += rows;
        self.status.update(|status| status.loaded += rows);
        if self.reported.elapsed() >= REPORT_INTERVAL {
            self.report();
        }
        Ok(())
    }

    /// A row as an insert, and its size.
    async fn item(
        &mut self,
        relation: &Arc<Relation>,
        row: &SimpleQueryRow,
    ) -> Result<(SourceItem, usize), SourceError> {
        let values = self.charset.values(row, relation.columns.len());
        let size_bytes = values.iter().flatten().map(|value| value.len()).sum();
        if size_bytes <= self.max_event_bytes {
            let row = self.charset.row(relation, &values, |_| true).await?;
            return Ok((SourceItem::Change(RowChange::insert(row)), size_bytes));
        }
        // Without its large values, as one that is too large for the stream.
        let is_kept = |value: &[u8]| value.len() <= KEPT_VALUE_BYTES;
        let change = RowChange::insert(self.charset.row(relation, &values, is_kept).await?);
        Ok((SourceItem::Oversize { change, size_bytes: size_bytes as u64 }, 0))
    }

    fn report(&mut self) {
        self.reported = Instant::now();
        tracing::info!(rows = self.rows, "rows from before the slot read");
    }
}
