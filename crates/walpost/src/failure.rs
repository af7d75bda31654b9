use std::process::ExitCode;

use serde_json::json;
use tokio_postgres::error::SqlState;
use walpost_postgres::{
    ConnectError, Database,
    shown::{Author, chain},
};
use walpost_relay::{RelayError, ServerError, SourceError};

use crate::{
    command::grants::{Grants, with_role},
    config::{Config, ConfigError},
    log, output,
};

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
    /// Nothing matched.
    Nothing = 5,
    /// Two that were compared are not alike.
    Different = 6,
}

/// Why a command failed, how the process ends, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    text: String,
    next_step: Option<String>,
    in_json: bool,
    may_heal: bool,
}

impl Failure {
    /// A failure with the whole chain of its causes.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        Self::found(exit, &chain(error.as_ref(), Author::Walpost))
    }

    /// It failed while running.
    pub(crate) fn running(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Running, error)
    }

    /// No session.
    pub(crate) fn of_connect(error: ConnectError) -> Self {
        let next_step = next_step_of_connect(&error);
        let may_heal = error.is_transient();
        Self { may_heal, ..Self::postgres(error).next_step(next_step) }
    }

    /// PostgreSQL is not as it has to be, or did not answer.
    pub(crate) fn postgres(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Postgres, error)
    }

    /// A failure that was found and told already.
    pub(crate) fn found(exit: Exit, text: &str) -> Self {
        Self { exit, text: text.to_owned(), next_step: None, in_json: false, may_heal: false }
    }

    /// What went wrong.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What to do, where that is known.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.next_step.as_deref()
    }

    /// Whether trying again may help without anybody doing anything.
    pub(crate) fn may_heal(&self) -> bool {
        self.may_heal
    }

    /// Whether arguments or configuration are wrong.
    pub(crate) fn is_of_configuration(&self) -> bool {
        self.exit == Exit::Configuration
    }

    /// What went wrong and what to do, in one line.
    pub(crate) fn in_one_line(&self) -> String {
        match &self.next_step {
            Some(next_step) => format!("{}; next step: {next_step}", self.text),
            None => self.text.clone(),
        }
    }

    /// Puts what was attempted before the text.
    pub(crate) fn context(mut self, attempted: &str) -> Self {
        self.text = format!("{attempted}: {}", self.text);
        self
    }

    /// Both, with what to do about each.
    pub(crate) fn and(mut self, other: Self) -> Self {
        if self.text != other.text {
            self.text = format!("{}; also {}", self.text, other.text);
        }
        let is_new = self.next_step != other.next_step;
        self.next_step = match (self.next_step, other.next_step) {
            (Some(one), Some(other)) if is_new => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
        self
    }

    /// What was printed as JSON tells it already.
    pub(crate) fn told_in_json(mut self) -> Self {
        self.in_json = true;
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
            RelayError::SinkAccess { .. } | RelayError::RegistryAccess { .. } => Exit::Kafka,
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
            RelayError::SinkAccess { problem, remedy }
            | RelayError::RegistryAccess { problem, remedy } => {
                Self::found(exit, &problem).next_step(remedy)
            }
            error => {
                let next_step = next_step(&error);
                let may_heal = error.is_transient();
                Self { next_step, may_heal, ..Self::new(exit, error) }
            }
        }
    }

    /// The same of a command that looks, for whose role other grants are enough
    /// than for a pipeline's.
    pub(crate) fn of_look(error: RelayError, grants: &Grants) -> Self {
        let is_refused = matches!(&error, RelayError::Sql { source, .. } if is_denied(source));
        let failure = Self::of_relay(error, false);
        if is_refused { failure.next_step(grants.next_step()) } else { failure }
    }

    /// With the role of the login where the text has `<role>`.
    pub(crate) fn for_role(self, database: &Database) -> Self {
        let next_step = self.next_step.map(|text| with_role(&text, database));
        Self { text: with_role(&self.text, database), next_step, ..self }
    }

    /// With the properties of a connector where it names keys of ours.
    pub(crate) fn in_properties(self, config: &Config) -> Self {
        let next_step = self.next_step.map(|text| config.in_properties(&text));
        Self { text: config.in_properties(&self.text), next_step, ..self }
    }

    /// Prints it, once; for programs also as one JSON object on stdout.
    pub(crate) fn print(self, json: bool) -> ExitCode {
        self.note();
        if json && !self.in_json {
            let line = json!({
                "error": self.text,
                "next_step": self.next_step,
                "exit_code": self.exit as u8,
            });
            // The exit code tells it too.
            let _ = output::print(format_args!("{line}\n"));
        }
        ExitCode::from(self.exit as u8)
    }

    /// Prints it on stderr: for people, or as a line of a log in JSON.
    pub(crate) fn note(&self) {
        if log::writes_json() {
            output::note(format_args!("{}", self.log_line(&log::timestamp())));
            return;
        }
        output::note(format_args!("error: {}", self.text));
        if let Some(next_step) = &self.next_step {
            output::note(format_args!("next step: {next_step}"));
        }
    }
}

