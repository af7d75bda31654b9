//! Parked events that somebody wants retried or discarded. The owner of the
//! partition does it, behind its fence, one event in one transaction. A retry
//! that has to wait is passed over, and later ones of its key with it.

use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio_postgres::{
    Transaction,
    types::{ToSql, Type},
};
use walpost_event::RetrySchedule;
use walpost_prepared::commit;

use super::{
    Interrupt, Partition,
    apply::{new_offsets, start},
    failure::Failure,
    jitter,
    lane::{Fence, Lane},
    looks::PassedOver,
    parked_row::{ParkedRow, Wish},
    session::Session,
    trials::Refused,
};
use crate::{Counts, Handler, HandlerError, failpoint::Failpoint, tell::tell};

impl<H: Handler> Partition<H> {
    /// Does what is asked for, one event at a time, so that the partition's
    /// other events go on in between.
    pub(super) async fn look_at_requests(&self, session: &mut Session) -> Result<(), Interrupt> {
        let Some(row) = self.next_request(session).await? else { return Ok(()) };
        let Session { lane, key, ledger, looks, .. } = session;
        let fence = Fence::Offset { key: *key, known: ledger.known() };
        let Served { id, counts, not_before } = self.serve(lane, fence, row).await?;
        self.shared.board.count(|all| all.add(counts));
        looks.served(id, not_before, Instant::now());
        Ok(())
    }

    /// The next row that somebody has a request for, if it is time to look.
    pub(super) async fn next_request(
        &self,
        session: &mut Session,
    ) -> Result<Option<ParkedRow>, Interrupt> {
        let now = Instant::now();
        if !session.looks.is_due(now) {
            return Ok(None);
        }
        let PassedOver { retries, in_lanes, all_retries } = session.looks.passed_over(now);
        let of: [(&(dyn ToSql + Sync), Type); 5] = [
            (&session.key.position, Type::INT4),
            (&session.key.next_offset, Type::INT8),
            (&retries, Type::INT8_ARRAY),
            (&in_lanes, Type::INT8_ARRAY),
            (&all_retries, Type::BOOL),
        ];
        let client = session.lane.slot.client().await?;
        let asked = client.query_typed_opt(&self.shared.sql.parked.request, &of).await;
        let asked = asked.map_err(|error| self.failed("reading requests", error))?;
        if asked.is_none() {
            session.looks.later(Instant::now());
            self.count_parked(session).await?;
        }
        Ok(asked.as_ref().map(ParkedRow::read))
    }

    /// The same of a request that has waited for its lane: a retry may have been
    /// taken back meanwhile, by a discard or by a replay that made the effect.
    pub(super) async fn serve_late(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        row: ParkedRow,
    ) -> Result<Served, Interrupt> {
        if row.wish == Wish::Retry {
            let (sql, id) = (&self.shared.sql.parked.still_retries, [(&row.id as _, Type::INT8)]);
            let still = lane.slot.client().await?.query_typed_one(sql, &id).await;
            let still = still.map_err(|error| self.failed("reading a request again", error))?;
            if !still.get::<_, bool>(0) {
                return Ok(Served { id: row.id, counts: Counts::default(), not_before: None });
            }
        }
        self.serve(lane, fence, row).await
    }

    /// Fulfils one request.
    pub(super) async fn serve(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        row: ParkedRow,
    ) -> Result<Served, Interrupt> {
        if row.wish == Wish::Retry
            && lane.trials.refused.get(&row.id).is_some_and(|refused| refused.is_last)
            && let Some(refused) = lane.trials.refused.remove(&row.id)
        {
            return self.keep_parked(lane, fence, row.id, refused).await;
        }
        match self.settle(lane, fence, &row).await {
            Ok(settled) => Ok(self.settled(lane, &row, settled)),
            Err(Failure::Database(error)) => {
                Err(self.failed("carrying out a request for a parked event", error))
            }
            Err(Failure::Store(error)) => {
                Err(self.store_failed("carrying out a request for a parked event", &error))
            }
            Err(Failure::Connection) => {
                let (id, counts) = (row.id, Counts::default());
                Ok(Served { id, counts, not_before: None })
            }
            Err(Failure::Handler { error, discard, .. }) => {
                let served = self.retry_failed(lane, &row, &error);
                if discard {
                    lane.slot.close();
                    return Err(Interrupt::Discarded);
                }
                Ok(served)
            }
        }
    }

