use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_postgres::types::Type;
use walpost_event::{Column, Lsn, Relation, ReplicaIdentity};
use walpost_postgres::Database;

use super::{
    charset::Charset,
    load::{Load, Loaded, Loader},
    quote_identifier, quote_literal, row_filter,
    stream_columns::{IS_BROUGHT, OF_PUBLICATION},
};
use crate::{
    columns,
    config::{RelayConfig, TableName},
    error::{RelayError, SourceError},
    recovery::not_proven,
    snapshot_modes::{self, Rows},
    source::{Source, SourceItem},
    sql::Sql,
    status::StatusReporter,
};

macro_rules! printing {
    () => {
        "set datestyle = 'ISO'; set intervalstyle = 'postgres'; set timezone = 'UTC'; \
         set extra_float_digits = 3; set bytea_output = 'hex'"
    };
}

/// The same text as the replication session gives.
pub(crate) const PRINTING: &str = printing!();

/// The same, for a session that reads for long.
pub(crate) const SESSION_SETTINGS: &str = concat!(
    printing!(),
    "; set statement_timeout = 0; set idle_in_transaction_session_timeout = 0"
);

const BEGIN: &str = "begin isolation level repeatable read read only";

/// Between two looks whether a commit is visible.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The rows that were in the outbox tables before the slot, as one transaction
/// that ends where the slot begins.
///
/// After its commit it yields nothing more.
pub(crate) struct SnapshotSource {
    loaded: mpsc::Receiver<Loaded>,
    position: Lsn,
    begun: bool,
    committed: bool,
    /// Ends with this value.
    _loader: JoinSet<()>,
}

/// What rows belong to the load.
pub(crate) enum Boundary<'a> {
    /// A snapshot that its session still exports: whatever it sees.
    Exported(&'a str),
    /// The same snapshot as text, after a restart: rows whose transaction it
    /// sees.
    Stored(&'a str),
}

impl SnapshotSource {
    /// Opens a session on the boundary's rows, without those that the snapshot
    /// `proven` sees; they end at `position`.
    pub(crate) async fn open(
        database: &Database,
        config: &RelayConfig,
        boundary: Boundary<'_>,
        proven: Option<&str>,
        position: Lsn,
        status: StatusReporter,
    ) -> Result<Self, RelayError> {
        let client = Arc::new(database.connect().await?);
        // Like the creation of the slot, all this happens once and may have to
        // read whole tables.
        let first_limit = Duration::from_millis(config.slot_timeout_ms);
        let sql = Sql::new(client.clone(), first_limit);
        let attempt = "opening the initial load";
        sql.batch(attempt, SESSION_SETTINGS).await?;
        match boundary {
            Boundary::Exported(name) => {
                let adopt = format!("{BEGIN}; set transaction snapshot {}", quote_literal(name));
                sql.batch(attempt, &adopt).await?;
            }
            Boundary::Stored(snapshot) => begin_behind(&sql, snapshot, first_limit).await?,
        }
        let charset = Charset::find(&sql, database).await?;
        let stored = match boundary {
            Boundary::Stored(snapshot) => Some(snapshot),
            Boundary::Exported(_) => None,
        };
        let loads = declare_loads(&sql, config, stored, proven, &charset).await?;
        let (sender, loaded) = mpsc::channel(1);
        let loader = Loader {
            client,
            loaded: sender,
            charset,
            status,
            max_event_bytes: config.max_event_bytes,
            first_limit,
            limit: Duration::from_millis(config.statement_timeout_ms),
            rows: 0,
            reported: Instant::now(),
        };
        let mut task = JoinSet::new();
        task.spawn(loader.run(loads));
        Ok(Self { loaded, position, begun: false, committed: false, _loader: task })
    }
}

/// A cursor for each table, on whatever the session's transaction sees: of the
/// rows that `stored` sees, without those that `proven` sees. Only a load without
/// `proven` is the one that [`Snapshot`](crate::Snapshot) is about: what is
/// missing behind a lost slot is missing whatever that says.
pub(crate) async fn declare_loads(
    sql: &Sql,
    config: &RelayConfig,
    stored: Option<&str>,
    proven: Option<&str>,
    charset: &Charset,
) -> Result<Vec<Load>, RelayError> {
    let mut loads = Vec::new();
    for (index, table) in config.tables.iter().enumerate() {
        if proven.is_none() && !config.snapshot.reads(table) {
            continue;
        }
        let rows = match proven {
            None => snapshot_modes::rows(sql, config, table).await?,
            Some(_) => Rows::of_table(table, describe(sql, config, table).await?),
        };
        // What the stream would not bring belongs to another pipeline.
        let mut conditions = Vec::from_iter(row_filter::condition(sql, config, table).await?);
        if let Some(snapshot) = stored {
            check_xids(sql, table, &rows).await?;
            let snapshot = quote_literal(snapshot);
            conditions.push(format!("pg_visible_in_snapshot(xid, {snapshot}::pg_snapshot)"));
        }
        conditions.extend(proven.map(not_proven));
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!("where {}", conditions.join(" and ")),
        };
        let cursor = format!("walpost_load_{index}");
        sql.batch("opening the initial load", &declaration(&cursor, &rows, &condition, charset))
            .await?;
        loads.push(Load { relation: Arc::new(rows.relation), cursor });
    }
    Ok(loads)
}

