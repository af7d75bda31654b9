use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use crate::{BoxError, report::report};

/// Longest wait for a new connection.
const CONNECT_TIMEOUT_MS: u64 = 10_000;

type Connect = dyn Fn() -> BoxFuture<'static, Result<Client, BoxError>> + Send + Sync;

/// How the consumer gets connections to the database that holds the effects.
///
/// It holds one per assigned partition, and one more for a moment when a
/// predecessor blocks a claim. No state is kept in a session, so PgBouncer in
/// transaction mode is fine.
#[derive(Clone)]
pub struct Database {
    connect: Arc<Connect>,
}

impl Database {
    /// Connects by `config`, without TLS.
    ///
    /// ```
    /// use walpost_consumer::Database;
    ///
    /// let database = Database::config("host=localhost user=app dbname=shop".parse()?);
    /// # Ok::<(), walpost_consumer::tokio_postgres::Error>(())
    /// ```
    pub fn config(config: Config) -> Self {
        Self::connect_with(move || {
            let config = config.clone();
            async move {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        let reason = report(&error);
                        tracing::debug!(reason, "a database connection ended");
                    }
                });
                Ok::<_, tokio_postgres::Error>(client)
            }
        })
    }

    /// Connects by a function, for TLS or anything else. The function must
    /// also drive the connection, usually by `tokio::spawn`.
    ///
    /// ```
    /// use walpost_consumer::{Database, tokio_postgres::{Config, NoTls}};
    ///
    /// let config: Config = "host=localhost user=app".parse()?;
    /// let database = Database::connect_with(move || {
    ///     let config = config.clone();
    ///     async move {
    ///         let (client, connection) = config.connect(NoTls).await?;
    ///         tokio::spawn(connection);
    ///         Ok::<_, walpost_consumer::tokio_postgres::Error>(client)
    ///     }
    /// });
    /// # Ok::<(), walpost_consumer::tokio_postgres::Error>(())
    /// ```
    pub fn connect_with<F, Fut, E>(connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Client, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self {
            connect: Arc::new(move || {
                let connecting = connect();
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Client, BoxError> {
        match timeout(Duration::from_millis(CONNECT_TIMEOUT_MS), (self.connect)()).await {
            Ok(connected) => connected,
            Err(_) => Err(format!("no connection within {CONNECT_TIMEOUT_MS} ms").into()),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}
