//! A request that is carried out under a lease, which is renewed meanwhile.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum_core::{BoxError, body::Body};
use bytes::Bytes;
use futures_util::future::{BoxFuture, join};
use http::{Request, Response};
use tokio::{
    select,
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use tokio_postgres::Transaction;
use tower_service::Service;
use walpost_prepared::{commit, roll_back};

use super::{
    TxError,
    database::{Lent, NoConnection},
    extract::{Given, Run},
    handling::{Failed, Handled, handle},
    layer::{Shared, Step},
    metrics::{self, Result as Counted},
    request::Asked,
    respond::{problem, stored, stored_problem},
};
use crate::{Error, Lease, OnStoreFailure, Problem, failpoint::Failpoint};

const BEGINNING: &str = "beginning a phase";
const ENDING: &str = "ending a phase";

/// A lease, and what is under way in it.
pub(super) struct Held {
    shared: Arc<Shared>,
    pub(super) lease: Lease,
    /// Before it was asked for: the lease lasts from then on at least.
    claimed: Instant,
    phases: AtomicUsize,
}

/// Renews a lease in a task of its own, from which a handler that computes, and
/// does not let go of its own task, keeps nothing.
struct Renewal {
    /// Ends when the lease is lost.
    task: JoinHandle<()>,
}

/// Claims the request and carries it out, or says why not; takes `call` only
/// when it is carried out.
pub(super) async fn attempt<S, B>(shared: &Arc<Shared>, call: &mut Option<(S, Asked)>) -> Step
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let held = match call.as_ref().and_then(|(_, asked)| asked.claim) {
        None => None,
        Some(claim) => match Held::claim(shared, claim).await {
            Ok(held) => Some(Arc::new(held)),
            Err(step) => return step,
        },
    };
    shared.count(if held.is_some() { Counted::New } else { Counted::Keyless });
    let (service, mut asked) = call.take().expect("it is carried out once");
    let run = held.clone().map_or(Given::Nothing, |held| Given::Run(Run::new(held)));
    asked.parts.extensions.insert(run);
    let (max_bytes, limit) = (shared.policy.response_max_bytes, shared.policy.handler_timeout);
    let handling = handle(service, asked.request(), max_bytes, limit);
    let Some(held) = held else {
        return Step::answered(answer(shared, handling.await).0);
    };
    let mut renewal = Renewal::begin(Arc::clone(&held)).await;
    let handled = select! {
        biased;
        handled = handling => handled,
        _ = &mut renewal.task => return Step::answered(held.lost()),
    };
    drop(renewal);
    Step::answered(held.end(handled).await)
}

/// The answer, and what of it is to be stored.
fn answer(shared: &Shared, handled: Handled) -> (Response<Body>, Option<crate::Response>) {
    let policy = &shared.policy;
    match handled {
        Ok((parts, body)) => {
            let is_kept = policy.keep.keeps(parts.status.as_u16());
            let kept = is_kept.then(|| stored(policy, &parts, &body));
            (Response::from_parts(parts, Body::from(body)), kept)
        }
        // What was done cannot be undone, nor be done again.
        Err(failed @ Failed::TooLarge) => {
            let kept = stored_problem(policy, shared.problem_of(failed));
            (shared.failed(failed), Some(kept))
        }
        Err(failed) => (shared.failed(failed), None),
    }
}

impl Held {
    async fn claim(
        shared: &Arc<Shared>,
        (lookup, fingerprint): (crate::Lookup, crate::Fingerprint),
    ) -> Result<Self, Step> {
        let mut lent = match shared.database.get().await {
            Ok(lent) => lent,
            Err(none) => return Err(none.into()),
        };
        let is_used = lent.is_used;
        let claimed = Instant::now();
        let claim = shared.idempotency.lease(lent.client(), &lookup, &fingerprint, &shared.policy);
        let claim = shared.database.in_time("claiming a request", claim).await;
        let claim = match claim {
            Ok(claim) => claim,
            Err(Error::GivenUp { .. } | Error::Conflict { .. }) => {
                return Err(Step::Busy(shared.policy.retry_after));
            }
            Err(error) => return Err(Step::failed(&error, is_used)),
        };
        lent.give_back();
        let lease = shared.granted(claim)?;
        Failpoint::AfterLease.reached();
        Ok(Self { shared: Arc::clone(shared), lease, claimed, phases: AtomicUsize::new(0) })
    }

    /// As [`Run::phase`].
    pub(super) async fn phase<T, E, F>(&self, recovery_point: &str, work: F) -> Result<T, E>
    where
        F: for<'a> FnOnce(&'a Transaction<'a>) -> BoxFuture<'a, Result<T, E>> + Send,
        E: From<TxError>,
    {
        let idempotency = &self.shared.idempotency;
        let failed = |error: Error| E::from(TxError::from(error));
        let mut lent = self.connection().await.map_err(failed)?;
        let _phase = Phase::begin(&self.phases);
        let tx = idempotency.begin(lent.client()).await.map_err(failed)?;
        let keep = tx.batch_execute(&idempotency.sql.keep_session);
        let (kept, held) = join(keep, idempotency.hold(&tx, &self.lease)).await;
        kept.map_err(|error| failed(idempotency.failed(BEGINNING, &error)))?;
        held.map_err(failed)?;
        let done = match work(&tx).await {
            Ok(done) => done,
            Err(error) => {
                if let Ok(left) = roll_back(tx, &idempotency.sql.roll_back()).await {
                    lent.rolled_back(left);
                }
                return Err(error);
            }
        };
        let Lease { lookup, lease_ms, .. } = &self.lease;
        let undo = idempotency.sql.undo_session(Some(lookup), None, Some(*lease_ms));
        let reach = idempotency.reach(&tx, &self.lease, Some(recovery_point));
        let (undone, reached) = join(tx.batch_execute(&undo), reach).await;
        undone.map_err(|error| failed(idempotency.failed(ENDING, &error)))?;
        reached.map_err(failed)?;
        let committing = |error| failed(idempotency.failed("committing a phase", &error));
        let left = commit(tx, "").await.map_err(committing)?;
        lent.committed(left);
        Failpoint::AfterPhase.reached();
        Ok(done)
    }

