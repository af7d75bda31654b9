//! The table `connector`, and the advisory lock of the one process that may
//! write to it. Every statement is of the session that has the lock, so that
//! whoever has lost it writes nothing.

use std::{collections::BTreeMap, time::Duration};

use postgres_protocol::escape::escape_identifier;
use tokio::time::timeout;
use tokio_postgres::{Client, error::SqlState};
use walpost_postgres::{ConnectError, Database, shown::StatementError};

use crate::{config::Config, state::Target};

/// Bound on each statement.
const LIMIT: Duration = Duration::from_secs(10);

/// The lock is the session's. It has to end soon where this machine is gone, and
/// where this process hangs: who leads asks every two seconds. A statement ends
/// before [`LIMIT`]: one that waited on would keep the lock from whoever gave it
/// up, and with `synchronous_commit` it could wait for a standby that is away.
const SESSION: &str = "set idle_session_timeout = 30000; set tcp_keepalives_idle = 10; set \
                       tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; set \
                       statement_timeout = 8000; set synchronous_commit = local";

/// A connector as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) config: Config,
    pub(crate) target: Target,
}

/// The table could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No session.
    #[error("cannot open a session for the connectors")]
    Connect(#[from] ConnectError),
    /// The table is not there.
    #[error(
        "there is no table {table}; create it with `walpost migrate --set connect --postgres URL`"
    )]
    NoTable {
        /// Its name.
        table: String,
    },
    /// The server refused, or the session has ended.
    #[error("cannot {attempt}")]
    Sql {
        /// What was attempted.
        attempt: &'static str,
        /// What the server said.
        #[source]
        source: StatementError,
    },
    /// No answer in time.
    #[error("PostgreSQL did not answer within {} s when asked to {attempt}", LIMIT.as_secs())]
    TimedOut {
        /// What was attempted.
        attempt: &'static str,
    },
    /// A row that this version does not understand.
    #[error("the row of connector {name:?} is not one of this version")]
    Row {
        /// Its name.
        name: String,
    },
}

impl StoreError {
    /// Whether trying again may help without anybody changing something.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_transient(),
            Self::NoTable { .. } | Self::Row { .. } => false,
            Self::TimedOut { .. } => true,
            Self::Sql { source, .. } => {
                source.code().is_none_or(|code| *code != SqlState::INSUFFICIENT_PRIVILEGE)
            }
        }
    }
}

/// A session on the table.
#[derive(Debug)]
pub(crate) struct Store {
    client: Client,
    table: String,
    schema: String,
}

impl Store {
    pub(crate) async fn open(database: &Database, schema: &str) -> Result<Self, StoreError> {
        let client = database.connect().await?;
        let table = format!("{}.connector", escape_identifier(schema).trim_start());
        let store = Self { client, table, schema: schema.to_owned() };
        within("set the session up", store.client.batch_execute(SESSION)).await?;
        Ok(store)
    }

    /// Whether this session has the lock now. It keeps it until it ends.
    pub(crate) async fn lead(&self) -> Result<bool, StoreError> {
        let attempt = "take the lock of who leads";
        let key = format!("walpost.connect/{}", self.schema);
        let sql = "select pg_try_advisory_lock(hashtextextended($1, 0))";
        Ok(within(attempt, self.client.query_one(sql, &[&key])).await?.get(0))
    }

    /// Whether the session still answers, and so has what it had.
    pub(crate) async fn is_alive(&self) -> bool {
        timeout(LIMIT, self.client.simple_query("")).await.is_ok_and(|answer| answer.is_ok())
    }

    /// All connectors.
    pub(crate) async fn load(&self) -> Result<BTreeMap<String, Stored>, StoreError> {
        let sql = format!("select name, config::text, target from {}", self.table);
        let rows = within("read the connectors", self.client.query(&sql, &[])).await;
        let rows = rows.map_err(|error| match error {
            StoreError::Sql { source, .. } if source.code() == Some(&SqlState::UNDEFINED_TABLE) => {
                StoreError::NoTable { table: self.table.clone() }
            }
            error => error,
        })?;
        rows.into_iter()
            .map(|row| {
                let (name, config, target): (String, String, String) =
                    (row.get(0), row.get(1), row.get(2));
                let config = serde_json::from_str(&config).ok();
                match config.zip(Target::parse(&target)) {
                    Some((config, target)) => Ok((name, Stored { config, target })),
                    None => Err(StoreError::Row { name }),
                }
            })
            .collect()
    }

    /// Inserts a connector, or replaces its configuration.
    pub(crate) async fn put(&self, name: &str, stored: &Stored) -> Result<(), StoreError> {
        let sql = format!(
            "insert into {} (name, config, target) values ($1, $2::text::jsonb, $3) on conflict \
             (name) do update set config = excluded.config, target = excluded.target, changed_at \
             = now()",
            self.table
        );
        let config = serde_json::to_string(&stored.config).expect("a map of texts");
        let target = stored.target.as_str();
        let attempt = "keep the connector";
        within(attempt, self.client.execute(&sql, &[&name, &config, &target])).await.map(drop)
    }

    pub(crate) async fn set_target(&self, name: &str, target: Target) -> Result<(), StoreError> {
        let sql =
            format!("update {} set target = $2, changed_at = now() where name = $1", self.table);
        let (attempt, target) = ("keep what the connector is to do", target.as_str());
        within(attempt, self.client.execute(&sql, &[&name, &target])).await.map(drop)
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        let sql = format!("delete from {} where name = $1", self.table);
        within("delete the connector", self.client.execute(&sql, &[&name])).await.map(drop)
    }
}

async fn within<T>(
    attempt: &'static str,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    match timeout(LIMIT, asked).await {
        Ok(answer) => answer.map_err(|source| StoreError::Sql { attempt, source: source.into() }),
        Err(_) => Err(StoreError::TimedOut { attempt }),
    }
}
