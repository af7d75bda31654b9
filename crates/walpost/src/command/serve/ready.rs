//! `/ready` of a process that serves connectors: of itself, and of each pipeline.
//!
//! A connector that stands still leaves the process ready, which others and who
//! mends that one need: each has an answer of its own.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use walpost_connect::{Connectors, Role};

use super::pipelines::Pipelines;
use crate::http::{Answer, answered};

/// Who answers.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    connectors: Connectors,
    pipelines: Arc<Pipelines>,
}

#[derive(Debug, Serialize)]
struct All {
    ready: bool,
    reason: String,
    role: &'static str,
    /// Of those whose pipelines run.
    connectors: BTreeMap<String, Answer>,
}

impl Ready {
    pub(super) fn new(connectors: Connectors, pipelines: Arc<Pipelines>) -> Self {
        Self { connectors, pipelines }
    }

    pub(super) fn routes(self) -> Router {
        let of_one = self.clone();
        let one =
            async move |Path(name): Path<String>, headers: HeaderMap| of_one.one(&name, &headers);
        let all = async move |headers: HeaderMap| self.all(&headers);
        Router::new().route("/ready", get(all)).route("/ready/{connector}", get(one))
    }

    fn all(&self, headers: &HeaderMap) -> Response {
        let (ready, role, reason) = judged(&self.connectors.role());
        let watched = self.pipelines.watched();
        let connectors = watched.iter().map(|(name, one)| (name.clone(), one.answer())).collect();
        answered(ready, &reason, &All { ready, reason: reason.clone(), role, connectors }, headers)
    }

    fn one(&self, name: &str, headers: &HeaderMap) -> Response {
        match self.pipelines.watched().get(name) {
            Some(watched) => watched.ready(headers),
            None => (StatusCode::NOT_FOUND, "no pipeline of this name runs here\n").into_response(),
        }
    }
}

/// Whether a process does what it is there for, its role, and why.
fn judged(role: &Role) -> (bool, &'static str, String) {
    match role {
        Role::Leads => (true, "leads", "this process runs the connectors".to_owned()),
        Role::StandsBy => {
            (true, "stands by", "standing by: another process runs the connectors".to_owned())
        }
        Role::Starting => (false, "starts", "looking for who runs the connectors".to_owned()),
        Role::Waits(error) => {
            (false, "waits", format!("the database of the connectors does not answer: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_by_is_ready_and_who_knows_nothing_is_not() {
        for (role, is_ready) in [
            (Role::Leads, true),
            (Role::StandsBy, true),
            (Role::Starting, false),
            (Role::Waits("e".to_owned()), false),
        ] {
            assert_eq!(judged(&role).0, is_ready, "{role:?}");
        }
    }
}
