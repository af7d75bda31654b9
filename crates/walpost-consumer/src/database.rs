use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls, config::Host};

use crate::{BoxError, report::report};

/// Longest wait for a new connection.
const CONNECT_TIMEOUT_MS: u64 = 10_000;

type Connect = dyn Fn() -> BoxFuture<'static, Result<Client, BoxError>> + Send + Sync;

/// How the consumer gets connections to the database that holds the effects.
///
/// All partitions share at most [`Builder::max_connections`] of them. No state is
/// kept in a session, so PgBouncer in transaction mode is fine.
///
/// [`Builder::max_connections`]: crate::Builder::max_connections
#[derive(Clone)]
pub struct Database {
    connect: Arc<Connect>,
    /// Where it is, as far as that is known.
    place: Arc<str>,
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
        let place = place(&config).into();
        let database = Self::connect_with(move || {
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
        });
        Self { place, ..database }
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
            place: "PostgreSQL".into(),
        }
    }

    /// Names the server in a log line or an error.
    pub(crate) fn place(&self) -> &str {
        &self.place
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
        write!(f, "Database({})", self.place)
    }
}

fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        // What stands before an @ is the end of a password that was not encoded.
        Host::Tcp(name) => name.rsplit('@').next().unwrap_or_default().to_owned(),
        Host::Unix(folder) => folder.display().to_string(),
    });
    let mut hosts: Vec<String> = hosts.collect();
    if hosts.is_empty() {
        hosts.extend(config.get_hostaddrs().iter().map(ToString::to_string));
    }
    let ports = config.get_ports();
    let servers = hosts.iter().enumerate().map(|(index, host)| {
        let port = ports.get(index).or(ports.last()).copied().unwrap_or(5432);
        format!("{host}:{port}")
    });
    let servers: Vec<String> = servers.collect();
    let user = config.get_user().unwrap_or("not given");
    let name = config.get_dbname().or(config.get_user()).unwrap_or("not given");
    format!("PostgreSQL at {} (database {name}, user {user})", servers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_has_the_address_and_no_password() {
        let place = |text: &str| format!("{:?}", Database::config(text.parse().unwrap()));
        assert_eq!(
            place("postgres://app:s3cr3t@db.internal:5433/shop"),
            "Database(PostgreSQL at db.internal:5433 (database shop, user app))"
        );
        assert_eq!(
            place("host=a,/run/b user=app"),
            "Database(PostgreSQL at a:5432, /run/b:5432 (database app, user app))"
        );
    }
}
