//! Partitions that leave as a whole.
//!
//! A partition is locked against writers of its own range, so that nothing comes
//! in behind the look at its rows; that look is made in short steps and given up
//! as soon as somebody waits. The lock on the whole table, which all writers
//! wait for, is waited for a moment only, and held for a change of the catalog.
//! Whoever has inserted holds the table's lock and may wait for the partition's:
//! so nothing is done while somebody waits, and our own wait is over before the
//! server would look for a deadlock.

use tokio_postgres::types::Type;

use super::{
    partitions::{Partition, Partitions},
    readers::{self, Reader},
    removal::{Removal, Rows},
};
use crate::{error::RelayError, sql::Sql, wal::quote_literal};

/// For each lock.
pub(super) const LOCK_MS: u32 = 200;
/// For taking the locks on the table, and for each statement under them.
const HOLD_MS: u32 = 500;
/// Blocks that one statement looks at.
const BLOCKS: i64 = 4_096;
/// Tells the server that rows lie within the bounds, so that it need not look.
const CHECK: &str = "walpost_leaving";

/// What became of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It left with so many rows.
    Gone(u64),
    /// A row of it has to stay.
    Held,
    /// Somebody has locked it, or the table.
    Busy,
    /// Its rows leave one by one.
    Rows,
}

/// Rows of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) all: u64,
    /// They may leave.
    pub(super) leave: u64,
    /// Of the pipeline's own, those that are not proven, and those that nothing
    /// else keeps.
    pub(super) not_proven: u64,
    pub(super) parked: u64,
}

impl Counts {
    /// Whether some of the rows are not the pipeline's: each leaves by its own.
    pub(super) fn has_others(&self) -> bool {
        self.all > self.leave + self.not_proven + self.parked
    }

    pub(super) fn may_leave(&self) -> bool {
        self.all == self.leave
    }
}

/// How far the rows of a partition are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// To the last one.
    All,
    /// Until it is plain that the partition stays.
    Deciding,
    /// The same, and given up once somebody waits for the partition.
    Politely,
}

/// Where a partition goes: none to be dropped.
pub(super) type Target<'a> = Option<(&'a str, &'a Partitions)>;

impl Removal {
    /// Has a partition leave, if all of its rows may.
    pub(super) async fn whole(
        &self,
        sql: &Sql,
        root: &Partitions,
        partition: &Partition,
        target: Target<'_>,
    ) -> Result<Fate, RelayError> {
        let counts = match self.look(sql, partition, Look::Deciding).await {
            Ok(counts) => counts.unwrap_or_default(),
            Err(error) => return obstacle(error),
        };
        let is_kept = counts.all > 0 && self.has_archive();
        if counts.has_others() || (is_kept && target.is_none()) {
            return Ok(Fate::Rows);
        }
        if !counts.may_leave() {
            return Ok(Fate::Held);
        }
        // An empty one is of no use to the archive.
        let target = target.filter(|_| is_kept);
        if let Some((archive, _)) = target {
            let slow = sql.within_ms(self.relay().slot_timeout_ms);
            match prepare(&slow, partition, archive).await {
                Ok(None) => {}
                Ok(Some(fate)) => return Ok(fate),
                Err(error) => return obstacle(error),
            }
        }
        let done = self.leave_whole(sql, root, partition, target).await;
        ended(sql, done).await
    }

