//! An event that is inserted and applied in one transaction, without a
//! processor.

use tokio_postgres::{Transaction, types::Type};

use crate::{
    ClaimTerms, Duplicate, Error, Event, Handler, HandlerError, Head, Inbox, Insert, NewEvent,
};

const BEGINNING: &str = "beginning an effect with its insert";
const GIVING_UP: &str = "inserting an event as given up";
/// Of an event that was just inserted and is claimed for the first time.
const FENCE: i64 = 1;

/// What [`Inbox::insert_and_apply`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Applied {
    /// It was new. Its effect and its state `succeeded` are in the transaction.
    Succeeded(i64),
    /// It was new, and [`Handler::select`] does not know its type. It is inserted
    /// as pending, for a [`Processor`](crate::Processor).
    Unknown(i64),
    /// It was there; nothing was written.
    Duplicate(Duplicate),
}

/// Why an event was not inserted and applied. The transaction can only be rolled
/// back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The inbox could not be written.
    #[error(transparent)]
    Inbox(#[from] Error),
    /// The handler failed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

impl Inbox {
    /// Inserts an event and applies it in the same transaction, unless one with
    /// its source and id is there: deduplication, effect and state commit
    /// together, or vanish together.
    ///
    /// A transaction that is at work on the same event is waited for; behind its
    /// COMMIT this one is a duplicate, behind its rollback the first. Nobody else
    /// sees the event before the COMMIT, so nobody claims it.
    ///
    /// `terms` give the name that claims it, and by their lease how long the
    /// server lets a statement of the transaction take, unless the role has a
    /// bound of its own, and how long it lets the transaction be idle. The role
    /// needs the rights of both `receiver` and `processor`.
    ///
    /// A panic of `handler` is the caller's to catch. Not cancellation-safe: if
    /// this future is dropped, roll `tx` back.
    ///
    /// # Errors
    /// The handler's, and those of [`Inbox::insert_once`]; roll `tx` back. The
    /// sender may then send the event again.
    ///
    /// ```no_run
    /// # use walpost_inbox::{Applied, ClaimTerms, Handler, Inbox, NewEvent, tokio_postgres::Client};
    /// # async fn receive(client: &mut Client, handler: &impl Handler) -> Result<(), Box<dyn std::error::Error>> {
    /// let event = NewEvent::new("evt_1", "invoice.paid", *b"77").source("bank");
    /// let tx = client.transaction().await?;
    /// let terms = ClaimTerms::new("webhooks");
    /// let applied = Inbox::new().insert_and_apply(&tx, &event, handler, &terms).await?;
    /// tx.commit().await?;
    /// if let Applied::Duplicate(duplicate) = applied {
    ///     println!("it is there, and {}", duplicate.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn insert_and_apply<H: Handler>(
        &self,
        tx: &Transaction<'_>,
        event: &NewEvent,
        handler: &H,
        terms: &ClaimTerms,
    ) -> Result<Applied, ApplyError> {
        let number = match self.insert_once(tx, event).await? {
            Insert::Inserted(number) => number,
            Insert::Duplicate(found) => return Ok(Applied::Duplicate(found)),
        };
        let head = first_attempt(event, number);
        let Some(work) = handler.select(&head) else { return Ok(Applied::Unknown(number)) };
        self.begin_inserted(tx, number, terms, BEGINNING).await?;
        let event = Event::new(head, event.payload.clone());
        handler.process(tx, &work, &event).await?;
        // Also where a statement failed and the handler has said nothing of it.
        tx.query_typed(&self.sql.succeed, &[(&number, Type::INT8), (&FENCE, Type::INT8)])
            .await
            .map_err(|error| self.failed("ending an effect", "processor", &error))?;
        Ok(Applied::Succeeded(number))
    }

    /// Inserts an event as one that failed and was given up, for the reason that
    /// a handler gave, unless it is there: what a
    /// [`Processor`](crate::Processor) does where a handler says
    /// [`HandlerError::give_up`]. Call it in a transaction without the effect.
    ///
    /// # Errors
    /// When it was not; roll `tx` back.
    pub async fn insert_given_up(
        &self,
        tx: &Transaction<'_>,
        event: &NewEvent,
        why: &HandlerError,
        terms: &ClaimTerms,
    ) -> Result<Insert, Error> {
        let insert = self.insert_once(tx, event).await?;
        let Insert::Inserted(number) = insert else { return Ok(insert) };
        self.begin_inserted(tx, number, terms, GIVING_UP).await?;
        let reason = why.reason.replace('\0', "\u{fffd}");
        tx.query_typed(
            &self.sql.fail,
            &[
                (&number, Type::INT8),
                (&FENCE, Type::INT8),
                (&reason, Type::TEXT),
                (&true, Type::BOOL),
                (&None::<i64>, Type::INT8),
            ],
        )
        .await
        .map_err(|error| self.failed(GIVING_UP, "processor", &error))?;
        Ok(insert)
    }

    /// Claims what this transaction has inserted, and begins its effect.
    async fn begin_inserted(
        &self,
        tx: &Transaction<'_>,
        number: i64,
        terms: &ClaimTerms,
        attempted: &'static str,
    ) -> Result<(), Error> {
        let failed = |error| self.failed(attempted, "processor", &error);
        let lease_ms = i64::from(terms.lease_ms);
        let numbers = vec![number];
        tx.execute_typed(
            &self.sql.take,
            &[(&numbers, Type::INT8_ARRAY), (&lease_ms, Type::INT8), (&terms.name, Type::TEXT)],
        )
        .await
        .map_err(failed)?;
        tx.query_typed(
            &self.sql.begin_unread,
            &[
                (&number, Type::INT8),
                (&FENCE, Type::INT8),
                (&lease_ms, Type::INT8),
                (&lease_ms, Type::INT8),
            ],
        )
        .await
        .map_err(failed)?;
        Ok(())
    }
}

fn first_attempt(event: &NewEvent, number: i64) -> Head {
    Head {
        number,
        source: event.source.clone(),
        event_id: event.event_id.clone(),
        event_type: event.event_type.clone(),
        related_reference: event.related_reference.clone(),
        attempt: 1,
    }
}
