//! Parked events that somebody wants retried or discarded. The owner of the
//! partition does it, behind its fence, one event in one transaction.

use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio_postgres::{
    Transaction,
    types::{ToSql, Type},
};
use walpost_event::RetrySchedule;

use super::{
    Interrupt, Partition,
    apply::{finish, roll_back, start},
    failure::Failure,
    held::MAX_HELD_KEYS,
    jitter,
    parked_row::{ParkedRow, Wish},
    session::Session,
    trials::Refused,
};
use crate::{Handler, HandlerError, failpoint::Failpoint, tell::tell};

impl<H: Handler> Partition<H> {
    /// Does what is asked for, one event at a time, so that the partition's
    /// other events go on in between.
    pub(super) async fn look_at_requests(
        &mut self,
        session: &mut Session,
    ) -> Result<(), Interrupt> {
        if session.held.look_at().is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        if let Some(refused) = self.trials.refused.take_if(|refused| refused.is_last) {
            return self.keep_parked(session, refused).await;
        }
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&session.key.position, Type::INT4)];
        let asked = session.client.query_typed_opt(&self.shared.sql.parked.request, &of);
        let asked = asked.await.map_err(|error| self.failed("reading requests", error))?;
        let Some(row) = asked.as_ref().map(ParkedRow::read) else {
            session.held.looked(Instant::now(), None);
            return Ok(());
        };
        match self.settle(session, &row).await {
            Ok(settled) => {
                self.settled(session, &row, settled);
                Ok(())
            }
            Err(Failure::Database(error)) => {
                Err(self.failed("carrying out a request for a parked event", error))
            }
            Err(Failure::Handler { error, discard, .. }) => {
                self.retry_failed(session, row, error).await?;
                if discard { Err(Interrupt::Discarded) } else { Ok(()) }
            }
        }
    }

    /// The effect or the end of one parked event, and the request for the next
    /// of its key.
    async fn settle(&self, session: &mut Session, row: &ParkedRow) -> Result<Settled, Failure> {
        let (key, sql) = (session.key, &self.shared.sql);
        let begin = sql.batch_begin(&key, &key, session.ledger.known());
        let end = sql.batch_end(&key);
        let run = session.replay.run;
        let tx = start(&mut session.client).await.map_err(Failure::Database)?;
        let mut made = false;
        if row.wish == Wish::Retry {
            let event = &row.event;
            let consumer = self.shared.settings.consumer.as_str();
            let stamp: [(&(dyn ToSql + Sync), Type); 6] = [
                (&consumer, Type::TEXT),
                (&key.position, Type::INT4),
                (&event.source(), Type::TEXT),
                (&event.id(), Type::TEXT),
                (&event.offset(), Type::INT8),
                (&run, Type::INT4),
            ];
            let (fenced, stamped) =
                join(tx.batch_execute(&begin), tx.query_typed_opt(&sql.parked.stamp, &stamp)).await;
            fenced.map_err(Failure::Database)?;
            made = stamped.map_err(Failure::Database)?.is_some();
            if made && let Err(failure) = self.handle(&tx, std::slice::from_ref(event)).await {
                return Err(roll_back(tx, failure).await);
            }
        } else {
            tx.batch_execute(&begin).await.map_err(Failure::Database)?;
        }
        let key_is_free = self.leave(&tx, key.position, row).await.map_err(Failure::Database)?;
        Failpoint::BeforeUnparkCommit.reached();
        finish(tx, &end).await?;
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

    fn settled(&mut self, session: &mut Session, row: &ParkedRow, settled: Settled) {
        let Settled { made, key_is_free } = settled;
        if key_is_free && let Some(key) = row.event.key() {
            session.held.released(key);
        }
        self.trials.refused = None;
        self.trials.transient_failures = 0;
        let (made, counted) = (u64::from(made), u64::from(row.wish == Wish::Retry && !made));
        self.metrics.applied.increment(made);
        self.metrics.unparked.increment(made);
        self.metrics.duplicates.increment(counted);
        self.shared.board.count(|counts| {
            counts.applied += made;
            counts.unparked += made;
            counts.duplicates += counted;
        });
        let (partition, offset, id) = (&self.of, row.event.offset(), row.id);
        match row.wish {
            Wish::Retry => tracing::info!(%partition, offset, id, "applied a parked event"),
            Wish::Discard => tracing::warn!(%partition, offset, id, "discarded a parked event"),
        }
    }

    /// A parked event gets one attempt for each request; one that was never
    /// tried as many as any other event.
    async fn retry_failed(
        &mut self,
        session: &mut Session,
        row: ParkedRow,
        error: HandlerError,
    ) -> Result<(), Interrupt> {
        let reason = error.report();
        let (partition, offset, id) = (&self.of, row.event.offset(), row.id);
        if let HandlerError::Transient(_) = error {
            self.trials.transient_failures += 1;
            tell!(
                warn,
                { partition = partition, offset = offset, reason = reason },
                "a transient fault, trying the parked event again"
            );
            let backoff =
                RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(10));
            let wait = backoff.delay(self.trials.transient_failures, jitter());
            session.held.looked(Instant::now(), wait);
            return Ok(());
        }
        tracing::warn!(%partition, offset, id, reason, "a parked event failed again");
        let attempts =
            1 + self.trials.refused.take_if(|last| last.id == id).map_or(0, |last| last.attempts);
        let allowed = if row.waiting { self.shared.settings.max_attempts } else { 1 };
        let retried = matches!(error, HandlerError::Retry(_)) && attempts < allowed;
        let wait = self.shared.settings.retry_schedule.delay(attempts, jitter());
        session.held.looked(Instant::now(), wait.filter(|_| retried).or(Some(Duration::ZERO)));
        let key = row.event.key().map(Into::into);
        self.trials.refused =
            Some(Refused { id, offset, key, attempts, reason, is_last: !retried });
        Ok(())
    }

    /// The event stays parked, with the reason of now.
    async fn keep_parked(&self, session: &mut Session, refused: Refused) -> Result<(), Interrupt> {
        let (key, sql) = (session.key, &self.shared.sql);
        let begin = sql.batch_begin(&key, &key, session.ledger.known());
        let end = sql.batch_end(&key);
        let Refused { id, offset, key: of, attempts, reason, .. } = refused;
        let (reason, more) =
            (reason.replace('\0', "\u{fffd}"), i32::try_from(attempts).unwrap_or(i32::MAX));
        let kept = async {
            let tx = start(&mut session.client).await?;
            tx.batch_execute(&begin).await?;
            let row: [(&(dyn ToSql + Sync), Type); 5] = [
                (&key.position, Type::INT4),
                (&id, Type::INT8),
                (&of.as_deref(), Type::BYTEA),
                (&reason, Type::TEXT),
                (&more, Type::INT4),
            ];
            tx.execute_typed(&sql.parked.keep, &row).await?;
            finish(tx, &end).await
        };
        kept.await.map_err(|error| self.failed("keeping an event parked", error))?;
        let partition = &self.of;
        tell!(
            error,
            { partition = partition, offset = offset, id = id, reason = reason },
            "the event stays parked"
        );
        Ok(())
    }

    /// More held keys than anybody would look through is no poison. Asked when
    /// one more was parked alone, so that after a restart requests are served.
    pub(super) fn check_held(&self, session: &Session, one_more: bool) -> Result<(), Interrupt> {
        if !one_more || !session.held.is_too_much() {
            return Ok(());
        }
        Err(Interrupt::Halt(format!(
            "more than {MAX_HELD_KEYS} keys are held back by parked events, which is a fault and no \
             poison. See {}.consumer_parked, mend the handler, ask for the events to be retried or \
             discarded, and restart the consumer",
            self.shared.sql.schema(),
        )))
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// The effect was made now.
    made: bool,
    /// Nothing waits for the key any more.
    key_is_free: bool,
}
