//! Errors as text for logs, tables and the status: the one place that decides
//! what of an error may be shown.
//!
//! What PostgreSQL says about data quotes the data. Of a server's error there
//! remain severity, SQLSTATE, the names of constraint, table, column and type,
//! and the message where the server writes it and quotes no values. DETAIL,
//! HINT and CONTEXT never remain, nor does anything that a function raised.

use std::{error::Error as StdError, fmt::Write, sync::Arc};

use tokio_postgres::{
    Error as PgError,
    error::{DbError, ErrorPosition, Severity},
    types::WrongType,
};

use crate::{database_error::Rejected, store};

/// Longest text, in bytes.
const MAX_BYTES: usize = 4096;

/// Classes of SQLSTATE whose messages name objects, limits and states, and
/// quote no values.
const NAMING: [&str; 15] =
    ["08", "0A", "25", "26", "28", "34", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"];
/// Within those, what quotes the statement's text: a syntax error, and names that
/// cannot be names.
const QUOTING: [&str; 3] = ["42601", "42602", "42622"];
/// Within those, what may quote a value that is used as a name, as in
/// `$1::regclass`, unless the parser reports a place in the statement.
const OF_NAMES: [&str; 2] = ["3F", "42"];
/// A right that is missing on an object that exists.
const DENIED: &str = "42501";
/// The class of our own functions, which quote nothing.
const OURS: &str = "WP";

/// Names of conditions whose messages are left out.
const CONDITIONS: [(&str, &str); 22] = [
    ("21000", "cardinality violation"),
    ("22001", "string data right truncation"),
    ("22003", "numeric value out of range"),
    ("22004", "null value not allowed"),
    ("22007", "invalid datetime format"),
    ("22008", "datetime field overflow"),
    ("22012", "division by zero"),
    ("22021", "character not in repertoire"),
    ("22023", "invalid parameter value"),
    ("22P02", "invalid text representation"),
    ("22P03", "invalid binary representation"),
    ("22P05", "untranslatable character"),
    ("23502", "not null violation"),
    ("23503", "foreign key violation"),
    ("23505", "unique violation"),
    ("23514", "check violation"),
    ("23P01", "exclusion violation"),
    ("42601", "syntax error"),
    ("44000", "with check option violation"),
    ("P0001", "raise exception"),
    ("P0002", "no data found"),
    ("P0004", "assert failure"),
];

/// `error` and its causes in one text.
pub(crate) fn report(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (part, cause) = describe(error);
        if !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = cause;
    }
    shortened(text)
}

type Cause<'error> = &'error (dyn StdError + 'static);

/// One error of a chain as text, and the next one to show.
fn describe(error: Cause<'_>) -> (String, Option<Cause<'_>>) {
    if let Some(error) = error.downcast_ref::<DbError>() {
        return (Said::by(error).to_text(), None);
    }
    if error.is::<Rejected>() {
        return (String::new(), error.source());
    }
    let boxed = || error.downcast_ref::<Box<PgError>>().map(Box::as_ref);
    let shared = || error.downcast_ref::<Arc<PgError>>().map(Arc::as_ref);
    let Some(error) = error.downcast_ref::<PgError>().or_else(boxed).or_else(shared) else {
        return (error.to_string(), error.source());
    };
    if let Some(error) = error.as_db_error() {
        return (Said::by(error).to_text(), None);
    }
    let text = error.to_string();
    // Such a cause is of the value's type, and may quote the value.
    let of_value = text.starts_with("error serializing") || text.starts_with("error deserializing");
    let cause = error.source().filter(|cause| !of_value || cause.is::<WrongType>());
    (text, cause)
}

/// What a server said through another client, as it may be shown.
pub(crate) fn said_text(said: &store::Said<'_>) -> String {
    let names = [
        ("constraint", said.constraint),
        ("schema", said.schema),
        ("table", said.table),
        ("column", said.column),
        ("type", said.data_type),
    ];
    let store::Said { severity, state, message, file, is_in_statement, .. } = *said;
    Said { severity, state, message, file, is_in_statement, names }.to_text()
}

/// What of a server's error is looked at.
struct Said<'error> {
    severity: &'error str,
    state: &'error str,
    message: &'error str,
    /// Source file of the server that reported it, `None` for a pooler's error.
    file: Option<&'error str>,
    /// Whether the error points into the statement that the client has sent.
    is_in_statement: bool,
    names: [(&'static str, Option<&'error str>); 5],
}

