//! Where the deliveries go: two routes of one server in this process.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use axum::{Router, body::Bytes, extract::State, routing::post};
use tokio::{net::TcpListener, time};

use crate::latency::{find_marks, now_micros};

/// How long the slow one takes for an answer.
const SLOW: Duration = Duration::from_secs(10);

/// Arrivals at the route `/fast`.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Microseconds from the time in an event to its arrival.
    micros: Mutex<Vec<u64>>,
    count: AtomicU64,
    first_micros: AtomicU64,
    last_micros: AtomicU64,
}

/// A server with the routes `/fast` and `/slow`.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) fast: Arc<Arrivals>,
}

impl Receiver {
    /// On the runtime that it is called on, which ends it.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, fast) = (listener.local_addr()?, Arc::<Arrivals>::default());
        let routes = Router::new()
            .route("/fast", post(take))
            .route("/slow", post(async || time::sleep(SLOW).await))
            .with_state(fast.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, fast })
    }

    pub(crate) fn url(&self, route: &str) -> String {
        format!("http://{}/{route}", self.address)
    }
}

async fn take(State(arrivals): State<Arc<Arrivals>>, body: Bytes) {
    let now = now_micros();
    find_marks(&body, |sent| {
        arrivals.micros.lock().expect("nobody panics").push(now.saturating_sub(sent));
    });
    let _ = arrivals.first_micros.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    arrivals.last_micros.store(now, Ordering::Relaxed);
    arrivals.count.fetch_add(1, Ordering::Relaxed);
}

impl Arrivals {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Requests a second, from the first to the last.
    pub(crate) fn rate(&self) -> f64 {
        let first = self.first_micros.load(Ordering::Relaxed);
        let micros = self.last_micros.load(Ordering::Relaxed).saturating_sub(first).max(1);
        self.count() as f64 * 1e6 / micros as f64
    }

    /// What has arrived since the last call, as latencies in microseconds.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.micros.lock().expect("nobody panics"))
    }
}
