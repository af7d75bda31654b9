//! The steps of a [`Processor`](crate::Processor), for a loop of one's own.

use std::time::Duration;

use tokio_postgres::{Client, Transaction, types::Type};

use crate::{
    Error, Event, Head, Inbox, OnUnknown, Order,
    claim::{Choice, Claim as Inner, Terms, claim},
};

/// How to claim: see [`Inbox::claim`].
///
/// ```
/// use walpost_inbox::ClaimTerms;
///
/// let terms = ClaimTerms::new("importer").limit(10).lease_ms(30_000).attempts_max(5);
/// # let _ = terms;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClaimTerms {
    pub(crate) name: String,
    source: Option<String>,
    limit: u32,
    pub(crate) lease_ms: u32,
    attempts_max: u32,
}

impl ClaimTerms {
    /// For a processor of this name: one event, a lease of 60,000 ms, at most
    /// eight attempts for an event whose lease expires.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), source: None, limit: 1, lease_ms: 60_000, attempts_max: 8 }
    }

    /// Events of this source alone.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// How many events at most, up to 1,000.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit.clamp(1, 1_000);
        self
    }

    /// After which time the claim may be taken away: 1,000 to 86,400,000 ms.
    pub fn lease_ms(mut self, lease_ms: u32) -> Self {
        self.lease_ms = lease_ms.clamp(1_000, 86_400_000);
        self
    }

    /// Behind so many attempts an event whose lease has expired is given up.
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = attempts_max;
        self
    }
}

/// A claimed event: ours until its lease ends.
#[derive(Clone, Debug)]
#[must_use]
pub struct Claim(Inner);

impl Claim {
    /// What is claimed.
    pub fn head(&self) -> &Head {
        &self.0.head
    }

    /// How often the event was claimed: whoever holds an earlier claim is
    /// refused.
    pub fn fence(&self) -> i64 {
        self.0.fence
    }
}

impl Inbox {
    /// Claims events that are due, in a transaction of its own, which also takes
    /// expired claims of others away. It counts as an attempt of each, whatever
    /// becomes of it. Rows that others hold are passed over, none is waited for.
    ///
    /// Each claim then ends by [`Inbox::succeed`] or [`Inbox::fail`], or by its
    /// lease. [`Processor`](crate::Processor) does all of that, and what goes
    /// wrong with it.
    ///
    /// ```no_run
    /// # use walpost_inbox::{ClaimTerms, Inbox, tokio_postgres::Client};
    /// # async fn example(client: &mut Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let inbox = Inbox::new();
    /// for claim in inbox.claim(client, &ClaimTerms::new("importer")).await? {
    ///     let tx = client.transaction().await?;
    ///     let event = inbox.begin(&tx, &claim).await?;
    ///     let invoice: i64 = event.json()?;
    ///     tx.execute("insert into shipment (invoice) values ($1)", &[&invoice]).await?;
    ///     inbox.succeed(&tx, &claim).await?;
    ///     tx.commit().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When nothing was claimed; with [`Error::Unavailable`] that is unknown, and
    /// what was claimed waits for its lease.
    pub async fn claim(
        &self,
        client: &mut Client,
        terms: &ClaimTerms,
    ) -> Result<Vec<Claim>, Error> {
        let terms = Terms {
            source: terms.source.as_deref(),
            order: Order::Concurrent,
            limit: terms.limit,
            lease_ms: terms.lease_ms,
            attempts_max: terms.attempts_max,
            name: &terms.name,
            on_unknown: OnUnknown::Review,
            expires: true,
        };
        let claimed = claim(client, &self.sql, &terms, |_| Choice::Take(()))
            .await
            .map_err(|error| self.failed("claiming events", "processor", &error))?;
        Ok(claimed.taken.into_iter().map(|(claim, ())| Claim(claim)).collect())
    }

    /// Begins the effect of a claimed event, as the first of its transaction, and
    /// gives the event with its payload. Bounds what the server lets an idle
    /// transaction take, and a statement unless the role has a bound of its own,
    /// to five minutes.
    ///
    /// # Errors
    /// [`Error::GivenUp`] when the claim is no longer ours.
    pub async fn begin(&self, tx: &Transaction<'_>, claim: &Claim) -> Result<Event, Error> {
        const LIMIT_MS: i64 = 300_000;
        let row = tx
            .query_typed_one(
                &self.sql.begin,
                &[
                    (&claim.0.head.number, Type::INT8),
                    (&claim.0.fence, Type::INT8),
                    (&LIMIT_MS, Type::INT8),
                    (&LIMIT_MS, Type::INT8),
                ],
            )
            .await
            .map_err(|error| self.failed("beginning an effect", "processor", &error))?;
        Ok(Event::new(claim.0.head.clone(), row.get(0)))
    }

    /// Marks the event as succeeded, as the last of its effect's transaction.
    ///
    /// # Errors
    /// [`Error::GivenUp`] when the lease has expired, or somebody else has the
    /// event. The effect cannot be committed then.
    pub async fn succeed(&self, tx: &Transaction<'_>, claim: &Claim) -> Result<(), Error> {
        tx.query_typed(
            &self.sql.succeed,
            &[(&claim.0.head.number, Type::INT8), (&claim.0.fence, Type::INT8)],
        )
        .await
        .map(drop)
        .map_err(|error| self.failed("ending an effect", "processor", &error))
    }

    /// Marks the event as failed, after its effect was rolled back: to be claimed
    /// again after a while, or given up. The reason is shown, and is a constant
    /// so that no contents can be in it.
    ///
    /// # Errors
    /// [`Error::GivenUp`] as above.
    pub async fn fail(
        &self,
        client: &Client,
        claim: &Claim,
        reason: &'static str,
        again: Option<Duration>,
    ) -> Result<(), Error> {
        let again_ms = again.map(|again| i64::try_from(again.as_millis()).unwrap_or(i64::MAX));
        client
            .query_typed(
                &self.sql.fail,
                &[
                    (&claim.0.head.number, Type::INT8),
                    (&claim.0.fence, Type::INT8),
                    (&reason, Type::TEXT),
                    (&true, Type::BOOL),
                    (&again_ms, Type::INT8),
                ],
            )
            .await
            .map(drop)
            .map_err(|error| self.failed("marking an event as failed", "processor", &error))
    }
}
