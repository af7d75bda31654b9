//! Who reads an outbox table, and what each has proven of it.

use tokio_postgres::types::Type;

#[cfg(test)]
use crate::simulation;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    moves::history::{self, Past},
    sql::Sql,
    wal::{quote_identifier, quote_literal, relations::Noted},
};

/// A pipeline of another cluster proves nothing here, and one that does not say
/// what it reads may read this table. Its rows are those of its publication;
/// where that is not known, all.
const READERS: &str = "select c.pipeline, \
        case when c.system_id = s.system_identifier::text then c.proven ->> 'snapshot' end, \
        (select to_jsonb(p) ->> 'rowfilter' from pg_publication_tables p \
            where p.pubname = (select pubname from pg_publication \
                where oid::int8 = (c.publication ->> 'oid')::int8) \
            and p.schemaname = $2 and p.tablename = $3), \
        c.system_id = s.system_identifier::text, c.publication -> 'messages', \
        case when c.source = 'polling' then 'table' when c.initial = 'creating' \
            or exists (select from pg_replication_slots where slot_name = c.slot) then 'wal' end, \
        c.relations \
    from pg_control_system() s, SCHEMA.checkpoint c \
    where c.tables is null or exists (select from ( \
            select to_regclass(name)::oid from unnest(c.tables) t (name) \
            union all select oid::oid from jsonb_each_text(c.relations -> 'tables') t (name, oid) \
        ) t (oid) \
        where t.oid in (select to_regclass($1) union select relid from pg_partition_tree(to_regclass($1)) \
            union select relid from pg_partition_ancestors(to_regclass($1)))) \
    order by c.pipeline";

/// A pipeline that reads a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) pipeline: String,
    /// The snapshot that it has proven.
    pub(crate) proven: Option<String>,
    /// The condition of its rows; none for all.
    pub(crate) rows: Option<String>,
    /// It is of this cluster.
    pub(crate) is_here: bool,
    /// Prefixes whose messages it takes, as far as that is known.
    pub(crate) messages: Vec<String>,
    /// Where its rows come from; none if it has no slot and publishes nothing.
    pub(crate) feed: Option<ReaderFeed>,
    /// The relations whose rows its stream brings, each with the transaction from
    /// which on it surely does; all where that is none.
    pub(crate) brought: Option<Vec<(u32, Option<u64>)>>,
}

/// Where the rows of a [`Reader`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderFeed {
    /// Its slot, which exists or is being created.
    Wal,
    /// The table, whose rows pollers share.
    Table,
}

/// What tells which transaction wrote a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The column `xid`, of who inserted it.
    Xid,
    /// The system column `xmin`, of who changed it last.
    Xmin,
}

/// The whole of `xmin`, whose upper half no row has: the youngest that it may be.
const WHOLE_XMIN: &str = "(select now.id - (now.id - o.xmin::text::int8) % 4294967296 \
    from (select pg_snapshot_xmax(pg_current_snapshot())::text::int8) as now (id))";

impl By {
    /// That the transaction is this one or a younger one.
    fn is_since(self, since: u64) -> String {
        match self {
            Self::Xid => format!("o.xid >= {}::xid8", quote_literal(&since.to_string())),
            Self::Xmin => format!("{WHOLE_XMIN} >= {since}"),
        }
    }

    /// That a snapshot sees the row, `o`, as it is. Who changed it last may be a
    /// part of a transaction, of which a snapshot knows nothing: so by `xmin` all
    /// transactions of that time have to be over.
    fn seen_in(self, snapshot: &str) -> String {
        let snapshot = quote_literal(snapshot);
        match self {
            Self::Xid => format!("pg_visible_in_snapshot(o.xid, {snapshot}::pg_snapshot)"),
            Self::Xmin => {
                format!("{WHOLE_XMIN} < pg_snapshot_xmin({snapshot}::pg_snapshot)::text::int8")
            }
        }
    }
}

impl Reader {
    /// That the stream has brought a row, `o`, whose transaction a proven snapshot
    /// sees.
    fn brings(&self, by: By) -> Option<String> {
        let brought = self.brought.as_ref()?;
        let all: Vec<String> = brought.iter().map(|(oid, _)| oid.to_string()).collect();
        let mut condition = format!("o.tableoid = any ('{{{}}}'::oid[])", all.join(","));
        for (oid, since) in brought {
            if let Some(since) = since {
                let later = by.is_since(*since);
                condition.push_str(&format!(" and (o.tableoid <> {oid} or {later})"));
            }
        }
        Some(condition)
    }

    /// That a row of the outbox, `o`, is no business of the pipeline any more;
    /// none where nothing of it is proven.
    fn is_done(&self, by: By) -> Option<String> {
        let sees = self.proven.as_deref().map(|snapshot| {
            let sees = by.seen_in(snapshot);
            self.brings(by).map_or(sees.clone(), |brings| format!("({sees} and {brings})"))
        });
        match (&self.rows, sees) {
            (Some(rows), Some(sees)) => Some(format!("({rows} is not true or {sees})")),
            (Some(rows), None) => Some(format!("{rows} is not true")),
            (None, sees) => sees,
        }
    }
}

/// The pipelines of the table.
pub(crate) async fn readers(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
) -> Result<Vec<Reader>, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        let read = server.readers().await?;
        let past = history::of_table(sql, &relay.schema, table).await?;
        let own = |one: Reader| Reader {
            rows: history::own(one.rows.as_deref(), &one.pipeline, &past),
            ..one
        };
        return Ok(read.into_iter().map(own).collect());
    }
    let query = READERS.replace("SCHEMA", &quote_identifier(&relay.schema));
    let parameters = [
        (&table.quoted() as _, Type::TEXT),
        (&table.schema as _, Type::TEXT),
        (&table.name as _, Type::TEXT),
    ];
    let rows = sql.query("reading what is proven", &query, &parameters).await?;
    let past = history::of_table(sql, &relay.schema, table).await?;
    Ok(rows.iter().map(|row| reader(row, &past)).collect())
}

