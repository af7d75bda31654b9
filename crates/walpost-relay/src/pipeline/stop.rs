//! How a session ends: in order, or after a refusal.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{
    Ended, Pipeline,
    checkpoints::{Written, interrupted},
};
use crate::{
    error::RelayError,
    parked::{ParkReason, Parking},
    policy::{Disposition, decide},
    sink::Sink,
    source::{Source, SourceItem},
};

/// After a failed delivery, for the fate of the others.
const SETTLE: Duration = Duration::from_secs(30);

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Waits for the fate of everything on its way, then decides.
    pub(super) async fn settle_failures(&mut self) -> Result<Ended, RelayError> {
        self.settle_until(Instant::now() + SETTLE).await;
        self.keep_progress().await?;
        let mut rejected = HashMap::new();
        let mut retry = None;
        for (ticket, error) in &self.progress.failed {
            match decide(error) {
                Disposition::Retry => retry = Some(error),
                Disposition::Park => {
                    if let Some(position) = self.progress.tracker.position(*ticket) {
                        let parking =
                            Parking { reason: ParkReason::Rejected, detail: error.to_string() };
                        rejected.insert(position, parking);
                    }
                }
            }
        }
        match retry {
            _ if !rejected.is_empty() => Ok(Ended::Rejected(rejected)),
            Some(error) => Err(RelayError::Sink { detail: error.to_string(), transient: true }),
            None => Err(RelayError::Sink { detail: "no reason given".into(), transient: true }),
        }
    }

    /// Waits for the fate of everything on its way; whether all of it came.
    async fn settle_until(&mut self, deadline: Instant) -> bool {
        let mut deliveries = Vec::new();
        while self.sink.outstanding() > 0 {
            let wait = self.sink.deliveries(&mut deliveries);
            if tokio::time::timeout_at(deadline, wait).await.is_err() {
                return false;
            }
            self.settle(&mut deliveries);
        }
        true
    }

    /// A last checkpoint: what is durable is not to be sent again.
    async fn keep_progress(&mut self) -> Result<(), RelayError> {
        self.note_done();
        if let Some(writing) = self.progress.writing.take() {
            let written = writing.await.unwrap_or_else(|_| Err(interrupted()));
            self.note_written(written)?;
        }
        if self.progress.done > self.progress.checkpointed {
            let confirmed = self.progress.done;
            let wal = self.checkpoints.write(confirmed).await?;
            self.note_written(Ok(Written { confirmed, wal }))?;
        }
        Ok(())
    }

    /// Orderly stop, between two transactions where there is time for it:
    /// everything on its way settled, a last checkpoint, and its position
    /// confirmed if the stream passes it soon.
    pub(super) async fn drain(&mut self, deadline: Instant) -> Result<Ended, RelayError> {
        if !self.settle_until(deadline).await {
            tracing::warn!(
                outstanding = self.sink.outstanding(),
                "stopping although the sink has not answered; these events come again"
            );
        }
        self.keep_progress().await?;
        self.confirm_last(deadline).await?;
        self.report();
        Ok(Ended::Stopped)
    }

    pub(super) async fn confirm_last(&mut self, deadline: Instant) -> Result<(), RelayError> {
        let mut items = Vec::new();
        while !self.progress.unpassed.is_empty() {
            self.confirm_passed().await?;
            let next = self.source.next(&mut items);
            let Ok(read) = tokio::time::timeout_at(deadline, next).await else { break };
            read?;
            // Read for their position only: these events come again.
            for item in items.drain(..) {
                if let SourceItem::Commit { end_lsn: lsn }
                | SourceItem::KeepAlive { wal_end: lsn } = item
                {
                    self.progress.received = self.progress.received.max(lsn);
                }
            }
            self.confirm_passed().await?;
        }
        Ok(())
    }
}
