//! How a session ends: in order, or after a refusal.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, interval, sleep_until, timeout_at};

use super::{Ended, Pipeline, TICK, checkpoints::written};
use crate::{
    error::RelayError,
    sink::Sink,
    source::{Source, SourceItem},
};

/// After a failed delivery, for the fate of the others; and then again for the
/// last checkpoint.
pub(super) const SETTLE: Duration = Duration::from_secs(30);

/// An orderly stop, and how its time is shared out: half for the rest of the
/// transaction at hand, a quarter for what is on its way, a quarter for the
/// last checkpoint and its confirmation. What one part leaves, the next has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    began: Instant,
    limit: Duration,
}

impl Stopping {
    pub(super) fn new(began: Instant, limit: Duration) -> Self {
        Self { began, limit }
    }

    pub(super) fn read_until(self) -> Instant {
        self.began + self.limit / 2
    }

    fn settle_until(self) -> Instant {
        self.began + self.limit / 4 * 3
    }

    fn end(self) -> Instant {
        self.began + self.limit
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Waits for the fate of everything on its way, then decides.
    pub(super) async fn settle_failures<R>(&mut self) -> Result<Ended<R>, RelayError> {
        self.settle_until(Instant::now() + SETTLE).await;
        let judged = self.judge_failures();
        self.keep_progress(Instant::now() + SETTLE).await?;
        judged
    }

    /// Waits for the fate of everything on its way; whether all of it came.
    async fn settle_until(&mut self, deadline: Instant) -> bool {
        let mut deliveries = Vec::new();
        while self.sink.outstanding() > 0 {
            let wait = self.sink.deliveries(&mut deliveries);
            if attend(&mut self.source, deadline, wait).await.is_none() {
                return false;
            }
            self.settle(&mut deliveries);
        }
        true
    }

    /// The last parked rows and a last checkpoint: what is durable is not to be
    /// sent again. Whether both were written in time.
    pub(super) async fn keep_progress(&mut self, deadline: Instant) -> Result<bool, RelayError> {
        if self.progress.apart.has_refused() {
            // Nothing more is sent: what is held comes again.
            self.progress.held = None;
            self.park_refused()?;
        }
        if !self.finish_parking(deadline).await? {
            return Ok(false);
        }
        self.finish_retries(deadline).await?;
        self.note_done();
        loop {
            if self.progress.writing.is_none() {
                if self.progress.done <= self.progress.checkpointed {
                    return Ok(true);
                }
                self.start_checkpoint();
            }
            let wait = written(&mut self.progress.writing);
            let Some(result) = attend(&mut self.source, deadline, wait).await else {
                tracing::warn!(
                    done = %self.progress.done,
                    "the last checkpoint was not written in time; what it covers may come again"
                );
                return Ok(false);
            };
            self.note_written(result)?;
        }
    }

    /// Orderly stop, between two transactions where there is time for it:
    /// everything on its way settled, a last checkpoint, and its position
    /// confirmed if the stream passes it soon.
    pub(super) async fn drain<R>(&mut self, stopping: Stopping) -> Result<Ended<R>, RelayError> {
        let settled = self.settle_until(stopping.settle_until()).await;
        if !settled {
            tracing::warn!(
                outstanding = self.sink.outstanding(),
                "stopping although the sink has not answered; these events come again"
            );
        }
        if self.keep_progress(stopping.end()).await?
            && let Ok(confirmed) = timeout_at(stopping.end(), self.confirm_last()).await
        {
            confirmed?;
        }
        let failed = !self.progress.failed.is_empty() || self.progress.retries.has_failed();
        let clean = settled && !failed;
        if clean && let Ok(noted) = timeout_at(stopping.end(), self.checkpoints.set_clean()).await {
            noted?;
        }
        Ok(Ended::Stopped)
    }

    async fn confirm_last(&mut self) -> Result<(), RelayError> {
        let mut items = Vec::new();
        loop {
            self.confirm_passed().await?;
            if self.progress.unpassed.is_empty() {
                return Ok(());
            }
            self.source.next(&mut items).await?;
            // Read for their position only: these events come again.
            for item in items.drain(..) {
                if let SourceItem::Commit { end_lsn: lsn }
                | SourceItem::KeepAlive { wal_end: lsn } = item
                {
                    self.progress.received = self.progress.received.max(lsn);
                }
            }
        }
    }
}

/// Waits for `work` until `deadline`, and tells the server meanwhile that we
/// live.
pub(crate) async fn attend<S: Source, T>(
    source: &mut S,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut ticks = interval(TICK);
    let mut alive = true;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = sleep_until(deadline) => return None,
            _ = ticks.tick(), if alive => {
                // A server that is gone is no reason to give the work up, and
                // whoever reads next meets the error again.
                alive = matches!(timeout_at(deadline, source.keep_alive()).await, Ok(Ok(())));
            }
        }
    }
}
