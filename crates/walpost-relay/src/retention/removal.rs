//! The statements by which rows leave a table.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{
    Pruned, RetentionConfig, keys,
    leaves::{Leaf, Reach, leaves, leaves_of},
    partitions::{self, Partition, Partitions, Way},
    readers::proven_by_all,
    whole::{self, Counts, Fate, Look, Target},
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::printed,
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
    /// Every pipeline that takes the row has proven it.
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
    ) -> Result<Self, RelayError> {
        let proven = proven_by_all(sql, relay, table).await?;
        let own = row_filter::condition(sql, relay, table).await?;
        Ok(Self { proven, own: own.map(|own| format!(" and {own}")).unwrap_or_default() })
    }
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

    /// That nothing else keeps the contents of a row.
    pub(super) fn parked(&self) -> &str {
        &self.parked
    }

    pub(super) fn has_archive(&self) -> bool {
        self.archive.is_some()
    }

    /// What would leave.
    pub(super) async fn count(&self, sql: &Sql) -> Result<Pruned, RelayError> {
        let mut found = Pruned::of(&self.table);
        let keep = self.retention.keep_days;
        let target = self.target(sql).await?;
        match partitions::read(sql, &self.table, keep).await? {
            None => {
                let quoted = self.table.quoted();
                let reach = Reach::find(sql, &quoted, &quoted).await?;
                self.count_old(sql, &reach, &mut found).await?;
            }
            Some(root) => {
                found.is_not_owner = !root.owns;
                for partition in &root.all {
                    self.count_of(sql, partition, target.is_some(), &mut found).await?;
                }
            }
        }
        if let Some(archive) = &self.archive {
            self.count_archive(sql, archive, &mut found).await?;
        }
        Ok(found)
    }

    async fn count_of(
        &self,
        sql: &Sql,
        partition: &Partition,
        can_archive: bool,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        match partition.way() {
            Way::Later => return Ok(()),
            Way::Rows => {
                let reach = Reach::find(sql, &partition.name, &self.table.quoted()).await?;
                return self.count_old(sql, &reach, found).await;
            }
            Way::Whole => {}
        }
        let counts = self.look(sql, partition, Look::All).await?.unwrap_or_default();
        let Counts { all, leave, not_proven, parked } = counts;
        found.not_proven += not_proven;
        found.parked += parked;
        let row_by_row = counts.has_others() || (self.has_archive() && !can_archive && all > 0);
        if row_by_row {
            found.rows += leave;
        } else if counts.may_leave() {
            found.partitions += 1;
            found.rows += all;
        } else {
            found.held_partitions += 1;
        }
        Ok(())
    }

    /// Rows that leave one by one.
    async fn count_old(
        &self,
        sql: &Sql,
        Reach { from, only }: &Reach,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        let Rows { proven, own } = Rows::read(sql, &self.relay, &self.table).await?;
        let Self { old, parked, .. } = self;
        let query = format!(
            "select count(*) filter (where {proven} and not {parked}), \
             count(*) filter (where not ({proven})), \
             count(*) filter (where {proven} and {parked}) from {from} o where {old}{own}{only}"
        );
        let row = sql.one("counting the rows that may leave", &query, &[]).await?;
        let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
        found.rows += count(0);
        found.not_proven += count(1);
        found.parked += count(2);
        Ok(())
    }

    async fn count_archive(
        &self,
        sql: &Sql,
        archive: &Archive,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        let (past, days) = (self.past(), self.retention.archive_days);
        let partitions = partitions::read(sql, &archive.table, days).await?;
        let all = partitions.map(|partitions| partitions.all).unwrap_or_default();
        let named = |partition: &Partition| (partition.name.clone(), partition.way());
        let mut places: Vec<(String, Way)> = all.iter().map(named).collect();
        if places.is_empty() {
            places.push((archive.table.quoted(), Way::Rows));
        }
        for (name, way) in places {
            let Reach { from, only } = Reach::find(sql, &name, &archive.table.quoted()).await?;
            let query = format!(
                "select count(*), count(*) filter (where {past}) from {from} o where true{only}"
            );
            let row = sql.one("counting the rows of the archive", &query, &[]).await?;
            let (all, old): (i64, i64) = (row.get(0), row.get(1));
            let old = u64::try_from(old).unwrap_or(0);
            match way {
                Way::Rows => found.archived_rows += old,
                Way::Whole if row.get::<_, i64>(1) == all => {
                    found.archived_rows += old;
                    found.archived_partitions += 1;
                }
                Way::Whole | Way::Later => {}
            }
        }
        Ok(())
    }

    /// Has them leave.
    pub(crate) async fn run(
        &self,
        sql: &Sql,
        tell: &mut impl FnMut(&Pruned),
    ) -> Result<Pruned, RelayError> {
        let mut done = Pruned::of(&self.table);
        let archive = self.archive.as_ref();
        match partitions::read(sql, &self.table, self.retention.keep_days).await? {
            None => {
                let all = leaves(sql, &self.table).await?;
                self.leave(sql, Place::Outbox(archive), all, tell, &mut done).await?;
            }
            Some(root) => self.leave_partitions(sql, &root, tell, &mut done).await?,
        }
        keys::leave(sql, &self.relay, &self.table, &self.old).await?;
        if let Some(archive) = archive {
            self.leave_archive(sql, archive, tell, &mut done).await?;
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
    ) -> Result<(), RelayError> {
        done.is_not_owner = !root.owns;
        let target = self.target(sql).await?;
        for partition in &root.all {
            let fate = match partition.way() {
                Way::Later => continue,
                Way::Rows => Fate::Rows,
                Way::Whole => self.try_whole(sql, root, partition, target.as_ref()).await?,
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
                    let root = self.table.quoted();
                    let all = leaves_of(sql, &partition.name, &root).await?;
                    let place = Place::Outbox(self.archive.as_ref());
                    self.leave(sql, place, all, tell, done).await?;
                }
            }
        }
        Ok(())
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
        for partition in &partitions.all {
            match partition.way() {
                Way::Later => {}
                Way::Rows => {
                    let all = leaves_of(sql, &partition.name, &quoted).await?;
                    self.leave(sql, Place::Archive, all, tell, done).await?;
                }
                Way::Whole => {
                    let gone =
                        whole::drop_archived(&slow, &quoted, &partitions, partition, &past).await?;
                    if let Fate::Gone(rows) = gone {
                        done.archived_partitions += 1;
                        done.archived_rows += rows;
                        tell(done);
                        self.pause().await;
                    }
                }
            }
        }
        Ok(())
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

    /// Goes through tables block by block. Rows that somebody has locked stay.
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
        for leaf in leaves {
            let mut first = 0;
            while first < leaf.blocks {
                let condition = self.condition(sql, place).await?;
                let rows = self.step(sql, &leaf, first, &condition, archive).await?;
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
        Ok(())
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
        let row = sql.one("pruning the outbox", &statement, &parameters).await?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    async fn condition(&self, sql: &Sql, place: Place<'_>) -> Result<String, RelayError> {
        if matches!(place, Place::Archive) {
            return Ok(self.past());
        }
        let Rows { proven, own } = Rows::read(sql, &self.relay, &self.table).await?;
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