    /// One transaction; what is left open by an error is rolled back.
    async fn leave_whole(
        &self,
        sql: &Sql,
        root: &Partitions,
        partition: &Partition,
        target: Target<'_>,
    ) -> Result<Fate, RelayError> {
        let (name, table) = (&partition.name, self.table().quoted());
        if !begin(sql, name, &table).await? {
            return Ok(Fate::Busy);
        }
        let before = self.readers(sql).await?;
        let own = self.rows(sql).await?.own;
        let Some(counts) = self.look(sql, partition, Look::Politely).await? else {
            return Ok(Fate::Busy);
        };
        match counts {
            counts if counts.has_others() => return Ok(Fate::Rows),
            counts if !counts.may_leave() => return Ok(Fate::Held),
            // It has filled since.
            counts if counts.all > 0 && target.is_none() && self.has_archive() => {
                return Ok(Fate::Busy);
            }
            _ => {}
        }
        let target = target.filter(|_| counts.all > 0);
        if let Some((archive, partitions)) = target
            && !lock_archive(sql, archive, partitions, partition).await?
        {
            return Ok(Fate::Rows);
        }
        if waits(sql, name, 0).await? {
            return Ok(Fate::Busy);
        }
        lock_all(sql, &table, root, name).await?;
        // A pipeline that has come meanwhile may want the rows.
        let now = self.readers(sql).await?;
        if !readers::still(&before, &now) || self.rows(sql).await?.own != own {
            return Ok(Fate::Busy);
        }
        let change = match target {
            None => format!("drop table {name}"),
            Some((archive, _)) => into_archive(&table, partition, archive),
        };
        sql.batch("having a partition leave the outbox", &format!("{change}; commit")).await?;
        Ok(Fate::Gone(counts.all))
    }

    /// What may leave; none where the look was given up.
    pub(super) async fn look(
        &self,
        sql: &Sql,
        partition: &Partition,
        look: Look,
    ) -> Result<Option<Counts>, RelayError> {
        let Rows { proven, own } = self.rows(sql).await?;
        // With rows of others they leave one by one, whatever holds the day.
        let has_others = !own.is_empty();
        let (own, parked) = (if own.is_empty() { " and true" } else { &own }, self.parked());
        let query = format!(
            "select count(*), count(*) filter (where {proven}{own} and not {parked}), \
             count(*) filter (where (({proven}) is not true){own}), \
             count(*) filter (where {proven}{own} and {parked}) from {} o \
             where o.ctid >= $1::text::tid and o.ctid < $2::text::tid",
            partition.name
        );
        let mut counts = Counts::default();
        let mut first = 0;
        while first < blocks(sql, &partition.name).await? {
            if look == Look::Politely && waits(sql, &partition.name, LOCK_MS).await? {
                return Ok(None);
            }
            let range = [format!("({first},0)"), format!("({},0)", first + BLOCKS)];
            let parameters = [(&range[0] as _, Type::TEXT), (&range[1] as _, Type::TEXT)];
            let row = sql.one("looking at the rows of a partition", &query, &parameters).await?;
            let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
            counts.all += count(0);
            counts.leave += count(1);
            counts.not_proven += count(2);
            counts.parked += count(3);
            if look != Look::All && !has_others && !counts.may_leave() {
                break;
            }
            first += BLOCKS;
        }
        Ok(Some(counts))
    }

    async fn readers(&self, sql: &Sql) -> Result<Vec<Reader>, RelayError> {
        readers::readers(sql, self.relay(), self.table()).await
    }
}

/// Drops a partition of the archive unless a row of it is younger than `past`
/// says.
pub(super) async fn drop_archived(
    sql: &Sql,
    archive: &str,
    partitions: &Partitions,
    partition: &Partition,
    past: &str,
) -> Result<Fate, RelayError> {
    let young = format!("select exists (select from {} o where not ({past}))", partition.name);
    if sql.one("looking at the rows of the archive", &young, &[]).await?.get(0) {
        return Ok(Fate::Held);
    }
    let done = drop_past(sql, archive, partitions, partition, past).await;
    ended(sql, done).await
}

async fn drop_past(
    sql: &Sql,
    archive: &str,
    partitions: &Partitions,
    partition: &Partition,
    past: &str,
) -> Result<Fate, RelayError> {
    let name = &partition.name;
    if !begin(sql, name, archive).await? {
        return Ok(Fate::Busy);
    }
    let query = format!("select count(*), count(*) filter (where {past}) from {name} o");
    let row = sql.one("counting the rows of the archive", &query, &[]).await?;
    let (all, old): (i64, i64) = (row.get(0), row.get(1));
    if all != old {
        return Ok(Fate::Held);
    }
    lock_all(sql, archive, partitions, name).await?;
    let change = format!("drop table {name}; commit");
    sql.batch("having a partition leave the archive", &change).await?;
    Ok(Fate::Gone(u64::try_from(all).unwrap_or(0)))
}

