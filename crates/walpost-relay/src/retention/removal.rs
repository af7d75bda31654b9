//! The statements by which rows leave a table.

mod counting;

use std::time::Duration;

use tokio_postgres::types::Type;
use walpost_postgres::shown::ServerMessage;

use super::{
    Pruned, RetentionConfig, drop_not_null,
    failures::Failures,
    keys,
    leaves::{Leaf, Reach, leaves, leaves_of},
    partitions::{self, Partition, Partitions, Way},
    readers::{By, proven_by_all},
    told,
    whole::{self, Fate, Target},
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::printed,
    recovery,
    sql::Sql,
    wal::{quote_identifier, row_filter},
};

/// Blocks that one statement looks at, so that its time is bounded whatever the
/// size of the table, and no index is needed.
pub(super) const BLOCKS: i64 = 256;

/// How often a partition is tried in one pass, and after which time again.
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Where rows go.
pub(crate) struct Archive {
    pub(super) table: TableName,
    /// Of both tables, quoted.
    pub(super) columns: String,
}

impl Archive {
    /// Says what to do about a row that it does not take.
    fn refuses(&self, leaf: &Leaf, error: RelayError) -> RelayError {
        let RelayError::Sql { source, .. } = &error else { return error };
        let (Some(told), table) = (source.as_db_error(), &self.table) else { return error };
        let leaf = &leaf.name;
        match (told.code().code(), ServerMessage::from(told).column_by_server()) {
            ("23502", Some(column)) => RelayError::prerequisite(
                format!(
                    "a row of {leaf} has a null in column {column:?}, which {table} does not take: \
                     it stays, with those that leave together with it"
                ),
                drop_not_null(table, &[column.to_owned()]),
            ),
            (code, _) if code.starts_with("22") || code.starts_with("23") => {
                RelayError::prerequisite(
                    format!(
                        "{table} does not take a row of {leaf} ({source}): it stays, with those \
                         that leave together with it"
                    ),
                    format!("change {table} so that it takes every row that the outbox does"),
                )
            }
            _ => error,
        }
    }
}

/// What rows leave.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// For the archive, where there is one.
    Outbox(Option<&'a Archive>),
    Archive,
}

/// Conditions of the rows that may leave. Another pipeline may begin to read the
/// table, or rows be moved, at any time: so they hold for one statement.
pub(super) struct Rows {
    /// Every pipeline that takes the row has proven it, and where rows are told
    /// what became of their deliveries, those have arrived.
    pub(super) proven: String,
    /// The row is the pipeline's; empty where all are.
    pub(super) own: String,
}

impl Rows {
    /// Those of now.
    pub(super) async fn read(
        sql: &Sql,
        relay: &RelayConfig,
        table: &TableName,
        keep_days: u32,
    ) -> Result<Self, RelayError> {
        let told = told::arrived(sql, relay, table, keep_days).await?;
        let by = by(sql, table, told.is_some()).await?;
        let mut proven = proven_by_all(sql, relay, table, by).await?;
        if let Some(arrived) = told {
            proven = format!("({proven} and {arrived})");
        }
        let own = row_filter::condition(sql, relay, table).await?;
        Ok(Self { proven, own: own.map(|own| format!(" and {own}")).unwrap_or_default() })
    }
}

/// What tells which of the table's rows are proven. Without the column, rows have to
/// say by themselves that they arrived.
async fn by(sql: &Sql, table: &TableName, is_told: bool) -> Result<By, RelayError> {
    if recovery::columns(sql, table).await?.has_xid {
        return Ok(By::Xid);
    }
    if is_told && told::is_plain(sql, table).await? {
        return Ok(By::Xmin);
    }
    let (problem, remedy) = tells_nothing(table);
    Err(RelayError::prerequisite(problem, remedy))
}

/// Nothing tells which rows of the table are proven: the problem, and what to do.
pub(super) fn tells_nothing(table: &TableName) -> (String, String) {
    let problem = format!(
        "table {table} has no column xid that would tell which of its rows are proven to be \
         published"
    );
    let remedy = format!(
        "run `{}`, which rewrites the table, or have webhook_mark say in its rows what became \
         of their deliveries; until then its rows have to be deleted by hand",
        recovery::add_columns(table)
    );
    (problem, remedy)
}

/// Has rows leave one outbox table.
pub(crate) struct Removal {
    relay: RelayConfig,
    table: TableName,
    retention: RetentionConfig,
    archive: Option<Archive>,
    old: String,
    parked: String,
}

impl Removal {
    /// Of these rows.
    pub(crate) fn new(
        relay: &RelayConfig,
        table: &TableName,
        id_column: &str,
        retention: RetentionConfig,
        archive: Option<Archive>,
    ) -> Self {
        let keep = retention.keep_days;
        let (schema, id) = (quote_identifier(&relay.schema), quote_identifier(id_column));
        Self {
            relay: relay.clone(),
            table: table.clone(),
            retention,
            archive,
            old: format!("o.created_at < clock_timestamp() - interval '{keep} days'"),
            parked: format!(
                "exists (select from {schema}.parked p where p.event_id = {} \
                 and p.state in ('open', 'sending') \
                 and num_nonnulls(p.topic, p.row_columns, p.message_content) = 0)",
                printed(&format!("o.{id}"))
            ),
        }
    }

