//! One claimed event: its effect and its state in one transaction, and what
//! becomes of it where that fails.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join};
use tokio::time::{timeout, timeout_at};
use tokio_postgres::{
    Client, Transaction,
    types::{ToSql, Type},
};
use walpost_event::{RetrySchedule, jitter};
use walpost_prepared::{Left, commit, roll_back};

use crate::{
    Event, Handler, HandlerError,
    builder::Shared,
    claim::Claim,
    database::Session,
    handler::FailureKind,
    metrics::What,
    report::{Verdict, report},
};

/// How often an attempt that met another transaction is made again at once.
const CONFLICTS_MAX: u32 = 20;
/// Between those, doubling.
const CONFLICT_FIRST_MS: u64 = 5;
const CONFLICT_CAP_MS: u64 = 500;
/// Between attempts that failed for a passing fault, doubling.
const TRANSIENT_FIRST_MS: u64 = 500;
const TRANSIENT_CAP_MS: u64 = 60_000;

/// A parameter of a statement.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A claimed event, and what is to be done with it.
pub(crate) struct Attempt<H: Handler> {
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) claim: Claim,
    pub(crate) work: H::Work,
}

/// Why there is no effect, and whether the connection may not be used again.
struct Failure {
    error: HandlerError,
    discard: bool,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let error = HandlerError::from(error);
        Self { discard: error.kind == FailureKind::Transient, error }
    }
}

