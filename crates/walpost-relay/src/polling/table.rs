use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow, types::Type};
use walpost_event::{Relation, RowChange};
use walpost_postgres::Database;

use super::{
    batch::{Candidate, Content},
    config::PollingConfig,
    gate::Gate,
    sight::PollingSight,
    statements::{EXTRA_COLUMNS, Shape, Statements},
    verdict::{Fate, Tried, Verdict},
};
use crate::{
    checkpoint::{begin_polling, read_feed},
    columns,
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{charset::Charset, snapshot::relation},
};

/// Rows of one fetch.
const FETCH_ROWS: usize = 100;

/// Where a row stands in insert order, each column as text.
pub(super) type Place = Vec<String>;

/// A failed attempt as it is noted.
pub(super) struct Noted {
    pub(super) id: String,
    pub(super) verdict: Verdict,
    /// Why; never contents.
    pub(super) error: String,
}

/// The outbox table of a pipeline that polls, in one session.
pub(super) struct PolledTable {
    client: Arc<Client>,
    sql: Sql,
    limit: Duration,
    table: TableName,
    charset: Charset,
    relation: Arc<Relation>,
    /// The columns of the insert order.
    order: Vec<String>,
    statements: Statements,
    pipeline: String,
    begin: String,
    config: RelayConfig,
    gate: Gate,
    max_event_bytes: usize,
    claim_max_aggregates: i64,
    claim_max_bytes: usize,
}

impl PolledTable {
    pub(super) async fn open(
        database: &Database,
        client: Arc<Client>,
        config: &RelayConfig,
        polling: &PollingConfig,
        gate: &Gate,
    ) -> Result<Self, RelayError> {
        let limit = Duration::from_millis(config.statement_timeout_ms);
        let sql = Sql::new(client.clone(), limit);
        let table = polled(config)?;
        let (relation, types) = describe(&sql, config, table).await?;
        let charset = Charset::find(&sql, database).await?;
        let seen_by = gate.seen_by();
        let shape =
            Shape { table, relation: &relation, types: &types, seen_by, charset: Some(&charset) };
        let statements = Statements::new(config, polling, &shape);
        Ok(Self {
            client,
            sql,
            limit,
            statements,
            charset,
            table: table.clone(),
            relation: Arc::new(relation),
            order: polling.order_columns.clone(),
            pipeline: config.pipeline.clone(),
            begin: begin_polling(config),
            config: config.clone(),
            gate: gate.clone(),
            max_event_bytes: config.max_event_bytes,
            claim_max_aggregates: i64::try_from(polling.claim_max_aggregates).unwrap_or(i64::MAX),
            claim_max_bytes: polling.claim_max_bytes,
        })
    }

    /// Begins a transaction that claims nothing.
    pub(super) async fn begin(&self) -> Result<(), RelayError> {
        self.sql.batch("beginning a transaction", "begin isolation level read committed").await
    }

    /// Begins a transaction, while which nobody switches the source, and takes the
    /// first rows of aggregates that nobody has, of the window behind `after`.
    /// Their locks last until it ends, and go with the session.
    pub(super) async fn claim(&self, after: Option<&Place>) -> Result<Vec<String>, RelayError> {
        self.sql.batch("beginning a claim", &self.begin).await?;
        self.gate.admit(&self.config, read_feed(&self.sql, &self.config).await?)?;
        self.heads(after, self.claim_max_aggregates).await
    }