    /// The effect or the end of one parked event, and the request for the next
    /// of its key.
    async fn settle(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        row: &ParkedRow,
    ) -> Result<Settled, Failure> {
        if row.wish == Wish::Retry && self.goes_another_way() {
            return self.settle_another_way(lane, fence, row).await;
        }
        let (begin, end) = fence.statements(&self.shared.sql, &[]);
        let events = std::slice::from_ref(&row.event);
        let stamp = self.dedup(lane, fence, &self.shared.sql.parked.stamp, events);
        let client = lane.slot.client().await?;
        let tx = start(client).await.map_err(Failure::Database)?;
        let mut made = false;
        if row.wish == Wish::Retry {
            let (fenced, stamped) = join(tx.batch_execute(&begin), new_offsets(&tx, &stamp)).await;
            fenced.map_err(Failure::Database)?;
            made = !stamped.map_err(Failure::Database)?.is_empty();
            if made {
                let handled = match self.handle(&tx, events).await {
                    // The rest is ours, and not for a role that the handler took.
                    Ok(()) => {
                        let undo = &self.shared.sql.session.undo;
                        tx.batch_execute(undo).await.map_err(Failure::from)
                    }
                    failed => failed,
                };
                if let Err(failure) = handled {
                    let end = self.end_of_handler(&end);
                    let (failure, left) = self.roll_back(tx, &end, failure).await;
                    return Err(failure.unless_again(&mut lane.slot, left));
                }
            }
        } else {
            tx.batch_execute(&begin).await.map_err(Failure::Database)?;
        }
        let key_is_free =
            self.leave(&tx, fence.position(), row).await.map_err(Failure::Database)?;
        Failpoint::BeforeUnparkCommit.reached();
        let finished = commit(tx, &end).await;
        lane.slot.finished(finished)?;
        lane.committed(fence);
        Ok(Settled { made, key_is_free })
    }

    /// The same where the transaction is another client's, or the rows of `done`
    /// guard nothing.
    async fn settle_another_way(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        row: &ParkedRow,
    ) -> Result<Settled, Failure> {
        let sql = &self.shared.sql.parked;
        let leave = sql.leave(row.id, row.holds_key);
        let made = self.retry_another_way(lane, fence, &row.event, &leave).await?;
        if !row.holds_key {
            return Ok(Settled { made, key_is_free: false });
        }
        let key: [(&(dyn ToSql + Sync), Type); 2] =
            [(&fence.position(), Type::INT4), (&row.event.key(), Type::BYTEA)];
        let left = lane.slot.client().await?.query_typed_one(&sql.key_waits, &key).await;
        let key_is_free = !left.map_err(Failure::Database)?.get::<_, bool>(0);
        Ok(Settled { made, key_is_free })
    }

    /// The row leaves; the one behind it is asked for. Whether none is behind.
    async fn leave(
        &self,
        tx: &Transaction<'_>,
        position: i32,
        row: &ParkedRow,
    ) -> Result<bool, tokio_postgres::Error> {
        let sql = &self.shared.sql;
        let leave = match row.wish {
            Wish::Retry => &sql.parked.unpark,
            Wish::Discard => &sql.parked.discard,
        };
        tx.execute_typed(leave, &[(&row.id, Type::INT8)]).await?;
        if !row.holds_key {
            return Ok(false);
        }
        let behind: [(&(dyn ToSql + Sync), Type); 4] = [
            (&position, Type::INT4),
            (&row.id, Type::INT8),
            (&row.event.offset(), Type::INT8),
            (&row.event.key(), Type::BYTEA),
        ];
        let left = tx.query_typed_one(&sql.parked.next_of_key, &behind).await?;
        Ok(!left.get::<_, bool>(0))
    }

