use std::{fmt, ops::Deref};

use tokio_postgres::error::DbError;

/// Why a statement failed.
///
/// Its text and `Debug` have SQLSTATE and names, and the server's message where
/// that names objects, limits or states. DETAIL, HINT and CONTEXT, and messages
/// about data, may quote rows and are left out, as is the cause.
pub struct StatementError(tokio_postgres::Error);

impl From<tokio_postgres::Error> for StatementError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error)
    }
}

impl Deref for StatementError {
    type Target = tokio_postgres::Error;

    fn deref(&self) -> &tokio_postgres::Error {
        &self.0
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(told) = self.0.as_db_error() else {
            // The client's own: a connection that broke, a type that does not fit.
            return write!(f, "{}", self.0);
        };
        write!(f, "SQLSTATE {}", told.code().code())?;
        if names_alone(told.code().code(), told.file()) {
            write!(f, ": {}", told.message())?;
        }
        of(f, "constraint", told, DbError::constraint)?;
        of(f, "table", told, DbError::table)?;
        of(f, "column", told, DbError::column)
    }
}

impl fmt::Debug for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatementError({self})")
    }
}

impl std::error::Error for StatementError {}

fn of(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    told: &DbError,
    name: impl FnOnce(&DbError) -> Option<&str>,
) -> fmt::Result {
    name(told).map_or(Ok(()), |name| write!(f, ", {what} {name}"))
}

/// Whether a message of this SQLSTATE, from this file of the server, names
/// things and quotes no values. A function raises what it likes under any code,
/// from the file of its language.
fn names_alone(code: &str, file: Option<&str>) -> bool {
    let by_function = file.is_some_and(|file| file.starts_with("pl") || !file.ends_with(".c"));
    let about_things = matches!(
        code.get(..2),
        Some(
            "08" | "0A"
                | "25"
                | "28"
                | "3D"
                | "3F"
                | "40"
                | "42"
                | "53"
                | "54"
                | "55"
                | "57"
                | "58"
        )
    );
    const SYNTAX: &str = "42601";
    about_things && code != SYNTAX && !by_function
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_data_and_those_of_functions_are_left_out() {
        for code in ["22P02", "23505", "42601", "P0001", "38000", "XX000", "WP001", ""] {
            assert!(!names_alone(code, Some("numutils.c")), "{code}");
        }
        for file in ["pl_exec.c", "plperl.c", "lib.rs"] {
            assert!(!names_alone("42501", Some(file)), "{file}");
        }
        for code in ["42501", "42P01", "53300", "57P01"] {
            assert!(names_alone(code, Some("aclchk.c")) && names_alone(code, None), "{code}");
        }
    }
}
