use tokio_postgres::{Client, GenericClient, types::Type};

use crate::{Error, Inbox};

pub(crate) const ATTEMPTED: &str = "pruning the inbox";

/// What leaves the log, of events that succeeded or were ignored.
///
/// ```
/// use walpost_inbox::Prune;
///
/// let prune = Prune::new(30, 90).batch_rows(500);
/// assert_eq!(prune, Prune::new(30, 90).batch_rows(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Prune {
    payload_days: u32,
    keep_days: u32,
    pub(crate) batch_rows: u32,
}

/// What leaves apart from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Payloads,
    Rows,
}

/// How much has left, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Payloads that were nulled. Their hashes stay, and tell copies from other
    /// contents.
    pub payloads: u64,
    /// Rows that were deleted, and their keys with them.
    pub rows: u64,
}

impl Prune {
    /// Payloads leave `payload_days` after their events were done, at once with
    /// 0; rows after `keep_days`, which is no less than the window in which keys
    /// are remembered.
    pub fn new(payload_days: u32, keep_days: u32) -> Self {
        Self { payload_days, keep_days, batch_rows: 1_000 }
    }

    /// Rows of one statement, which is one transaction: 1 to 100,000, 1,000
    /// unless set.
    pub fn batch_rows(mut self, batch_rows: u32) -> Self {
        self.batch_rows = batch_rows.clamp(1, 100_000);
        self
    }

    /// The same, of no row at all.
    pub(crate) fn none(self) -> Self {
        Self { batch_rows: 0, ..self }
    }
}

impl Part {
    /// In this order.
    pub(crate) const ALL: [Self; 2] = [Self::Payloads, Self::Rows];
}

impl Inbox {
    /// What [`Inbox::prune`] would do now. Changes nothing.
    ///
    /// # Errors
    /// As [`Inbox::prune`].
    pub async fn prunable(&self, client: &Client, prune: &Prune) -> Result<Pruned, Error> {
        self.check_window(client, prune).await?;
        let (payload_days, keep_days) = (f64::from(prune.payload_days), f64::from(prune.keep_days));
        let row = client
            .query_typed_one(
                &self.sql.operator.prunable,
                &[(&payload_days, Type::FLOAT8), (&keep_days, Type::FLOAT8)],
            )
            .await
            .map_err(|error| self.failed(ATTEMPTED, "pruner", &error))?;
        let count = |index: usize| u64::try_from(row.get::<_, i64>(index)).unwrap_or_default();
        Ok(Pruned { payloads: count(0), rows: count(1) })
    }

    /// Nulls old payloads and deletes old rows, in bounded batches, each a
    /// transaction of its own. It passes over rows that somebody has locked, and
    /// may be killed at any moment.
    ///
    /// Only events that succeeded or were ignored are touched. One that failed
    /// keeps its payload, for a further attempt.
    ///
    /// An event whose row has left is new when it comes again. That is why rows
    /// stay for `dedup_window` in the table `inbox_window` at least, 90 days
    /// unless its owner has set it: longer than any sender repeats itself. The
    /// database refuses to delete them earlier, whoever tries.
    ///
    /// # Errors
    /// [`Error::Window`] when rows would leave within that window; when the role
    /// is no `pruner`. What left before stays so.
    pub async fn prune(&self, client: &Client, prune: &Prune) -> Result<Pruned, Error> {
        self.check_window(client, prune).await?;
        let payloads = self.in_batches(client, Part::Payloads, prune).await?;
        let rows = self.in_batches(client, Part::Rows, prune).await?;
        Ok(Pruned { payloads, rows })
    }

    async fn in_batches(&self, client: &Client, part: Part, prune: &Prune) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            let count = self.step(client, part, prune).await?;
            total += count;
            if count < u64::from(prune.batch_rows) {
                return Ok(total);
            }
        }
    }

    /// One statement.
    pub(crate) async fn step(
        &self,
        client: &impl GenericClient,
        part: Part,
        prune: &Prune,
    ) -> Result<u64, Error> {
        let (sql, days) = match part {
            Part::Payloads => (&self.sql.operator.prune_payloads, prune.payload_days),
            Part::Rows => (&self.sql.operator.prune_rows, prune.keep_days),
        };
        let (days, limit) = (f64::from(days), i64::from(prune.batch_rows));
        client
            .execute_typed(sql, &[(&days, Type::FLOAT8), (&limit, Type::INT8)])
            .await
            .map_err(|error| self.failed(ATTEMPTED, "pruner", &error))
    }

    pub(crate) async fn check_window(
        &self,
        client: &impl GenericClient,
        prune: &Prune,
    ) -> Result<(), Error> {
        let rows = client
            .query_typed(&self.sql.operator.window, &[])
            .await
            .map_err(|error| self.failed(ATTEMPTED, "pruner", &error))?;
        // Where nothing is said, nothing may leave.
        let window_days = rows
            .first()
            .map_or(u32::MAX, |row| u32::try_from(row.get::<_, i64>(0)).unwrap_or(u32::MAX));
        let keep_days = prune.keep_days;
        if keep_days < window_days {
            let schema = self.sql.schema.clone();
            return Err(Error::Window { keep_days, window_days, schema });
        }
        Ok(())
    }
}
