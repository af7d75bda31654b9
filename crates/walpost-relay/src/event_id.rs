//! The id of an event as WAL and text output print it, which is what `parked`
//! keeps and records carry. A cast to text is another thing: it takes the blanks
//! of a `char(n)`.

use std::collections::HashSet;

use tokio_postgres::types::Type;

use crate::{config::TableName, error::RelayError, sql::Sql, wal::quote_identifier};

/// The SQL of a column, quoted, as the server prints it; null where it is.
pub(crate) fn printed(column: &str) -> String {
    format!("case when {column} is not null then format('%s', {column}) end")
}

/// Where rows of events may be.
pub(crate) struct Place {
    pub(crate) table: TableName,
    /// The column of the ids, quoted, and its type.
    id: String,
    id_type: String,
}

impl Place {
    /// None where there is no such table, or no such column in it.
    pub(crate) async fn find(
        sql: &Sql,
        table: &TableName,
        column: &str,
    ) -> Result<Option<Self>, RelayError> {
        let query = "select format_type(atttypid, atttypmod) from pg_attribute \
                     where attrelid = to_regclass($1) and attname = $2 and not attisdropped";
        let of = [(&table.quoted() as _, Type::TEXT), (&column as _, Type::TEXT)];
        let row = sql.opt("reading the type of the ids", query, &of).await?;
        Ok(row.map(|row| Self {
            table: table.clone(),
            id: quote_identifier(column),
            id_type: row.get(0),
        }))
    }

    /// The condition of rows that have the id of this literal, in the column's own type for its
    /// index.
    pub(crate) fn is(&self, literal: &str) -> String {
        format!("{} = {literal}::{}", self.id, self.id_type)
    }

    /// Which of the ids have their row there.
    pub(crate) async fn there(
        &self,
        sql: &Sql,
        ids: &[&str],
    ) -> Result<HashSet<String>, RelayError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let Self { table, id, id_type } = self;
        let (printed, place) = (printed(&format!("o.{id}")), table.quoted());
        let attempt = "looking for the rows of parked events";
        let parameters = [(&ids as _, Type::TEXT_ARRAY)];
        // In the column's own type, for its index.
        let query =
            format!("select {printed} from {place} o where o.{id} = any ($1::text[]::{id_type}[])");
        let found = match sql.query(attempt, &query, &parameters).await {
            // The ids are of another column, as before router.event_id was changed.
            Err(RelayError::Sql { source, .. })
                if source.code().is_some_and(|code| is_no_value(code.code())) =>
            {
                let query = format!("select {printed} from {place} o where {printed} = any ($1)");
                sql.query(attempt, &query, &parameters).await?
            }
            found => found?,
        };
        Ok(found.iter().map(|row| row.get(0)).collect())
    }
}

/// A text that is none of the type's, or a type that is not compared.
fn is_no_value(code: &str) -> bool {
    code.starts_with("22") || code == "42883"
}
