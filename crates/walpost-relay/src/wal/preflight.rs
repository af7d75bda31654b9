use tokio_postgres::{
    error::SqlState,
    types::{PgLsn, Type},
};
use walpost_event::Lsn;
use walpost_router::RouterConfig;

use super::{identity::ServerIdentity, quote_identifier, quote_literal};
use crate::{
    config::{RelayConfig, TableName},
    error::{RelayError, SourceError},
    sql::Sql,
};

/// The oldest server that has everything the relay asks for:
/// `pg_logical_emit_message` through pgoutput came with 14.
const SERVER_VERSION_MIN: u32 = 140_000;

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

/// Checks everything that streaming needs, and creates the publication where
/// it may. Touches no slot.
pub(crate) async fn run(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<Server, RelayError> {
    let server = server(sql).await?;
    rights(sql).await?;
    own_tables(sql, config).await?;
    for table in &config.tables {
        columns(sql, table, router).await?;
    }
    publication(sql, config).await?;
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
        return Err(RelayError::prerequisite(
            "the server is a standby",
            "connect to the primary, or list all hosts and set target_session_attrs=read-write",
        ));
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
    for table in ["checkpoint", "parked"] {
        let name = TableName { schema: config.schema.clone(), name: table.to_owned() };
        let quoted = name.quoted();
        let row = sql
            .one(
                "looking for walpost's tables",
                "select to_regclass($1) is not null, case when to_regclass($1) is not null then \
                 has_table_privilege(to_regclass($1), 'select') and \
                 has_table_privilege(to_regclass($1), 'insert') and \
                 has_table_privilege(to_regclass($1), 'update') end",
                &[(&quoted, Type::TEXT)],
            )
            .await?;
        if !row.get::<_, bool>(0) {
            return Err(RelayError::prerequisite(
                format!("table {name} does not exist"),
                "run `walpost migrate` against this database",
            ));
        }
        if row.get::<_, Option<bool>>(1) != Some(true) {
            return Err(RelayError::prerequisite(
                format!("the role may not read and write table {name}"),
                format!("run `grant select, insert, update on {quoted} to` this role"),
            ));
        }
    }
    Ok(format!("in schema {:?}", config.schema))
}

pub(crate) async fn columns(
    sql: &Sql,
    table: &TableName,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    let rows = sql
        .query(
            "reading the outbox table's columns",
            "select attname::text from pg_attribute where attrelid = to_regclass($1) \
             and attnum > 0 and not attisdropped",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await?;
    if rows.is_empty() {
        return Err(RelayError::prerequisite(
            format!("outbox table {table} does not exist"),
            "create it with `walpost migrate`, or name your own in `tables`",
        ));
    }
    let present: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    for needed in
        [&router.event_id, &router.event_key, &router.event_payload, &router.route_by_field]
    {
        if !present.contains(&needed.as_str()) {
            return Err(RelayError::prerequisite(
                format!("outbox table {table} has no column {needed:?}"),
                format!("name the column that it has instead; it has {}", present.join(", ")),
            ));
        }
    }
    Ok(format!("{table}, {} columns", present.len()))
}

/// Finds the publication, or creates it where that is allowed.
async fn publication(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    if !exists(sql, config).await? {
        return create_publication(sql, config).await;
    }
    publication_found(sql, config).await.map(|_| ())
}

async fn exists(sql: &Sql, config: &RelayConfig) -> Result<bool, RelayError> {
    let row = sql
        .one(
            "looking for the publication",
            "select exists (select from pg_publication where pubname = $1)",
            &[(&config.publication, Type::TEXT)],
        )
        .await?;
    Ok(row.get(0))
}

/// Checks the publication and creates nothing.
pub(crate) async fn publication_found(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<String, RelayError> {
    let name = &config.publication;
    let found = sql
        .opt(
            "reading the publication",
            "select puballtables, pubinsert, pubviaroot from pg_publication where pubname = $1",
            &[(name, Type::TEXT)],
        )
        .await?;
    let Some(found) = found else {
        if config.create_publication {
            return Ok(format!("{name:?} will be created"));
        }
        return Err(RelayError::prerequisite(
            format!("publication {name:?} does not exist"),
            format!("run `{}`, or set create_publication = true", creation(config)),
        ));
    };
    if !found.get::<_, bool>(1) {
        return Err(RelayError::prerequisite(
            format!("publication {name:?} does not publish inserts"),
            format!("run `alter publication {} set (publish = 'insert')`", quote_identifier(name)),
        ));
    }
    for table in &config.tables {
        named_as_published(sql, name, found.get(2), table).await?;
    }
    if found.get(0) {
        return Ok(format!("{name:?}, for all tables"));
    }
    for table in &config.tables {
        published(sql, name, table).await?;
    }
    Ok(format!("{name:?}"))
}

/// Rows of a partitioned table come under the name of the root or of the
/// partition, as the publication has it: only the one that is listed in
/// `tables` would be an event.
async fn named_as_published(
    sql: &Sql,
    name: &str,
    via_root: bool,
    table: &TableName,
) -> Result<(), RelayError> {
    let row = sql
        .opt(
            "reading the outbox table's kind",
            "select relkind = 'p', relispartition from pg_class where oid = to_regclass($1)",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await?;
    let Some(row) = row else { return Ok(()) };
    let (partitioned, partition): (bool, bool) = (row.get(0), row.get(1));
    if partitioned && !via_root {
        return Err(RelayError::prerequisite(
            format!(
                "table {table} is partitioned, and publication {name:?} publishes its rows under \
                 the names of the partitions"
            ),
            format!(
                "run `alter publication {} set (publish_via_partition_root = true)`",
                quote_identifier(name)
            ),
        ));
    }
    if partition && via_root {
        return Err(RelayError::prerequisite(
            format!(
                "table {table} is a partition, and publication {name:?} publishes its rows under \
                 the name of the root"
            ),
            "name the root in `tables`",
        ));
    }
    Ok(())
}

async fn published(sql: &Sql, name: &str, table: &TableName) -> Result<(), RelayError> {
    // A partition is published through its root, and a root through its
    // partitions, so look at the whole tree.
    let row = sql
        .one(
            "reading the publication's tables",
            "select exists (select from pg_publication_tables p where p.pubname = $1 and \
             format('%I.%I', p.schemaname, p.tablename)::regclass in \
             (select to_regclass($2) union select relid from pg_partition_tree(to_regclass($2)) \
             union select relid from pg_partition_ancestors(to_regclass($2))))",
            &[(&name, Type::TEXT), (&table.quoted(), Type::TEXT)],
        )
        .await?;
    if row.get(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("publication {name:?} does not contain outbox table {table}"),
        format!("run `alter publication {} add table {}`", quote_identifier(name), table.quoted()),
    ))
}

async fn create_publication(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let statement = creation(config);
    if !config.create_publication {
        return Err(RelayError::prerequisite(
            format!("publication {:?} does not exist", config.publication),
            format!("run `{statement}`, or set create_publication = true"),
        ));
    }
    match sql.batch("creating the publication", &statement).await {
        Ok(()) => {
            tracing::info!(publication = config.publication, "publication created");
            Ok(())
        }
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            Err(RelayError::prerequisite(
                format!("the role may not create publication {:?}", config.publication),
                format!("let the owner of the tables run `{statement}`"),
            ))
        }
        Err(error) => Err(error),
    }
}

fn creation(config: &RelayConfig) -> String {
    let name = quote_identifier(&config.publication);
    let tables: Vec<String> = config.tables.iter().map(TableName::quoted).collect();
    let of_tables =
        if tables.is_empty() { String::new() } else { format!(" for table {}", tables.join(", ")) };
    format!(
        "create publication {name}{of_tables} with (publish = 'insert', \
         publish_via_partition_root = true)"
    )
}

/// Whether any of the tables holds a row.
pub(crate) async fn first_table_with_rows(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<Option<TableName>, RelayError> {
    for table in &config.tables {
        let exists = format!("select exists (select from {})", table.quoted());
        let row = sql.one("looking for rows in the outbox table", &exists, &[]).await?;
        if row.get(0) {
            return Ok(Some(table.clone()));
        }
    }
    Ok(None)
}

/// What an exported snapshot sees.
pub(crate) struct Before {
    /// The snapshot as `pg_current_snapshot()` text.
    pub(crate) boundary: String,
    /// Whether an outbox table has a row in it.
    pub(crate) has_rows: bool,
}

/// Looks at the outbox tables through the snapshot of an exporting session.
pub(crate) async fn snapshot(
    sql: &Sql,
    config: &RelayConfig,
    snapshot: &str,
) -> Result<Before, RelayError> {
    let adopt = format!(
        "begin isolation level repeatable read read only; set transaction snapshot {}",
        quote_literal(snapshot)
    );
    let attempt = "reading the slot's snapshot";
    sql.batch(attempt, &adopt).await?;
    let row = sql.one(attempt, "select pg_current_snapshot()::text", &[]).await?;
    let has_rows = first_table_with_rows(sql, config).await?.is_some();
    sql.batch(attempt, "rollback").await?;
    Ok(Before { boundary: row.get(0), has_rows })
}
