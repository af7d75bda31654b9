//! Requests to a router in this process.

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, StatusCode},
};
use http_body_util::BodyExt;
use tower_service::Service;

/// A response, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of the problem's type; it has to be one, and to say its own
    /// status.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = String::from_utf8(self.body.to_vec()).unwrap();
        assert!(body.contains(&format!("\"status\":{}", self.status.as_u16())), "{body}");
        let rest = body.split("idempotency.md#").nth(1).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// Status and body.
    pub(crate) fn what(&self) -> (u16, Bytes) {
        (self.status.as_u16(), self.body.clone())
    }
}

/// A request of a user with a key.
pub(crate) fn request(user: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/orders")
        .header("x-user", user)
        .header("idempotency-key", key)
        .body(body.into())
        .unwrap()
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let Ok(response) = router.clone().call(request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn post(router: &Router, user: &str, key: &str, body: &str) -> Answer {
    send(router, request(user, key, body.to_owned())).await
}
