//! Responses of the layer's own, and the two ways between stored ones and those
//! of HTTP.

use axum_core::body::Body;
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    response::Parts,
};

use crate::{PROBLEM_JSON, Policy, Problem, Response};

/// Marks a replay, as Stripe does.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(super) fn problem(policy: &Policy, problem: Problem) -> http::Response<Body> {
    let mut response = http::Response::new(Body::from(problem.body(policy)));
    *response.status_mut() = status(problem.status(policy));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_s() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// What was stored, marked.
pub(super) fn replay(stored: &Response) -> http::Response<Body> {
    let mut response = http::Response::new(Body::from(stored.body().clone()));
    *response.status_mut() = status(stored.status());
    let headers = response.headers_mut();
    for (name, value) in stored.headers() {
        let name = HeaderName::try_from(name.as_str());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// What of a response is stored.
pub(super) fn stored(policy: &Policy, parts: &Parts, body: &Bytes) -> Response {
    let response = Response::new(parts.status.as_u16(), body.clone());
    let is_kept = |name: &HeaderName| policy.headers.iter().any(|kept| name == kept.as_str());
    let kept = parts.headers.iter().filter(|(name, _)| is_kept(name));
    kept.fold(response, |response, (name, value)| response.header(name.as_str(), value.as_bytes()))
}

/// A problem as a stored response.
pub(super) fn stored_problem(policy: &Policy, problem: Problem) -> Response {
    Response::new(problem.status(policy), problem.body(policy))
        .header(CONTENT_TYPE.as_str(), PROBLEM_JSON)
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
