use tokio_postgres::{Client, types::Type};

use crate::{Error, Inbox};

/// What a processor has done since it was built, and what it last saw waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Events whose effect was committed.
    pub succeeded: u64,
    /// Events of unknown types that were ignored.
    pub ignored: u64,
    /// Events that were set aside for review.
    pub reviewed: u64,
    /// Attempts that failed and count.
    pub failures: u64,
    /// Events that were left without a further attempt.
    pub given_up: u64,
    /// Attempts behind a failed one.
    pub retries: u64,
    /// Attempts that failed for a passing fault and do not count.
    pub transient: u64,
    /// Claims, of whomever, that were taken away because their lease expired.
    pub lease_expired: u64,
    /// Own attempts that were refused at their end, since the claim was given
    /// up, and those whose end is unknown.
    pub lost: u64,
    /// As of the last few seconds; `None` before it was first asked for.
    pub backlog: Option<Backlog>,
}

/// Events that are not done. Each is counted up to 10,000, and
/// pending and waiting ones together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Backlog {
    /// Received and not claimed.
    pub pending: u64,
    /// Claimed.
    pub processing: u64,
    /// Failed, with a further attempt to come.
    pub waiting: u64,
    /// Failed, without one.
    pub given_up: u64,
    /// Waiting for an operator.
    pub review: u64,
    /// Age of the oldest pending one, 0 where there is none.
    pub oldest_pending_seconds: f64,
}

impl Inbox {
    /// What is not done, of one source or of all.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn backlog(&self, client: &Client, source: Option<&str>) -> Result<Backlog, Error> {
        self.backlog_as("reader", client, source).await
    }

    /// The same for a role of this kind, which every kind that may look is
    /// enough for.
    pub(crate) async fn backlog_as(
        &self,
        kind: &'static str,
        client: &Client,
        source: Option<&str>,
    ) -> Result<Backlog, Error> {
        let row = client
            .query_typed_one(&self.sql.scoped(source).backlog, &[(&source, Type::TEXT)])
            .await
            .map_err(|error| {
                Error::from_driver("counting the inbox", (&self.sql.schema, kind), &error)
            })?;
        let count = |index: usize| u64::try_from(row.get::<_, i64>(index)).unwrap_or_default();
        Ok(Backlog {
            pending: count(0),
            processing: count(1),
            waiting: count(2),
            given_up: count(3),
            review: count(4),
            oldest_pending_seconds: row.get(5),
        })
    }
}
