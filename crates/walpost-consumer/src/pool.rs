//! The connections that the partitions of a consumer share.
//!
//! Whoever needs one waits for its turn, first come, first served, and holds it
//! for one transaction or one question. No one waits for a second turn while it
//! holds one, for Kafka, or for a retry: so each turn ends.

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{MutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Client;
use walpost_prepared::{Left, Reuse, Types};

use crate::{Database, report::report};

/// A connection that was idle for so long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Connections to the database of the effects, at most as many as it was told.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    turns: Arc<Semaphore>,
    types: Types,
    /// The longest idle first.
    idle: Mutex<VecDeque<(Connected, Instant)>>,
    /// Ends what blocks claims, which may hold all the others meanwhile.
    spare: tokio::sync::Mutex<Option<Client>>,
}

struct Connected {
    client: Client,
    /// Which types it has looked up: see [`Types`].
    mark: u64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoConnection(String);

impl Pool {
    /// One of `max_connections`, at least two, is the spare one.
    pub(crate) fn new(database: Database, max_connections: usize) -> Self {
        let turns = Arc::new(Semaphore::new(max_connections.saturating_sub(1).max(1)));
        let (types, idle, spare) = (Types::default(), Mutex::default(), Default::default());
        Self { inner: Arc::new(Inner { database, turns, types, idle, spare }) }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Waits for a turn without a connection.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, NoConnection> {
        let turn = Arc::clone(&self.inner.turns).acquire_owned().await;
        turn.map_err(|_| NoConnection("the consumer has ended".to_owned()))
    }

    /// Waits for a turn, and for a connection that has no transaction.
    pub(crate) async fn lease(&self) -> Result<Lease, NoConnection> {
        let turn = self.turn().await?;
        let connected = match self.take_idle() {
            Some(connected) => connected,
            None => self.connect_taught().await?,
        };
        Ok(Lease { connected, turn, pool: self.clone() })
    }

    async fn connect_taught(&self) -> Result<Connected, NoConnection> {
        let mut client = self.connect().await?;
        match self.inner.types.teach(&mut client).await {
            Ok(mark) => Ok(Connected { client, mark }),
            Err(error) => {
                let reason = report(&error);
                tracing::debug!(reason, "the types of the database could not be looked up");
                Ok(Connected { client: self.connect().await?, mark: 0 })
            }
        }
    }

    /// Waits for the one connection that no partition holds.
    pub(crate) async fn spare(&self) -> Result<Spare<'_>, NoConnection> {
        let mut place = self.inner.spare.lock().await;
        let client = match place.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Spare { place, client })
    }

    async fn connect(&self) -> Result<Client, NoConnection> {
        let database = &self.inner.database;
        database.connect().await.map_err(|error| {
            NoConnection(format!("connecting to {}: {}", database.place(), report(&*error)))
        })
    }

    fn take_idle(&self) -> Option<Connected> {
        let mut idle = self.idle();
        std::iter::from_fn(|| idle.pop_back())
            .map(|(connected, _)| connected)
            .find(|connected| self.is_of_use(connected))
    }

    fn keep(&self, connected: Connected) {
        let mut idle = self.idle();
        while idle.front().is_some_and(|(_, since)| since.elapsed() >= IDLE_LIMIT) {
            idle.pop_front();
        }
        if self.is_of_use(&connected) {
            idle.push_back((connected, Instant::now()));
        }
    }

    fn is_of_use(&self, connected: &Connected) -> bool {
        !connected.client.is_closed() && self.inner.types.fits(connected.mark)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<(Connected, Instant)>> {
        self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose turn it is. It is closed, unless it is given back: it may
/// be within a statement or a transaction.
pub(crate) struct Lease {
    connected: Connected,
    turn: OwnedSemaphorePermit,
    pool: Pool,
}

impl Lease {
    /// It has no open transaction, and every statement has ended.
    pub(crate) fn give_back(self) {
        drop(self.without_connection());
    }

    /// Gives the connection back, as [`give_back`](Self::give_back), and keeps the turn.
    fn without_connection(self) -> OwnedSemaphorePermit {
        let Self { connected, turn, pool } = self;
        pool.keep(connected);
        turn
    }
}

impl Deref for Lease {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connected.client
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.connected.client
    }
}

/// The spare connection, closed unless it is given back.
pub(crate) struct Spare<'a> {
    place: MutexGuard<'a, Option<Client>>,
    client: Client,
}

impl Spare<'_> {
    /// Every statement has ended.
    pub(crate) fn give_back(self) {
        let Self { mut place, client } = self;
        *place = Some(client);
    }
}

impl Deref for Spare<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The connection of one worker, while it has its turn.
pub(crate) struct Slot {
    pool: Pool,
    lease: Option<Lease>,
}

impl Slot {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, lease: None }
    }

    /// Its connection; waits for a turn if it has none.
    pub(crate) async fn client(&mut self) -> Result<&mut Client, NoConnection> {
        let lease = match self.lease.take() {
            Some(lease) => lease,
            None => self.pool.lease().await?,
        };
        let lease = self.lease.insert(lease);
        Ok(&mut lease.connected.client)
    }

    /// Its turn, or the next one, without a connection: another client brings its own. The turn
    /// is over when the result is dropped.
    pub(crate) async fn turn(&mut self) -> Result<OwnedSemaphorePermit, NoConnection> {
        match self.lease.take() {
            Some(lease) => Ok(lease.without_connection()),
            None => self.pool.turn().await,
        }
    }

    /// Its turn is over: see [`Lease::give_back`].
    pub(crate) fn give_back(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    /// A transaction of a handler was committed.
    pub(crate) fn committed(&mut self, left: Option<Left>) {
        if !self.pool.inner.types.committed(self.mark(), left) {
            self.close();
        }
    }

    /// The same of one whose COMMIT may have failed.
    pub(crate) fn finished(
        &mut self,
        finished: Result<Option<Left>, tokio_postgres::Error>,
    ) -> Result<(), tokio_postgres::Error> {
        match finished {
            Ok(left) => self.committed(left),
            Err(error) => {
                self.close();
                return Err(error);
            }
        }
        Ok(())
    }

    /// A transaction of a handler was rolled back: whether it is to be tried again
    /// at once, on another connection.
    pub(crate) fn rolled_back(&mut self, left: Option<Left>, lacked_statement: bool) -> bool {
        let reuse = self.pool.inner.types.rolled_back(self.mark(), left, lacked_statement);
        let Reuse { connection, try_again } = reuse;
        if !connection {
            self.close();
        }
        try_again
    }

    fn mark(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.connected.mark)
    }

    /// Its turn is over, and the connection may be busy.
    pub(crate) fn close(&mut self) {
        self.lease = None;
    }
}
