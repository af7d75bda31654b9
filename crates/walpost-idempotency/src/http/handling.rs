//! A handler at work, up to the last byte of its response.

use std::{convert::Infallible, future::Future, panic::AssertUnwindSafe, pin::pin, time::Duration};

use axum_core::{BoxError, body::Body};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, response::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::{
    select,
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_postgres::Transaction;
use tower_service::Service;

use super::extract::Job;

/// Why there is no response that could be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Panicked,
    TimedOut,
    /// Its body is longer than the policy says.
    TooLarge,
    /// Its body ended with an error.
    Broken,
}

impl Failed {
    /// As a label, and in the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::TooLarge => "response_too_large",
            Self::Broken => "response_broken",
        }
    }
}

/// Head and whole body.
pub(super) type Handled = Result<(Parts, Bytes), Failed>;

/// What the service makes of the request, with its whole body; within the limit
/// and without a panic.
pub(super) async fn handle<S, B>(
    mut service: S,
    request: Request<Body>,
    max_bytes: usize,
    limit: Duration,
) -> Handled
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let handling = async move {
        let Ok(response) = service.call(request).await;
        let (parts, body) = response.into_parts();
        match Limited::new(body, max_bytes).collect().await {
            Ok(body) => Ok((parts, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err(Failed::TooLarge),
            Err(_) => Err(Failed::Broken),
        }
    };
    let handling = AssertUnwindSafe(handling).catch_unwind();
    match timeout_at(Instant::now() + limit, handling).await {
        Ok(Ok(handled)) => handled,
        Ok(Err(_)) => Err(Failed::Panicked),
        Err(_) => Err(Failed::TimedOut),
    }
}

/// Does the jobs of a handler on its transaction, while it is at work. A job
/// that was begun is ended, also when the handler does not wait for it: it may
/// have been half done else.
pub(super) async fn serve(
    tx: &Transaction<'_>,
    mut jobs: mpsc::Receiver<Job>,
    handling: impl Future<Output = Handled>,
    limit: Duration,
) -> Handled {
    let until = Instant::now() + limit;
    let mut handling = pin!(handling);
    loop {
        let job = select! {
            biased;
            handled = &mut handling => return handled,
            Some(job) = jobs.recv() => job,
        };
        let mut job = pin!(AssertUnwindSafe(job(tx)).catch_unwind());
        let (done, handled) = select! {
            biased;
            done = &mut job => (Ok(done), None),
            handled = &mut handling => (timeout_at(until, job).await, Some(handled)),
        };
        match (done, handled) {
            (Err(_), _) => return Err(Failed::TimedOut),
            (Ok(Err(_)), _) => return Err(Failed::Panicked),
            (Ok(Ok(())), Some(handled)) => return handled,
            (Ok(Ok(())), None) => {}
        }
    }
}
