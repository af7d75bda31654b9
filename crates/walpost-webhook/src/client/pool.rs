//! Connections that wait for their next request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::connect::Connection;
use crate::{AddressPolicy, Endpoint};

/// A connection says within this that it is ready once its answer was read.
const READY_LIMIT: Duration = Duration::from_millis(500);

/// Scheme, host and port, and what was checked before it was dialled.
type Place = (bool, String, u16, AddressPolicy);

#[derive(Debug)]
pub(super) struct Pool {
    idle_timeout: Duration,
    idle_max: usize,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    places: HashMap<Place, Vec<Waiting>>,
    is_swept: bool,
}

#[derive(Debug)]
struct Waiting {
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_timeout: Duration, idle_max: usize) -> Self {
        Self { idle_timeout, idle_max, idle: Mutex::default() }
    }

    /// The one that was used last and is ready.
    pub(super) async fn take(&self, endpoint: &Endpoint) -> Option<Connection> {
        loop {
            let mut connection = self.pop(&place(endpoint))?;
            let ready = timeout(READY_LIMIT, connection.sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Some(connection);
            }
        }
    }

    fn pop(&self, place: &Place) -> Option<Connection> {
        let mut idle = self.lock();
        let waiting = idle.places.get_mut(place)?;
        while let Some(last) = waiting.pop() {
            if last.is_fresh(self.idle_timeout) {
                return Some(last.connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(self: &Arc<Self>, endpoint: &Endpoint, connection: Connection) {
        if self.idle_timeout.is_zero() || connection.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        let waiting = idle.places.entry(place(endpoint)).or_default();
        if waiting.len() < self.idle_max {
            waiting.push(Waiting { connection, since: Instant::now() });
        }
        if !idle.is_swept {
            idle.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock()
            .places
            .values()
            .flatten()
            .filter(|each| each.is_fresh(self.idle_timeout))
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_fresh(&self, idle_timeout: Duration) -> bool {
        self.since.elapsed() < idle_timeout && !self.connection.sender.is_closed()
    }
}

/// Closes what waited too long, until nothing waits or nobody asks.
async fn sweep(pool: Weak<Pool>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        idle.places.retain(|_, waiting| {
            waiting.retain(|each| each.is_fresh(idle_timeout));
            !waiting.is_empty()
        });
        if idle.places.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

fn place(endpoint: &Endpoint) -> Place {
    (endpoint.is_tls(), endpoint.host().to_owned(), endpoint.port(), endpoint.addresses())
}
