use std::{sync::Arc, time::Duration};

use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use crate::error::RelayError;

/// A SQL session whose every statement has a bound.
///
/// Statements are sent unnamed, with the types of their parameters, so that no
/// state is left in the session.
#[derive(Clone)]
pub(crate) struct Sql {
    client: Arc<Client>,
    limit: Duration,
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Sql {
    pub(crate) fn new(client: Arc<Client>, limit: Duration) -> Self {
        Self { client, limit }
    }

    /// Runs one statement.
    pub(crate) async fn query(
        &self,
        attempt: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, RelayError> {
        tokio::time::timeout(self.limit, self.client.query_typed(sql, parameters))
            .await
            .map_err(|_| RelayError::SqlTimeout { attempt, limit: self.limit })?
            .map_err(RelayError::sql(attempt))
    }
}
