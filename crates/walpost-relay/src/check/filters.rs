//! Whether the row filters of the pipelines of a table divide its rows.

use tokio_postgres::{error::SqlState, types::Type};
use walpost_event::error_chain;

use super::{CheckResult, fail, failed, ok, overlap, warn};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    retention::{Leaf, Reach, Reader, ReaderFeed, leaves, readers},
    sql::Sql,
    wal::{quote_identifier, quote_literal, row_filter},
};

const NAME: &str = "row filters";
/// Blocks at the end of each table that are looked at, and rows at most.
const SAMPLE_BLOCKS: i64 = 256;
const SAMPLE_ROWS: i64 = 10_000;
/// Rows that are named by their ids.
const EXAMPLES: usize = 3;

/// What the pipelines of each table leave out or take twice.
pub(crate) async fn check(sql: &Sql, config: &RelayConfig, id_column: &str) -> Vec<CheckResult> {
    let mut results = Vec::new();
    match row_filter::outdated(sql, config).await {
        Ok(found) => {
            results.extend(found.map(|(detail, next_step)| warn(NAME, detail, &next_step)));
        }
        Err(error) => results.push(failed(NAME, &error)),
    }
    for table in &config.tables {
        match of_table(sql, config, table, id_column).await {
            Ok(found) => results.extend(found),
            Err(error) => results.push(failure(table, &error)),
        }
    }
    results
}

fn failure(table: &TableName, error: &RelayError) -> CheckResult {
    let RelayError::Sql { source, .. } = error else { return failed(NAME, error) };
    match source.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => warn(
            NAME,
            format!("the role may not read {table}, so nothing tells whether they divide its rows"),
            "grant it select on the table",
        ),
        // Of a row's data: division by zero, a number out of range, a bad cast.
        Some(code) if code.code().starts_with("22") => fail(
            NAME,
            format!(
                "a row filter fails for a row of {table}, and the server would not decode beyond \
                 that row: {}",
                error_chain(error)
            ),
            "use a condition that has a value for every row, and have the pipelines' publications \
             made with it",
        ),
        _ => failed(NAME, error),
    }
}

async fn of_table(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    id_column: &str,
) -> Result<Vec<CheckResult>, RelayError> {
    let mut set = readers(sql, config, table).await?;
    set.retain(|reader| reader.is_here);
    let mut results = Vec::new();
    match set.iter().find(|reader| reader.pipeline == config.pipeline) {
        Some(own) => results.extend(overlapping(own, &set, table, config)),
        // What it shares its first start refuses.
        None => set.push(overlap::own_reader(sql, config, table, ReaderFeed::Wal).await?),
    }
    if set.iter().all(|reader| reader.rows.is_none()) {
        return Ok(results);
    }
    results.extend(set.iter().filter_map(weak_hash));
    results.extend(nulls(&set, &nullable(sql, table).await?, table));
    results.extend(messages(&set));
    match sample(sql, &set, table, id_column).await {
        Ok(sample) => results.extend(sample.results(&set, table)),
        Err(error) => results.push(failure(table, &error)),
    }
    Ok(results)
}

/// Another pipeline publishes all of the rows, or only rows of this one.
fn overlapping(
    own: &Reader,
    set: &[Reader],
    table: &TableName,
    config: &RelayConfig,
) -> Option<CheckResult> {
    let rival = overlap::rival(own, set).filter(|_| !config.allow_overlap)?;
    let (detail, next_step) = overlap::told(own, rival, table, config);
    Some(warn("overlap", detail, &next_step))
}

/// What the last rows of a table say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sample {
    rows: i64,
    taken_twice: i64,
    taken_by_none: i64,
    twice: Vec<String>,
    by_none: Vec<String>,
}

