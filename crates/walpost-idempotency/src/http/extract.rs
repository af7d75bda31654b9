//! What a handler takes out of its request.

use std::{convert::Infallible, sync::Arc};

use axum_core::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
};
use futures_util::future::BoxFuture;
use http::request::Parts;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Transaction;

use super::{TxError, leased::Held, respond::problem};
use crate::{Policy, Problem};

/// Work that is done where the transaction is.
pub(super) type Job = Box<dyn for<'a> FnOnce(&'a Transaction<'a>) -> BoxFuture<'a, ()> + Send>;

/// The transaction in which this request was claimed and its response will be
/// stored: an extractor for routes in [`Mode::Transactional`](crate::Mode).
///
/// It commits with a response of 2xx or 3xx, and with all else it is undone. No
/// statement of it may be `commit` or `rollback`: the database refuses the
/// response then, but what was committed stays.
#[derive(Clone, Debug)]
pub struct Tx {
    jobs: mpsc::Sender<Job>,
}

impl Tx {
    /// The two ends: of the handler, and of whoever has the transaction.
    pub(super) fn channel() -> (Self, mpsc::Receiver<Job>) {
        let (jobs, received) = mpsc::channel(1);
        (Self { jobs }, received)
    }

    /// Does something in the transaction, such as inserting a row and
    /// `walpost_outbox::write`. Calls are made one after another.
    ///
    /// Once it has begun, `work` runs to its end though this future is dropped:
    /// never half of it is committed.
    ///
    /// # Errors
    /// Those of `work`; [`TxError::Ended`] in a task that has outlived its
    /// request.
    pub async fn run<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'a> FnOnce(&'a Transaction<'a>) -> BoxFuture<'a, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<TxError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            Box::pin(async move {
                // Nobody listens any more where the future was dropped.
                let _ = answer.send(work(tx).await);
            })
        });
        self.jobs.send(job).await.map_err(|_| TxError::Ended)?;
        answered.await.map_err(|_| TxError::Ended)?
    }
}

/// The run of a request under its lease: an extractor for routes in
/// [`Mode::Leased`](crate::Mode).
#[derive(Clone, Debug)]
pub struct Run {
    held: Arc<Held>,
}

impl Run {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    /// Where to go on: the last recovery point that a run before this one has
    /// committed. Not those of this one.
    pub fn recovery_point(&self) -> Option<&str> {
        self.held.lease.recovery_point()
    }

    /// A key for a call that the handler makes, the same in each run of this
    /// request: `call` names it, as `charge`.
    pub fn key_for(&self, call: &str) -> String {
        self.held.lease.key_for(call)
    }

    /// Does something in a transaction of its own that commits together with the
    /// recovery point of this name, 1 to 200 bytes. A run that was overtaken is
    /// refused by the database, with all that it wrote.
    ///
    /// # Errors
    /// Those of `work`, after which nothing of it is there; [`TxError`].
    pub async fn phase<T, E, F>(&self, recovery_point: &str, work: F) -> Result<T, E>
    where
        F: for<'a> FnOnce(&'a Transaction<'a>) -> BoxFuture<'a, Result<T, E>> + Send,
        E: From<TxError>,
    {
        self.held.phase(recovery_point, work).await
    }
}

/// What stands in a request for its handler to extract.
#[derive(Clone, Debug)]
pub(super) enum Given {
    Tx(Tx),
    Run(Run),
    /// The database is away, and the policy lets the handler run.
    Nothing,
}

impl Given {
    fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }
}

/// 503 without the database, 500 without the layer.
fn rejection(given: Option<&Given>, wanted: &'static str) -> http::Response<Body> {
    let what = if let Some(Given::Nothing) = given {
        Problem::StoreUnavailable { retry_after_s: 1 }
    } else {
        tracing::error!(
            wanted,
            "a handler asks for what its route has not: put an IdempotencyLayer around it, in the \
             mode that gives it, for the method of the request"
        );
        Problem::HandlerFailed
    };
    problem(&Policy::new("any"), what)
}

impl<S: Sync> FromRequestParts<S> for Tx {
    type Rejection = http::Response<Body>;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Given::of(parts) {
            Some(Given::Tx(tx)) => Ok(tx.clone()),
            given => Err(rejection(given, "Tx")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Run {
    type Rejection = http::Response<Body>;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Given::of(parts) {
            Some(Given::Run(run)) => Ok(run.clone()),
            given => Err(rejection(given, "Run")),
        }
    }
}

/// None where the request has no key or the database is away, and the policy
/// lets it pass.
impl<S: Sync> OptionalFromRequestParts<S> for Run {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(match Given::of(parts) {
            Some(Given::Run(run)) => Some(run.clone()),
            _ => None,
        })
    }
}
