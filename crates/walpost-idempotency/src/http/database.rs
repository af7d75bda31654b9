use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::{
    Client, Config, Error as PgError, NoTls, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};
use walpost_prepared::{Left, Types};

use crate::{Error, report::report};

const CONNECTIONS: usize = 16;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Connecting = BoxFuture<'static, Result<Session, PgError>>;
type Connect = dyn Fn() -> Connecting + Send + Sync;

/// Where the layer gets its connections: at most so many, kept between requests.
/// One layer may share them with another: it is cheap to clone.
///
/// A request has one for as long as its transaction lasts. Those that wait for a
/// twin have none. Nothing is kept in a session, so a pooler that gives each
/// transaction another one may stand in between.
#[derive(Clone)]
pub struct Database {
    connect: Arc<Connect>,
    slots: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Session>>>,
    types: Arc<Types>,
    answer_timeout: Duration,
}

struct Session {
    client: Client,
    /// Which types it has looked up: see [`Types`].
    mark: u64,
    driver: JoinHandle<()>,
}

/// Ends the connection though it may be busy: an open transaction is rolled
/// back.
impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection that is somebody's for a while. Dropped, it is closed, since
/// nobody knows what it is in the middle of.
pub(crate) struct Lent {
    session: Session,
    idle: Arc<Mutex<Vec<Session>>>,
    types: Arc<Types>,
    /// Whether it was used before, so that it may be dead without our knowing.
    pub(crate) is_used: bool,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// All are lent; the database may be well.
    Busy(String),
    Away(String),
}

impl Database {
    /// Connects by `config`, without TLS.
    ///
    /// ```
    /// use walpost_idempotency::http::Database;
    ///
    /// let database = Database::config("host=localhost user=app dbname=shop".parse()?);
    /// # Ok::<(), walpost_idempotency::tokio_postgres::Error>(())
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
        let connect = move || -> Connecting {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driver = tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        let reason = report(&error);
                        tracing::debug!(reason, "a database connection ended");
                    }
                });
                Ok(Session { client, mark: 0, driver })
            })
        };
        Self {
            connect: Arc::new(connect),
            slots: Arc::new(Semaphore::new(CONNECTIONS)),
            idle: Arc::default(),
            types: Arc::default(),
            answer_timeout: ANSWER_TIMEOUT,
        }
    }

    /// How many connections there are at most: 1 to 1,000, 16 unless set. That
    /// many requests run at a time, and the others wait for
    /// [`answer_timeout`](Self::answer_timeout).
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.slots = Arc::new(Semaphore::new(connections.clamp(1, 1_000)));
        self
    }

    /// How long a request waits for its turn, for a connection, and for the answer
    /// to a statement of the layer's own; 5 s each unless set. Then the database
    /// counts as away.
    #[must_use]
    pub fn answer_timeout(mut self, answer_timeout: Duration) -> Self {
        self.answer_timeout = answer_timeout;
        self
    }

    /// What the database answers in time.
    pub(crate) async fn in_time<T>(
        &self,
        attempted: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| {
            let detail = format!("no answer in {:?}", self.answer_timeout);
            Err(Error::Unavailable { attempted, detail })
        };
        timeout(self.answer_timeout, answer).await.unwrap_or_else(late)
    }

    pub(crate) async fn get(&self) -> Result<Lent, NoConnection> {
        let permit = timeout(self.answer_timeout, Arc::clone(&self.slots).acquire_owned()).await;
        let permit = permit
            .map_err(|_| NoConnection::Busy(format!("all busy for {:?}", self.answer_timeout)))?
            .expect("it is never closed");
        let is_of_use = |one: &Session| !one.client.is_closed() && self.types.fits(one.mark);
        let kept = std::iter::from_fn(|| self.take_idle()).find(is_of_use);
        let is_used = kept.is_some();
        let session = match kept {
            Some(session) => session,
            None => self.connect_taught().await?,
        };
        let (idle, types) = (Arc::clone(&self.idle), Arc::clone(&self.types));
        Ok(Lent { session, idle, types, is_used, _permit: permit })
    }

    /// Closes what is kept: a connection of the time before a restart of the
    /// server may look as if it were open.
    pub(crate) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn take_idle(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect_taught(&self) -> Result<Session, NoConnection> {
        let mut session = self.connect().await?;
        match timeout(self.answer_timeout, self.types.teach(&mut session.client)).await {
            Ok(Ok(mark)) => session.mark = mark,
            // It may be within a statement.
            Ok(Err(_)) | Err(_) => session = self.connect().await?,
        }
        Ok(session)
    }

    async fn connect(&self) -> Result<Session, NoConnection> {
        match timeout(self.answer_timeout, (self.connect)()).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(NoConnection::Away(report(&error))),
            Err(_) => Err(NoConnection::Away(format!("no answer in {:?}", self.answer_timeout))),
        }
    }
}

impl Lent {
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.session.client
    }

    /// A transaction with a handler's statements was committed: keeps it for the
    /// next one, if it is of use.
    pub(crate) fn committed(self, left: Option<Left>) {
        if self.types.committed(self.session.mark, left) {
            self.give_back();
        }
    }

    /// The same of one that was rolled back.
    pub(crate) fn rolled_back(self, left: Option<Left>) {
        if self.types.rolled_back(self.session.mark, left, false).connection {
            self.give_back();
        }
    }

    /// Keeps it for the next one. No transaction is open on it.
    pub(crate) fn give_back(self) {
        let Self { session, idle, _permit: permit, .. } = self;
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        drop(permit);
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({} connections free)", self.slots.available_permits())
    }
}