impl<H: Handler> Attempt<H> {
    /// Makes the effect, or says in the event's row why there is none. Gives a
    /// connection back that can be used again.
    pub(crate) async fn run(self, mut session: Option<Session>) -> Option<Session> {
        let pauses = RetrySchedule::backoff(
            Duration::from_millis(CONFLICT_FIRST_MS),
            Duration::from_millis(CONFLICT_CAP_MS),
        );
        let mut conflicts = 0;
        let error = loop {
            match self.once(&mut session).await {
                Ok(()) => {
                    self.shared.metrics.succeeded(self.claim.received.elapsed().as_secs_f64());
                    return session;
                }
                Err(error) if error.is_conflict() && conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    let pause = pauses.delay(conflicts, jitter()).unwrap_or_default();
                    if Instant::now() + pause >= self.claim.deadline {
                        break error;
                    }
                    tokio::time::sleep(pause).await;
                }
                Err(error) => break error,
            }
        };
        self.settle(&mut session, &error).await;
        session
    }

    /// Tries to make the effect while the lease lasts.
    async fn once(&self, session: &mut Option<Session>) -> Result<(), HandlerError> {
        let mut used = self.session(session).await?;
        let deadline = self.claim.deadline.into();
        let mark = used.mark;
        match timeout_at(deadline, self.effect(&mut used.client, mark)).await {
            Ok(Ok(left)) => {
                *session = self.shared.types.committed(mark, left).then_some(used);
                Ok(())
            }
            Ok(Err(Failure { error, discard })) => {
                if discard {
                    used.discard();
                } else {
                    *session = Some(used);
                }
                Err(error)
            }
            Err(_) => {
                used.discard();
                let reason = "the lease ended before the attempt did".into();
                Err(HandlerError { kind: FailureKind::Lost, reason })
            }
        }
    }

    async fn effect(&self, client: &mut Client, mark: u64) -> Result<Option<Left>, Failure> {
        let settings = &self.shared.settings;
        let sql = &self.shared.inbox.sql;
        let (number, fence) = (self.claim.head.number, self.claim.fence);
        let tx = client.build_transaction().isolation_level(settings.isolation).start().await?;
        let limit_ms = i64::from(settings.handler_timeout_ms);
        let idle_ms = i64::from(settings.lease_ms);
        let marker = format!("{number}:{fence}");
        let (keep, begin): ([Parameter<'_>; 1], [Parameter<'_>; 4]) = (
            [(&marker, Type::TEXT)],
            [
                (&number, Type::INT8),
                (&fence, Type::INT8),
                (&limit_ms, Type::INT8),
                (&idle_ms, Type::INT8),
            ],
        );
        let begun = tx.query_typed_one(&sql.begin, &begin);
        let (kept, begun) = join(tx.execute_typed(&sql.keep_session, &keep), begun).await;
        kept?;
        let event = Event::new(self.claim.head.clone(), begun?.get(0));
        if let Err(failure) = self.handle(&tx, &event).await {
            return Err(self.rolled_back(tx, mark, failure).await);
        }
        let undo = sql.undo_session(&marker, limit_ms, idle_ms);
        let ended = async {
            let ending: [Parameter<'_>; 2] = [(&number, Type::INT8), (&fence, Type::INT8)];
            let succeeded = tx.query_typed(&sql.succeed, &ending);
            let (undone, succeeded) = join(tx.batch_execute(&undo), succeeded).await;
            undone?;
            succeeded?;
            commit(tx, "").await
        };
        // What the handler set in its session may still be there.
        ended.await.map_err(|error| Failure { error: error.into(), discard: true })
    }

    /// Rolls back what a handler did that failed.
    async fn rolled_back(&self, tx: Transaction<'_>, mark: u64, mut failure: Failure) -> Failure {
        if failure.discard {
            return failure;
        }
        let Ok(left) = roll_back(tx, &self.shared.inbox.sql.roll_back()).await else {
            return Failure { discard: true, ..failure };
        };
        let lacked_statement = failure.error.kind == FailureKind::Unprepared;
        let reuse = self.shared.types.rolled_back(mark, left, lacked_statement);
        failure.discard = !reuse.connection;
        if lacked_statement && !reuse.try_again {
            failure.error.kind = FailureKind::Retry;
        }
        failure
    }

    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), Failure> {
        let limit = Duration::from_millis(u64::from(self.shared.settings.handler_timeout_ms));
        let handling = AssertUnwindSafe(self.shared.handler.process(tx, &self.work, event));
        let dropped = |reason| Err(Failure { error: HandlerError::retry(reason), discard: true });
        match timeout(limit, handling.catch_unwind()).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(Failure { error, discard: false }),
            Ok(Err(_)) => dropped("the handler panicked"),
            Err(_) => dropped("the handler took too long"),
        }
    }

    async fn session(&self, session: &mut Option<Session>) -> Result<Session, HandlerError> {
        let types = &self.shared.types;
        let is_of_use = |session: &Session| !session.client.is_closed() && types.fits(session.mark);
        if let Some(session) = session.take().filter(is_of_use) {
            return Ok(session);
        }
        let mut session = self.connect().await?;
        match types.teach(&mut session.client).await {
            Ok(mark) => {
                session.mark = mark;
                Ok(session)
            }
            Err(error) => {
                let reason = report(&error);
                tracing::debug!(reason, "the types of the database could not be looked up");
                self.connect().await
            }
        }
    }

    async fn connect(&self) -> Result<Session, HandlerError> {
        self.shared.database.connect(None).await.map_err(|none| HandlerError {
            kind: FailureKind::Transient,
            reason: none.reason.into(),
        })
    }

    /// Writes down that the attempt failed, if the claim still holds.
    async fn settle(&self, session: &mut Option<Session>, error: &HandlerError) {
        let metrics = &self.shared.metrics;
        let head = &self.claim.head;
        let (number, event_id, event_type) = (head.number, &head.event_id, &head.event_type);
        let (attempt, reason) = (head.attempt, &*error.reason);
        let (counts, again) = match error.kind {
            FailureKind::Lost => {
                metrics.add(What::Lost, 1);
                tracing::warn!(number, ?event_id, ?event_type, attempt, reason, "claim lost");
                return;
            }
            FailureKind::Retry => (true, self.shared.settings.retries.delay(attempt, jitter())),
            FailureKind::GiveUp => (true, None),
            FailureKind::Transient | FailureKind::Conflict | FailureKind::Unprepared => {
                (false, Some(self.pause()))
            }
        };
        let deadline = self.claim.deadline.into();
        let written = timeout_at(deadline, self.fail(session, reason, counts, again)).await;
        let outcome = match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.reason),
            Err(_) => Err("no answer".into()),
        };
        if let Err(trouble) = outcome {
            // Its lease will end; or COMMIT went through, and only its answer
            // did not.
            metrics.add(What::Lost, 1);
            let trouble = &*trouble;
            tracing::warn!(number, ?event_id, attempt, reason, trouble, "left to its lease");
            return;
        }
        metrics.add(if counts { What::Failure } else { What::Transient }, 1);
        if let Some(again) = again {
            let again_ms = u64::try_from(again.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(number, ?event_id, ?event_type, attempt, reason, again_ms, "failed");
        } else {
            metrics.add(What::GivenUp, 1);
            tracing::error!(number, ?event_id, ?event_type, attempt, reason, "given up");
        }
    }

    async fn fail(
        &self,
        session: &mut Option<Session>,
        reason: &str,
        counts: bool,
        again: Option<Duration>,
    ) -> Result<(), HandlerError> {
        let used = self.session(session).await?;
        let again_ms = again.map(|again| i64::try_from(again.as_millis()).unwrap_or(i64::MAX));
        let reason = reason.replace('\0', "\u{fffd}");
        let written = used
            .client
            .query_typed(
                &self.shared.inbox.sql.fail,
                &[
                    (&self.claim.head.number, Type::INT8),
                    (&self.claim.fence, Type::INT8),
                    (&reason, Type::TEXT),
                    (&counts, Type::BOOL),
                    (&again_ms, Type::INT8),
                ],
            )
            .await;
        match written {
            Ok(_) => {
                *session = Some(used);
                Ok(())
            }
            Err(error) => {
                let failed =
                    HandlerError { kind: FailureKind::Lost, reason: report(&error).into() };
                if Verdict::of(&error) != Verdict::Transient {
                    *session = Some(used);
                }
                Err(failed)
            }
        }
    }

    /// By how often the event was claimed and that did not count.
    fn pause(&self) -> Duration {
        let first = Duration::from_millis(TRANSIENT_FIRST_MS);
        let cap = Duration::from_millis(TRANSIENT_CAP_MS);
        let uncounted = self.claim.fence.saturating_sub(i64::from(self.claim.head.attempt));
        let failures = u32::try_from(uncounted.saturating_add(1)).unwrap_or(u32::MAX);
        RetrySchedule::backoff(first, cap).delay(failures, jitter()).unwrap_or(cap)
    }
}