    async fn connection(&self) -> Result<Lent, Error> {
        let lent = self.shared.database.get().await;
        lent.map_err(|none| {
            let (NoConnection::Busy(detail) | NoConnection::Away(detail)) = none;
            Error::Unavailable { attempted: "connecting", detail }
        })
    }

    /// Renews the lease until it is lost, and ends then. While a phase is open
    /// nobody can take the request over, and the row is not ours to update.
    async fn renew(&self) {
        let lease = self.shared.policy.lease;
        let mut until = self.claimed + lease;
        loop {
            sleep(lease / 3).await;
            let begun = Instant::now();
            if self.phases.load(Ordering::SeqCst) > 0 {
                until = begun + lease;
                continue;
            }
            let limit = until.max(begun + Duration::from_millis(10)).min(begun + lease / 3);
            match timeout_at(limit, self.renew_once()).await {
                Ok(Ok(())) => until = begun + lease,
                Ok(Err(Error::GivenUp { .. })) => return,
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "a lease was not renewed");
                }
                Err(_) => tracing::warn!("a lease was not renewed in time"),
            }
            if Instant::now() >= until && self.phases.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }

    async fn renew_once(&self) -> Result<(), Error> {
        let mut lent = self.connection().await?;
        self.shared.idempotency.renew(lent.client(), &self.lease).await?;
        lent.give_back();
        Ok(())
    }

    /// Somebody else has the request, or may have it by now.
    fn lost(&self) -> Response<Body> {
        let policy = &self.shared.policy;
        tracing::error!(route = policy.route(), "a lease was lost; its handler was given up");
        self.shared.lease_lost();
        problem(policy, Problem::in_flight(policy.retry_after))
    }

    /// Ends the lease, with the response where it is one to keep.
    async fn end(&self, handled: Handled) -> Response<Body> {
        let (response, kept) = answer(&self.shared, handled);
        Failpoint::BeforeFinish.reached();
        let database = &self.shared.database;
        const ATTEMPTED: &str = "ending a lease";
        let mut ended = database.in_time(ATTEMPTED, self.end_once(kept.as_ref())).await;
        if let Err(Error::Unavailable { .. }) = ended {
            database.forget_idle();
            ended = database.in_time(ATTEMPTED, self.end_again(kept.as_ref())).await;
        }
        Failpoint::AfterFinish.reached();
        match ended {
            Ok(()) => response,
            Err(Error::GivenUp { .. }) => self.lost(),
            Err(error) if kept.is_none() => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a lease was not released, and ends by itself");
                response
            }
            Err(error) if self.shared.policy.on_store_failure == OnStoreFailure::Open => {
                let route = self.shared.policy.route();
                let error = &error as &dyn std::error::Error;
                tracing::error!(route, error, "a response was not stored, and is given out");
                self.shared.count(Counted::Open);
                response
            }
            Err(error) => self.shared.not_stored(&error),
        }
    }

    async fn end_once(&self, kept: Option<&crate::Response>) -> Result<(), Error> {
        let mut lent = self.connection().await?;
        let client = &*lent.client();
        match kept {
            Some(response) => self.shared.idempotency.finish(client, &self.lease, response).await?,
            None => {
                metrics::failure(self.shared.policy.route(), "not_kept");
                self.shared.idempotency.release(client, &self.lease).await?;
            }
        }
        lent.give_back();
        Ok(())
    }

    /// The same behind an attempt that may have ended it, though its answer was lost.
    async fn end_again(&self, kept: Option<&crate::Response>) -> Result<(), Error> {
        let ended = self.end_once(kept).await;
        if !matches!(ended, Err(Error::GivenUp { .. })) {
            return ended;
        }
        // Released, it may be somebody else's at once: whether that was by us is not to
        // be known, and its answer is not to be kept.
        let Some(response) = kept else { return Ok(()) };
        let mut lent = self.connection().await?;
        let idempotency = &self.shared.idempotency;
        let is_ours = idempotency.has_finished(lent.client(), &self.lease, response).await?;
        lent.give_back();
        if is_ours { Ok(()) } else { ended }
    }
}

impl Renewal {
    async fn begin(held: Arc<Held>) -> Self {
        let (begun, has_begun) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Whoever listens is this task's owner.
            let _ = begun.send(());
            held.renew().await;
        });
        // A task that was never run may be next on the very thread that the handler
        // keeps.
        let _ = has_begun.await;
        Self { task }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// A transaction under the lease.
struct Phase<'a>(&'a AtomicUsize);

impl<'a> Phase<'a> {
    fn begin(phases: &'a AtomicUsize) -> Self {
        phases.fetch_add(1, Ordering::SeqCst);
        Self(phases)
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