    pub(super) fn relay(&self) -> &RelayConfig {
        &self.relay
    }

    pub(super) fn table(&self) -> &TableName {
        &self.table
    }

    /// The conditions of now.
    pub(super) async fn rows(&self, sql: &Sql) -> Result<Rows, RelayError> {
        Rows::read(sql, &self.relay, &self.table, self.retention.keep_days).await
    }

    /// That nothing else keeps the contents of a row.
    pub(super) fn parked(&self) -> &str {
        &self.parked
    }

    pub(super) fn has_archive(&self) -> bool {
        self.archive.is_some()
    }

    /// Has them leave. What goes wrong with some of them is told at the end.
    pub(crate) async fn run(
        &self,
        sql: &Sql,
        tell: &mut impl FnMut(&Pruned),
    ) -> Result<Pruned, RelayError> {
        let mut failures = Failures::default();
        let done = self.parts(sql, tell, &mut failures).await;
        failures.end(done)
    }

    async fn parts(
        &self,
        sql: &Sql,
        tell: &mut impl FnMut(&Pruned),
        failures: &mut Failures,
    ) -> Result<Pruned, RelayError> {
        let mut done = Pruned::of(&self.table);
        let archive = self.archive.as_ref();
        match partitions::read(sql, &self.table, self.retention.keep_days).await? {
            None => {
                let all = leaves(sql, &self.table).await?;
                let left = self.leave(sql, Place::Outbox(archive), all, tell, &mut done).await;
                failures.keep(left)?;
            }
            Some(root) => {
                let left = self.leave_partitions(sql, &root, tell, &mut done, failures).await;
                failures.keep(left)?;
            }
        }
        failures.keep(keys::leave(sql, &self.relay, &self.table, &self.old).await)?;
        if let Some(archive) = archive {
            failures.keep(self.leave_archive(sql, archive, tell, &mut done).await)?;
        }
        Ok(done)
    }

