//! What the role may do with a table, and the grant that is missing.

use tokio_postgres::types::Type;

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
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("role {role} may not read the outbox table, as the first start has to"),
        format!("let its owner run `{}`", grants.join("; ")),
    ))
}
