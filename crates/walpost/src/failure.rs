use std::{error::Error, process::ExitCode};

use walpost_relay::{RelayError, SourceError};

use crate::config::ConfigError;

/// How the process ends when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed while running.
    Running = 1,
    /// Arguments or configuration.
    Configuration = 2,
    /// PostgreSQL is not as it has to be.
    Postgres = 3,
    /// Kafka is not as it has to be.
    Kafka = 4,
}

/// Why a command failed, how the process ends, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    text: String,
    next_step: Option<String>,
}

impl Failure {
    /// A failure with the whole chain of its causes.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        Self { exit, text: one_line(error.as_ref()), next_step: None }
    }

    /// It failed while running.
    pub(crate) fn running(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Running, error)
    }

    /// PostgreSQL is not as it has to be, or did not answer.
    pub(crate) fn postgres(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Postgres, error)
    }

    /// A failure that was found and told already.
    pub(crate) fn found(exit: Exit, text: &str) -> Self {
        Self { exit, text: text.to_owned(), next_step: None }
    }

    /// Puts what was attempted before the text.
    pub(crate) fn context(mut self, attempted: &str) -> Self {
        self.text = format!("{attempted}: {}", self.text);
        self
    }

    /// Says what to do.
    pub(crate) fn next_step(mut self, next_step: impl Into<String>) -> Self {
        self.next_step = Some(next_step.into());
        self
    }

    /// What the relay ended with. Before it has streamed, the surroundings are
    /// not as they have to be; after that it failed while running.
    pub(crate) fn of_relay(error: RelayError, has_streamed: bool) -> Self {
        let exit = match &error {
            RelayError::Config(_) => Exit::Configuration,
            _ if has_streamed && !matches!(error, RelayError::Prerequisite { .. }) => Exit::Running,
            RelayError::Prerequisite { .. }
            | RelayError::Connect(_)
            | RelayError::Source(_)
            | RelayError::Sql { .. }
            | RelayError::SqlTimeout { .. } => Exit::Postgres,
            RelayError::Sink { .. } => Exit::Kafka,
            _ => Exit::Running,
        };
        match error {
            RelayError::Prerequisite { problem, remedy } => {
                Self::found(exit, &problem).next_step(remedy)
            }
            error => {
                let next_step = next_step(&error);
                Self { next_step, ..Self::new(exit, error) }
            }
        }
    }

    /// Prints it, once.
    pub(crate) fn print(self) -> ExitCode {
        eprintln!("error: {}", self.text);
        if let Some(next_step) = &self.next_step {
            eprintln!("next step: {next_step}");
        }
        ExitCode::from(self.exit as u8)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let next_step = error.next_step();
        Self::new(Exit::Configuration, error).next_step(next_step)
    }
}

fn next_step(error: &RelayError) -> Option<String> {
    let text = match error {
        RelayError::Connect(source) | RelayError::Source(SourceError::Connect(source)) => {
            if source.is_transient() {
                "make sure that PostgreSQL runs there and lets this host in"
            } else {
                "mend the login: user, password, database, sslmode, pg_hba.conf"
            }
        }
        RelayError::Sink { .. } => {
            "make sure that the brokers run there, and that security.protocol and the login under \
             [kafka] are right"
        }
        RelayError::Sql { .. } => "run `walpost check`, which looks at rights and tables",
        _ => return None,
    };
    Some(text.to_owned())
}

/// An error with its causes in one line, without repetitions.
pub(crate) fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner\n  DETAIL: more")]
    struct Inner;

    #[test]
    fn a_chain_is_one_line() {
        assert_eq!(one_line(&Outer(Inner)), "outer: inner; DETAIL: more");
    }

    #[test]
    fn a_missing_prerequisite_is_postgres_at_any_time() {
        for has_streamed in [false, true] {
            let error = RelayError::Prerequisite { problem: "p".into(), remedy: "r".into() };
            let failure = Failure::of_relay(error, has_streamed);
            assert_eq!(failure.exit, Exit::Postgres);
            assert_eq!((&*failure.text, failure.next_step.as_deref()), ("p", Some("r")));
        }
    }

    #[test]
    fn the_sink_is_kafka_until_it_has_streamed() {
        let error = || RelayError::Sink { detail: "d".into(), transient: false };
        assert_eq!(Failure::of_relay(error(), false).exit, Exit::Kafka);
        assert_eq!(Failure::of_relay(error(), true).exit, Exit::Running);
    }
}