/// Where the events of a load stand that ends at `slot_position`: a byte before,
/// where no commit record is.
pub(crate) fn load_position(slot_position: Lsn) -> Lsn {
    Lsn::from(u64::from(slot_position).saturating_sub(1))
}

impl Source for SnapshotSource {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        if !self.begun {
            self.begun = true;
            let commit_lsn = load_position(self.position);
            items.push(SourceItem::Begin { commit_lsn, committed_at_us: 0, xid: 0, is_late: true });
            return Ok(());
        }
        if self.committed {
            return std::future::pending().await;
        }
        match self.loaded.recv().await {
            Some(Loaded::Rows(rows)) => items.extend(rows),
            Some(Loaded::End) => {
                self.committed = true;
                items.push(SourceItem::Commit { end_lsn: self.position });
            }
            Some(Loaded::Failed(error)) => return Err(error),
            None => return Err(SourceError::Ended),
        }
        Ok(())
    }

    async fn confirm(&mut self, _lsn: Lsn) -> Result<(), SourceError> {
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Begins a transaction that sees all that `snapshot` does. That one was made of
/// the WAL, where a commit is before it is visible, with synchronous replication
/// long before.
pub(crate) async fn begin_behind(
    sql: &Sql,
    snapshot: &str,
    limit: Duration,
) -> Result<(), RelayError> {
    let deadline = Instant::now() + limit;
    loop {
        sql.batch(VISIBLE, BEGIN).await?;
        if sees_all(sql, snapshot).await? {
            return Ok(());
        }
        sql.batch(VISIBLE, "rollback").await?;
        look_again(deadline, limit).await?;
    }
}

const VISIBLE: &str = "waiting for commits that are not visible yet";

/// Whether a statement of now sees all that `snapshot` does.
async fn sees_all(sql: &Sql, snapshot: &str) -> Result<bool, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.sees_all(snapshot).await;
    }
    let sees_all = format!(
        "select pg_snapshot_xmax(now) >= pg_snapshot_xmax(before) and not exists \
         (select from pg_snapshot_xip(now) xid where pg_visible_in_snapshot(xid, before)) \
         from (select pg_current_snapshot() as now, {}::pg_snapshot as before) snapshots",
        quote_literal(snapshot)
    );
    Ok(sql.one(VISIBLE, &sees_all, &[]).await?.get(0))
}

async fn look_again(deadline: Instant, limit: Duration) -> Result<(), RelayError> {
    if Instant::now() >= deadline {
        return Err(RelayError::SqlTimeout { attempt: VISIBLE, limit });
    }
    tokio::time::sleep(LOOK_AGAIN).await;
    Ok(())
}

/// Waits until every statement sees all that `snapshot` does.
pub(crate) async fn until_visible(
    sql: &Sql,
    snapshot: &str,
    limit: Duration,
) -> Result<(), RelayError> {
    let deadline = Instant::now() + limit;
    while !sees_all(sql, snapshot).await? {
        look_again(deadline, limit).await?;
    }
    Ok(())
}

