use sqlx::postgres::{PgDatabaseError, PgErrorPosition, PgSeverity};
use walpost_consumer::{
    HandlerError, SliceError,
    store::{ServerMessage, StoreError},
};

/// Why a handler did not apply an event, or at which of a slice it failed.
///
/// It is a [`HandlerError`] that `?` makes of sqlx's errors too, sorted by
/// SQLSTATE as those of `tokio_postgres` are, and shown without what quotes
/// contents.
///
/// ```
/// use walpost_consumer::HandlerError;
/// use walpost_consumer_sqlx::{Failed, sqlx};
///
/// let failed = Failed::from(sqlx::Error::PoolTimedOut);
/// assert!(matches!(failed.error(), HandlerError::Transient(_)));
///
/// let third = Failed::at(2, HandlerError::park("no such customer"));
/// assert_eq!(third.index(), Some(2));
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    index: Option<usize>,
    #[source]
    error: HandlerError,
}

impl Failed {
    /// The event at `index` of the slice failed. It is tried alone, those
    /// before it first.
    pub fn at(index: usize, error: impl Into<Self>) -> Self {
        Self { index: Some(index), ..error.into() }
    }

    /// Index of the event that failed, `None` if any of them may have.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// What it means.
    pub fn error(&self) -> &HandlerError {
        &self.error
    }

    pub(crate) fn into_slice_error(self) -> SliceError {
        match self.index {
            Some(index) => SliceError::at(index, self.error),
            None => self.error.into(),
        }
    }
}

impl From<HandlerError> for Failed {
    fn from(error: HandlerError) -> Self {
        Self { index: None, error }
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        HandlerError::from(store_error(&error)).into()
    }
}

/// What sqlx says, without its own text where that may quote a value.
pub(crate) fn store_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => match database.try_downcast_ref::<PgDatabaseError>() {
            Some(said) => StoreError::server(&said_by(said)),
            None => StoreError::unusable("an error of another database than PostgreSQL"),
        },
        sqlx::Error::Io(error) => StoreError::away(format!("the connection failed: {error}")),
        sqlx::Error::Tls(_) => StoreError::away("the connection failed: TLS"),
        sqlx::Error::PoolTimedOut => {
            StoreError::away("the pool had no connection in time; give it as many as partitions")
        }
        sqlx::Error::PoolClosed => StoreError::unusable("the pool was closed"),
        sqlx::Error::WorkerCrashed => StoreError::away("a worker of sqlx ended"),
        sqlx::Error::Protocol(_) => {
            StoreError::away("the connection failed: not what sqlx expects of PostgreSQL")
        }
        sqlx::Error::BeginFailed => StoreError::away("no transaction began"),
        sqlx::Error::Configuration(_) => StoreError::unusable("the pool cannot be used as set"),
        sqlx::Error::RowNotFound => StoreError::no_row("a statement returned no row"),
        sqlx::Error::ColumnNotFound(name) => {
            StoreError::data(format!("no column {name} in the result"))
        }
        sqlx::Error::ColumnIndexOutOfBounds { index, len } => {
            StoreError::data(format!("no column {index} in a result of {len}"))
        }
        sqlx::Error::TypeNotFound { type_name } => {
            StoreError::data(format!("the type {type_name} is unknown"))
        }
        sqlx::Error::ColumnDecode { index, .. } => {
            StoreError::data(format!("the column {index} could not be read"))
        }
        _ => StoreError::data("a value could not be sent or read"),
    }
}

fn said_by(error: &PgDatabaseError) -> ServerMessage<'_> {
    ServerMessage {
        severity: match error.severity() {
            PgSeverity::Panic => "PANIC",
            PgSeverity::Fatal => "FATAL",
            _ => "ERROR",
        },
        state: error.code(),
        message: error.message(),
        file: error.file(),
        has_context: error.r#where().is_some(),
        is_in_statement: matches!(error.position(), Some(PgErrorPosition::Original(_))),
        constraint: error.constraint(),
        schema: error.schema(),
        table: error.table(),
        column: error.column(),
        data_type: error.data_type(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_server_is_transient_and_values_are_the_events() {
        let lost = Failed::from(sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into()));
        assert!(matches!(lost.error, HandlerError::Transient(_)));
        let decode = sqlx::Error::Decode("cannot read s3cr3t".into());
        let failed = Failed::from(decode);
        assert!(matches!(failed.error, HandlerError::Retry(_)));
        assert!(!format!("{failed:?}").contains("s3cr3t"));
        let closed = Failed::from(sqlx::Error::PoolClosed);
        assert!(matches!(closed.error, HandlerError::Halt(_)));
    }

    #[test]
    fn an_index_goes_with_the_error() {
        let slice = Failed::at(3, sqlx::Error::RowNotFound).into_slice_error();
        assert_eq!(slice.index(), Some(3));
        assert_eq!(Failed::from(HandlerError::park("x")).into_slice_error().index(), None);
    }
}
