use tokio_postgres::types::{PgLsn, Type};
use walpost_event::Lsn;
use walpost_router::RouterConfig;

use super::{
    identity::ServerIdentity,
    publication, quote_identifier, quote_literal,
    relations::{self, Facts},
    rights::{self, Right},
    row_filter, stream_columns,
};
use crate::{
    columns,
    config::{NamedColumn, RelayConfig, TableName},
    error::{RelayError, SourceError},
    marking, snapshot_modes,
    sql::Sql,
};

/// The oldest server that has everything the relay asks for:
/// `pg_logical_emit_message` through pgoutput came with 14.
const SERVER_VERSION_MIN: u32 = 140_000;
/// The first that knows where a change comes from.
const ORIGIN_VERSION_MIN: u32 = 160_000;

/// What the server is.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// As `server_version_num`.
    pub(crate) version: u32,
    /// `system_identifier` of the cluster.
    pub(crate) system_id: String,
    /// The database of the session.
    pub(crate) dbname: String,
    /// Where the next WAL will be written.
    pub(crate) wal: Lsn,
}

impl Server {
    /// The replication connection leads to the same server.
    pub(crate) fn expect(&self, found: &ServerIdentity) -> Result<(), SourceError> {
        let (system_id, dbname) = (self.system_id.clone(), self.dbname.clone());
        ServerIdentity { system_id, timeline: found.timeline, dbname }.expect(found)
    }

    pub(crate) fn version_text(&self) -> String {
        format!("PostgreSQL {}.{}", self.version / 10_000, self.version % 10_000)
    }
}

/// Every outbox table is one whose rows the stream brings, each once.
pub(crate) async fn streamed(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<Facts, RelayError> {
    let facts = relations::fit(sql, config).await?;
    publication::tells_moves(sql, config, router).await?;
    Ok(facts)
}

/// Checks everything that streaming needs, and if `creates` creates the publication
/// where it may. Touches no slot.
pub(crate) async fn run(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
    creates: bool,
) -> Result<Server, RelayError> {
    let server = server(sql).await?;
    rights(sql).await?;
    own_tables(sql, config).await?;
    for table in &config.tables {
        columns(sql, config, table, router).await?;
    }
    named_columns(sql, config, router).await?;
    streamed(sql, config, router).await?;
    origin_supported(&server, config)?;
    snapshot_modes::selects_fit(sql, config, router).await?;
    row_filter::supported(&server, config)?;
    match creates {
        true => publication::ensure(sql, config, router).await?,
        false => drop(publication::found(sql, config, router).await?),
    }
    stream_columns::suffice(sql, server.version, config, router).await?;
    if config.mark_published {
        marking::possible(sql, config).await?;
    }
    Ok(server)
}

pub(crate) async fn server(sql: &Sql) -> Result<Server, RelayError> {
    let row = sql
        .one(
            "reading the server's settings",
            "select current_setting('server_version_num')::int4, current_setting('wal_level'), \
             current_setting('server_version'), pg_is_in_recovery()",
            &[],
        )
        .await?;
    let version = u32::try_from(row.get::<_, i32>(0)).unwrap_or(0);
    if version < SERVER_VERSION_MIN {
        return Err(RelayError::prerequisite(
            format!("the server is PostgreSQL {}", row.get::<_, &str>(2)),
            "walpost needs PostgreSQL 14 or newer",
        ));
    }
    if row.get::<_, bool>(3) {
        return Err(in_recovery());
    }
    let wal_level: &str = row.get(1);
    if wal_level != "logical" {
        return Err(RelayError::prerequisite(
            format!("wal_level is {wal_level}"),
            "run `alter system set wal_level = 'logical'` and restart PostgreSQL",
        ));
    }
    let row = sql
        .one(
            "reading the system identifier",
            "select system_identifier::text, current_database()::text, pg_current_wal_lsn() \
             from pg_control_system()",
            &[],
        )
        .await?;
    let wal = Lsn::from(u64::from(row.get::<_, PgLsn>(2)));
    Ok(Server { version, system_id: row.get(0), dbname: row.get(1), wal })
}

const IN_RECOVERY: &str = "the server is a standby";

pub(crate) fn in_recovery() -> RelayError {
    RelayError::prerequisite(
        IN_RECOVERY,
        "connect to the primary, or list all hosts and set target_session_attrs=read-write",
    )
}

/// Whether that is all that is wrong, which a promotion mends: behind a name or an
/// address that follows the primary it may be under way.
pub(crate) fn is_in_recovery(error: &RelayError) -> bool {
    matches!(error, RelayError::Prerequisite { problem, .. } if problem == IN_RECOVERY)
}

/// PostgreSQL refuses the option when the stream begins, behind everything else.
pub(crate) fn origin_supported(server: &Server, config: &RelayConfig) -> Result<(), RelayError> {
    if config.stream_origin.is_none() || server.version >= ORIGIN_VERSION_MIN {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("origin is set, which needs PostgreSQL 16, and this is {}", server.version_text()),
        "take origin out of slot.stream.params",
    ))
}

