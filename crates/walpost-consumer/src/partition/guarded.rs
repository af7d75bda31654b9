//! Batches that the rows of `done` do not guard, or whose transaction is
//! another client's. Elsewhere the steps are pipelined, see `apply`.

use futures_util::future::BoxFuture;
use tokio_postgres::{Client, Transaction};
use walpost_prepared::{Left, commit, roll_back};

use super::{
    Interrupt, Partition,
    apply::{Applied, new_offsets, start},
    failure::Failure,
    lane::{Fence, Lane},
};
use crate::{
    Event, Handler, HandlerError, SliceError,
    failpoint::Failpoint,
    store::{Batch, Dedup, Done, FailureKind, StoreError, StoreFailure, StoreTransaction},
};
#[cfg(feature = "redis")]
use crate::{
    RedisGuard,
    redis_guard::{Claiming, Owner, lease_ms},
    sql::ClaimKey,
};

impl<H: Handler> Partition<H> {
    /// Whether new events go this way.
    pub(super) fn goes_another_way(&self) -> bool {
        !self.shared.settings.guard.has_rows() || self.shared.handler.store().is_some()
    }

    /// Has `events` handled, all or nothing. `events` is not empty.
    pub(super) async fn apply_another_way(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        events: &[Event],
    ) -> Result<Applied, Failure> {
        let batch = self.batch(lane, fence, events);
        #[cfg(feature = "redis")]
        let claiming = batch.claiming.clone();
        let applied = self.run_batch(lane, batch).await;
        if applied.is_ok() {
            Failpoint::BeforeSettle.reached();
        }
        #[cfg(feature = "redis")]
        if let Some(claiming) = claiming {
            claiming.settle(events, &applied).await;
        }
        let Done { new, .. } = applied?;
        lane.committed(fence);
        let [_, after_commit] = fence.failpoints();
        after_commit.reached();
        Ok(Applied { new, waiting: 0 })
    }

    async fn run_batch(&self, lane: &mut Lane, batch: Batch<'_>) -> Result<Done, StoreFailure> {
        if let Some(store) = self.shared.handler.store() {
            let _turn = lane.slot.turn().await?;
            return store.apply(batch).await;
        }
        let client = lane.slot.client().await?;
        match apply_here(client, &*self.shared.handler, batch).await {
            Ok((done, left)) => {
                lane.slot.committed(left);
                Ok(done)
            }
            Err((failure, left)) => {
                let lacked_statement = failure.lacks_statement();
                match lane.slot.rolled_back(left, lacked_statement) {
                    true => Err(StoreFailure { kind: FailureKind::Connection }),
                    false => Err(failure),
                }
            }
        }
    }

