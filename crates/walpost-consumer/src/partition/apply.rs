//! One batch, one transaction: fence and offset, deduplication, handler, end.

use futures_util::future::{join, try_join_all};
use tokio_postgres::{
    Client, IsolationLevel, Transaction,
    types::{ToSql, Type},
};
use walpost_prepared::{Left, commit};

use super::{
    Partition,
    failure::Failure,
    held::holds_key,
    lane::{Fence, Lane},
    parked_row::{Aside, Place, set_aside},
};
use crate::{
    Event, Handler,
    database_error::Verdict,
    failpoint::Failpoint,
    points::Spot,
    store::{Dedup, handling, select_new},
};

/// What a batch does with its new events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work<'a> {
    /// The handler.
    Handle,
    /// The one event is set aside.
    Park { reason: &'a str, attempts: u32 },
    /// All are set aside, behind parked events of their keys.
    Wait,
}

/// What was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Given to the handler, or parked.
    pub(super) new: u64,
    /// Set aside behind a parked event of their key.
    pub(super) waiting: u64,
}

impl<H: Handler> Partition<H> {
    /// Carries `work` out for `events`, all or nothing. `events` is not empty.
    pub(super) async fn apply(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        events: &[Event],
        work: Work<'_>,
    ) -> Result<Applied, Failure> {
        let points = &self.shared.points;
        points.begins(events.first().map(Spot::from)).await;
        if matches!(work, Work::Handle) && self.goes_another_way() {
            return self.apply_another_way(lane, fence, events).await;
        }
        let (begin, end) = fence.statements(&self.shared.sql, events);
        let dedup = lane.replay.dedup(&self.shared.sql, events);
        let dedup = self.dedup(lane, fence, dedup, events);
        let place = Place { consumer: dedup.consumer, position: dedup.position, run: dedup.run };
        let client = lane.slot.client().await?;
        let tx = start(client).await.map_err(Failure::Database)?;
        let (fenced, found) = join(tx.batch_execute(&begin), new_offsets(&tx, &dedup)).await;
        fenced.map_err(Failure::Database)?;
        let mut new = found.map_err(Failure::Database)?;
        new.sort_unstable();
        points.reached(Failpoint::AfterBegin, events.first().map(Spot::from)).await;
        let new = select_new(events, &new);
        let is_handled = matches!(work, Work::Handle) && !new.is_empty();
        let end = if is_handled { self.end_of_handler(&end) } else { end };
        let applied = match work {
            Work::Handle => self.make(&tx, place, &new, lane.replay.repeats(events)).await,
            Work::Park { reason, attempts } => {
                self.park_one(&tx, place, events, &new, (reason, attempts)).await
            }
            Work::Wait => self.set_all_aside(&tx, place, &new).await,
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(failure) => {
                let (failure, left) = self.roll_back(tx, &end, failure).await;
                return Err(failure.unless_again(&mut lane.slot, left));
            }
        };
        let [before_commit, after_commit] = fence.failpoints();
        points.reached(before_commit, events.first().map(Spot::from)).await;
        let finished = commit(tx, &end).await;
        lane.slot.finished(finished)?;
        lane.committed(fence);
        after_commit.reached();
        if !matches!(work, Work::Handle) {
            self.note_aside(&new).await;
        }
        Ok(applied)
    }

