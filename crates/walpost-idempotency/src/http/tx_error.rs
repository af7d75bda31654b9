use axum_core::{body::Body, response::IntoResponse};

use super::respond::problem;
use crate::{
    Error, Policy, Problem,
    report::{Verdict, report_handlers},
};

/// Why a piece of work in a transaction failed. As a response it is 503 where
/// the same may succeed later, else 500; either way the transaction is rolled
/// back and the key is free.
///
/// It shows SQLSTATE and names of what PostgreSQL says, and no values.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The request is over: a task has outlived it.
    #[error("the transaction of this request has ended")]
    Ended,
    /// The database refused a statement.
    #[error("{detail}")]
    Database {
        /// What it said.
        detail: String,
        /// Whether the same may succeed later.
        is_transient: bool,
    },
    /// The claim was given up, or the table is not as it has to be.
    #[error(transparent)]
    Idempotency(#[from] Error),
}

impl TxError {
    /// Whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Ended => false,
            Self::Database { is_transient, .. } => *is_transient,
            Self::Idempotency(error) => {
                error.is_transient() || matches!(error, Error::GivenUp { .. })
            }
        }
    }
}

impl From<tokio_postgres::Error> for TxError {
    fn from(error: tokio_postgres::Error) -> Self {
        let is_transient = matches!(Verdict::of(&error), Verdict::Conflict | Verdict::Transient);
        Self::Database { detail: report_handlers(&error), is_transient }
    }
}

impl IntoResponse for TxError {
    fn into_response(self) -> http::Response<Body> {
        let error = &self as &dyn std::error::Error;
        tracing::warn!(error, "a request failed in its transaction");
        let what = if self.is_transient() {
            Problem::StoreUnavailable { retry_after_s: 1 }
        } else {
            Problem::HandlerFailed
        };
        problem(&Policy::new("any"), what)
    }
}
