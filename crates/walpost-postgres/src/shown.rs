//! What of PostgreSQL's errors may be shown: the one rule for logs, for the text
//! and `Debug` of errors, for stored reasons, and for all output.
//!
//! An error of the server consists of severity, SQLSTATE, a message, the names of
//! the objects that it concerns, and DETAIL, HINT and CONTEXT. A message can quote
//! a value: of a row, of a parameter, or one that a function raises or that is
//! used as a name. The rule decides by SQLSTATE, by the part of the server that
//! reports the error, and by [`Author`].
//!
//! | shown | |
//! |---|---|
//! | severity and SQLSTATE | always |
//! | names of constraint, schema, table, column and type | if the server reports them; `raise` can set them as well, and then they are left out |
//! | the message | if it is about a connection, a login, a right, a limit, a lock, a conflict or a shutdown, or names an object in a statement of Walpost's own |
//! | the name of the condition, and that the server's log has the text | instead of every other message |
//! | DETAIL, HINT, CONTEXT and the text of a function's statement | never |
//!
//! When in doubt, a message is left out.

use std::{error::Error as StdError, fmt, ops::Deref, sync::Arc};

use tokio_postgres::{
    Error as PgError,
    error::{DbError, ErrorPosition, Severity},
    types::WrongType,
};

use crate::conditions;

/// Longest text, in bytes.
const MAX_BYTES: usize = 4096;
/// Longest text of one error of the server, in bytes.
const MAX_SERVER_BYTES: usize = 1024;

/// Who wrote the statement that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// Walpost. Its statements are constants and names of the configuration;
    /// values are parameters.
    Walpost,
    /// The application, as in a handler. Its statements may contain values.
    Application,
}