/// Waits for the end of the transactions that have written to the table until
/// now. A commit that waits for a synchronous standby is in the WAL already, and
/// seen by nobody; it keeps its locks.
pub(crate) async fn until_writers_ended(
    sql: &Sql,
    table: &TableName,
    limit: Duration,
) -> Result<(), RelayError> {
    let writers = "select distinct virtualtransaction from pg_locks where granted \
        and mode <> 'AccessShareLock' and locktype = 'relation' \
        and database = (select oid from pg_database where datname = current_database()) \
        and relation in (select to_regclass($1) \
            union select relid from pg_partition_tree(to_regclass($1)))";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let deadline = Instant::now() + limit;
    let mut first: Option<Vec<String>> = None;
    loop {
        let rows = sql.query(VISIBLE, writers, &name).await?;
        let now: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let first = first.get_or_insert_with(|| now.clone());
        first.retain(|writer| now.contains(writer));
        if first.is_empty() {
            return Ok(());
        }
        look_again(deadline, limit).await?;
    }
}

/// The table as a relation of the stream, which has the columns that the stream brings: whoever
/// reads rows by SQL publishes the same.
pub(crate) async fn describe(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<Relation, RelayError> {
    let query = format!(
        "select a.attname::text, {}, a.atttypmod, a.attrelid from {OF_PUBLICATION} \
         where a.attrelid = to_regclass($2) and a.attnum > 0 and not a.attisdropped \
         and {IS_BROUGHT} order by a.attnum",
        columns::sql_type(config)
    );
    let names = [(&config.publication as _, Type::TEXT), (&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the outbox table's columns", &query, &names).await?;
    Ok(relation(table, &rows))
}

/// The relation whose columns these rows are: name, type, modifier, and the
/// table's object id.
pub(crate) fn relation(table: &TableName, rows: &[tokio_postgres::Row]) -> Relation {
    Relation {
        oid: rows.first().map_or(0, |row| row.get(3)),
        schema: table.schema.clone(),
        name: table.name.clone(),
        replica_identity: ReplicaIdentity::Default,
        columns: rows
            .iter()
            .map(|row| Column {
                name: row.get::<_, &str>(0).into(),
                type_oid: row.get(1),
                type_modifier: row.get(2),
                is_key: false,
            })
            .collect(),
    }
}

/// A load that was interrupted goes on by transaction ids, which mean nothing
/// in rows that were restored from another cluster.
async fn check_xids(sql: &Sql, table: &TableName, rows: &Rows) -> Result<(), RelayError> {
    let refused = |problem: String| {
        RelayError::prerequisite(
            problem,
            "drop the slot, delete the pipeline's checkpoint row and start again; events of the \
             interrupted load come a second time",
        )
    };
    if !rows.tell_transactions() {
        return Err(refused(format!(
            "the initial load was interrupted, and table {table} has no column xid that would \
             tell which rows belong to it"
        )));
    }
    let foreign = format!(
        "select exists (select from {} where xid >= pg_snapshot_xmax(pg_current_snapshot()))",
        rows.from
    );
    let row = sql.one("checking the transaction ids of the outbox table", &foreign, &[]).await?;
    if row.get(0) {
        return Err(refused(format!(
            "the initial load was interrupted, and table {table} holds transaction ids of \
             another cluster"
        )));
    }
    Ok(())
}

fn declaration(cursor: &str, rows: &Rows, condition: &str, charset: &Charset) -> String {
    let relation = &rows.relation;
    let selected = |column: &Column| charset.selected(&quote_identifier(&column.name));
    let columns: Vec<String> = relation.columns.iter().map(selected).collect();
    let has = |name: &str| relation.column_index(name).is_some();
    // Neither time nor id is commit order; the sequence at least is insert
    // order under an aggregate's lock. A SELECT without it has its own.
    let order = match (has("seq"), has("created_at"), rows.is_table) {
        (true, ..) => " order by seq",
        (false, true, true) => " order by created_at, ctid",
        (false, false, true) => " order by ctid",
        (false, _, false) => "",
    };
    format!(
        "declare {cursor} no scroll cursor for select {} from {} {condition}{order}",
        columns.join(", "),
        rows.from,
    )
}