    fn batch<'a>(&'a self, lane: &Lane, fence: Fence<'_>, events: &'a [Event]) -> Batch<'a> {
        let (sql, settings) = (&self.shared.sql, &self.shared.settings);
        let (begin, end) = fence.statements(sql, events);
        let has_rows = settings.guard.has_rows();
        let dedup =
            has_rows.then(|| self.dedup(lane, fence, lane.replay.dedup(sql, events), events));
        let behind_savepoint = match events {
            [event] => lane.trials.done_before == Some(event.offset()),
            _ => false,
        };
        let repeats = lane.replay.repeats(events);
        Batch {
            begin,
            end,
            undo: &sql.session.undo,
            roll_back: &sql.session.roll_back,
            leave: None,
            dedup,
            events,
            unpark: repeats.then(|| sql.parked.unpark_where(fence.position())),
            guard: &settings.guard,
            #[cfg(feature = "redis")]
            claiming: settings.guard.redis().map(|guard| self.claiming(fence.key(), guard)),
            behind_savepoint,
            calls: &self.calls,
            limit_ms: settings.handler_timeout_ms,
            points: &self.shared.points,
        }
    }

    /// Makes the effect of a parked event, all or nothing; `leave` is what
    /// follows it. Whether it was made now.
    pub(super) async fn retry_another_way(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        event: &Event,
        leave: &str,
    ) -> Result<bool, Failure> {
        let (sql, settings) = (&self.shared.sql, &self.shared.settings);
        let (begin, end) = fence.statements(sql, &[]);
        let events = std::slice::from_ref(event);
        let batch = Batch {
            begin,
            end,
            undo: &sql.session.undo,
            roll_back: &sql.session.roll_back,
            leave: Some(leave),
            dedup: Some(self.dedup(lane, fence, &sql.parked.stamp, events)),
            events,
            unpark: None,
            guard: &settings.guard,
            #[cfg(feature = "redis")]
            claiming: None,
            // A copy of it may have had its effect meanwhile.
            behind_savepoint: !settings.guard.has_rows(),
            calls: &self.calls,
            limit_ms: settings.handler_timeout_ms,
            points: &self.shared.points,
        };
        let new = self.run_batch(lane, batch).await?.new;
        lane.committed(fence);
        Ok(new > 0)
    }

    /// Events that were set aside are known to a guard outside of the database
    /// too. What fails here is a copy that is tried, as best effort means.
    pub(super) async fn note_aside(&self, events: &[Event]) {
        #[cfg(feature = "redis")]
        if let Some(guard) = self.shared.settings.guard.redis() {
            guard.note(&self.shared.settings.consumer, events).await;
        }
        #[cfg(not(feature = "redis"))]
        let _ = events;
    }

    #[cfg(feature = "redis")]
    fn claiming<'a>(&'a self, key: ClaimKey, guard: &'a RedisGuard) -> Claiming<'a> {
        let settings = &self.shared.settings;
        Claiming {
            guard,
            consumer: &settings.consumer,
            owner: Owner {
                position: key.position,
                epoch: key.epoch,
                lease_ms: lease_ms(settings.handler_timeout_ms),
            },
            next_offset: key.next_offset,
            schema: self.shared.sql.schema(),
        }
    }

    /// Whether the failure may say no more than that the effect is there: then
    /// the event is tried alone next, behind a savepoint, and this was no
    /// attempt. Behind the savepoint the same failure is one.
    pub(super) fn may_be_done(
        &self,
        lane: &mut Lane,
        events: &[Event],
        error: &HandlerError,
        at: Option<i64>,
    ) -> bool {
        if !self.shared.settings.guard.says_done(error) {
            return false;
        }
        let alone = match events {
            [event] => Some(event.offset()),
            _ => None,
        };
        let Some(offset) = at.or(alone) else { return false };
        if lane.trials.done_before == Some(offset) {
            return false;
        }
        tracing::debug!(partition = %self.of, offset, "the effect of an event may be there");
        lane.trials.sizing.failed_together(events.len(), Some(offset));
        lane.trials.done_before = Some(offset);
        true
    }

    /// What a failure beside the handler means while the partition is ours.
    pub(super) fn store_failed(&self, attempted: &str, error: &StoreError) -> Interrupt {
        self.count_conflict(error.verdict());
        Interrupt::store(attempted, &self.shared.settings.schema, error)
    }
}

impl From<StoreFailure> for Failure {
    fn from(failure: StoreFailure) -> Self {
        match failure.kind {
            FailureKind::Store(error) => Self::Store(error),
            FailureKind::Connection => Self::Connection,
            FailureKind::Handler(failed) => failed.into(),
        }
    }
}

/// On one of the consumer's own connections, with what it has left behind.
async fn apply_here(
    client: &mut Client,
    handler: &impl Handler,
    batch: Batch<'_>,
) -> Result<(Done, Option<Left>), (StoreFailure, Option<Left>)> {
    let failed = |error: tokio_postgres::Error| (StoreFailure::from(StoreError::from(error)), None);
    let at_end = |error: tokio_postgres::Error| (StoreFailure::at_end(error.into()), None);
    let again = batch.roll_back();
    let tx = start(client).await.map_err(failed)?;
    match batch.run(&mut Here { tx: &tx, handler }).await {
        Ok(done) => Ok((done, commit(tx, "").await.map_err(at_end)?)),
        // A connection that may still be busy is not waited for.
        Err(failure) if failure.discards() => Err((failure, None)),
        Err(failure) => match roll_back(tx, again).await {
            Ok(left) => Err((failure, left)),
            Err(error) => Err(failed(error)),
        },
    }
}

struct Here<'a, 'c, H> {
    tx: &'a Transaction<'c>,
    handler: &'a H,
}

impl<H: Handler> StoreTransaction for Here<'_, '_, H> {
    fn run<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { Ok(self.tx.batch_execute(sql).await?) })
    }

    fn dedup<'a>(
        &'a mut self,
        dedup: &'a Dedup<'a>,
    ) -> BoxFuture<'a, Result<Vec<i64>, StoreError>> {
        Box::pin(async move { Ok(new_offsets(self.tx, dedup).await?) })
    }

    fn numbers<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<Vec<i64>, StoreError>> {
        Box::pin(async move {
            let rows = self.tx.query_typed(sql, &[]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn handle<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SliceError>> {
        Box::pin(self.handler.handle_slice(self.tx, events))
    }
}
