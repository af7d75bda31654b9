use tokio_postgres::error::SqlState;
use walpost_postgres::shown::{Author, ServerMessage};

/// An event could not be written.
///
/// Errors of the server, [`Error::DuplicateKey`], [`Error::DuplicateId`],
/// [`Error::Conflict`], [`Error::NoUniqueIndex`], [`Error::Refused`] and
/// [`Error::Connection`], end the transaction: all that is left is to roll it
/// back, or back to a savepoint ([`Transaction::transaction`]) that was made
/// before. After [`Error::NotWritten`], [`Error::KeyUnstable`],
/// [`Error::IdType`] and [`Error::WalLevel`] it must not be committed. All
/// others come before anything is sent, and the transaction goes on.
///
/// None shows a payload, a header or a key.
///
/// [`Transaction::transaction`]: tokio_postgres::Transaction::transaction
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name is empty, holds NUL, or has more than 63 bytes.
    #[error("{what} is {name:?}; it has 1 to 63 bytes and no NUL")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A column is to hold two things: it is named twice by the builder of the
    /// table, or by the table and by [`NewEvent::column`](crate::NewEvent::column).
    #[error("column {column:?} is named twice")]
    ColumnTwice {
        /// Its name.
        column: String,
    },
    /// Text that must not be empty is.
    #[error("the event's {what} is empty")]
    Empty {
        /// Which.
        what: &'static str,
    },
    /// Text that PostgreSQL cannot store.
    #[error("the event's {what} holds a NUL character, which PostgreSQL's text cannot")]
    Nul {
        /// Which.
        what: &'static str,
    },
    /// The event is not what the contract of its type says.
    #[cfg(feature = "contracts")]
    #[error("the event breaks its contract")]
    Contract {
        /// How, without any value of it.
        #[source]
        source: walpost_contracts::PayloadError,
    },
    /// The payload cannot be serialized as JSON, or is no JSON.
    #[error("the event's payload cannot be JSON")]
    Json {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The id does not fit the id column.
    #[error("event id {id:?} does not fit an id column of type {expected}")]
    Id {
        /// The id.
        id: String,
        /// `uuid`, `text` or `bigint`.
        expected: &'static str,
    },
    /// The table has an id that is not of the declared type. The event may be
    /// written, and must not be committed.
    #[error(
        "{table} has an id that is no {declared}; declare its id column in OutboxTable::builder as \
         what it is"
    )]
    IdType {
        /// Schema and table.
        table: String,
        /// `uuid` or `bigint`, as declared.
        declared: &'static str,
    },
    /// One event of [`write_all`](crate::write_all) cannot be written.
    #[error("event {index} of the call, counted from 0, cannot be written")]
    Event {
        /// Which, from 0.
        index: usize,
        /// Why.
        #[source]
        source: Box<Self>,
    },
    /// Two events of [`write_all`](crate::write_all) have the same idempotency
    /// key or id.
    #[error("events {first} and {second} of the call, counted from 0, have the same {what}")]
    Twice {
        /// `idempotency key` or `id`.
        what: &'static str,
        /// The one, from 0.
        first: usize,
        /// The other, from 0.
        second: usize,
    },
    /// A payload of bytes for a column that cannot hold them.
    #[error(
        "a payload of bytes does not fit column {column:?} of {table}, which is declared as \
         {declared}; use text or JSON, or a bytea column with PayloadColumn::Bytea"
    )]
    Payload {
        /// Schema and table.
        table: String,
        /// The payload column.
        column: String,
        /// Its type, as declared.
        declared: &'static str,
    },
    /// The event has something that the table has no column for.
    #[error("the event has {what}, for which {table} has no column; name one in its OutboxTable")]
    NoColumn {
        /// Schema and table.
        table: String,
        /// What the event has.
        what: &'static str,
    },
    /// An idempotency key without a table that could hold it.
    #[error("an emitted event cannot have an idempotency key: no table holds it; write a row")]
    KeyWithoutTable,
    /// An event with this idempotency key is written already. The transaction
    /// has failed.
    #[error("{table} has an event with this idempotency key already{}", of_call(.index))]
    DuplicateKey {
        /// Schema and table.
        table: String,
        /// Which event of [`write_all`](crate::write_all), from 0, where the
        /// server says so: to those who may `select` from the table.
        index: Option<usize>,
    },
    /// An event with this id is written already. The transaction has failed.
    #[error("{table} has an event with this id already{}", of_call(.index))]
    DuplicateId {
        /// Schema and table.
        table: String,
        /// As in [`Error::DuplicateKey`].
        index: Option<usize>,
    },
    /// A concurrent transaction was first. Under `repeatable read` and
    /// `serializable` also when it wrote an event with the same idempotency key
    /// and committed after this one began. Roll back and run it again.
    #[error("a concurrent transaction was first ({}); roll back and run it again", .code.code())]
    Conflict {
        /// Schema and table.
        table: String,
        /// `40001` or `40P01`.
        code: SqlState,
    },
    /// The event of an idempotency key was there and gone, again and again:
    /// something deletes rows, or hides them from this role.
    #[error(
        "{table} refuses the idempotency key and shows no event with it; check row security, and \
         what deletes rows"
    )]
    KeyUnstable {
        /// Schema and table.
        table: String,
    },
    /// No unique index on the idempotency key alone.
    #[error(
        "{table} has no unique index on column {column:?} alone, so a key could be taken twice; \
         create one, or for a partitioned table name the table of its keys \
         (OutboxTable::partitioned); roll back"
    )]
    NoUniqueIndex {
        /// Schema and table.
        table: String,
        /// Column of the idempotency key.
        column: String,
    },
    /// The server took the statement and fewer rows than it was given: a trigger
    /// or rule of the table drops or diverts them.
    #[error(
        "{table} took {written} of {expected} events; a trigger or rule drops or diverts the \
         others; roll back"
    )]
    NotWritten {
        /// Schema and table.
        table: String,
        /// Rows given.
        expected: u64,
        /// Rows taken.
        written: u64,
    },
    /// The server does not log what logical decoding needs, so an emitted event
    /// would reach nobody.
    #[error("wal_level is {wal_level}, so an emitted event would reach nobody; set it to logical")]
    WalLevel {
        /// `minimal` or `replica`.
        wal_level: String,
    },
    /// The server refused the statement.
    #[error(
        "writing to {target} was refused ({detail}){}{}{}",
        of_column(.column), of_call(.index), hint(.code)
    )]
    Refused {
        /// Schema and table, or `the WAL`.
        target: String,
        /// SQLSTATE.
        code: SqlState,
        /// What [`walpost_postgres::shown`] lets be shown of the server's error.
        detail: String,
        /// The column it concerns, where the server says so.
        column: Option<String>,
        /// Which event of [`write_all`](crate::write_all) it concerns, from 0,
        /// where the server says so.
        index: Option<usize>,
    },
    /// The connection failed; whether the transaction committed is unknown only
    /// if this came from its commit.
    #[error("the connection failed while writing to {target}")]
    Connection {
        /// Schema and table, or `the WAL`.
        target: String,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
}

