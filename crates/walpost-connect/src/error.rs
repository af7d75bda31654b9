use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::blocking::Panicked;

/// Why a request is not carried out, as Kafka Connect answers it. The text goes
/// to whoever asks: no secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Of HTTP, and `error_code` in the body.
    pub code: u16,
    /// What is wrong, and what to do.
    pub message: String,
}

impl ApiError {
    /// 400: the request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, message: message.into() }
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { code: 404, message: message.into() }
    }

    /// 409: against what is there, or not by this process.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self { code: 409, message: message.into() }
    }

    /// 500: it may have been carried out, and cannot be told.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: 500, message: message.into() }
    }

    /// The 404 that most requests for a missing connector get.
    pub(crate) fn no_connector(name: &str) -> Self {
        Self::not_found(format!("Connector {name} not found"))
    }

    /// That of a code of HTTP without a reason of its own.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or_default();
        Self { code: status.as_u16(), message: format!("HTTP {} {reason}", status.as_u16()) }
    }
}

impl From<Panicked> for ApiError {
    fn from(panicked: Panicked) -> Self {
        Self::internal(panicked.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({ "error_code": self.code, "message": self.message }).to_string();
        (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
