use tokio_postgres::{Row, Transaction, types::Type};

use crate::{Error, Inbox, NewEvent, State, metrics, sql::Sql};

/// How often an event may be there and then gone.
const TRIES_MAX: u32 = 3;
const ATTEMPTED: &str = "inserting an event into the inbox";

/// What [`Inbox::insert_once`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Insert {
    /// It was new and is inserted, under this number.
    Inserted(i64),
    /// It was there; nothing was written.
    Duplicate(Duplicate),
}

/// The event that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// Its number.
    pub number: i64,
    /// How far it is.
    pub state: State,
    /// Whether type and payload are the same, byte by byte; by SHA-256, so also
    /// once the payload is gone. A sender that reuses an id for something else
    /// is at fault, and what it sent is not kept.
    pub is_same: bool,
}

impl Insert {
    /// The number of the one event, whoever inserted it.
    pub fn number(&self) -> i64 {
        match self {
            Self::Inserted(number) | Self::Duplicate(Duplicate { number, .. }) => *number,
        }
    }

    fn result(&self) -> &'static str {
        match self {
            Self::Inserted(_) => "inserted",
            Self::Duplicate(Duplicate { is_same: true, .. }) => "duplicate",
            Self::Duplicate(_) => "conflict",
        }
    }
}

impl Inbox {
    /// Inserts an event unless one with its source and id is there, and says
    /// which. It commits or vanishes with `tx`. Answer the sender once that has
    /// committed, and a duplicate like the first time.
    ///
    /// A transaction that is inserting the same event is waited for. Under
    /// `repeatable read` and `serializable` that is [`Error::Conflict`] where its
    /// row cannot be seen.
    ///
    /// Not cancellation-safe: if this future is dropped, roll `tx` back.
    ///
    /// # Errors
    /// [`Error::Bounds`] and [`Error::Nul`] before anything is sent. After all
    /// others `tx` can only be rolled back.
    ///
    /// ```no_run
    /// use walpost_inbox::{Error, Inbox, Insert, NewEvent, tokio_postgres::Client};
    ///
    /// /// The status to answer a webhook with; its signature is verified.
    /// async fn receive(client: &mut Client, id: &str, kind: &str, body: &[u8]) -> Result<u16, Error> {
    ///     let event = NewEvent::new(id, kind, body).source("bank");
    ///     let Ok(tx) = client.transaction().await else { return Ok(503) };
    ///     let insert = Inbox::new().insert_once(&tx, &event).await?;
    ///     if tx.commit().await.is_err() {
    ///         return Ok(503);
    ///     }
    ///     match insert {
    ///         Insert::Duplicate(duplicate) if !duplicate.is_same => Ok(409),
    ///         _ => Ok(200),
    ///     }
    /// }
    /// ```
    pub async fn insert_once(
        &self,
        tx: &Transaction<'_>,
        event: &NewEvent,
    ) -> Result<Insert, Error> {
        event.check()?;
        let failed = |error| Error::from_driver(ATTEMPTED, (&self.sql.schema, "receiver"), &error);
        for _ in 0..TRIES_MAX {
            if let Some(number) = self.insert(tx, event).await.map_err(failed)? {
                return Ok(counted(event, Insert::Inserted(number)));
            }
            if let Some(found) = duplicate(tx, &self.sql, event).await.map_err(failed)? {
                return Ok(counted(event, Insert::Duplicate(found)));
            }
        }
        Err(Error::Unstable)
    }

    async fn insert(
        &self,
        tx: &Transaction<'_>,
        event: &NewEvent,
    ) -> Result<Option<i64>, tokio_postgres::Error> {
        let NewEvent { source, event_id, event_type, related_reference, payload } = event;
        let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
            (source, Type::TEXT),
            (event_id, Type::TEXT),
            (event_type, Type::TEXT),
            (related_reference, Type::TEXT),
            (payload, Type::BYTEA),
        ];
        let mut sql = &self.sql.insert;
        if self.notify {
            sql = &self.sql.insert_and_notify;
            parameters.push((&self.schema, Type::TEXT));
        }
        let rows = tx.query_typed(sql, &parameters).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }
}

async fn duplicate(
    tx: &Transaction<'_>,
    sql: &Sql,
    event: &NewEvent,
) -> Result<Option<Duplicate>, tokio_postgres::Error> {
    let rows = tx
        .query_typed(
            &sql.duplicate,
            &[
                (&event.source, Type::TEXT),
                (&event.event_id, Type::TEXT),
                (&event.event_type, Type::TEXT),
                (&event.payload, Type::BYTEA),
            ],
        )
        .await?;
    Ok(rows.first().map(read))
}

fn read(row: &Row) -> Duplicate {
    let state = row.get::<_, &str>(1).parse().expect("the table has these states alone");
    Duplicate { number: row.get(0), state, is_same: row.get(2) }
}

fn counted(event: &NewEvent, insert: Insert) -> Insert {
    metrics::received(&event.source, insert.result());
    insert
}
