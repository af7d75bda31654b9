//! Whether the stream can bring the rows of a table.

use tokio_postgres::types::Type;

use super::{Fact, Facts, Misfit, read};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::quote_identifier,
};

/// Every relation that holds rows of the outbox tables is one whose rows are in the
/// WAL, under the name by which they are looked for.
pub(crate) async fn fit(sql: &Sql, config: &RelayConfig) -> Result<Facts, RelayError> {
    let facts = read(sql, config, &[]).await?;
    for fact in &facts.relations {
        let Some(misfit) = facts.misfit(fact) else { continue };
        let root = facts.named(&config.tables).find(|(oid, _)| *oid == fact.root);
        let remedy = match &misfit {
            Misfit::NoTable if fact.is_root() => {
                let root = root.map(|(_, table)| table);
                name_itself(sql, config, root.as_ref()).await?
            }
            misfit => remedy(misfit, fact),
        };
        return Err(RelayError::prerequisite(misfit.of(fact), remedy));
    }
    Ok(facts)
}

fn remedy(misfit: &Misfit, fact: &Fact) -> String {
    let name = &fact.name;
    match misfit {
        Misfit::Inherits { parent } => format!(
            "make it a partition, or run `alter table {name} no inherit {parent}` and name it in \
             `tables` too"
        ),
        Misfit::Unlogged => format!(
            "run `alter table {name} set logged`; rows that were inserted before are published by \
             `walpost slot recover`, or not at all"
        ),
        Misfit::Temporary => "name a permanent table in `tables`".to_owned(),
        Misfit::NoTable => "detach it".to_owned(),
    }
}

async fn name_itself(
    sql: &Sql,
    config: &RelayConfig,
    table: Option<&TableName>,
) -> Result<String, RelayError> {
    let name = match table {
        Some(table) => renamed(sql, config, table).await?,
        None => None,
    };
    let itself = "name the table itself in `tables`";
    Ok(match name {
        Some(name) => {
            format!("{itself}; the one that the pipeline has read under that name is {name}")
        }
        None => itself.to_owned(),
    })
}

/// What the table is called now that the pipeline has read under this name, if it is
/// called otherwise.
pub(crate) async fn renamed(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<Option<TableName>, RelayError> {
    let checkpoint = format!("{}.checkpoint", quote_identifier(&config.schema));
    let attempt = "looking for the table that was renamed";
    let has_column = "select exists (select from pg_attribute where attrelid = to_regclass($1) \
                      and attname = 'relations' and not attisdropped)";
    if !sql.one(attempt, has_column, &[(&checkpoint, Type::TEXT)]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let query = format!(
        "select n.nspname::text, c.relname::text from {checkpoint} p \
         join pg_class c on c.oid = (p.relations -> 'tables' ->> $2)::int8 \
         join pg_namespace n on n.oid = c.relnamespace \
         join pg_control_system() s on s.system_identifier::text = p.system_id \
         where p.pipeline = $1 and (n.nspname, c.relname) <> ($3, $4)"
    );
    let parameters = [
        (&config.pipeline as _, Type::TEXT),
        (&table.quoted() as _, Type::TEXT),
        (&table.schema as _, Type::TEXT),
        (&table.name as _, Type::TEXT),
    ];
    let row = sql.opt(attempt, &query, &parameters).await?;
    Ok(row.map(|row| TableName { schema: row.get(0), name: row.get(1) }))
}