    fn settled(&self, lane: &mut Lane, row: &ParkedRow, settled: Settled) -> Served {
        let Settled { made, key_is_free } = settled;
        if key_is_free && let Some(key) = row.event.key() {
            lane.held.release(key);
        }
        lane.trials.refused.remove(&row.id);
        let (made, copies) = (u64::from(made), u64::from(row.wish == Wish::Retry && !made));
        self.metrics.applied.increment(made);
        self.metrics.unparked.increment(made);
        self.metrics.duplicates.increment(copies);
        let counts =
            Counts { applied: made, unparked: made, duplicates: copies, ..Counts::default() };
        let (partition, offset, id) = (&self.of, row.event.offset(), row.id);
        match row.wish {
            Wish::Retry => tracing::info!(%partition, offset, id, "applied a parked event"),
            Wish::Discard => tracing::warn!(%partition, offset, id, "discarded a parked event"),
        }
        Served { id, counts, not_before: None }
    }

    /// A parked event gets one attempt for each request; one that was never
    /// tried as many as any other event.
    fn retry_failed(&self, lane: &mut Lane, row: &ParkedRow, error: &HandlerError) -> Served {
        let reason = error.report();
        let (partition, offset, id) = (&self.of, row.event.offset(), row.id);
        let settings = &self.shared.settings;
        let before = lane.trials.refused.remove(&id);
        let (mut attempts, mut transient_failures) =
            before.map_or((0, 0), |before| (before.attempts, before.transient_failures));
        let mut is_last = false;
        let wait = if let HandlerError::Transient(_) = error {
            transient_failures += 1;
            tell!(
                warn,
                { partition = partition, offset = offset, reason = reason },
                "a transient fault, trying the parked event again"
            );
            RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(10))
                .delay(transient_failures, jitter())
        } else {
            tracing::warn!(%partition, offset, id, reason, "a parked event failed again");
            attempts += 1;
            let allowed = if row.waiting { settings.max_attempts } else { 1 };
            let wait = self.next_attempt(error, attempts, allowed);
            is_last = wait.is_none();
            wait
        };
        let not_before = wait.map(|wait| Instant::now() + wait);
        let key = row.event.key().map(Into::into);
        let refused =
            Refused { offset, key, attempts, transient_failures, reason, is_last, not_before };
        lane.trials.refuse(id, refused);
        Served { id, counts: Counts::default(), not_before }
    }

    /// The event stays parked, with the reason of now.
    async fn keep_parked(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        id: i64,
        refused: Refused,
    ) -> Result<Served, Interrupt> {
        let (sql, position) = (&self.shared.sql, fence.position());
        let (begin, end) = fence.statements(sql, &[]);
        let Refused { offset, key: of, attempts, reason, .. } = refused;
        let (reason, more) =
            (reason.replace('\0', "\u{fffd}"), i32::try_from(attempts).unwrap_or(i32::MAX));
        let client = lane.slot.client().await?;
        let kept = async {
            let tx = start(client).await?;
            tx.batch_execute(&begin).await?;
            let row: [(&(dyn ToSql + Sync), Type); 5] = [
                (&position, Type::INT4),
                (&id, Type::INT8),
                (&of.as_deref(), Type::BYTEA),
                (&reason, Type::TEXT),
                (&more, Type::INT4),
            ];
            tx.execute_typed(&sql.parked.keep, &row).await?;
            commit(tx, &end).await.map(drop)
        };
        kept.await.map_err(|error| self.failed("keeping an event parked", error))?;
        lane.committed(fence);
        self.say_parked(position);
        let partition = &self.of;
        tell!(
            error,
            { partition = partition, offset = offset, id = id, reason = reason },
            "the event stays parked"
        );
        Ok(Served { id, counts: Counts::default(), not_before: None })
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// Of the row.
    pub(super) id: i64,
    pub(super) counts: Counts,
    /// The next attempt, where there is one that has to wait.
    pub(super) not_before: Option<Instant>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// The effect was made now.
    made: bool,
    /// Nothing waits for the key any more.
    key_is_free: bool,
}
