use tokio_postgres::Error as PgError;

use crate::{
    Error,
    database_error::{Verdict, how_to_end, how_to_use, how_to_use_state},
    kafka::KafkaFailure,
    report::report,
    store::StoreError,
};

/// Why a claim of a partition ended.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It was asked to.
    Stopped,
    /// The group has taken the partition away; the word of it is on its way.
    NotAssigned,
    /// Somebody else may have claimed it: claim again, once the group has had
    /// the time to say so.
    GivenUp(String),
    /// A fault that passes: claim again after a back-off.
    Fault(String),
    /// The connection was dropped on purpose: claim again at once.
    Discarded,
    /// Nothing goes on until somebody decides.
    Halt(String),
    /// The whole consumer cannot go on.
    Fatal(Error),
}

impl Interrupt {
    /// What an error of the database means while the partition is not, or not
    /// yet, ours.
    pub(super) fn claiming(attempted: &str, schema: &str, error: PgError) -> Self {
        match Verdict::of(&error) {
            Verdict::Transient | Verdict::Cancelled => {
                Self::Fault(format!("{attempted}: {}{}", report(&error), how_to_end(&error)))
            }
            Verdict::GivenUp => Self::GivenUp(report(&error)),
            Verdict::NotMigrated => {
                let (schema, source) = (schema.to_owned(), error.into());
                Self::Fatal(Error::NotMigrated { schema, source })
            }
            Verdict::Mismatch | Verdict::HandlerEnded => Self::Halt(report(&error)),
            Verdict::Data | Verdict::Unknown => Self::Fatal(Error::Database {
                attempted: format!("{attempted} was refused; {}", how_to_use(&error)),
                source: error.into(),
            }),
        }
    }

    /// The same while it is ours, for all but the handler's share.
    pub(super) fn owning(attempted: &str, schema: &str, error: PgError) -> Self {
        match Self::claiming(attempted, schema, error) {
            Self::Fault(reason) => Self::GivenUp(reason),
            Self::Fatal(Error::Database { attempted, source }) => {
                let reason = report(&*source);
                Self::Halt(format!("{attempted}, then restart the consumer: {reason}"))
            }
            other => other,
        }
    }

    /// The same for what another client has from the server.
    pub(super) fn store(attempted: &str, schema: &str, error: &StoreError) -> Self {
        match error.verdict() {
            Verdict::Transient | Verdict::Cancelled => {
                Self::GivenUp(format!("{attempted}: {error}"))
            }
            Verdict::GivenUp => Self::GivenUp(error.to_string()),
            Verdict::Mismatch | Verdict::HandlerEnded => Self::Halt(error.to_string()),
            Verdict::NotMigrated => {
                let (schema, source) = (schema.to_owned(), error.to_string().into());
                Self::Fatal(Error::NotMigrated { schema, source })
            }
            Verdict::Data | Verdict::Unknown => {
                let how = how_to_use_state(error.state());
                Self::Halt(format!(
                    "{attempted} was refused; {how}, then restart the consumer: \
                     {error}"
                ))
            }
        }
    }

    /// Why, for a log line.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Stopped => "asked to stop".to_owned(),
            Self::NotAssigned => "the partition was taken away".to_owned(),
            Self::Discarded => "the connection was dropped".to_owned(),
            Self::GivenUp(reason) | Self::Fault(reason) | Self::Halt(reason) => reason.clone(),
            Self::Fatal(error) => report(error),
        }
    }
}

impl From<KafkaFailure> for Interrupt {
    fn from(failure: KafkaFailure) -> Self {
        match failure {
            KafkaFailure::NotAssigned | KafkaFailure::Closed => Self::NotAssigned,
            KafkaFailure::UnknownTopic(_) | KafkaFailure::Other { .. } => {
                Self::Fault(failure.to_string())
            }
        }
    }
}
