//! What the role may do with a table, and the grant that is missing.

use tokio_postgres::{error::SqlState, types::Type};
use walpost_postgres::shown::{Author, ServerMessage};

use super::quote_identifier;
use crate::{config::TableName, error::RelayError, sql::Sql};

/// A right on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Select,
    Insert,
    Update,
    Delete,
}

impl Right {
    fn as_str(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A table that is there, in a schema that the role may use.
#[derive(Debug)]
pub(crate) struct Reach {
    table: TableName,
    /// Quoted.
    pub(crate) role: String,
    granted: Vec<Right>,
    pub(crate) owns: bool,
}

impl Reach {
    /// The statement that grants what is missing of `needed`.
    pub(crate) fn grant(&self, needed: &[Right]) -> Option<String> {
        let missing: Vec<&str> = needed
            .iter()
            .filter(|right| !self.granted.contains(right))
            .map(|right| right.as_str())
            .collect();
        let (rights, table) = (missing.join(", "), self.table.quoted());
        (!missing.is_empty()).then(|| format!("grant {rights} on {table} to {}", self.role))
    }
}

/// Looks at a table, `None` if it is not there. Reads the catalog alone, as a
/// name cannot be resolved without the right to use its schema.
pub(crate) async fn reach(sql: &Sql, table: &TableName) -> Result<Option<Reach>, RelayError> {
    let query = "select current_user::text, has_schema_privilege(n.oid, 'usage'), \
                 has_table_privilege(c.oid, 'select'), has_table_privilege(c.oid, 'insert'), \
                 has_table_privilege(c.oid, 'update'), pg_has_role(c.relowner, 'usage'), \
                 has_table_privilege(c.oid, 'delete') \
                 from pg_namespace n left join pg_class c \
                 on c.relnamespace = n.oid and c.relname = $2 where n.nspname = $1";
    let names = [(&table.schema as _, Type::TEXT), (&table.name as _, Type::TEXT)];
    let Some(row) = sql.opt("looking at the rights on a table", query, &names).await? else {
        return Ok(None);
    };
    let role = quote_identifier(row.get(0));
    if !row.get::<_, bool>(1) {
        let schema = quote_identifier(&table.schema);
        return Err(RelayError::prerequisite(
            format!("role {role} may not use schema {schema}"),
            format!("let its owner run `grant usage on schema {schema} to {role}`"),
        ));
    }
    let Some(owns) = row.get::<_, Option<bool>>(5) else { return Ok(None) };
    let granted = [(2, Right::Select), (3, Right::Insert), (4, Right::Update), (6, Right::Delete)]
        .into_iter()
        .filter(|(column, _)| row.get::<_, Option<bool>>(*column) == Some(true))
        .map(|(_, right)| right)
        .collect();
    Ok(Some(Reach { table: table.clone(), role, granted, owns }))
}

/// The first start looks for rows in the outbox tables, and may publish them.
pub(crate) async fn readable(sql: &Sql, tables: &[TableName]) -> Result<(), RelayError> {
    let mut role = String::new();
    let mut grants = Vec::new();
    for table in tables {
        if let Some(reach) = reach(sql, table).await? {
            grants.extend(reach.grant(&[Right::Select]));
            role = reach.role;
        }
    }
    if grants.is_empty() {
        for table in tables {
            seen_whole(sql, table, Of::Table).await?;
        }
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("role {role} may not read the outbox table, as the first start has to"),
        format!("let its owner run `{}`", grants.join("; ")),
    ))
}

/// What of a table is read by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The table, whose policies count for its partitions too.
    Table,
    /// Also its partitions, which may have policies of their own.
    Partitions,
}

/// No policy of row level security leaves rows of the table out for the role.
/// One that it cannot see would count as published. The sessions refuse such
/// statements in any case.
pub(crate) async fn seen_whole(sql: &Sql, table: &TableName, of: Of) -> Result<(), RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(());
    }
    // By the catalog alone, for roles that may not use the schema.
    let query = "with recursive part as (select c.oid from pg_class c \
            join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2 \
            union all select inhrelid from pg_inherits join part on inhparent = part.oid where $3) \
        select n.nspname::text, c.relname::text from part join pg_class c using (oid) \
            join pg_namespace n on n.oid = c.relnamespace where row_security_active(c.oid) \
        order by 1, 2 limit 1";
    let with_partitions = of == Of::Partitions;
    let parameters = [
        (&table.schema as _, Type::TEXT),
        (&table.name as _, Type::TEXT),
        (&with_partitions as _, Type::BOOL),
    ];
    match sql.opt("looking at row level security", query, &parameters).await? {
        None => Ok(()),
        Some(row) => {
            let table = TableName { schema: row.get(0), name: row.get(1) };
            Err(hidden(&format!("row level security hides rows of table {table} from the role")))
        }
    }
}

/// What a statement is refused with that would leave rows out.
pub(crate) fn hides(error: &tokio_postgres::Error) -> Option<RelayError> {
    let told = error.as_db_error()?;
    let is_refused =
        told.code() == &SqlState::INSUFFICIENT_PRIVILEGE && told.file() == Some("rls.c");
    is_refused.then(|| {
        // It names the table.
        let text = ServerMessage::from(told).to_text(Author::Walpost);
        hidden(&format!("row level security hides rows from the role: {text}"))
    })
}

fn hidden(problem: &str) -> RelayError {
    RelayError::prerequisite(
        format!("{problem}; what it cannot see would count as published"),
        "give the role BYPASSRLS (a superuser runs `alter role … bypassrls`), or make it the owner \
         of the table, without `force row level security`",
    )
}
