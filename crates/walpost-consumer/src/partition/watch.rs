//! What an owner looks at between batches: whether the partition is still its
//! own, and how fast a replay may go.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::{Interrupt, Partition, session::Session};
use crate::{Handler, database_error::Verdict};

/// Between two looks of an owner that has nothing to do.
const LOOK_INTERVAL_MS: u64 = 2_000;
/// Between two counts of parked events, while there are any.
const COUNT_INTERVAL_MS: u64 = 10_000;

impl<H: Handler> Partition<H> {
    /// An operator's reset takes the partition away from its owner, which its
    /// next batch finds out. One that waits for events has none, so it looks.
    pub(super) async fn look_at_claim(&self, session: &mut Session) -> Result<(), Interrupt> {
        let now = Instant::now();
        if session.look_after.is_some_and(|at| at > now) {
            return Ok(());
        }
        session.look_after = Some(now + Duration::from_millis(LOOK_INTERVAL_MS));
        let position =
            [(&session.key.position as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT4)];
        let client = session.lane.slot.client().await?;
        let row = client.query_typed_opt(&self.shared.sql.epoch, &position).await;
        self.is_as_left(session.key.epoch, Some(session.key.next_offset), row)
    }

    /// Whether the row that was asked for is as the claim of `epoch` left it. A
    /// database that went back to an earlier state may have its epoch again.
    pub(super) fn is_as_left(
        &self,
        epoch: i64,
        next_offset: Option<i64>,
        row: Result<Option<tokio_postgres::Row>, tokio_postgres::Error>,
    ) -> Result<(), Interrupt> {
        let row = row.map_err(|error| self.failed("looking at the owner of a partition", error))?;
        match row.map(|row| (row.get::<_, i64>(0), row.get::<_, Option<i64>>(1))) {
            Some(found) if found == (epoch, next_offset) => Ok(()),
            _ => Err(Interrupt::GivenUp("it was claimed or reset by somebody else".to_owned())),
        }
    }

    /// A transaction failed: whether because somebody else owns the partition.
    pub(super) fn count_conflict(&self, verdict: Verdict) {
        if verdict == Verdict::GivenUp {
            self.metrics.epoch_conflicts.increment(1);
        }
    }

    /// Counts what is parked, for the gauges.
    pub(super) async fn count_parked(&self, session: &mut Session) -> Result<(), Interrupt> {
        let now = Instant::now();
        if session.count_after.is_some_and(|at| at > now) {
            return Ok(());
        }
        session.count_after = Some(now + Duration::from_millis(COUNT_INTERVAL_MS));
        let position =
            [(&session.key.position as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT4)];
        let counts = &self.shared.sql.parked.count;
        let row = session.lane.slot.client().await?.query_typed_one(counts, &position).await;
        let row = row.map_err(|error| self.failed("counting parked events", error))?;
        self.gauges.parked_open_events.set(row.get::<_, i64>(0) as f64);
        self.gauges.parked_held_events.set(row.get::<_, i64>(1) as f64);
        Ok(())
    }

    /// Waits until the next of `count` events of the batch may be applied, and
    /// says how many of them.
    pub(super) async fn keep_pace(
        &self,
        session: &Session,
        count: usize,
    ) -> Result<usize, Interrupt> {
        let first = session.batch.first();
        let limit =
            first.and_then(|first| session.lane.replay.limit(first.offset(), Instant::now()));
        let Some((wait, most)) = limit else {
            return Ok(count);
        };
        self.stop.clone().sleep(wait).await?;
        Ok(count.min(most))
    }
}