pub(crate) async fn rights(sql: &Sql) -> Result<String, RelayError> {
    let row = sql
        .one(
            "reading the role's rights",
            "select current_user::text, rolsuper or rolreplication or exists \
             (select from pg_roles g where g.rolname in ('rds_replication', 'azure_pg_admin', \
             'cloudsqlsuperuser') and pg_has_role(current_user, g.oid, 'member')) \
             from pg_roles where rolname = current_user",
            &[],
        )
        .await?;
    let role = quote_identifier(row.get(0));
    if row.get::<_, bool>(1) {
        return Ok(format!("role {role} may use replication"));
    }
    Err(RelayError::prerequisite(
        format!("role {role} may not use replication"),
        format!("run `alter role {role} replication` as a superuser"),
    ))
}

pub(crate) async fn own_tables(sql: &Sql, config: &RelayConfig) -> Result<String, RelayError> {
    let mut grants = Vec::new();
    for (table, needed) in [
        ("checkpoint", &[Right::Select, Right::Insert, Right::Update][..]),
        ("parked", &[Right::Select, Right::Insert, Right::Update]),
        ("move", &[Right::Select, Right::Update]),
        ("id_space", &[Right::Select, Right::Insert, Right::Update]),
    ] {
        let name = TableName { schema: config.schema.clone(), name: table.to_owned() };
        let Some(reach) = rights::reach(sql, &name).await? else {
            return Err(RelayError::prerequisite(
                format!("table {name} does not exist"),
                "run `walpost migrate` against this database",
            ));
        };
        grants.extend(reach.grant(needed));
    }
    if grants.is_empty() {
        up_to_date(sql, config).await?;
        return Ok(format!("in schema {:?}", config.schema));
    }
    Err(RelayError::prerequisite(
        format!("the role may not read and write walpost's tables in schema {:?}", config.schema),
        format!("let their owner run `{}`", grants.join("; ")),
    ))
}

/// The newest columns are there.
pub(crate) async fn up_to_date(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    has_column(sql, config, "parked", "retry_from_table").await?;
    has_column(sql, config, "checkpoint", "relations").await?;
    match config.dead_letter_topic {
        Some(_) => has_column(sql, config, "parked", "dead_letter_at").await,
        None => Ok(()),
    }
}

/// A table of Walpost has a column.
pub(crate) async fn has_column(
    sql: &Sql,
    config: &RelayConfig,
    table: &str,
    column: &str,
) -> Result<(), RelayError> {
    let table = TableName { schema: config.schema.clone(), name: table.to_owned() };
    let query = "select exists (select from pg_attribute where attrelid = to_regclass($1) \
                 and attname = $2 and not attisdropped)";
    let names = [(&table.quoted() as _, Type::TEXT), (&column as _, Type::TEXT)];
    let row = sql.one("reading the columns of walpost's tables", query, &names).await?;
    if row.get(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("table {table} is of an earlier version of walpost"),
        "run `walpost migrate` against this database",
    ))
}

