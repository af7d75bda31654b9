use tokio_postgres::{Client, types::Type};
use walpost_router::RouterConfig;

use super::{quote_identifier, quote_literal};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
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
}

impl Server {
    pub(crate) fn version_text(&self) -> String {
        format!("PostgreSQL {}.{}", self.version / 10_000, self.version % 10_000)
    }
}

/// Checks everything that streaming needs, and creates the publication where
/// it may. Touches no slot.
pub(crate) async fn run(
    client: &Client,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<Server, RelayError> {
    let server = server(client).await?;
    rights(client).await?;
    own_tables(client, config).await?;
    for table in &config.tables {
        columns(client, table, router).await?;
    }
    publication(client, config).await?;
    Ok(server)
}

pub(crate) async fn server(client: &Client) -> Result<Server, RelayError> {
    let row = client
        .query_typed_one(
            "select current_setting('server_version_num')::int4, current_setting('wal_level'), \
             current_setting('server_version'), pg_is_in_recovery()",
            &[],
        )
        .await
        .map_err(RelayError::sql("reading the server's settings"))?;
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
    let system_id = client
        .query_typed_one("select system_identifier::text from pg_control_system()", &[])
        .await
        .map_err(RelayError::sql("reading the system identifier"))?
        .get(0);
    Ok(Server { version, system_id })
}

pub(crate) async fn rights(client: &Client) -> Result<String, RelayError> {
    let row = client
        .query_typed_one(
            "select current_user::text, rolsuper or rolreplication or exists \
             (select from pg_roles g where g.rolname in ('rds_replication', 'azure_pg_admin', \
             'cloudsqlsuperuser') and pg_has_role(current_user, g.oid, 'member')) \
             from pg_roles where rolname = current_user",
            &[],
        )
        .await
        .map_err(RelayError::sql("reading the role's rights"))?;
    let role = quote_identifier(row.get(0));
    if row.get::<_, bool>(1) {
        return Ok(format!("role {role} may use replication"));
    }
    Err(RelayError::prerequisite(
        format!("role {role} may not use replication"),
        format!("run `alter role {role} replication` as a superuser"),
    ))
}

pub(crate) async fn own_tables(
    client: &Client,
    config: &RelayConfig,
) -> Result<String, RelayError> {
    for table in ["checkpoint", "parked"] {
        let name = TableName { schema: config.schema.clone(), name: table.to_owned() };
        let quoted = name.quoted();
        let row = client
            .query_typed_one(
                "select to_regclass($1) is not null, case when to_regclass($1) is not null then \
                 has_table_privilege(to_regclass($1), 'select') and \
                 has_table_privilege(to_regclass($1), 'insert') and \
                 has_table_privilege(to_regclass($1), 'update') end",
                &[(&quoted, Type::TEXT)],
            )
            .await
            .map_err(RelayError::sql("looking for walpost's tables"))?;
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
    client: &Client,
    table: &TableName,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    let rows = client
        .query_typed(
            "select attname::text from pg_attribute where attrelid = to_regclass($1) \
             and attnum > 0 and not attisdropped",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("reading the outbox table's columns"))?;
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
async fn publication(client: &Client, config: &RelayConfig) -> Result<(), RelayError> {
    if !exists(client, config).await? {
        return create_publication(client, config).await;
    }
    publication_found(client, config).await.map(|_| ())
}

async fn exists(client: &Client, config: &RelayConfig) -> Result<bool, RelayError> {
    let row = client
        .query_typed_one(
            "select exists (select from pg_publication where pubname = $1)",
            &[(&config.publication, Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("looking for the publication"))?;
    Ok(row.get(0))
}

/// Checks the publication and creates nothing.
pub(crate) async fn publication_found(
    client: &Client,
    config: &RelayConfig,
) -> Result<String, RelayError> {
    let name = &config.publication;
    let found = client
        .query_typed_opt(
            "select puballtables, pubinsert, pubviaroot from pg_publication where pubname = $1",
            &[(name, Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("reading the publication"))?;
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
        named_as_published(client, name, found.get(2), table).await?;
    }
    if found.get(0) {
        return Ok(format!("{name:?}, for all tables"));
    }
    for table in &config.tables {
        published(client, name, table).await?;
    }
    Ok(format!("{name:?}"))
}

/// Rows of a partitioned table come under the name of the root or of the
/// partition, as the publication has it: only the one that is listed in
/// `tables` would be an event.
async fn named_as_published(
    client: &Client,
    name: &str,
    via_root: bool,
    table: &TableName,
) -> Result<(), RelayError> {
    let row = client
        .query_typed_opt(
            "select relkind = 'p', relispartition from pg_class where oid = to_regclass($1)",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("reading the outbox table's kind"))?;
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

async fn published(client: &Client, name: &str, table: &TableName) -> Result<(), RelayError> {
    // A partition is published through its root, and a root through its
    // partitions, so look at the whole tree.
    let row = client
        .query_typed_one(
            "select exists (select from pg_publication_tables p where p.pubname = $1 and \
             format('%I.%I', p.schemaname, p.tablename)::regclass in \
             (select to_regclass($2) union select relid from pg_partition_tree(to_regclass($2)) \
             union select relid from pg_partition_ancestors(to_regclass($2))))",
            &[(&name, Type::TEXT), (&table.quoted(), Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("reading the publication's tables"))?;
    if row.get(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("publication {name:?} does not contain outbox table {table}"),
        format!("run `alter publication {} add table {}`", quote_identifier(name), table.quoted()),
    ))
}

async fn create_publication(client: &Client, config: &RelayConfig) -> Result<(), RelayError> {
    let statement = creation(config);
    if !config.create_publication {
        return Err(RelayError::prerequisite(
            format!("publication {:?} does not exist", config.publication),
            format!("run `{statement}`, or set create_publication = true"),
        ));
    }
    match client.batch_execute(&statement).await {
        Ok(()) => {
            tracing::info!(publication = config.publication, "publication created");
            Ok(())
        }
        Err(error) if error.code().is_some_and(|code| code.code() == "42501") => {
            Err(RelayError::prerequisite(
                format!("the role may not create publication {:?}", config.publication),
                format!("let the owner of the tables run `{statement}`"),
            ))
        }
        Err(error) => Err(RelayError::sql("creating the publication")(error)),
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
    client: &Client,
    config: &RelayConfig,
) -> Result<Option<TableName>, RelayError> {
    for table in &config.tables {
        let sql = format!("select exists (select from {})", table.quoted());
        let row = client
            .query_typed_one(&sql, &[])
            .await
            .map_err(RelayError::sql("looking for rows in the outbox table"))?;
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
    client: &Client,
    config: &RelayConfig,
    snapshot: &str,
) -> Result<Before, RelayError> {
    let adopt = format!(
        "begin isolation level repeatable read read only; set transaction snapshot {}",
        quote_literal(snapshot)
    );
    let attempt = "reading the slot's snapshot";
    client.batch_execute(&adopt).await.map_err(RelayError::sql(attempt))?;
    let row = client
        .query_typed_one("select pg_current_snapshot()::text", &[])
        .await
        .map_err(RelayError::sql(attempt))?;
    let has_rows = first_table_with_rows(client, config).await?.is_some();
    client.batch_execute("rollback").await.map_err(RelayError::sql(attempt))?;
    Ok(Before { boundary: row.get(0), has_rows })
}
