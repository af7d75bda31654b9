//! What PostgreSQL says, sorted and as text: the one place that decides what of
//! it may be shown, and what it means.
//!
//! What it says about data quotes the data. There remain SQLSTATE, the names of
//! constraint, table, column and type, and the message where the server itself
//! writes it and it quotes no values.

use std::{error::Error as StdError, fmt::Write, io};

use tokio_postgres::{
    Error as PgError,
    error::{DbError, ErrorPosition},
};

/// Longest text, in bytes.
const MAX_BYTES: usize = 1_024;
/// Classes of SQLSTATE whose messages name objects, limits and states.
const NAMING: [&str; 9] = ["08", "25", "28", "40", "42", "53", "55", "57", "58"];
/// Within those, what quotes the statement's text: a syntax error, and names that
/// cannot be names.
const QUOTING: [&str; 3] = ["42601", "42602", "42622"];
/// Within those, what may quote a value that is used as a name, as in
/// `$1::regclass`, unless the parser reports a place in the statement.
const OF_NAMES: &str = "42";
/// A right that is missing on an object that exists.
const DENIED: &str = "42501";
/// Names of conditions whose messages are left out.
const CONDITIONS: [(&str, &str); 12] = [
    ("22001", "string data right truncation"),
    ("22003", "numeric value out of range"),
    ("22007", "invalid datetime format"),
    ("22012", "division by zero"),
    ("22P02", "invalid text representation"),
    ("23502", "not null violation"),
    ("23503", "foreign key violation"),
    ("23505", "unique violation"),
    ("23514", "check violation"),
    ("23P01", "exclusion violation"),
    ("42601", "syntax error"),
    ("P0001", "raise exception"),
];

/// What an error of the database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The transaction met another one: the same again may succeed at once.
    Conflict,
    /// It will pass: the connection, a lock, a resource, a shutdown.
    Transient,
    /// A prepared statement is missing on this connection.
    Unprepared,
    /// The claim was given up to somebody else.
    GivenUp,
    /// The handler ended the transaction.
    HandlerEnded,
    /// Tables or functions are missing.
    NotMigrated,
    /// A right is missing.
    Denied,
    /// All else: data, constraints, statements.
    Other,
}

impl Verdict {
    pub(crate) fn of(error: &PgError) -> Self {
        match error.code() {
            Some(state) => Self::of_state(state.code()),
            // Everything without a SQLSTATE happened on the way to the server,
            // except what the client refused to send or to read.
            None if error.is_closed() || has_io_cause(error) => Self::Transient,
            None => Self::Other,
        }
    }

    fn of_state(state: &str) -> Self {
        match state {
            "40001" | "40P01" => Self::Conflict,
            "26000" => Self::Unprepared,
            "WP011" => Self::GivenUp,
            "WP014" => Self::HandlerEnded,
            "3F000" | "42P01" | "42883" | "42703" => Self::NotMigrated,
            "42501" => Self::Denied,
            // 25006: a server that has become a standby, or not yet the primary.
            "55P03" | "25006" | "25P03" | "25P04" | "58000" | "58030" => Self::Transient,
            // The statement's own time-out is the handler's.
            "57014" => Self::Other,
            _ if matches!(state.get(..2), Some("08" | "53" | "57")) => Self::Transient,
            _ => Self::Other,
        }
    }
}

/// The error as text that names and does not quote.
pub(crate) fn report(error: &PgError) -> String {
    match error.as_db_error() {
        Some(said) => shortened(text_of(said)),
        None => {
            let text = error.to_string();
            // Behind a colon a value may be quoted.
            let text = text.split(": ").next().unwrap_or_default();
            match io_cause(error) {
                Some(cause) => format!("{text}: {cause}"),
                None => text.to_owned(),
            }
        }
    }
}

/// What the operating system said of a connection.
fn io_cause(error: &PgError) -> Option<&io::Error> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error).filter(|error| error.raw_os_error().is_some());
        }
        cause = error.source();
    }
    None
}

fn text_of(said: &DbError) -> String {
    let names = [
        ("constraint", said.constraint()),
        ("table", said.table()),
        ("column", said.column()),
        ("type", said.datatype()),
    ];
    let is_in_statement = matches!(said.position(), Some(ErrorPosition::Original(_)));
    let mut text = headline(said.code().code(), said.message(), said.file(), is_in_statement);
    for (of, name) in names {
        if let Some(name) = name {
            let _ = write!(text, ", {of} {name}");
        }
    }
    text
}

fn headline(state: &str, message: &str, file: Option<&str>, is_in_statement: bool) -> String {
    let class = state.get(..2).unwrap_or_default();
    // What a function raises comes from a file of its language, such as
    // pl_exec.c, under any SQLSTATE that it likes; ours say WP.
    let by_server = file.is_none_or(|file| file.ends_with(".c") && !file.starts_with("pl"));
    let quotes_no_value = class != OF_NAMES || is_in_statement || state == DENIED;
    let is_safe =
        by_server && NAMING.contains(&class) && !QUOTING.contains(&state) && quotes_no_value;
    if class == "WP" || is_safe {
        return format!("PostgreSQL says {state}: {message}");
    }
    match CONDITIONS.iter().find(|(of, _)| *of == state) {
        Some((_, name)) => format!("PostgreSQL says {state} ({name})"),
        None => format!("PostgreSQL says {state}"),
    }
}

fn has_io_cause(error: &PgError) -> bool {
    let mut cause = StdError::source(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
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

    #[test]
    fn a_message_about_data_is_left_out() {
        for state in ["22P02", "23505", "23514", "42601", "P0001", "XX000", "APP01", ""] {
            let text = headline(state, "SECRET", Some("numutils.c"), true);
            assert!(!text.contains("SECRET"), "{text}");
        }
        for file in ["pl_exec.c", "plperl.c", "plv8.cc", "lib.rs"] {
            assert_eq!(headline("42501", "SECRET", Some(file), true), "PostgreSQL says 42501");
        }
        assert_eq!(headline("23505", "", None, false), "PostgreSQL says 23505 (unique violation)");
        assert_eq!(headline("57P01", "bye", Some("a.c"), false), "PostgreSQL says 57P01: bye");
        assert!(headline("WP011", "the claim", Some("pl_exec.c"), false).ends_with("the claim"));
        // As of `$1::regclass`: reported by namespace.c, at no place of the statement.
        let by_value = headline("42P01", "SECRET", Some("namespace.c"), false);
        assert_eq!(by_value, "PostgreSQL says 42P01");
        let by_name = headline("42P01", "no shipmnt", Some("parse_relation.c"), true);
        assert_eq!(by_name, "PostgreSQL says 42P01: no shipmnt");
        assert!(shortened("ä".repeat(MAX_BYTES)).len() < MAX_BYTES + 5);
    }

    #[test]
    fn sorts_by_state() {
        for (state, verdict) in [
            ("40001", Verdict::Conflict),
            ("40P01", Verdict::Conflict),
            ("WP011", Verdict::GivenUp),
            ("WP014", Verdict::HandlerEnded),
            ("WP010", Verdict::Other),
            ("42P01", Verdict::NotMigrated),
            ("42501", Verdict::Denied),
            ("08006", Verdict::Transient),
            ("53300", Verdict::Transient),
            ("57P01", Verdict::Transient),
            ("25006", Verdict::Transient),
            ("57014", Verdict::Other),
            ("23505", Verdict::Other),
            ("", Verdict::Other),
        ] {
            assert_eq!(Verdict::of_state(state), verdict, "{state}");
        }
    }
}
