use std::time::SystemTime;

use tokio_postgres::{Client, GenericClient, types::Type};

use crate::{Error, Idempotency, Lookup};

pub(crate) const PRUNING: &str = "pruning requests";
/// Of one transaction.
pub(crate) const BATCH_ROWS_MAX: u32 = 100_000;

/// A stored request, without its response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Name of its route.
    pub route: String,
    /// `in_progress`, `completed` or `tombstone`.
    pub status: String,
    /// When it was begun.
    pub created_at: SystemTime,
    /// When its response was stored.
    pub completed_at: Option<SystemTime>,
    /// When that expires; none where an operator has to look first.
    pub expires_at: Option<SystemTime>,
    /// Until when the key is answered with 410 after that.
    pub gone_until: Option<SystemTime>,
    /// When its run may be taken over.
    pub lease_until: Option<SystemTime>,
    /// Whether that is now: its run has died, or was given up.
    pub is_abandoned: bool,
    /// How far that came.
    pub recovery_point: Option<String>,
    /// What was answered.
    pub response_status: Option<u16>,
}

/// What leaves the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Responses that became tombstones.
    pub responses: u64,
    /// Rows that were deleted, and their keys with them.
    pub rows: u64,
}

/// What leaves apart from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Responses,
    Rows,
}

#[cfg(feature = "pruner")]
impl Part {
    /// In this order.
    pub(crate) const ALL: [Self; 2] = [Self::Responses, Self::Rows];
}

impl Idempotency {
    /// What is stored under a key.
    ///
    /// # Errors
    /// When the role is no `reader`.
    pub async fn show(&self, client: &Client, lookup: &Lookup) -> Result<Option<Entry>, Error> {
        let lookup = &lookup.as_bytes()[..];
        let rows = client
            .query_typed(&self.sql.show, &[(&lookup, Type::BYTEA)])
            .await
            .map_err(|error| self.failed_as("reader", "reading a request", &error))?;
        Ok(rows.first().map(|row| Entry {
            route: row.get(1),
            status: row.get(2),
            created_at: row.get(3),
            completed_at: row.get(4),
            expires_at: row.get(5),
            gone_until: row.get(6),
            lease_until: row.get(7),
            recovery_point: row.get(8),
            response_status: row.get::<_, Option<i32>>(9).and_then(|code| code.try_into().ok()),
            is_abandoned: row.get::<_, Option<bool>>(10).unwrap_or_default(),
        }))
    }

    /// Forgets a request, so that the next one under its key is new; whether
    /// there was one to forget. One that runs under a lease is left alone.
    ///
    /// # Errors
    /// When the role is no `operator`.
    pub async fn remove(&self, client: &Client, lookup: &Lookup) -> Result<bool, Error> {
        let lookup = &lookup.as_bytes()[..];
        let removed = client
            .execute_typed(&self.sql.remove, &[(&lookup, Type::BYTEA)])
            .await
            .map_err(|error| self.failed_as("operator", "forgetting a request", &error))?;
        Ok(removed > 0)
    }

    /// What [`prune`](Self::prune) would do now. Changes nothing.
    ///
    /// # Errors
    /// When the role is no `pruner`.
    pub async fn prunable(&self, client: &Client) -> Result<Pruned, Error> {
        let row = client
            .query_typed_one(&self.sql.prunable, &[])
            .await
            .map_err(|error| self.failed_as("pruner", PRUNING, &error))?;
        let count = |index: usize| u64::try_from(row.get::<_, i64>(index)).unwrap_or_default();
        Ok(Pruned { responses: count(0), rows: count(1) })
    }

    /// Turns expired responses into tombstones where their policy wants these,
    /// and deletes what has expired else: in batches of `batch_rows`, each a
    /// transaction of its own. It passes over rows that somebody has locked, and
    /// may be killed at any moment.
    ///
    /// Requests are judged by their times, so nothing depends on when it runs.
    ///
    /// # Errors
    /// When the role is no `pruner`. What left before stays so.
    pub async fn prune(&self, client: &Client, batch_rows: u32) -> Result<Pruned, Error> {
        let responses = self.in_batches(client, Part::Responses, batch_rows).await?;
        let rows = self.in_batches(client, Part::Rows, batch_rows).await?;
        Ok(Pruned { responses, rows })
    }

    async fn in_batches(&self, client: &Client, part: Part, batch_rows: u32) -> Result<u64, Error> {
        let batch_rows = batch_rows.clamp(1, BATCH_ROWS_MAX);
        let mut total = 0;
        loop {
            let count = self.prune_step(client, part, batch_rows).await?;
            total += count;
            if count < u64::from(batch_rows) {
                return Ok(total);
            }
        }
    }

    /// One statement.
    pub(crate) async fn prune_step(
        &self,
        client: &impl GenericClient,
        part: Part,
        batch_rows: u32,
    ) -> Result<u64, Error> {
        let sql = match part {
            Part::Responses => &self.sql.prune_responses,
            Part::Rows => &self.sql.prune_rows,
        };
        let limit = i64::from(batch_rows);
        client
            .execute_typed(sql, &[(&limit, Type::INT8)])
            .await
            .map_err(|error| self.failed_as("pruner", PRUNING, &error))
    }
}
