//! Errors as text for logs, tables and the status, by the rule of [`shown`].

use std::error::Error as StdError;

use walpost_postgres::shown::{self, Author};

/// An error of a statement of the consumer's own, with its causes.
pub(crate) fn report(error: &(dyn StdError + 'static)) -> String {
    shown::chain(error, Author::Walpost)
}

/// An error with its causes in one line, for a log or the end of `main`.
///
/// Errors of PostgreSQL among them are shown without what may quote contents: see
/// [`HandlerError`](crate::HandlerError).
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    shown::chain(error, Author::Application)
}