    /// The first rows of up to `most` aggregates, locked.
    pub(super) async fn heads(
        &self,
        after: Option<&Place>,
        most: i64,
    ) -> Result<Vec<String>, RelayError> {
        let attempt = "claiming rows of the outbox table";
        let pipeline = (&self.pipeline as _, Type::TEXT);
        let most = (&most as _, Type::INT8);
        let Statements { claim, claim_after, .. } = &self.statements;
        let rows = match after {
            None => self.sql.query(attempt, claim, &[pipeline, most]).await?,
            Some(after) => {
                let after = (after as _, Type::TEXT_ARRAY);
                self.sql.query(attempt, claim_after, &[pipeline, most, after]).await?
            }
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Where the window behind `after` ends, if there may be more behind it.
    pub(super) async fn window_end(
        &self,
        after: Option<&Place>,
    ) -> Result<Option<Place>, RelayError> {
        let attempt = "looking for further pending rows";
        let Statements { window_end, window_end_after, .. } = &self.statements;
        let row = match after {
            None => self.sql.opt(attempt, window_end, &[]).await?,
            Some(after) => {
                let after = (after as _, Type::TEXT_ARRAY);
                self.sql.opt(attempt, window_end_after, &[after]).await?
            }
        };
        row.map(|row| {
            let place: Vec<Option<String>> = row.get(0);
            place.into_iter().collect::<Option<Place>>().ok_or_else(|| self.without_order(None))
        })
        .transpose()
    }

    /// Where a row stands in the order of its aggregate cannot be told.
    fn without_order(&self, id: Option<&str>) -> RelayError {
        let (table, columns) = (&self.table, self.order.join(", "));
        let row = id.map_or("a pending row".to_owned(), |id| format!("the pending row {id:?}"));
        RelayError::prerequisite(
            format!("{row} of table {table} has null in a column of its order ({columns})"),
            "give it a value, and make the columns of polling.order_columns not null",
        )
    }

    /// The claimed rows and those behind them, in order. In a statement of its
    /// own, so that it sees what others committed before they let go.
    pub(super) async fn rows(&mut self, heads: &[String]) -> Result<Vec<Candidate>, RelayError> {
        let fetch = format!("fetch {FETCH_ROWS} from walpost_claim");
        let rows = self.statements.rows(heads);
        let mut text = format!("declare walpost_claim no scroll cursor for {rows}; {fetch}");
        let (mut candidates, mut bytes) = (Vec::new(), 0);
        loop {
            let before = candidates.len();
            self.fetch(&text, &mut candidates, &mut bytes).await?;
            // Its aggregate may have two first rows.
            let fetched: &[Candidate] = &candidates[before..];
            if let Some(row) = fetched.iter().find(|row| !row.has_order) {
                return Err(self.without_order(Some(&row.id)));
            }
            if candidates.len() - before < FETCH_ROWS || bytes > self.claim_max_bytes {
                return Ok(candidates);
            }
            text.clone_from(&fetch);
        }
    }

    /// Appends what `text` selects, up to the row that goes beyond the bytes of a
    /// claim; of those behind it there are no more than a fetch has.
    async fn fetch(
        &mut self,
        text: &str,
        candidates: &mut Vec<Candidate>,
        bytes: &mut usize,
    ) -> Result<(), RelayError> {
        let attempt = "reading the claimed rows";
        let (client, limit) = (self.client.clone(), self.limit);
        let read = async {
            let failed = |error| RelayError::sql(attempt)(error);
            let stream = client.simple_query_raw(text).await.map_err(failed)?;
            let mut stream = pin!(stream);
            while let Some(message) = stream.next().await {
                let SimpleQueryMessage::Row(row) = message.map_err(failed)? else { continue };
                if *bytes <= self.claim_max_bytes {
                    let candidate = self.candidate(&row).await?;
                    *bytes += candidate.size_bytes();
                    candidates.push(candidate);
                }
            }
            Ok(())
        };
        let read = tokio::time::timeout(limit, read).await;
        read.map_err(|_| RelayError::SqlTimeout { attempt, limit })?
    }

    async fn candidate(&mut self, row: &SimpleQueryRow) -> Result<Candidate, RelayError> {
        let columns = self.relation.columns.len();
        debug_assert_eq!(row.len(), columns + EXTRA_COLUMNS);
        let values = self.charset.values(row, columns);
        let size_bytes = values.iter().flatten().map(|value| value.len()).sum();
        let content = match size_bytes <= self.max_event_bytes {
            true => {
                let row = self.charset.row(&self.relation, &values, |_| true).await?;
                Content::Row(Box::new(RowChange::insert(row)))
            }
            false => Content::Oversize { size_bytes },
        };
        let extra = |index: usize| row.get(columns + index);
        let number = |index| extra(index).and_then(|text| text.parse::<i64>().ok());
        let count = |index| u32::try_from(number(index).unwrap_or(0).max(0)).unwrap_or(u32::MAX);
        let wait_ms = number(7).map(|wait_ms| u64::try_from(wait_ms).unwrap_or(0));
        let order = self.order.iter().filter_map(|name| self.relation.column_index(name));
        Ok(Candidate {
            has_order: order.into_iter().all(|index| values[index].is_some()),
            id: extra(0).unwrap_or_default().to_owned(),
            head: number(1).and_then(|head| u64::try_from(head).ok()).unwrap_or(0),
            pending: number(2) == Some(1),
            due: number(3) == Some(1),
            tried: Tried {
                attempts: count(4),
                refused: count(5),
                retry_limit: number(6).map(|limit| u32::try_from(limit.max(0)).unwrap_or(u32::MAX)),
                retry_wait: wait_ms.map(Duration::from_millis),
            },
            content,
            fate: Fate::Untouched,
        })
    }

    /// Notes what was published, in a transaction that is not to commit after an
    /// error: no more rows than were sent. Fewer if others have changed some.
    pub(super) async fn publish(&self, ids: &[&str]) -> Result<(), RelayError> {
        let parameters = [(&ids as _, Type::TEXT_ARRAY)];
        let attempt = "noting what was published";
        let row = self.sql.one(attempt, &self.statements.publish, &parameters).await?;
        let marked: i64 = row.get(0);
        let sent = ids.iter().collect::<HashSet<_>>().len();
        if usize::try_from(marked).is_ok_and(|marked| marked <= sent) {
            return Ok(());
        }
        Err(RelayError::prerequisite(
            format!(
                "{marked} rows of table {} have the ids of {sent} rows that were sent, so none \
                 was marked as published",
                self.table
            ),
            "make the column polling.id_column unique again; the rows that were sent are sent \
             once more",
        ))
    }

    /// Forgets attempts that rows have behind them.
    pub(super) async fn forget(&self, ids: &[&str]) -> Result<(), RelayError> {
        let parameters = [(&self.pipeline as _, Type::TEXT), (&ids as _, Type::TEXT_ARRAY)];
        let attempt = "forgetting failed attempts";
        self.sql.query(attempt, &self.statements.forget, &parameters).await.map(drop)
    }

    /// Notes failed attempts, in Walpost's own table and in the outbox table.
    pub(super) async fn fail(&self, noted: &[Noted]) -> Result<(), RelayError> {
        fn column<'a, T>(noted: &'a [Noted], value: impl Fn(&'a Noted) -> T) -> Vec<T> {
            noted.iter().map(value).collect()
        }
        let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let ids = column(noted, |row| row.id.as_str());
        let attempts = column(noted, |row| count(row.verdict.attempts));
        let refused = column(noted, |row| count(row.verdict.refused));
        let waits = column(noted, |row| row.verdict.wait.as_secs_f64());
        let failed = column(noted, |row| row.verdict.failed);
        let errors = column(noted, |row| row.error.as_str());
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&ids as _, Type::TEXT_ARRAY),
            (&attempts as _, Type::INT4_ARRAY),
            (&refused as _, Type::INT4_ARRAY),
            (&waits as _, Type::FLOAT8_ARRAY),
            (&failed as _, Type::BOOL_ARRAY),
            (&errors as _, Type::TEXT_ARRAY),
        ];
        let attempt = "noting failed attempts";
        let statements = [Some(&self.statements.note), self.statements.fail.as_ref()];
        for statement in statements.into_iter().flatten() {
            self.sql.query(attempt, statement, &parameters).await?;
        }
        Ok(())
    }