impl Sample {
    fn results(&self, set: &[Reader], table: &TableName) -> Vec<CheckResult> {
        let Self { rows, taken_twice, taken_by_none, twice, by_none } = self;
        let of = |count: &i64, ids: &[String]| {
            format!("of the last {rows} rows of {table}, {count}, such as {}", ids.join(", "))
        };
        let mut results = Vec::new();
        if *taken_twice > 0 {
            results.push(warn(
                NAME,
                format!("{}, are taken by more than one pipeline", of(taken_twice, twice)),
                "make the filters exclude each other, unless the pipelines write to different \
                 topics or clusters on purpose",
            ));
        }
        if *taken_by_none > 0 {
            results.push(warn(
                NAME,
                format!("{}, are taken by no pipeline", of(taken_by_none, by_none)),
                "have a pipeline take them, as one whose filter is the negation of the others; \
                 what was committed until then is not published by itself",
            ));
        }
        if results.is_empty() {
            let names: Vec<&str> = set.iter().map(|reader| reader.pipeline.as_str()).collect();
            let names = names.join(", ");
            results.push(ok(
                NAME,
                format!("each of the last {rows} rows of {table} is one of {names}"),
            ));
        }
        results
    }
}

async fn sample(
    sql: &Sql,
    set: &[Reader],
    table: &TableName,
    id_column: &str,
) -> Result<Sample, RelayError> {
    let takers: Vec<String> = set.iter().map(taker).collect();
    let (takers, id) = (takers.join(", "), quote_identifier(id_column));
    let mut sample = Sample::default();
    for Leaf { blocks, reach: Reach { from, only }, .. } in leaves(sql, table).await? {
        let query = format!(
            "with sample as (select o.{id}::text as id, array_remove(array[{takers}], null) as \
                 takers from {from} o where o.ctid >= $1::text::tid{only} limit {SAMPLE_ROWS}) \
             select count(*), count(*) filter (where cardinality(takers) > 1), \
                 count(*) filter (where cardinality(takers) = 0), \
                 array(select id || ' (' || array_to_string(takers, ' and ') || ')' \
                     from sample where cardinality(takers) > 1 limit {EXAMPLES}), \
                 array(select id from sample where cardinality(takers) = 0 limit {EXAMPLES}) \
             from sample"
        );
        let first = format!("({},0)", (blocks - SAMPLE_BLOCKS).max(0));
        let first = [(&first as _, Type::TEXT)];
        let row = sql.one("looking whether row filters divide the rows", &query, &first).await?;
        sample.rows += row.get::<_, i64>(0);
        sample.taken_twice += row.get::<_, i64>(1);
        sample.taken_by_none += row.get::<_, i64>(2);
        sample.twice.extend(row.get::<_, Vec<String>>(3));
        sample.by_none.extend(row.get::<_, Vec<String>>(4));
    }
    sample.twice.truncate(EXAMPLES);
    sample.by_none.truncate(EXAMPLES);
    Ok(sample)
}

/// The pipeline's name for a row that it takes. NULL takes none.
fn taker(reader: &Reader) -> String {
    let name = quote_literal(&reader.pipeline);
    match &reader.rows {
        Some(rows) => format!("case when {rows} then {name}::text end"),
        None => format!("{name}::text"),
    }
}

/// `abs` of the least integer is out of range.
fn weak_hash(reader: &Reader) -> Option<CheckResult> {
    let squeezed: String = reader.rows.as_deref()?.split_whitespace().collect();
    squeezed.to_lowercase().contains("abs(hash").then(|| {
        warn(
            NAME,
            format!(
                "the row filter of pipeline {:?} takes abs() of a hash, which fails where the hash \
                 is the least integer: the server would not decode beyond such a row",
                reader.pipeline
            ),
            "use bits of the hash, as (hashtext(aggregateid) & 3) = 0 for one of four",
        )
    })
}