impl Error {
    /// Whether the event was written before, by its idempotency key or id.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::DuplicateKey { .. } | Self::DuplicateId { .. })
    }

    /// Whether the same transaction, run again from its beginning, may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Connection { .. } => true,
            // Connection, resources, lock time-out, and a server that stops.
            Self::Refused { code, .. } => {
                ["08", "53", "55P03", "57P"].iter().any(|class| code.code().starts_with(class))
            }
            _ => false,
        }
    }

    /// From an error of the driver.
    pub(crate) fn from_driver(target: &str, source: tokio_postgres::Error) -> Self {
        let target = target.to_owned();
        let Some(error) = source.as_db_error() else {
            return Self::Connection { target, source };
        };
        let code = error.code().clone();
        if code == SqlState::T_R_SERIALIZATION_FAILURE || code == SqlState::T_R_DEADLOCK_DETECTED {
            return Self::Conflict { table: target, code };
        }
        let message = ServerMessage::from(error);
        let detail = ServerMessage { column: None, ..message }.to_text(Author::Walpost);
        let column = message.column_by_server().map(str::to_owned);
        Self::Refused { target, code, detail, column, index: None }
    }

    /// The same, about this value.
    pub(crate) fn at(mut self, at: &str, event: Option<usize>) -> Self {
        if let Self::Refused { column, index, .. } = &mut self {
            *column = Some(at.to_owned());
            *index = event;
        }
        self
    }
}

fn of_call(index: &Option<usize>) -> String {
    index.map_or_else(String::new, |index| format!(" (event {index} of the call, counted from 0)"))
}

fn of_column(column: &Option<String>) -> String {
    column.as_ref().map_or_else(String::new, |column| format!(" for column {column:?}"))
}

fn hint(code: &SqlState) -> &'static str {
    match code.code() {
        "42P01" | "3F000" => "; create it with `walpost migrate`, or name your own table",
        "42703" => {
            "; name the columns that the table has, with OutboxTable::builder and NewEvent::column"
        }
        "42804" => "; declare that column in OutboxTable::builder as what it is",
        "428C9" => "; leave the id out, or have the column generated by default, not always",
        "23502" => "; give that column a default, or a value with NewEvent",
        "42501" => "; grant usage on the schema, and insert and select on the table",
        "25006" => "; write on the primary, in a transaction that is not read only",
        "25P02" => "; an earlier statement of this transaction has failed",
        "22P05" => "; jsonb cannot hold \\u0000: leave it out, or use a json or text column",
        data if data.starts_with("22") => {
            "; the value does not fit the type of its column: compare the table with its \
             OutboxTable, and with what NewEvent::column was given"
        }
        _ => "",
    }
}