impl<'error> Said<'error> {
    fn by(error: &'error DbError) -> Self {
        Self {
            severity: match error.parsed_severity() {
                Some(Severity::Panic) => "PANIC",
                Some(Severity::Fatal) => "FATAL",
                _ => "ERROR",
            },
            state: error.code().code(),
            message: error.message(),
            file: error.file(),
            is_in_statement: matches!(error.position(), Some(ErrorPosition::Original(_))),
            names: [
                ("constraint", error.constraint()),
                ("schema", error.schema()),
                ("table", error.table()),
                ("column", error.column()),
                ("type", error.datatype()),
            ],
        }
    }

    fn to_text(&self) -> String {
        let Self { severity, state, message, .. } = self;
        let mut text = format!("{severity} {state}");
        if self.is_safe() {
            let _ = write!(text, ": {message}");
        } else if let Some((_, name)) = CONDITIONS.iter().find(|(of, _)| of == state) {
            let _ = write!(text, " ({name})");
        }
        for (of, name) in self.names {
            if let Some(name) = name {
                let _ = write!(text, ", {of} {name}");
            }
        }
        text
    }

    /// Whether the message is the server's own and quotes no values.
    fn is_safe(&self) -> bool {
        let class = self.state.get(..2).unwrap_or_default();
        if class == OURS {
            return true;
        }
        // What a function raises comes from a file of its language, such as
        // pl_exec.c or plperl.c, under any SQLSTATE that it likes.
        let by_server = |file: &str| file.ends_with(".c") && !file.starts_with("pl");
        let quotes_no_value =
            !OF_NAMES.contains(&class) || self.is_in_statement || self.state == DENIED;
        self.file.is_none_or(by_server)
            && NAMING.contains(&class)
            && !QUOTING.contains(&self.state)
            && quotes_no_value
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: &str, file: Option<&str>) -> String {
        text_at(state, file, true)
    }

    fn text_at(state: &str, file: Option<&str>, is_in_statement: bool) -> String {
        let names = ["constraint", "schema", "table", "column", "type"].map(|of| (of, None));
        let severity = "ERROR";
        Said { severity, state, message: "SECRET", file, is_in_statement, names }.to_text()
    }

    #[test]
    fn a_message_about_data_is_left_out() {
        for state in ["22P02", "23505", "23514", "42601", "P0001", "38000", "XX000", "APP01", ""] {
            let text = text(state, Some("numutils.c"));
            assert!(!text.contains("SECRET"), "{text}");
        }
        assert_eq!(text("22012", None), "ERROR 22012 (division by zero)");
        assert_eq!(text("22099", None), "ERROR 22099");
    }

    #[test]
    fn a_message_about_objects_and_states_is_shown() {
        for state in ["08006", "28P01", "3D000", "42P01", "42501", "53300", "57P01", "WP004"] {
            let file = Some("postgres.c");
            assert_eq!(text(state, file), format!("ERROR {state}: SECRET"));
            assert_eq!(text(state, None), format!("ERROR {state}: SECRET"));
        }
    }

    #[test]
    fn a_message_about_a_value_that_is_used_as_a_name_is_left_out() {
        for (state, file) in [("42P01", "namespace.c"), ("42704", "parse_type.c"), ("3F000", "x.c")]
        {
            assert_eq!(text_at(state, Some(file), false), format!("ERROR {state}"));
            assert_eq!(text_at(state, Some(file), true), format!("ERROR {state}: SECRET"));
        }
        assert_eq!(text_at("42501", Some("aclchk.c"), false), "ERROR 42501: SECRET");
        assert_eq!(text("42602", Some("regproc.c")), "ERROR 42602");
    }

    #[test]
    fn what_a_function_raises_is_left_out_under_every_state() {
        for file in ["pl_exec.c", "plperl.c", "plpy_elog.c", "plv8.cc", "lib.rs"] {
            for state in ["42501", "40001", "57014"] {
                assert_eq!(text(state, Some(file)), format!("ERROR {state}"));
            }
        }
        // Ours are functions too.
        assert_eq!(text("WP001", Some("pl_exec.c")), "ERROR WP001: SECRET");
    }

    #[test]
    fn causes_follow_in_order_and_the_whole_is_bounded() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        let inner = std::io::Error::other("inner");
        assert_eq!(report(&Outer(inner)), "outer: inner");
        let long = report(&std::io::Error::other("ä".repeat(MAX_BYTES)));
        assert!(long.len() < MAX_BYTES + 10 && long.ends_with("ä …"), "{}", long.len());
    }
}
