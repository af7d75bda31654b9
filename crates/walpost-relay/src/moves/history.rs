//! Whose a row is that was committed before rows like it were moved.

use tokio_postgres::types::Type;

#[cfg(test)]
use crate::simulation;
use crate::{
    config::TableName,
    error::RelayError,
    sql::Sql,
    wal::{quote_identifier, quote_literal},
};

/// A move, as far as it concerns one pipeline and one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) id: i64,
    pub(crate) pipeline: String,
    /// The snapshot that sees what was committed before it.
    pub(crate) boundary: String,
    /// The row filter until then; none for all rows.
    pub(crate) before: Option<String>,
    /// The row filter since then.
    pub(crate) after: Option<String>,
}

/// The moves of a table's rows, for each of their pipelines, the oldest first.
pub(crate) async fn of_table(
    sql: &Sql,
    schema: &str,
    table: &TableName,
) -> Result<Vec<Past>, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.past().await;
    }
    let moves = format!("{}.move", quote_identifier(schema));
    let exists = "select to_regclass($1) is not null";
    let attempt = "reading which rows were moved";
    if !sql.one(attempt, exists, &[(&moves as _, Type::TEXT)]).await?.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let query = format!(
        "select m.id, side.pipeline, m.boundary::text, m.tables -> $1 -> side.name ->> 0, \
         m.tables -> $1 -> side.name ->> 1 from {moves} m cross join lateral \
         (values (m.from_pipeline, 'from'), (m.to_pipeline, 'to')) side (pipeline, name) \
         where jsonb_exists(m.tables, $1) order by m.id"
    );
    let rows = sql.query(attempt, &query, &[(&table.quoted() as _, Type::TEXT)]).await?;
    let past = |row: &tokio_postgres::Row| Past {
        id: row.get(0),
        pipeline: row.get(1),
        boundary: row.get(2),
        before: row.get(3),
        after: row.get(4),
    };
    Ok(rows.iter().map(past).collect())
}

/// The condition of a pipeline's rows, where its row filter is `now` and it had
/// others before; none for all rows.
pub(crate) fn own(now: Option<&str>, pipeline: &str, past: &[Past]) -> Option<String> {
    let condition = |filter: Option<&str>| format!("({})", filter.unwrap_or("true"));
    #[cfg(test)]
    let past = if simulation::has(simulation::Bug::FilterOfNow) { &[] } else { past };
    let mut cases = String::new();
    for past in past.iter().filter(|past| past.pipeline == pipeline) {
        cases.push_str(&format!(
            " when pg_visible_in_snapshot(xid, {}::pg_snapshot) then {}",
            quote_literal(&past.boundary),
            condition(past.before.as_deref())
        ));
    }
    match (cases.is_empty(), now) {
        (true, None) => None,
        (true, now) => Some(condition(now)),
        (false, now) => Some(format!("(case{cases} else {} end)", condition(now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(id: i64, pipeline: &str, boundary: &str, before: Option<&str>) -> Past {
        let (pipeline, boundary) = (pipeline.to_owned(), boundary.to_owned());
        Past { id, pipeline, boundary, before: before.map(str::to_owned), after: None }
    }

    #[test]
    fn a_row_is_whoevers_filter_took_it_when_it_was_committed() {
        assert_eq!(own(None, "a", &[]), None);
        assert_eq!(own(Some("x"), "a", &[]).unwrap(), "(x)");
        let moves = [
            past(1, "a", "5:5:", None),
            past(1, "b", "5:5:", Some("z")),
            past(2, "a", "9:9:", Some("y")),
        ];
        assert_eq!(
            own(Some("x"), "a", &moves).unwrap(),
            "(case when pg_visible_in_snapshot(xid, '5:5:'::pg_snapshot) then (true) \
             when pg_visible_in_snapshot(xid, '9:9:'::pg_snapshot) then (y) else (x) end)"
        );
        assert_eq!(own(Some("x"), "c", &moves).unwrap(), "(x)");
    }
}
