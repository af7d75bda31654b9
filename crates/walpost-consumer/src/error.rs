use crate::BoxError;

/// Why a consumer could not be built, or stopped.
#[derive(Debug, thiserror::Error)]
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
    /// The consumer's tables are missing.
    #[error(
        "schema {schema} has not the tables and functions of the consumer; \
         run `walpost migrate` on this database, or apply migrations/consumer"
    )]
    NotMigrated {
        /// Schema that was looked at.
        schema: String,
        /// What the database said.
        #[source]
        source: BoxError,
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
