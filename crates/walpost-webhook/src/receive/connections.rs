//! Connections that are kept between requests.

use std::{
    iter,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use tokio_postgres::Client;
use walpost_inbox::{Database, Error};

/// At most so many; whoever wants one waits, and is to bound that.
pub(super) struct Connections {
    database: Database,
    slots: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Session>>>,
}

struct Session {
    client: Client,
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
pub(super) struct Lent {
    session: Session,
    idle: Arc<Mutex<Vec<Session>>>,
    /// Whether it was used before, so that it may be dead without our knowing.
    pub(super) is_used: bool,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(database: Database, connections: usize) -> Self {
        let slots = Arc::new(Semaphore::new(connections));
        Self { database, slots, idle: Arc::default() }
    }

    pub(super) async fn get(&self) -> Result<Lent, Error> {
        let permit = Arc::clone(&self.slots).acquire_owned().await.expect("it is never closed");
        let kept = iter::from_fn(|| self.take_idle()).find(|one| !one.client.is_closed());
        let is_used = kept.is_some();
        let session = match kept {
            Some(session) => session,
            None => {
                let (client, driver) = self.database.open().await?;
                Session { client, driver }
            }
        };
        Ok(Lent { session, idle: Arc::clone(&self.idle), is_used, _permit: permit })
    }

    /// Closes what is kept: a connection of the time before a restart of the
    /// server may look as if it were open.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn take_idle(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Lent {
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.session.client
    }

    /// Keeps it for the next one. What is open on it is being rolled back.
    pub(super) fn give_back(self) {
        let Self { session, idle, _permit: permit, .. } = self;
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        drop(permit);
    }
}