/// An error and its causes in one line. Errors of PostgreSQL among them are shown by the
/// rule of this module, all others as they print themselves.
///
/// A cause that the text ends with is not repeated. Line breaks become `; `.
pub fn chain(error: &(dyn StdError + 'static), author: Author) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (part, cause) = describe(error, author);
        let part = part.trim_end();
        if !text.ends_with(part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(part);
        }
        next = cause;
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    bounded(lines.join("; "), MAX_BYTES)
}

type Cause<'error> = &'error (dyn StdError + 'static);

/// One error of a chain as text, and the next one to show.
fn describe(error: Cause<'_>, author: Author) -> (String, Option<Cause<'_>>) {
    if let Some(error) = error.downcast_ref::<DbError>() {
        return (ServerMessage::from(error).to_text(author), None);
    }
    // It prints itself by this rule, as of a statement of Walpost's.
    let is_shown = error.is::<StatementError>();
    let Some(error) = driver_error(error).filter(|_| !is_shown) else {
        return (error.to_string(), error.source());
    };
    if let Some(error) = error.as_db_error() {
        return (ServerMessage::from(error).to_text(author), None);
    }
    let text = error.to_string();
    // The type of a value reports such a cause, which may quote the value.
    let of_value = text.starts_with("error serializing") || text.starts_with("error deserializing");
    let cause = error.source().filter(|cause| !of_value || cause.is::<WrongType>());
    (text, cause)
}

/// The driver's error, if `error` is one, alone, boxed, shared, or as a [`StatementError`]. The
/// causes of `error` are not searched.
pub fn driver_error<'error>(error: &'error (dyn StdError + 'static)) -> Option<&'error PgError> {
    let boxed = || error.downcast_ref::<Box<PgError>>().map(Box::as_ref);
    let shared = || error.downcast_ref::<Arc<PgError>>().map(Arc::as_ref);
    let shown = || error.downcast_ref::<StatementError>().map(Deref::deref);
    error.downcast_ref().or_else(boxed).or_else(shared).or_else(shown)
}

/// An error of the server, from whichever client.
#[derive(Clone, Copy, Default)]
pub struct ServerMessage<'error> {
    /// `ERROR`, `FATAL` or `PANIC`.
    pub severity: &'error str,
    /// SQLSTATE.
    pub state: &'error str,
    /// The primary message.
    pub message: &'error str,
    /// Source file of the server that reported it; `None` for a pooler's error.
    pub file: Option<&'error str>,
    /// Whether it has a CONTEXT, as every error in a function and of a foreign server.
    pub has_context: bool,
    /// Whether it points to a position in the statement that the client sent.
    pub is_in_statement: bool,
    /// Name of the constraint.
    pub constraint: Option<&'error str>,
    /// Name of the schema.
    pub schema: Option<&'error str>,
    /// Name of the table.
    pub table: Option<&'error str>,
    /// Name of the column.
    pub column: Option<&'error str>,
    /// Name of the data type.
    pub data_type: Option<&'error str>,
}

impl<'error> From<&'error DbError> for ServerMessage<'error> {
    fn from(error: &'error DbError) -> Self {
        Self {
            severity: match error.parsed_severity() {
                Some(Severity::Panic) => "PANIC",
                Some(Severity::Fatal) => "FATAL",
                _ => "ERROR",
            },
            state: error.code().code(),
            message: error.message(),
            file: error.file(),
            has_context: error.where_().is_some(),
            is_in_statement: matches!(error.position(), Some(ErrorPosition::Original(_))),
            constraint: error.constraint(),
            schema: error.schema(),
            table: error.table(),
            column: error.column(),
            data_type: error.datatype(),
        }
    }
}

/// The class of Walpost's own functions, whose messages quote nothing.
const OURS: &str = "WP";
/// The condition of a missing right.
const DENIED: &str = "42501";
/// The server's files whose messages quote no value, whatever has called them:
/// rights, conflicts, time-outs, and transactions that are over or read-only.
const QUOTING_NOTHING: [&str; 8] = [
    "aclchk.c",
    "deadlock.c",
    "execMain.c",
    "postgres.c",
    "predicate.c",
    "rls.c",
    "utility.c",
    "xact.c",
];
/// Objects that exist already: only a statement that creates one fails with these.
const EXISTING: [&str; 6] = ["42P04", "42P06", "42P07", "42701", "42710", "42723"];
/// Text of the statement, and what cannot be a name.
const OF_TEXT: [&str; 3] = ["42601", "42602", "42622"];

impl<'error> ServerMessage<'error> {
    /// Its text, by the rule of this module, at most 1,024 bytes.
    pub fn to_text(&self, author: Author) -> String {
        let is_shown = self.shows_message(author);
        let mut text = format!("{} {}", self.severity, self.state);
        if is_shown {
            text.push_str(&format!(": {}", self.message));
        } else if let Some(name) = conditions::name(self.state) {
            text.push_str(&format!(" ({name})"));
        }
        let names = [
            ("constraint", self.constraint),
            ("schema", self.schema),
            ("table", self.table),
            ("column", self.column),
            ("type", self.data_type),
        ];
        for (of, name) in names.into_iter().filter(|_| self.is_by_server()) {
            if let Some(name) = name {
                text.push_str(&format!(", {of} {name}"));
            }
        }
        if !is_shown {
            text.push_str(", full text in the server's log");
        }
        bounded(text, MAX_SERVER_BYTES)
    }

    /// The column, if the server itself names it.
    pub fn column_by_server(&self) -> Option<&'error str> {
        self.column.filter(|_| self.is_by_server())
    }

    /// Whether the server itself reports it, so that the names are those of objects.
    ///
    /// A function reports from a file of its language, such as `pl_exec.c` or
    /// `plv8.cc`, under any SQLSTATE and with any name that it likes.
    fn is_by_server(&self) -> bool {
        self.file.is_none_or(|file| file.ends_with(".c") && !file.starts_with("pl"))
    }

    fn shows_message(&self, author: Author) -> bool {
        let class = self.state.get(..2).unwrap_or_default();
        if class == OURS {
            return true;
        }
        if !self.is_by_server() {
            return false;
        }
        let is_from = |files: &[&str]| self.file.is_some_and(|file| files.contains(&file));
        // What ends the session concerns the session and no statement.
        let is_of_statement = self.severity == "ERROR";
        if self.has_context || author == Author::Application && is_of_statement {
            return match self.state {
                DENIED => is_from(&QUOTING_NOTHING),
                "55P03" => !self.has_context || is_from(&QUOTING_NOTHING),
                _ if matches!(class, "25" | "40" | "53" | "57") => {
                    !self.has_context || is_from(&QUOTING_NOTHING)
                }
                _ => false,
            };
        }
        match class {
            "08" | "25" | "26" | "28" | "34" | "3D" | "40" | "53" | "57" | "58" => true,
            // The new value of an enumeration.
            "55" => self.state != "55P04",
            // A value that is too long; but a queue of notifications that is full.
            "54" => self.state != "54000" || is_from(&["async.c"]),
            // A name that no position of the statement has may be a value.
            "0A" | "3F" | "42" if !OF_TEXT.contains(&self.state) => {
                self.is_in_statement || self.state == DENIED || EXISTING.contains(&self.state)
            }
            _ => false,
        }
    }
}

impl fmt::Debug for ServerMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerMessage({})", self.to_text(Author::Application))
    }
}

/// Why a statement of Walpost's failed, as an error that shows what may be shown
/// and has no source: the driver's error is what it dereferences to.
pub struct StatementError(PgError);

impl From<PgError> for StatementError {
    fn from(error: PgError) -> Self {
        Self(error)
    }
}

impl Deref for StatementError {
    type Target = PgError;

    fn deref(&self) -> &PgError {
        &self.0
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&self.0, Author::Walpost))
    }
}

impl fmt::Debug for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatementError({self})")
    }
}

impl StdError for StatementError {}

fn bounded(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let end = (0..=max_bytes - " …".len()).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" …");
    }
    text
}

#[cfg(test)]
mod tests;