pub(crate) async fn columns(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    if rights::reach(sql, table).await?.is_none() {
        return Err(absent(sql, config, table).await?);
    }
    let query = format!(
        "select attname::text, {}, format_type(atttypid, null) from pg_attribute \
         where attrelid = to_regclass($1) and attnum > 0 and not attisdropped",
        columns::sql_type(config)
    );
    let name = [(&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the outbox table's columns", &query, &name).await?;
    if rows.is_empty() {
        return Err(absent(sql, config, table).await?);
    }
    let present: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let is_read = |name: &&str| config.columns.passes(&format!("{table}.{name}"));
    let read: Vec<&str> = present.iter().copied().filter(is_read).collect();
    let missing = columns::missing(config, router, &read);
    if let Some((column, key)) = missing.iter().find(|(name, _)| present.contains(&&**name)) {
        return Err(RelayError::prerequisite(
            format!("column {column:?} of outbox table {table}, which {key} names, is not read"),
            "let the filters of columns have it",
        ));
    }
    if !missing.is_empty() {
        let told = missing.iter().map(|(column, key)| format!("{column:?}, which {key} names"));
        let mut keys: Vec<&str> = missing.iter().map(|(_, key)| *key).collect();
        keys.dedup();
        return Err(RelayError::prerequisite(
            format!(
                "outbox table {table} has no column {}",
                told.collect::<Vec<_>>().join(", and no column ")
            ),
            format!(
                "name in {} the column that it has instead; it has {}",
                keys.join(" and "),
                present.join(", ")
            ),
        ));
    }
    let types: Vec<(&str, u32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if let Some((column, key, expected)) = columns::mistyped(config, router, &types).first() {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == column);
        let found = row.map(|row| row.get::<_, &str>(2)).unwrap_or_default();
        return Err(RelayError::prerequisite(
            format!(
                "column {column:?} of outbox table {table}, which {key} names, is {found} and has \
                 to be {expected}"
            ),
            format!("name a column of that type in {key}, or change the type of this one"),
        ));
    }
    Ok(format!("{table}, {} columns", present.len()))
}

/// A table has each column that the user has named. The first that none has and
/// that is not required, for a warning.
pub(crate) async fn named_columns(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<Option<(String, String)>, RelayError> {
    if config.named_columns.is_empty() || config.tables.is_empty() {
        return Ok(None);
    }
    let tables: Vec<String> = config.tables.iter().map(TableName::quoted).collect();
    let rows = sql
        .query(
            "reading the outbox tables' columns",
            "select distinct attname::text from pg_attribute where attrelid = any ( \
             select to_regclass(name) from unnest($1::text[]) t (name)) \
             and attnum > 0 and not attisdropped order by attname::text",
            &[(&tables, Type::TEXT_ARRAY)],
        )
        .await?;
    let present: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let unknown = columns::unknown(config, router, &present);
    let names: Vec<String> = config.tables.iter().map(ToString::to_string).collect();
    let told = |column: &NamedColumn| {
        let NamedColumn { name, key, .. } = column;
        (
            format!("no column {name:?}, which {key} names, in {}", names.join(", ")),
            format!("correct the name in {key}, or remove it; there are {}", present.join(", ")),
        )
    };
    if let Some(column) = unknown.iter().find(|column| column.is_required) {
        let (problem, remedy) = told(column);
        return Err(RelayError::prerequisite(problem, remedy));
    }
    Ok(unknown.first().map(|column| told(column)))
}

async fn absent(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<RelayError, RelayError> {
    let problem = format!("outbox table {table} does not exist");
    Ok(match relations::renamed(sql, config, table).await? {
        None => RelayError::prerequisite(
            problem,
            "create it with `walpost migrate`, or name your own in `tables`",
        ),
        Some(name) => RelayError::prerequisite(
            format!("{problem}; the table that the pipeline has read under that name is {name}"),
            "name that one in `tables`, or rename it back: nothing of it is lost meanwhile",
        ),
    })
}

/// Whether any of the tables holds a row of the pipeline.
pub(crate) async fn first_table_with_rows(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<Option<TableName>, RelayError> {
    for table in &config.tables {
        if has_rows(sql, config, table).await? {
            return Ok(Some(table.clone()));
        }
    }
    Ok(None)
}

/// Whether a table holds rows of the pipeline.
pub(crate) async fn has_rows(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<bool, RelayError> {
    // Others are no business of ours.
    let rows = row_filter::condition_to_be(sql, config, table).await?;
    let exists = format!("select exists (select from {} where {rows})", table.quoted());
    Ok(sql.one("looking for rows in the outbox table", &exists, &[]).await?.get(0))
}

/// A slot begins with a snapshot whose xmax was not moved by transactions that
/// have rolled back, while its xmin was: PostgreSQL goes by xmin then, and takes
/// no such text for a snapshot.
const BOUNDARY: &str = "select case when pg_snapshot_xmin(s) > pg_snapshot_xmax(s) \
    then concat(pg_snapshot_xmin(s), ':', pg_snapshot_xmin(s), ':') else s::text end \
    from (select pg_current_snapshot()) now (s)";

/// Begins a transaction on an exported snapshot, and returns that as
/// `pg_current_snapshot()` text.
pub(crate) async fn adopt(sql: &Sql, snapshot: &str) -> Result<String, RelayError> {
    let adopt = format!(
        "begin isolation level repeatable read read only; set transaction snapshot {}",
        quote_literal(snapshot)
    );
    let attempt = "reading the slot's snapshot";
    sql.batch(attempt, &adopt).await?;
    Ok(sql.one(attempt, BOUNDARY, &[]).await?.get(0))
}

/// The text of an exported snapshot.
pub(crate) async fn boundary(sql: &Sql, snapshot: &str) -> Result<String, RelayError> {
    let boundary = adopt(sql, snapshot).await?;
    sql.batch("reading the slot's snapshot", "rollback").await?;
    Ok(boundary)
}
