use std::fmt;

use crate::{BoxError, report::report};

/// Why a consumer could not be built, or stopped.
///
/// `Display` prints the error itself, which ends with the next step;
/// [`error_chain`](crate::error_chain) and `Debug` print it in one line with
/// its causes, so that a `main` that returns it is readable too.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is missing or out of its bounds.
    #[error("setting {setting}: {problem}")]
    Setting {
        /// The method of the builder, or the Kafka property.
        setting: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The database refused what a running consumer needs.
    #[error("{attempted}")]
    Database {
        /// What was attempted, with the next step.
        attempted: String,
        /// What the database said.
        #[source]
        source: BoxError,
    },
    /// The consumer's tables are missing, or those of an earlier version are
    /// there.
    #[error(
        "schema {schema} has not all tables and functions that this version of the consumer \
         needs; run `walpost migrate --set consumer` on this database, or apply migrations/consumer"
    )]
    NotMigrated {
        /// Schema that was looked at.
        schema: String,
        /// What the database said.
        #[source]
        source: BoxError,
    },
    /// The role may not use the consumer's tables.
    #[error(
        "connected, but role {role} lacks {missing} in schema {schema}; \
         as the owner of the schema run: {grant}"
    )]
    NotGranted {
        /// Role of the connection.
        role: String,
        /// Schema of the consumer's tables.
        schema: String,
        /// What it may not do.
        missing: String,
        /// Statements that grant everything that a consumer needs.
        grant: String,
    },
    /// Kafka cannot be used at all.
    #[error("{attempted}")]
    Kafka {
        /// What was attempted.
        attempted: String,
        /// What librdkafka said.
        #[source]
        source: BoxError,
    },
    /// No partition of this member can go on without somebody's decision.
    #[error(
        "every assigned partition is halted ({count}); the first is {topic}[{partition}]: {reason}"
    )]
    Halted {
        /// How many.
        count: usize,
        /// Topic of the first.
        topic: String,
        /// Partition of the first.
        partition: i32,
        /// Why it halted, with the next step.
        reason: String,
    },
    /// A part of the consumer ended by a panic: a bug.
    #[error("the {0} of the consumer panicked; restart the process and report it")]
    Panicked(&'static str),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&report(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_the_whole_text() {
        let error = Error::NotMigrated { schema: "s".into(), source: "no schema".into() };
        assert_eq!(format!("{error:?}"), format!("{error}: no schema"));
        let boxed: Box<dyn std::error::Error> = Error::Panicked("Kafka thread").into();
        let expected =
            "the Kafka thread of the consumer panicked; restart the process and report it";
        assert_eq!(format!("{boxed:?}"), expected);
    }
}
