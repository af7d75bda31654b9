use std::{io, sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};
use tokio_postgres::{
    Client, NoTls,
    config::{Host, SslMode as NoSsl, TargetSessionAttrs},
};
use tokio_rustls::TlsConnector;

use crate::{
    Database, Stream,
    advice::tls_error,
    settings::shown_host,
    shown::StatementError,
    tls::{SslMode, TlsError},
};

/// Without `connect_timeout` in the connection string.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing listens there, or it cannot be reached.
    #[error("cannot reach PostgreSQL at {target}")]
    Unreachable {
        /// `host:port`, or the path of the socket.
        target: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `connect_timeout` has passed.
    #[error("PostgreSQL at {target} did not answer within {} s", .timeout.as_secs())]
    TimedOut {
        /// `host:port`, or the path of the socket.
        target: String,
        /// The limit.
        timeout: Duration,
    },
    /// `sslmode` asks for TLS and the server has none.
    #[error("PostgreSQL at {target} does not speak TLS, which sslmode asks for")]
    NoTls {
        /// `host:port`.
        target: String,
    },
    /// The TLS handshake failed.
    #[error("TLS with PostgreSQL at {target} failed")]
    Handshake {
        /// `host:port`.
        target: String,
        /// Why: for example a certificate of an unknown authority.
        #[source]
        source: io::Error,
    },
    /// A TLS setting cannot be used.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    /// The server refused the login or the database.
    #[error("PostgreSQL at {target} refused the session")]
    Refused {
        /// `host:port`, or the path of the socket.
        target: String,
        /// What it said.
        #[source]
        source: StatementError,
    },
    /// A statement at the beginning of the session failed.
    #[error("statement {number} at the beginning of a session with PostgreSQL at {target} failed")]
    InitialStatement {
        /// `host:port`, or the path of the socket.
        target: String,
        /// Which, from 1.
        number: usize,
        /// What the server said.
        #[source]
        source: StatementError,
    },
    /// `target_session_attrs` found no server of the kind asked for.
    #[error("PostgreSQL at {target} is read-only, and target_session_attrs asks for read-write")]
    ReadOnly {
        /// `host:port`, or the path of the socket.
        target: String,
    },
}

impl ConnectError {
    /// Whether trying again may help without anybody changing a setting.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::ReadOnly { .. } => true,
            Self::NoTls { .. } | Self::Handshake { .. } | Self::Tls(_) => false,
            // Whatever the connection or the server as a whole has to do with it.
            Self::InitialStatement { source, .. } => source.code().is_none_or(|code| {
                ["08", "53", "57"].iter().any(|class| code.code().starts_with(class))
            }),
            // Class 28 is a refused login, 3D a database that does not exist.
            Self::Refused { source, .. } => source.code().is_none_or(|code| {
                !code.code().starts_with("28") && !code.code().starts_with("3D")
            }),
        }
    }
}

impl ConnectError {
    /// A server judges the client's certificate when it likes, so that its
    /// refusal may come where the login's answer is waited for.
    fn of_login(target: &str, source: tokio_postgres::Error) -> Self {
        let target = target.to_owned();
        match tls_error(&source).cloned() {
            Some(error) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, error);
                Self::Handshake { target, source }
            }
            None => Self::Refused { target, source: source.into() },
        }
    }

    fn is_login(&self) -> bool {
        let Self::Refused { source, .. } = self else { return false };
        source.code().is_some_and(|code| code.code().starts_with("28"))
    }
}