/// Has the server know the bounds of the rows, while nobody waits for it. Some
/// fate where the archive cannot take them as they are.
async fn prepare(
    sql: &Sql,
    partition: &Partition,
    archive: &str,
) -> Result<Option<Fate>, RelayError> {
    let Partition { name, within, .. } = partition;
    let attempt = "preparing a partition for the archive";
    let query = format!(
        "select exists (select from {archive} where {within}), \
         (select convalidated from pg_constraint where conrelid = to_regclass($1) \
            and conname = $2)"
    );
    let names = [(name as _, Type::TEXT), (&CHECK as _, Type::TEXT)];
    let row = sql.one(attempt, &query, &names).await?;
    if row.get(0) {
        return Ok(Some(Fate::Rows));
    }
    let is_checked: Option<bool> = row.get(1);
    if is_checked.is_none() {
        let add = format!(
            "set local lock_timeout = {LOCK_MS}; \
             alter table {name} add constraint {CHECK} check ({within}) not valid"
        );
        sql.batch(attempt, &add).await?;
    }
    if is_checked != Some(true) {
        let validate = format!("alter table {name} validate constraint {CHECK}");
        sql.batch(attempt, &validate).await?;
    }
    Ok(None)
}

/// Whether nothing of the range is in the archive by now.
async fn lock_archive(
    sql: &Sql,
    archive: &str,
    partitions: &Partitions,
    partition: &Partition,
) -> Result<bool, RelayError> {
    lock(sql, &format!("lock table only {archive} in share update exclusive mode")).await?;
    if let Some(default) = &partitions.default {
        lock(sql, &format!("lock table only {default} in access exclusive mode")).await?;
    }
    let query = format!("select not exists (select from {archive} where {})", partition.within);
    Ok(sql.one("looking for rows of the day in the archive", &query, &[]).await?.get(0))
}

/// No row is written. Whoever may read the outbox may not therefore read the
/// archive.
fn into_archive(table: &str, partition: &Partition, archive: &str) -> String {
    let Partition { name, bounds, .. } = partition;
    let closing = closing(name);
    format!(
        "alter table {table} detach partition {name}; {closing}; \
         alter table {name} add column archived_at timestamptz not null \
             default statement_timestamp(); \
         alter table {archive} attach partition {name} {bounds}; \
         alter table {name} drop constraint {CHECK}"
    )
}

/// Leaves a table to its owner.
fn closing(name: &str) -> String {
    let table = quote_literal(name);
    let grantees = |acl: &str| {
        format!(
            "select case a.grantee when 0 then 'public' \
                else quote_ident(pg_get_userbyid(a.grantee)) end \
             from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode({acl}) a \
             where c.oid = {table}::regclass and a.grantee <> c.relowner"
        )
    };
    let body = format!(
        "declare who text; begin for who in {} union {} loop \
         execute format('revoke all on table %s from %s cascade', {table}, who); end loop; end",
        grantees("c.relacl"),
        grantees("t.attacl")
    );
    format!("do {}", quote_literal(&body))
}

/// A transaction that waits for no lock any longer, and that the server ends
/// should we fall silent in it. It locks a partition against writers; whether
/// that is one of the table.
async fn begin(sql: &Sql, partition: &str, table: &str) -> Result<bool, RelayError> {
    let statements = format!(
        "begin; set local idle_in_transaction_session_timeout = '1s'; \
         select set_config('lock_timeout', greatest(1, least({LOCK_MS}, (select setting::int / 2 \
             from pg_settings where name = 'deadlock_timeout')))::text, true); \
         lock table only {partition} in share row exclusive mode"
    );
    sql.batch("locking a partition", &statements).await?;
    let query = "select exists (select from pg_inherits where inhrelid = to_regclass($1) \
                 and inhparent = to_regclass($2) and not inhdetachpending)";
    let names = [(&partition as _, Type::TEXT), (&table as _, Type::TEXT)];
    Ok(sql.one("looking for a partition", query, &names).await?.get(0))
}

