use std::{sync::Arc, time::Duration};

use tokio_postgres::{
    Client, Column, Row,
    types::{PgLsn, ToSql, Type},
};
use walpost_event::Lsn;

use crate::error::RelayError;
#[cfg(test)]
use crate::simulation;

/// A SQL session whose every statement has a bound.
///
/// Statements are sent unnamed, with the types of their parameters, so that no
/// state is left in the session.
#[derive(Clone)]
pub(crate) struct Sql {
    server: Server,
    limit: Duration,
}

#[derive(Clone)]
enum Server {
    Postgres(Arc<Client>),
    /// Knows no SQL but where transactions begin and end: whoever has statements
    /// asks for it first.
    #[cfg(test)]
    Simulated(simulation::Server),
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Sql {
    pub(crate) fn new(client: Arc<Client>, limit: Duration) -> Self {
        Self { server: Server::Postgres(client), limit }
    }

    /// The same session with another bound.
    pub(crate) fn within_ms(&self, limit_ms: u64) -> Self {
        Self { server: self.server.clone(), limit: Duration::from_millis(limit_ms) }
    }

    #[cfg(test)]
    pub(crate) fn simulated(server: simulation::Server) -> Self {
        Self { server: Server::Simulated(server), limit: Duration::ZERO }
    }

    #[cfg(test)]
    pub(crate) fn simulation(&self) -> Option<&simulation::Server> {
        match &self.server {
            Server::Postgres(_) => None,
            Server::Simulated(server) => Some(server),
        }
    }

    /// The session.
    pub(crate) fn session(&self) -> Arc<Client> {
        match &self.server {
            Server::Postgres(client) => client.clone(),
            #[cfg(test)]
            Server::Simulated(_) => unreachable!("a simulated server knows no SQL"),
        }
    }

    fn client(&self) -> &Client {
        match &self.server {
            Server::Postgres(client) => client,
            #[cfg(test)]
            Server::Simulated(_) => unreachable!("a simulated server knows no SQL"),
        }
    }

    /// Runs statements that return nothing and have no parameters.
    pub(crate) async fn batch(&self, attempt: &'static str, sql: &str) -> Result<(), RelayError> {
        #[cfg(test)]
        if let Server::Simulated(server) = &self.server {
            return server.batch(sql).await;
        }
        self.within(attempt, self.client().batch_execute(sql)).await
    }

    /// Runs one statement that returns one row.
    pub(crate) async fn one(
        &self,
        attempt: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, RelayError> {
        self.within(attempt, self.client().query_typed_one(sql, parameters)).await
    }

    /// Runs one statement that returns one row or none.
    pub(crate) async fn opt(
        &self,
        attempt: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, RelayError> {
        self.within(attempt, self.client().query_typed_opt(sql, parameters)).await
    }

    /// Runs one statement.
    pub(crate) async fn query(
        &self,
        attempt: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, RelayError> {
        self.within(attempt, self.client().query_typed(sql, parameters)).await
    }

    /// How far the server's WAL is on its disk.
    pub(crate) async fn flushed(&self) -> Result<Lsn, RelayError> {
        #[cfg(test)]
        if let Server::Simulated(server) = &self.server {
            return server.flushed().await;
        }
        let flushed = "select pg_current_wal_flush_lsn()";
        let row = self.one("reading the WAL position", flushed, &[]).await?;
        Ok(Lsn::from(u64::from(row.get::<_, PgLsn>(0))))
    }

    /// Names and types of what a statement returns, which is not run.
    pub(crate) async fn columns(
        &self,
        attempt: &'static str,
        sql: &str,
    ) -> Result<Vec<(String, u32)>, RelayError> {
        let statement = self.within(attempt, self.client().prepare(sql)).await?;
        let column = |column: &Column| (column.name().to_owned(), column.type_().oid());
        Ok(statement.columns().iter().map(column).collect())
    }

    async fn within<T>(
        &self,
        attempt: &'static str,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, RelayError> {
        tokio::time::timeout(self.limit, statement)
            .await
            .map_err(|_| RelayError::SqlTimeout { attempt, limit: self.limit })?
            .map_err(RelayError::sql(attempt))
    }
}