impl Database {
    /// Opens a SQL session on the first host that accepts one. Its connection
    /// runs as a task of the current runtime and ends when the client is
    /// dropped. A statement that row level security would hide rows from fails
    /// (SQLSTATE 42501), unless [told otherwise](Self::without_hidden_rows).
    ///
    /// # Errors
    /// The last host's error when none accepts.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        self.connect_to_one().await.map(|(client, _)| client)
    }

    /// The same, and the database with that host alone: further connections
    /// that it opens lead to the host of this session, also where several hosts
    /// are named and another one accepts them.
    ///
    /// # Errors
    /// The last host's error when none accepts.
    pub async fn connect_to_one(&self) -> Result<(Client, Self), ConnectError> {
        let mut last = None;
        for (index, (host, port)) in self.targets().into_iter().enumerate() {
            match self.log_in_to(&host, port).await {
                Ok(client) => return Ok((client, self.with_target_alone(index))),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a database has at least one host"))
    }

    /// Opens a bare connection to the first host that accepts one, with TLS as
    /// `sslmode` has it. With `allow` it is plain; when the login is refused
    /// on it, try again with [`insisting_on_tls`](Self::insisting_on_tls).
    ///
    /// # Errors
    /// The last host's error when none accepts.
    pub async fn open(&self) -> Result<Stream, ConnectError> {
        self.open_to_one().await.map(|(stream, _)| stream)
    }

    /// The same, and where it leads to.
    pub(crate) async fn open_to_one(&self) -> Result<(Stream, (Host, u16)), ConnectError> {
        let mut last = None;
        for (host, port) in self.targets() {
            match self.open_to(&host, port).await {
                Ok(stream) => return Ok((stream, (host, port))),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a database has at least one host"))
    }

    async fn log_in_to(&self, host: &Host, port: u16) -> Result<Client, ConnectError> {
        match self.connect_to(host, port).await {
            Err(error) if self.tls().mode == SslMode::Allow && error.is_login() => {
                self.insisting_on_tls().connect_to(host, port).await
            }
            result => result,
        }
    }

    /// `connect_timeout` is for all of it: also a server that answers the login may
    /// say nothing behind it, as a pooler without a free connection.
    async fn connect_to(&self, host: &Host, port: u16) -> Result<Client, ConnectError> {
        let timeout = self.timeout();
        tokio::time::timeout(timeout, self.connect_unbounded(host, port))
            .await
            .map_err(|_| ConnectError::TimedOut { target: describe(host, port), timeout })?
    }

    async fn connect_unbounded(&self, host: &Host, port: u16) -> Result<Client, ConnectError> {
        let target = describe(host, port);
        let stream = self.open_unbounded(host, port, &target).await?;
        let mut config = self.config().clone();
        // The stream is encrypted already where it has to be.
        config.ssl_mode(NoSsl::Disable);
        let refused = |source| ConnectError::of_login(&target, source);
        let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(refused)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a PostgreSQL session ended");
            }
        });
        if !self.leaves_out_hidden() {
            // Unlike an option of the start, a pooler takes it.
            client.batch_execute("set row_security = off").await.map_err(refused)?;
        }
        for (index, statement) in self.initial_statements().iter().enumerate() {
            let failed = |source| {
                let (target, number) = (target.clone(), index + 1);
                ConnectError::InitialStatement {
                    target,
                    number,
                    source: StatementError::from(source),
                }
            };
            client.batch_execute(statement).await.map_err(failed)?;
        }
        if self.config().get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
            let row = client
                .query_typed_one("select current_setting('transaction_read_only') = 'on'", &[])
                .await
                .map_err(refused)?;
            if row.get(0) {
                return Err(ConnectError::ReadOnly { target });
            }
        }
        Ok(client)
    }

    async fn open_to(&self, host: &Host, port: u16) -> Result<Stream, ConnectError> {
        let target = describe(host, port);
        let timeout = self.timeout();
        tokio::time::timeout(timeout, self.open_unbounded(host, port, &target))
            .await
            .map_err(|_| ConnectError::TimedOut { target: target.clone(), timeout })?
    }

    async fn open_unbounded(
        &self,
        host: &Host,
        port: u16,
        target: &str,
    ) -> Result<Stream, ConnectError> {
        let unreachable = |source| ConnectError::Unreachable { target: target.to_owned(), source };
        let name = match host {
            Host::Unix(folder) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                return UnixStream::connect(path).await.map(Stream::Unix).map_err(unreachable);
            }
            Host::Tcp(name) => name,
        };
        let mut tcp = TcpStream::connect((name.as_str(), port)).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        self.keep_alive(&tcp).map_err(unreachable)?;
        match self.tls().mode {
            SslMode::Disable | SslMode::Allow => return Ok(Stream::Tcp(tcp)),
            SslMode::Prefer | SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {}
        }
        if !self.tls().direct {
            tcp.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.map_err(unreachable)?;
            let answer = tcp.read_u8().await.map_err(unreachable)?;
            if answer != b'S' {
                return match self.tls().mode {
                    SslMode::Prefer => Ok(Stream::Tcp(tcp)),
                    _ => Err(ConnectError::NoTls { target: target.to_owned() }),
                };
            }
        }
        let config = Arc::new(self.tls().client_config()?);
        let handshake = |source| ConnectError::Handshake { target: target.to_owned(), source };
        let server = ServerName::try_from(name.clone())
            .map_err(|error| handshake(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let tls = TlsConnector::from(config).connect(server, tcp).await.map_err(handshake)?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    fn keep_alive(&self, tcp: &TcpStream) -> io::Result<()> {
        if !self.config().get_keepalives() {
            return Ok(());
        }
        let mut settings =
            socket2::TcpKeepalive::new().with_time(self.config().get_keepalives_idle());
        if let Some(interval) = self.config().get_keepalives_interval() {
            settings = settings.with_interval(interval);
        }
        socket2::SockRef::from(tcp).set_tcp_keepalive(&settings)
    }

    fn timeout(&self) -> Duration {
        self.config().get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT)
    }
}

pub(crate) fn describe(host: &Host, port: u16) -> String {
    match host {
        Host::Tcp(name) => format!("{}:{port}", shown_host(name)),
        Host::Unix(folder) => folder.join(format!(".s.PGSQL.{port}")).display().to_string(),
    }
}
