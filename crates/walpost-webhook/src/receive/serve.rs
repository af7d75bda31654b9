//! A request, from its head to its answer.

use std::{sync::Arc, time::SystemTime};

use axum::{body::Body, extract::Request, response::Response};
use http::{
    HeaderValue,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use walpost_inbox::{Handler, Inbox, NewEvent, State};

use super::{
    Source, body, metrics,
    problem::Problem,
    receiver::Shared,
    source::Read,
    store::{Store, Stored},
};

/// A path with its source.
pub(super) struct Route<H> {
    pub(super) shared: Arc<Shared>,
    pub(super) source: Source,
    pub(super) inbox: Inbox,
    pub(super) handler: H,
}

impl<H: Handler> Route<H> {
    pub(super) async fn serve(self: &Arc<Self>, request: Request) -> Response {
        let begun = Instant::now();
        let answer = self.answer(request, begun + self.shared.settings.answer_within).await;
        metrics::answered(&self.source.name, &answer, begun.elapsed());
        match answer {
            Ok(stored) => response(&stored),
            Err(problem) => {
                let (source, status) = (&*self.source.name, problem.status().as_u16());
                tracing::info!(source, status, problem = problem.name(), "a webhook was refused");
                problem.response()
            }
        }
    }

    async fn answer(self: &Arc<Self>, request: Request, until: Instant) -> Result<Stored, Problem> {
        let requests = Arc::clone(&self.shared.requests);
        let permit = requests.try_acquire_owned().map_err(|_| Problem::Busy)?;
        let (parts, body) = request.into_parts();
        let max_bytes = self.shared.settings.body_max_bytes;
        let body = body::read(&parts.headers, body, max_bytes, until).await?;
        let event = match self.source.read(&parts.headers, body, SystemTime::now())? {
            Read::Event(event) => event,
            Read::Challenge(text) => return Ok(Stored::Challenge(text)),
        };
        // What was begun is ended, also when the sender has gone and this future
        // with it.
        let running = Running::new(Arc::clone(self));
        let ended = tokio::spawn(
            async move {
                let _permit = permit;
                running.0.store(&event, until).await
            }
            .in_current_span(),
        );
        // Panics of handlers are caught where they happen.
        ended.await.unwrap_or(Err(Problem::HandlerFailed))
    }

    async fn store(&self, event: &NewEvent, until: Instant) -> Result<Stored, Problem> {
        let store = Store {
            shared: &self.shared,
            inbox: &self.inbox,
            handler: &self.handler,
            on_changed: self.source.on_changed,
        };
        match timeout_at(until, store.store(event)).await {
            Ok(answer) => answer,
            Err(_) => {
                tracing::warn!(?event, "an event took too long to store, and may be stored or not");
                Err(Problem::TimedOut)
            }
        }
    }
}

/// Counts a request while it runs.
struct Running<H>(Arc<Route<H>>);

impl<H> Running<H> {
    fn new(route: Arc<Route<H>>) -> Self {
        route.shared.running.send_modify(|running| *running += 1);
        Self(route)
    }
}

impl<H> Drop for Running<H> {
    fn drop(&mut self) {
        self.0.shared.running.send_modify(|running| *running -= 1);
    }
}

fn response(stored: &Stored) -> Response {
    if let Stored::Challenge(text) = stored {
        return ok("text/plain; charset=utf-8", text.clone());
    }
    ok("application/json", body_of(stored))
}

/// What is not done yet, or never will be, is said beside.
fn body_of(stored: &Stored) -> String {
    match stored {
        Stored::Duplicate(state) | Stored::Changed(state) => match state {
            State::Succeeded | State::Ignored => {
                r#"{"status":"ok","already_processed":true}"#.to_owned()
            }
            state => format!(
                r#"{{"status":"ok","already_processed":true,"processing_state":"{state}"}}"#
            ),
        },
        Stored::Trial => r#"{"status":"ok","stored":false}"#.to_owned(),
        Stored::GivenUp => r#"{"status":"ok","processing_state":"failed"}"#.to_owned(),
        Stored::Pending | Stored::Succeeded | Stored::Challenge(_) => {
            r#"{"status":"ok"}"#.to_owned()
        }
    }
}

fn ok(media_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