/// From here on until the end of the transaction nothing takes long.
async fn lock(sql: &Sql, statement: &str) -> Result<(), RelayError> {
    let statement = format!("set local statement_timeout = {HOLD_MS}; {statement}");
    sql.batch("locking a partition and its table", &statement).await
}

/// What a change of the table's partitions locks, in the order in which writers
/// do.
async fn lock_all(
    sql: &Sql,
    table: &str,
    partitions: &Partitions,
    partition: &str,
) -> Result<(), RelayError> {
    let default = partitions.default.iter().filter(|default| *default != partition);
    let also: String = default.map(|default| format!(", only {default}")).collect();
    let mode = "access exclusive mode";
    lock(sql, &format!("lock table only {table}, only {partition}{also} in {mode}")).await
}

async fn ended(sql: &Sql, done: Result<Fate, RelayError>) -> Result<Fate, RelayError> {
    let fate = match done {
        Ok(Fate::Gone(rows)) => return Ok(Fate::Gone(rows)),
        Ok(fate) => Ok(fate),
        Err(error) => obstacle(error),
    };
    // Others go on in the session, whatever went wrong.
    let ended = sql.batch("rolling back", "rollback").await;
    let fate = fate?;
    ended.map(|()| fate)
}

/// Busy: a lock or the time for it, a deadlock that was found after all, a table
/// that has gone. Rows: other objects and definitions that do not fit.
fn obstacle(error: RelayError) -> Result<Fate, RelayError> {
    let code = match &error {
        RelayError::Sql { source, .. } => source.code().map_or("", |code| code.code()),
        _ => "",
    };
    match code {
        "55P03" | "57014" | "40P01" | "42P01" => Ok(Fate::Busy),
        "2BP01" | "0A000" | "42501" | "42804" | "42P17" | "42710" | "42701" | "55000" | "23503"
        | "23514" => Ok(Fate::Rows),
        _ => Err(error),
    }
}

/// Whether somebody has waited for the partition so long.
async fn waits(sql: &Sql, partition: &str, since_ms: u32) -> Result<bool, RelayError> {
    let query = format!(
        "select exists (select from pg_locks where locktype = 'relation' and not granted \
         and relation = to_regclass($1) and database = (select oid from pg_database \
             where datname = current_database()) \
         and ({since_ms} = 0 or waitstart < clock_timestamp() - interval '{since_ms} ms'))"
    );
    let name = [(&partition as _, Type::TEXT)];
    Ok(sql.one("looking who waits for a partition", &query, &name).await?.get(0))
}

async fn blocks(sql: &Sql, partition: &str) -> Result<i64, RelayError> {
    let query = "select coalesce(pg_relation_size(to_regclass($1)), 0) \
                 / current_setting('block_size')::int8";
    let name = [(&partition as _, Type::TEXT)];
    Ok(sql.one("asking for the size of a partition", query, &name).await?.get(0))
}

/// The archive of a partition has to take it as it is.
pub(super) fn takes_partitions(archive: &Partitions) -> bool {
    archive.owns && archive.has_no_index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_leaves_with_all_of_its_rows_or_not_at_all() {
        let counts = |all, leave, not_proven, parked| {
            let counts = Counts { all, leave, not_proven, parked };
            (counts.may_leave(), counts.has_others())
        };
        assert_eq!(counts(0, 0, 0, 0), (true, false));
        assert_eq!(counts(3, 3, 0, 0), (true, false));
        assert_eq!(counts(3, 2, 1, 0), (false, false));
        assert_eq!(counts(3, 2, 0, 1), (false, false));
        assert_eq!(counts(3, 1, 1, 0), (false, true), "one is of another pipeline");
    }
}