    /// The deduplication of `events` by the statement `sql`.
    pub(super) fn dedup<'a>(
        &'a self,
        lane: &Lane,
        fence: Fence<'_>,
        sql: &'a str,
        events: &'a [Event],
    ) -> Dedup<'a> {
        let known = || events.iter().filter(|event| event.identity().is_ok());
        Dedup {
            sql,
            consumer: &self.shared.settings.consumer,
            position: fence.position(),
            sources: known().map(Event::source).collect(),
            ids: known().map(Event::id).collect(),
            offsets: known().map(Event::offset).collect(),
            run: lane.replay.run,
        }
    }

    /// Gives the new events to the handler.
    async fn make(
        &self,
        tx: &Transaction<'_>,
        place: Place<'_>,
        new: &[Event],
        repeats: bool,
    ) -> Result<Applied, Failure> {
        self.handle(tx, new).await?;
        if repeats && !new.is_empty() {
            tx.batch_execute(&self.shared.sql.session.undo).await?;
            let offsets: Vec<i64> = new.iter().map(Event::offset).collect();
            let made: [(&(dyn ToSql + Sync), Type); 2] =
                [(&place.position, Type::INT4), (&offsets, Type::INT8_ARRAY)];
            let unparked = tx.execute_typed(&self.shared.sql.parked.unpark_replayed, &made);
            unparked.await.map_err(Failure::Database)?;
        }
        Ok(Applied { new: new.len() as u64, waiting: 0 })
    }

    /// Sets the one event aside, unless it is a copy.
    async fn park_one(
        &self,
        tx: &Transaction<'_>,
        place: Place<'_>,
        events: &[Event],
        new: &[Event],
        (reason, attempts): (&str, u32),
    ) -> Result<Applied, Failure> {
        let one = events.first().filter(|one| !new.is_empty() || one.identity().is_err());
        let Some(event) = one else { return Ok(Applied::default()) };
        let holds_key = holds_key(self.shared.settings.park, event);
        let aside = Aside::Parked { reason, attempts, holds_key };
        let parked = set_aside(tx, &self.shared.sql, place, event, aside).await;
        Ok(Applied { new: parked.map_err(Failure::Database)?, waiting: 0 })
    }

    async fn set_all_aside(
        &self,
        tx: &Transaction<'_>,
        place: Place<'_>,
        new: &[Event],
    ) -> Result<Applied, Failure> {
        let sql = &self.shared.sql;
        let aside = new.iter().map(|event| set_aside(tx, sql, place, event, Aside::Waiting));
        try_join_all(aside).await.map_err(Failure::Database)?;
        Ok(Applied { new: 0, waiting: new.len() as u64 })
    }

    /// The last statements of a transaction with a handler.
    pub(super) fn end_of_handler(&self, end: &str) -> String {
        format!("{}; {end}", self.shared.sql.session.undo)
    }

    /// A connection that may still be busy is not waited for. That a handler which
    /// failed has ended its transaction, as `end` tells, comes before its failure:
    /// what it wrote behind that stays, and must not be made again.
    pub(super) async fn roll_back(
        &self,
        tx: Transaction<'_>,
        end: &str,
        failure: Failure,
    ) -> (Failure, Option<Left>) {
        if let Failure::Handler { discard: true, .. } = failure {
            return (failure, None);
        }
        if let Failure::Handler { .. } = failure
            && let Err(error) = tx.batch_execute(end).await
            && Verdict::of(&error) == Verdict::HandlerEnded
        {
            return (error.into(), None);
        }
        match walpost_prepared::roll_back(tx, &self.shared.sql.session.roll_back).await {
            Ok(left) => (failure, left),
            Err(error) => (Failure::Database(error), None),
        }
    }

    pub(super) async fn handle(
        &self,
        tx: &Transaction<'_>,
        events: &[Event],
    ) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        let limit_ms = self.shared.settings.handler_timeout_ms;
        let handler = self.shared.handler.handle_slice(tx, events);
        let handled = handling(&self.calls, handler, events, limit_ms).await;
        Ok(self.shared.points.handled(events, handled)?)
    }
}

/// The offsets that come back from a deduplication.
pub(super) async fn new_offsets(
    tx: &Transaction<'_>,
    Dedup { sql, consumer, position, sources, ids, offsets, run }: &Dedup<'_>,
) -> Result<Vec<i64>, tokio_postgres::Error> {
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (consumer, Type::TEXT),
        (position, Type::INT4),
        (sources, Type::TEXT_ARRAY),
        (ids, Type::TEXT_ARRAY),
        (offsets, Type::INT8_ARRAY),
        (run, Type::INT4),
    ];
    let found = tx.query_typed(sql, &parameters).await?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

/// READ COMMITTED by name: the fence has to see what it waited for.
pub(crate) async fn start(client: &mut Client) -> Result<Transaction<'_>, tokio_postgres::Error> {
    client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await
}