impl Failure {
    fn log_line(&self, timestamp: &str) -> serde_json::Value {
        let mut line = json!({
            "timestamp": timestamp,
            "level": "ERROR",
            "message": self.text,
            "target": "walpost",
            "exit_code": self.exit as u8,
        });
        if let Some(next_step) = &self.next_step {
            line["next_step"] = next_step.as_str().into();
        }
        line
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
            next_step_of_connect(source)
        }
        RelayError::Source(SourceError::Server(told)) if is_undecodable(told) => UNDECODABLE,
        RelayError::Sink { .. } => BROKERS,
        RelayError::Sql { source, .. } if is_denied(source) => DENIED,
        RelayError::Sql { .. } => "run `walpost check`, which looks at rights and tables",
        _ => return None,
    };
    Some(text.to_owned())
}

/// The server has no catalogue entry for a change that it decodes.
fn is_undecodable(told: &ServerError) -> bool {
    told.code == "XX000" && told.message().starts_with("could not map file")
}

const UNDECODABLE: &str = "a table was created or rewritten while the slot was made, and PostgreSQL \
                           cannot decode what was written to it since: drop the slot \
                           (pg_drop_replication_slot), and have `walpost slot recover` publish what \
                           is missing from the outbox table";

/// What to do when no broker answers.
pub(crate) const BROKERS: &str = "make sure that the brokers run there, and that security.protocol \
                                  and the login under [kafka] are right";

const DENIED: &str = "let an owner grant the role usage on the schema, and select, insert and \
                      update on the tables in it";

fn is_denied(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

/// What to do when PostgreSQL gives no session.
pub(crate) fn next_step_of_connect(error: &ConnectError) -> &'static str {
    if let Some(advice) = error.advice() {
        return advice;
    }
    match error {
        ConnectError::Tls(_) => "mend the url, or the file that it names",
        ConnectError::ReadOnly { .. } => "name the primary, or all hosts, in postgres.url",
        ConnectError::InitialStatement { .. } => "mend the statement, or what it needs",
        ConnectError::Refused { source, .. } => match source.code().map(|code| code.code()) {
            Some("28P01") => "mend the password: in the url, or the file postgres.password_file",
            Some("3D000") => "name one that exists, in the url, or create it with `createdb`",
            Some("42501") => "grant the role connect on the database",
            Some("53300") => "free a connection, or raise max_connections",
            Some(_) => "see the message of the server",
            None => "name a password, in the url or by postgres.password_file, if it asks for one",
        },
        _ => "make sure that PostgreSQL runs where postgres.url says, and lets this host in",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for has_streamed in [false, true] {
            let (problem, remedy) = (|| "p".to_owned(), || "r".to_owned());
            for error in [
                RelayError::SinkAccess { problem: problem(), remedy: remedy() },
                RelayError::RegistryAccess { problem: problem(), remedy: remedy() },
            ] {
                let failure = Failure::of_relay(error, has_streamed);
                assert_eq!(failure.exit, Exit::Kafka);
                assert_eq!((&*failure.text, failure.next_step.as_deref()), ("p", Some("r")));
            }
        }
    }
}