    /// Partitions that are old leave, and old rows of the others.
    async fn leave_partitions(
        &self,
        sql: &Sql,
        root: &Partitions,
        tell: &mut impl FnMut(&Pruned),
        done: &mut Pruned,
        failures: &mut Failures,
    ) -> Result<(), RelayError> {
        done.is_not_owner = !root.owns;
        let target = self.target(sql).await?;
        for partition in &root.all {
            let fate = match partition.way() {
                Way::Later => continue,
                Way::Rows => Fate::Rows,
                Way::Whole => {
                    let tried = self.try_whole(sql, root, partition, target.as_ref()).await;
                    match failures.keep(tried)? {
                        Some(fate) => fate,
                        None => continue,
                    }
                }
            };
            match fate {
                Fate::Gone(rows) => {
                    done.partitions += 1;
                    done.rows += rows;
                    tell(done);
                    tracing::info!(partition = partition.name, rows, "a partition has left");
                    self.pause().await;
                }
                Fate::Held => done.held_partitions += 1,
                Fate::Busy => done.busy_partitions += 1,
                Fate::Rows => {
                    failures.keep(self.leave_rows(sql, partition, tell, done).await)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of a partition leave one by one.
    async fn leave_rows(
        &self,
        sql: &Sql,
        partition: &Partition,
        tell: &mut impl FnMut(&Pruned),
        done: &mut Pruned,
    ) -> Result<(), RelayError> {
        let all = leaves_of(sql, &partition.name, &self.table.quoted()).await?;
        self.leave(sql, Place::Outbox(self.archive.as_ref()), all, tell, done).await
    }

    /// Tries again where somebody is in the way.
    async fn try_whole(
        &self,
        sql: &Sql,
        root: &Partitions,
        partition: &Partition,
        target: Option<&(String, Partitions)>,
    ) -> Result<Fate, RelayError> {
        for _ in 0..TRIES {
            let target: Target<'_> = target.map(|(name, partitions)| (&**name, partitions));
            match self.whole(sql, root, partition, target).await? {
                Fate::Busy => tokio::time::sleep(BETWEEN_TRIES).await,
                fate => return Ok(fate),
            }
        }
        Ok(Fate::Busy)
    }

    async fn leave_archive(
        &self,
        sql: &Sql,
        archive: &Archive,
        tell: &mut impl FnMut(&Pruned),
        done: &mut Pruned,
    ) -> Result<(), RelayError> {
        let (quoted, past) = (archive.table.quoted(), self.past());
        let partitions = partitions::read(sql, &archive.table, self.retention.archive_days).await?;
        let Some(partitions) = partitions else {
            let all = leaves(sql, &archive.table).await?;
            return self.leave(sql, Place::Archive, all, tell, done).await;
        };
        let slow = sql.within_ms(self.relay.slot_timeout_ms);
        let mut failures = Failures::default();
        for partition in &partitions.all {
            match partition.way() {
                Way::Later => {}
                Way::Rows => {
                    let all = leaves_of(sql, &partition.name, &quoted).await?;
                    failures.keep(self.leave(sql, Place::Archive, all, tell, done).await)?;
                }
                Way::Whole => {
                    let gone =
                        whole::drop_archived(&slow, &quoted, &partitions, partition, &past).await;
                    if let Some(Fate::Gone(rows)) = failures.keep(gone)? {
                        done.archived_partitions += 1;
                        done.archived_rows += rows;
                        tell(done);
                        self.pause().await;
                    }
                }
            }
        }
        failures.end(Ok(()))
    }

    /// The archive, where it takes whole partitions.
    async fn target(&self, sql: &Sql) -> Result<Option<(String, Partitions)>, RelayError> {
        let Some(archive) = &self.archive else { return Ok(None) };
        let days = self.retention.archive_days;
        let partitions = partitions::read(sql, &archive.table, days).await?;
        let partitions = partitions.filter(whole::takes_partitions);
        Ok(partitions.map(|partitions| (archive.table.quoted(), partitions)))
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(self.retention.pause_ms)).await;
    }

    fn past(&self) -> String {
        let days = self.retention.archive_days;
        format!("o.archived_at < clock_timestamp() - interval '{days} days'")
    }

    /// Goes through tables block by block. Rows that somebody has locked stay, and
    /// those that leave together with one that the archive does not take.
    async fn leave(
        &self,
        sql: &Sql,
        place: Place<'_>,
        leaves: Vec<Leaf>,
        tell: &mut impl FnMut(&Pruned),
        done: &mut Pruned,
    ) -> Result<(), RelayError> {
        let archive = match place {
            Place::Outbox(archive) => archive,
            Place::Archive => None,
        };
        let mut not_taken = None;
        for leaf in leaves {
            let mut first = 0;
            while first < leaf.blocks {
                let condition = self.condition(sql, place).await?;
                let rows = match self.step(sql, &leaf, first, &condition, archive).await {
                    Err(error) if matches!(error, RelayError::Prerequisite { .. }) => {
                        not_taken.get_or_insert(error);
                        0
                    }
                    rows => rows?,
                };
                if rows > 0 {
                    match place {
                        Place::Outbox(_) => done.rows += rows,
                        Place::Archive => done.archived_rows += rows,
                    }
                    tell(done);
                    self.pause().await;
                }
                if rows < u64::from(self.retention.batch_rows) {
                    first += BLOCKS;
                }
            }
        }
        not_taken.map_or(Ok(()), Err)
    }

    /// One transaction; how many rows have left.
    async fn step(
        &self,
        sql: &Sql,
        leaf: &Leaf,
        first: i64,
        condition: &str,
        archive: Option<&Archive>,
    ) -> Result<u64, RelayError> {
        #[cfg(test)]
        if let Some(server) = sql.simulation() {
            return server.remove(condition, self.retention.batch_rows as usize).await;
        }
        let statement = self.statement(&leaf.reach, condition, archive);
        let range = [format!("({first},0)"), format!("({},0)", first + BLOCKS)];
        let parameters = [(&range[0] as _, Type::TEXT), (&range[1] as _, Type::TEXT)];
        let row = sql.one("pruning the outbox", &statement, &parameters).await;
        let row = row.map_err(|error| match archive {
            Some(archive) => archive.refuses(leaf, error),
            None => error,
        })?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    async fn condition(&self, sql: &Sql, place: Place<'_>) -> Result<String, RelayError> {
        if matches!(place, Place::Archive) {
            return Ok(self.past());
        }
        let Rows { proven, own } = self.rows(sql).await?;
        Ok(format!("{}{own} and {proven} and not {}", self.old, self.parked))
    }

    /// What is in the archive is not in the outbox, and the
    /// other way round.
    fn statement(&self, reach: &Reach, condition: &str, archive: Option<&Archive>) -> String {
        let (Reach { from, only }, rows) = (reach, self.retention.batch_rows);
        let (returning, archived, counted) = match archive {
            None => ("1".to_owned(), String::new(), "gone"),
            Some(Archive { table, columns }) => (
                columns.clone(),
                format!(
                    ", archived as (insert into {} ({columns}) select {columns} from gone \
                     returning 1)",
                    table.quoted()
                ),
                "archived",
            ),
        };
        format!(
            "with due as materialized (select o.ctid as place from {from} o \
                 where o.ctid >= $1::text::tid and o.ctid < $2::text::tid and {condition}{only} \
                 limit {rows} for update of o skip locked), \
             gone as (delete from {from} o where o.ctid = any (array(select place from due)){only} \
                 returning {returning}){archived} \
             select count(*) from {counted}"
        )
    }
}