fn reader(row: &tokio_postgres::Row, past: &[Past]) -> Reader {
    let pipeline: String = row.get(0);
    let is_here = row.get::<_, Option<bool>>(3) == Some(true);
    let filter: Option<String> = row.get(2);
    let messages = row.get::<_, Option<serde_json::Value>>(4).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let noted = row.get::<_, Option<serde_json::Value>>(6);
    let noted = noted.as_ref().and_then(Noted::from_json).unwrap_or_default();
    let brought = noted.parts().iter().map(|(oid, part)| (*oid, part.since)).collect();
    Reader {
        proven: row.get(1),
        rows: history::own(filter.as_deref(), &pipeline, past).filter(|_| is_here),
        pipeline,
        is_here,
        messages: messages.as_array().into_iter().flatten().filter_map(text).collect(),
        feed: match row.get(5) {
            Some("wal") => Some(ReaderFeed::Wal),
            Some(_) => Some(ReaderFeed::Table),
            None => None,
        },
        brought: Some(brought),
    }
}

/// The condition that a row of the table, `o`, is proven by every pipeline that
/// takes it.
pub(crate) async fn proven_by_all(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    by: By,
) -> Result<String, RelayError> {
    let readers = readers(sql, relay, table).await?;
    #[cfg(test)]
    let readers: Vec<Reader> = match simulation::has(simulation::Bug::PruneByOne) {
        true => readers.into_iter().filter(|one| one.pipeline == relay.pipeline).collect(),
        false => readers,
    };
    if readers.is_empty() {
        return Err(RelayError::prerequisite(
            format!("no pipeline has read table {table} yet, so nothing of it is published"),
            "start one with `walpost run`, and see it with `walpost status`",
        ));
    }
    let condition = |reader: &Reader| {
        reader.is_done(by).ok_or_else(|| {
            RelayError::prerequisite(
                format!("pipeline {:?} has proven nothing of table {table} yet", reader.pipeline),
                format!(
                    "start it, and try again a few seconds later; if it is gone for good, delete \
                     its row in {}.checkpoint",
                    quote_identifier(&relay.schema)
                ),
            )
        })
    };
    let conditions: Vec<String> = readers.iter().map(condition).collect::<Result<_, _>>()?;
    Ok(conditions.join(" and "))
}

/// Whether what all have proven is proven still: a snapshot that is proven once
/// is for ever, as long as nobody reads the table who did not, or other rows of
/// it.
pub(super) fn still(before: &[Reader], now: &[Reader]) -> bool {
    now.iter().all(|now| {
        let is_same = |before: &&Reader| {
            (&before.pipeline, &before.rows, before.is_here)
                == (&now.pipeline, &now.rows, now.is_here)
        };
        let before = before.iter().find(is_same);
        before.is_some_and(|before| before.proven.is_none() || now.proven.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_come_or_begun_afresh_has_proven_nothing() {
        let before = [reader(None, Some("3:3:"))];
        assert!(still(&before, &[reader(None, Some("9:9:"))]), "it has proven more");
        assert!(still(&before, &[]), "it reads the table no more");
        assert!(!still(&before, &[reader(None, None)]), "it has begun afresh");
        assert!(!still(&before, &[reader(Some("(true)"), Some("3:3:"))]), "other rows");
        let other = Reader { pipeline: "b".to_owned(), ..reader(None, Some("3:3:")) };
        assert!(!still(&before, &[reader(None, Some("3:3:")), other]), "another one");
        let none = [reader(Some("(tenant = 'a')"), None)];
        assert!(still(&none, &none), "none of the rows was its own");
    }

    fn reader(rows: Option<&str>, proven: Option<&str>) -> Reader {
        let (rows, proven) = (rows.map(str::to_owned), proven.map(str::to_owned));
        Reader {
            pipeline: "a".to_owned(),
            proven,
            rows,
            is_here: true,
            messages: vec![],
            feed: None,
            brought: None,
        }
    }

    #[test]
    fn a_pipeline_holds_back_its_own_rows_and_no_others() {
        let sees = "pg_visible_in_snapshot(o.xid, '3:3:'::pg_snapshot)";
        assert_eq!(reader(None, None).is_done(By::Xid), None);
        assert_eq!(reader(None, Some("3:3:")).is_done(By::Xid).unwrap(), sees);
        let own = reader(Some("(tenant = 'a')"), Some("3:3:")).is_done(By::Xid).unwrap();
        assert_eq!(own, format!("((tenant = 'a') is not true or {sees})"));
        let last = reader(None, Some("3:3:")).is_done(By::Xmin).unwrap();
        assert!(last.ends_with("< pg_snapshot_xmin('3:3:'::pg_snapshot)::text::int8"), "{last}");
        let brought = Some(vec![(7, None), (8, Some(5))]);
        let parts = Reader { brought, ..reader(None, Some("3:3:")) };
        let expected = format!(
            "({sees} and o.tableoid = any ('{{7,8}}'::oid[]) \
             and (o.tableoid <> 8 or o.xid >= '5'::xid8))"
        );
        assert_eq!(parts.is_done(By::Xid).unwrap(), expected);
        let unproven = reader(Some("(tenant = 'a')"), None).is_done(By::Xid).unwrap();
        assert_eq!(unproven, "(tenant = 'a') is not true");
    }
}
