use tokio_postgres::{
    Client, GenericClient,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError, operator_sql::PRUNABLE_MAX};

pub(crate) const ATTEMPTED: &str = "pruning deliveries";
const BATCH_ROWS_MAX: u32 = 100_000;

/// What leaves, of deliveries that have arrived.
///
/// ```
/// use walpost_webhook::Prune;
///
/// let prune = Prune::default();
/// assert_eq!(prune, Prune::new(30, 365).batch_rows(1_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Prune {
    archive_after_days: u32,
    delete_after_days: u32,
    pub(crate) batch_rows: u32,
}

/// What leaves apart from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// For the archive.
    Delivered,
    /// The archive.
    Archived,
}

/// How much has left, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Deliveries that moved to the archive; what was sent is gone.
    pub archived: u64,
    /// Deliveries that were deleted from the archive.
    pub deleted: u64,
}

impl Default for Prune {
    /// After 30 days to the archive, deleted after 365.
    fn default() -> Self {
        Self::new(30, 365)
    }
}

impl Prune {
    /// To the archive so many days after it arrived, at once with 0; deleted so
    /// many days after it arrived.
    pub fn new(archive_after_days: u32, delete_after_days: u32) -> Self {
        Self { archive_after_days, delete_after_days, batch_rows: 1_000 }
    }

    /// Rows of one statement, which is one transaction: 1 to 100,000, 1,000 unless
    /// set.
    pub fn batch_rows(mut self, batch_rows: u32) -> Self {
        self.batch_rows = batch_rows.clamp(1, BATCH_ROWS_MAX);
        self
    }

    /// The same, of no delivery at all.
    pub(crate) fn none(self) -> Self {
        Self { batch_rows: 0, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let (archive, delete) = (self.archive_after_days, self.delete_after_days);
        if delete < archive.max(1) {
            return Err(StoreError::Setting {
                setting: "delete_after_days",
                problem: format!(
                    "{delete} days are fewer than the {} after which deliveries move to the \
                     archive; an event that is deleted there would be sent once more when it \
                     comes again",
                    archive.max(1)
                ),
            });
        }
        Ok(())
    }
}

impl Pruned {
    /// How much is counted at most of each, before it leaves.
    pub const COUNTED_MAX: u32 = PRUNABLE_MAX;

    pub(crate) fn add(&mut self, part: Part, left: u64) {
        match part {
            Part::Delivered => self.archived += left,
            Part::Archived => self.deleted += left,
        }
    }
}

impl Part {
    /// In this order.
    pub(crate) const ALL: [Self; 2] = [Self::Delivered, Self::Archived];
}

impl Deliveries {
    /// What [`Deliveries::prune`] would do now, up to [`Pruned::COUNTED_MAX`] of
    /// each. Changes nothing.
    ///
    /// # Errors
    /// As [`Deliveries::prune`].
    pub async fn prunable(&self, client: &Client, prune: &Prune) -> Result<Pruned, StoreError> {
        prune.check()?;
        let days = [prune.archive_after_days, prune.delete_after_days].map(f64::from);
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&days[0], Type::FLOAT8), (&days[1], Type::FLOAT8)];
        let row = client.query_typed(&self.sql.operator.prunable, &parameters).await;
        let rows = row.map_err(|error| self.error(ATTEMPTED, "pruner", &error))?;
        let count = |index: usize| {
            let count = rows.first().map_or(0, |row| row.get::<_, i64>(index));
            u64::try_from(count).unwrap_or_default().min(u64::from(PRUNABLE_MAX))
        };
        Ok(Pruned { archived: count(0), deleted: count(1) })
    }

    /// Moves deliveries that arrived a while ago to the archive, and deletes them
    /// there after a longer while, in bounded batches, each a transaction of its
    /// own; `progress` is told behind each. It passes over rows that somebody has
    /// locked, and may be killed at any moment.
    ///
    /// Nothing but what is `delivered` is touched. What was sent, and what was
    /// answered, leaves with the move; what became of it and of each attempt stays.
    ///
    /// An event whose delivery is in the archive is not delivered once more: to
    /// create it again does nothing, as long as the row is there. Once it is deleted
    /// there, the event is new.
    ///
    /// # Errors
    /// [`StoreError::Setting`] when rows would be deleted before they move; when the
    /// role is no `pruner`. What left before stays so.
    pub async fn prune(
        &self,
        client: &Client,
        prune: &Prune,
        mut progress: impl FnMut(Pruned),
    ) -> Result<Pruned, StoreError> {
        prune.check()?;
        let mut pruned = Pruned::default();
        for part in Part::ALL {
            loop {
                let left = self.prune_step(client, part, prune).await?;
                pruned.add(part, left);
                progress(pruned);
                if left < u64::from(prune.batch_rows) {
                    break;
                }
            }
        }
        Ok(pruned)
    }

    /// One statement.
    pub(crate) async fn prune_step(
        &self,
        client: &impl GenericClient,
        part: Part,
        prune: &Prune,
    ) -> Result<u64, StoreError> {
        let sql = &self.sql.operator;
        let (sql, days) = match part {
            Part::Delivered => (&sql.archive, prune.archive_after_days),
            Part::Archived => (&sql.delete, prune.delete_after_days),
        };
        let (days, limit) = (f64::from(days), i64::from(prune.batch_rows));
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&days, Type::FLOAT8), (&limit, Type::INT8)];
        let left = client.execute_typed(sql, &parameters).await;
        left.map_err(|error| self.error(ATTEMPTED, "pruner", &error))
    }
}
