//! What is measured of calls of the handler.

use std::{future::Future, time::Instant};

use metrics::Histogram;

/// Those of one partition.
pub(crate) struct Calls {
    seconds: Histogram,
}

impl Calls {
    pub(crate) fn new(seconds: Histogram) -> Self {
        Self { seconds }
    }

    /// Runs one call.
    pub(crate) async fn measure<T>(&self, call: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let outcome = call.await;
        self.seconds.record(started.elapsed());
        outcome
    }
}
