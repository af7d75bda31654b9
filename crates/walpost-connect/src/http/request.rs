use std::time::Duration;

use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{StatusCode, header, request::Parts},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;
use walpost_connector::MAX_BYTES;

use crate::error::ApiError;

/// How long a body may take: connections are few, and nobody has shown a right yet.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// A body that is said to be JSON, at most [`MAX_BYTES`] of it.
pub(super) struct Body(pub(super) Bytes);

/// What stands in the path for names and numbers.
pub(super) struct Params(Vec<String>);

/// What stands behind the `?`.
pub(super) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        // Also so that no page in a browser sends one: another site may not say so.
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let too_large = |_| ApiError {
            code: 413,
            message: format!("the body is not read; a request has at most {MAX_BYTES} bytes"),
        };
        let read = timeout(BODY_LIMIT, to_bytes(request.into_body(), MAX_BYTES)).await;
        let late = |_| ApiError {
            code: 408,
            message: format!("the body did not come within {} s", BODY_LIMIT.as_secs()),
        };
        read.map_err(late)?.map(Self).map_err(too_large)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| ApiError::of_status(StatusCode::NOT_FOUND))?;
        Ok(Self(params.iter().map(|(_, value)| value.to_owned()).collect()))
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

impl Params {
    /// The first one.
    pub(super) fn name(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    /// The second one: the number of a task.
    pub(super) fn task(&self) -> Result<u32, ApiError> {
        let task = self.0.get(1).and_then(|task| task.parse().ok());
        task.ok_or_else(|| ApiError::of_status(StatusCode::NOT_FOUND))
    }
}

impl Query {
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is `true`, in any case; whatever else is there is not.
    pub(super) fn is(&self, name: &str) -> bool {
        self.all(name).next().is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

#[derive(Deserialize)]
struct Offsets {
    offsets: Option<Vec<Offset>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "that they are there is what is checked")]
struct Offset {
    partition: Map<String, Value>,
    offset: Option<Map<String, Value>>,
}

/// Whether a body has offsets.
pub(super) fn check_offsets(body: &[u8]) -> Result<(), ApiError> {
    let wrong = |_| {
        ApiError::bad_request(
            "the body is not {\"offsets\": [{\"partition\": {…}, \"offset\": {…}}]}",
        )
    };
    let offsets: Offsets = serde_json::from_slice(body).map_err(wrong)?;
    match offsets.offsets.is_none_or(|list| list.is_empty()) {
        true => Err(ApiError::bad_request(
            "Partitions / offsets need to be provided for an alter offsets request",
        )),
        false => Ok(()),
    }
}
