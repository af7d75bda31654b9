//! Partitions with rows that no stream has brought.

use tokio_postgres::types::Type;

use super::{Attached, Change, Facts, Noted};
use crate::{error::RelayError, sql::Sql, wal::quote_literal};

impl Noted {
    /// Partitions whose rows of before they had that place may be there, with those
    /// that came since all was noted.
    fn suspects(&self, facts: &Facts) -> Vec<Attached> {
        let new = match self.change(facts) {
            Change::Parts(parts) => parts,
            _ => Vec::new(),
        };
        let suspect = |fact: &super::Fact| {
            let is_new = new.iter().any(|new| new.oid == fact.oid);
            let since = self.parts.get(&fact.oid).and_then(|part| part.since);
            let since = if is_new { Some(u64::MAX) } else { since };
            let table = facts.find(fact.root)?.name.clone();
            Some(Attached { oid: fact.oid, name: fact.name.clone(), table, since: since? })
        };
        facts.relations.iter().filter(|fact| !fact.is_root()).filter_map(suspect).collect()
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
        if holds_older(sql, &suspect).await? {
            found.push(suspect);
        }
    }
    Ok(found)
}

/// Whether it has a row of a transaction below its bound, as far as its rows tell.
async fn holds_older(sql: &Sql, suspect: &Attached) -> Result<bool, RelayError> {
    let Attached { name, since, .. } = suspect;
    let attempt = "looking for rows of before a partition was attached";
    let may = "select coalesce(has_table_privilege($1::oid, 'select'), false)";
    if !sql.one(attempt, may, &[(&suspect.oid, Type::OID)]).await?.get::<_, bool>(0) {
        // Nobody can say that it has none.
        return Ok(true);
    }
    let has_xid = "select exists (select from pg_attribute where attrelid = $1 \
                   and attname = 'xid' and atttypid = 'xid8'::regtype and not attisdropped)";
    let has_xid = sql.one(attempt, has_xid, &[(&suspect.oid, Type::OID)]).await?.get(0);
    let older = match has_xid {
        true => format!("xid < {}::xid8", quote_literal(&since.to_string())),
        false => "true".to_owned(),
    };
    let query = format!("select exists (select from only {name} where {older})");
    Ok(sql.one(attempt, &query, &[]).await?.get(0))
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