    pub(super) async fn commit(&self) -> Result<(), RelayError> {
        self.sql.batch("ending a claim", "commit").await
    }

    pub(super) async fn sight(&self) -> Result<PollingSight, RelayError> {
        let row = self.sql.one("counting pending rows", &self.statements.sight, &[]).await?;
        let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
        Ok(PollingSight { pending: count(0), failed: count(1), oldest_pending_seconds: row.get(2) })
    }
}

impl Candidate {
    fn size_bytes(&self) -> usize {
        match &self.content {
            Content::Row(change) => change.row.size_bytes(),
            Content::Oversize { .. } => 0,
        }
    }
}

/// The one table that is polled.
pub(crate) fn polled(config: &RelayConfig) -> Result<&TableName, RelayError> {
    if config.row_filter.is_some() {
        let problem = "row_filter is set; a pipeline that polls has no publication that would \
                       filter, so leave it out";
        return Err(RelayError::Config(problem.to_owned()));
    }
    match config.tables.as_slice() {
        [table] => Ok(table),
        tables => Err(RelayError::Config(format!(
            "tables has {} tables; a pipeline polls one, so make a pipeline for each",
            tables.len()
        ))),
    }
}

/// A table's columns, and the type of each as SQL has it.
pub(super) async fn describe(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<(Relation, HashMap<String, String>), RelayError> {
    let query = format!(
        "select attname::text, {}, atttypmod, attrelid, \
         format_type(atttypid, atttypmod) from pg_attribute \
         where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum",
        columns::sql_type(config)
    );
    let name = [(&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the outbox table's columns", &query, &name).await?;
    if rows.is_empty() {
        return Err(RelayError::prerequisite(
            format!("outbox table {table} does not exist"),
            "create it with `walpost migrate`, or name your own in `tables`",
        ));
    }
    let types = rows.iter().map(|row| (row.get(0), row.get(4))).collect();
    Ok((relation(table, &rows), types))
}
