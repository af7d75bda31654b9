use std::{fmt, future::poll_fn, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error as PgError, NoTls, Socket,
    config::Host,
    tls::{MakeTlsConnect, TlsConnect, TlsStream},
};

use crate::{
    Error,
    report::{Verdict, report},
};

/// Longest wait for a new connection.
const CONNECT_TIMEOUT_MS: u64 = 10_000;

type Connecting = BoxFuture<'static, Result<Session, PgError>>;
type Connect = dyn Fn(Option<Wake>) -> Connecting + Send + Sync;

/// Where a processor gets its connections: one to claim, one that listens, and
/// one for each event that it works on at a time.
///
/// Only the one that listens needs a session of its own; behind PgBouncer in
/// transaction mode use [`Builder::without_listen`](crate::Builder::without_listen).
#[derive(Clone)]
pub struct Database {
    connect: Arc<Connect>,
    place: Arc<str>,
}

/// A connection and the task that drives it.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Which types it has looked up: see `walpost_prepared::Types`.
    pub(crate) mark: u64,
    driver: JoinHandle<()>,
}

/// What notifications of a schema's inbox wake.
#[derive(Clone, Debug)]
pub(crate) struct Wake {
    pub(crate) schema: String,
    pub(crate) notify: Arc<Notify>,
}

/// Why there is no connection, and whether there may be one later.
#[derive(Debug)]
pub(crate) struct NoConnection {
    pub(crate) reason: String,
    pub(crate) is_transient: bool,
}

impl Session {
    /// Ends it though it may be busy.
    pub(crate) fn discard(self) {
        self.driver.abort();
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(self) {
        let Self { client, driver, .. } = self;
        // An error is that of a task that was aborted, by nobody else.
        let _ = driver.await;
        drop(client);
    }
}

impl Database {
    /// Connects by `config`, without TLS.
    ///
    /// ```
    /// use walpost_inbox::Database;
    ///
    /// let database = Database::config("host=localhost user=app dbname=shop".parse()?);
    /// # Ok::<(), walpost_inbox::tokio_postgres::Error>(())
    /// ```
    pub fn config(config: Config) -> Self {
        Self::with_tls(config, NoTls)
    }

    /// Connects by `config`, with TLS.
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let place = place(&config).into();
        let connect = move |wake: Option<Wake>| -> Connecting {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driver = tokio::spawn(drive(connection, wake));
                Ok(Session { client, mark: 0, driver })
            })
        };
        Self { connect: Arc::new(connect), place }
    }

    /// Opens a connection for a use of one's own, within 10 s. The task drives it:
    /// aborted, it ends the connection though that may be busy, and what is open
    /// on it is rolled back.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; its text names the server and the user.
    pub async fn open(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let none = |NoConnection { reason, .. }| Error::Unavailable {
            attempted: "opening a connection",
            detail: reason,
        };
        let Session { client, driver, .. } = self.connect(None).await.map_err(none)?;
        Ok((client, driver))
    }

    pub(crate) async fn connect(&self, wake: Option<Wake>) -> Result<Session, NoConnection> {
        let place = &self.place;
        match timeout(Duration::from_millis(CONNECT_TIMEOUT_MS), (self.connect)(wake)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(NoConnection {
                reason: format!("connecting to {place}: {}", report(&error)),
                is_transient: Verdict::of(&error) != Verdict::Denied,
            }),
            Err(_) => Err(NoConnection {
                reason: format!("connecting to {place}: no answer in {CONNECT_TIMEOUT_MS} ms"),
                is_transient: true,
            }),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.place)
    }
}

async fn drive<T: TlsStream + Unpin>(mut connection: Connection<Socket, T>, wake: Option<Wake>) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(told))) => {
                if let Some(wake) = wake.as_ref().filter(|wake| wake.schema == told.payload()) {
                    wake.notify.notify_one();
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let reason = report(&error);
                tracing::debug!(reason, "a database connection ended");
                return;
            }
            None => return,
        }
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
        let database =
            Database::config("postgres://app:s3cr3t@db.internal:5433/shop".parse().unwrap());
        assert_eq!(
            format!("{database:?}"),
            "Database(PostgreSQL at db.internal:5433 (database shop, user app))"
        );
    }
}
