//! Partitions with rows that no stream has brought.

use tokio_postgres::types::Type;

use super::{Attached, Fact, Facts, Noted};
use crate::{error::RelayError, sql::Sql, wal::quote_literal};

impl Noted {
    /// Partitions whose rows of before they had that place may be there, with those
    /// that came since all was noted.
    fn suspects(&self, facts: &Facts) -> Vec<Attached> {
        let tables = self.tables();
        let is_new = |fact: &Fact| {
            let known = self.parts.get(&fact.oid);
            tables.contains(&fact.root) && known.is_none_or(|part| part.attached != fact.attached)
        };
        let suspect = |fact: &Fact| {
            let since = self.parts.get(&fact.oid).and_then(|part| part.since);
            let since = if is_new(fact) { Some(u64::MAX) } else { since };
            let table = facts.find(fact.root)?.name.clone();
            Some(Attached { oid: fact.oid, name: fact.name.clone(), table, since: since? })
        };
        let leaves = facts.relations.iter().filter(|fact| !fact.is_root() && fact.kind == "r");
        leaves.filter_map(suspect).collect()
    }
}

/// Partitions that were attached with rows, which are still there. One that is not
/// noted yet counts with whatever it holds.
pub(crate) async fn attached(
    sql: &Sql,
    noted: &Noted,
    facts: &Facts,
) -> Result<Vec<Attached>, RelayError> {
    let mut found = Vec::new();
    for suspect in noted.suspects(facts) {
        let Attached { oid, name, table, since } = &suspect;
        // Of one that cannot be read nobody can say that it has none.
        if holds_older(sql, (table, name, *oid), *since, None).await?.unwrap_or(true) {
            found.push(suspect);
        }
    }
    Ok(found)
}

/// Whether a partition of `table` holds a row of a transaction below `since`, or of
/// the one that has attached it, as far as its rows tell; none without the right to
/// read it. Begins and ends a transaction.
pub(crate) async fn holds_older(
    sql: &Sql,
    (table, name, oid): (&str, &str, u32),
    since: u64,
    attached: Option<&str>,
) -> Result<Option<bool>, RelayError> {
    let attempt = "looking for rows of before a partition was attached";
    // The size takes no right.
    let query = "select coalesce(pg_relation_size($1::oid), 0), \
                 coalesce(has_table_privilege($1::oid, 'select'), false), \
                 exists (select from pg_attribute where attrelid = $1::oid and attname = 'xid' \
                     and atttypid = 'xid8'::regtype and not attisdropped)";
    let row = sql.one(attempt, query, &[(&oid, Type::OID)]).await?;
    if row.get::<_, i64>(0) == 0 {
        return Ok(Some(false));
    }
    if !row.get::<_, bool>(1) {
        return Ok(None);
    }
    let written = attached.map(|xid| format!(" or xmin = {}::xid", quote_literal(xid)));
    let older = match row.get(2) {
        true => format!(
            "xid < {}::xid8{}",
            quote_literal(&since.to_string()),
            written.unwrap_or_default()
        ),
        false => "true".to_owned(),
    };
    // The table first, as those lock it who change its partitions.
    let begin = format!(
        "begin; set local lock_timeout = '500ms'; lock table only {table} in access share mode"
    );
    let query = format!("select exists (select from only {name} where {older})");
    let found = match sql.batch(attempt, &begin).await {
        Ok(()) => sql.one(attempt, &query, &[]).await.map(|row| row.get(0)),
        Err(error) => Err(error),
    };
    sql.batch(attempt, "rollback").await?;
    found.map(Some)
}

/// What to do about such a one.
pub(crate) fn how_to_publish(part: &str, table: &str) -> String {
    format!(
        "to publish them, detach {part} from {table}, make an empty partition in its place and \
         insert its rows into {table} without the columns xid and seq, all in one transaction; \
         if they are published already, delete them by hand once they are old: `walpost prune` \
         leaves them"
    )
}