/// Columns that may be NULL, for which most conditions are NULL too.
async fn nullable(sql: &Sql, table: &TableName) -> Result<Vec<String>, RelayError> {
    let query = "select attname::text from pg_attribute where attrelid = to_regclass($1) \
                 and attnum > 0 and not attisdropped and not attnotnull";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the outbox table's columns", query, &name).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn nulls(set: &[Reader], nullable: &[String], table: &TableName) -> Option<CheckResult> {
    let filters: Vec<String> = set
        .iter()
        .map(|reader| reader.rows.as_ref().map(|rows| rows.to_lowercase()))
        .collect::<Option<_>>()?;
    let cares = |filter: &String| {
        ["is null", "is not true", "is not false", "distinct from", "coalesce("]
            .iter()
            .any(|form| filter.contains(form))
    };
    if filters.iter().any(cares) {
        return None;
    }
    let names = |filter: &String, column: &str| {
        filter
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| word == column.to_lowercase())
    };
    let column =
        nullable.iter().find(|column| filters.iter().any(|filter| names(filter, column)))?;
    Some(warn(
        NAME,
        format!("column {column:?} of {table} may be NULL, and no pipeline takes such a row"),
        "make the column not null, or have one filter take the rows where it is null",
    ))
}

/// Messages reach every slot, and no row filter divides them.
fn messages(set: &[Reader]) -> Option<CheckResult> {
    set.iter().enumerate().find_map(|(index, reader)| {
        let (prefix, other) = set[index + 1..].iter().find_map(|other| {
            let both = reader.messages.iter().find(|prefix| other.messages.contains(prefix));
            both.map(|prefix| (prefix, other))
        })?;
        Some(warn(
            NAME,
            format!(
                "pipelines {:?} and {:?} both take messages with the prefix {prefix:?}",
                reader.pipeline, other.pipeline
            ),
            "have one of them take messages: row_filter_messages = true there alone, and \
             message_prefixes = [] where there is no row filter",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pipeline: &str, rows: Option<&str>, messages: &[&str]) -> Reader {
        Reader {
            brought: None,
            pipeline: pipeline.to_owned(),
            proven: None,
            rows: rows.map(str::to_owned),
            is_here: true,
            messages: messages.iter().map(|prefix| (*prefix).to_owned()).collect(),
            feed: Some(ReaderFeed::Wal),
        }
    }

    #[test]
    fn abs_of_a_hash_is_weak_and_its_bits_are_not() {
        let weak = |rows| weak_hash(&reader("a", Some(rows), &[])).is_some();
        assert!(weak("((abs(hashtext(aggregateid)) % 2) = 0)"));
        assert!(weak("(ABS( hashtext(aggregateid)) % 2 = 0)"));
        assert!(!weak("((hashtext(aggregateid) & 1) = 0)"));
    }

    #[test]
    fn a_column_that_may_be_null_is_named_unless_a_filter_takes_nulls() {
        let table: TableName = "walpost.outbox".parse().unwrap();
        let nullable = ["tenant".to_owned()];
        let found = |filters: &[Option<&str>]| {
            let set: Vec<Reader> = filters.iter().map(|rows| reader("a", *rows, &[])).collect();
            nulls(&set, &nullable, &table).is_some()
        };
        assert!(found(&[Some("(tenant = 'a'::text)"), Some("(tenant <> 'a'::text)")]));
        assert!(!found(&[Some("(tenants = 'a'::text)")]), "another column");
        assert!(!found(&[Some("(tenant = 'a'::text)"), None]), "one takes all rows");
        assert!(!found(&[Some("(tenant = 'a'::text)"), Some("(tenant IS NULL)")]));
        assert!(!found(&[Some("(tenant IS DISTINCT FROM 'a'::text)")]));
    }

    #[test]
    fn messages_that_two_pipelines_take_are_told() {
        let set = |second: &[&str]| {
            [reader("a", Some("true"), &["walpost"]), reader("b", Some("true"), second)]
        };
        assert_eq!(messages(&set(&[])), None);
        assert_eq!(messages(&set(&["other"])), None);
        let found = messages(&set(&["other", "walpost"])).unwrap();
        assert!(found.detail.contains("\"a\" and \"b\""), "{}", found.detail);
    }
}
