//! What an operator decides about deliveries that do not go on by themselves: those that
//! failed, are held or unknown.

use tokio_postgres::{Client, Error as PgError, Row, types::Type};

use super::{Deliveries, DeliveryState, StoreError};

/// What somebody has found out about a delivery, or decided. One that is given up stays
/// with its body: only what is delivered moves to the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It has arrived.
    Delivered,
    /// It has not, and is not sent again. Also for one that is held, and for one that
    /// has failed: those that wait for it go.
    Failed,
}

/// What became of a decision about several deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decided {
    /// Ids of those that it was about.
    pub done: Vec<i64>,
    /// Ids of those that it is not for, with their state; `None` where no delivery
    /// has the id, or it is in the archive.
    pub left: Vec<(i64, Option<DeliveryState>)>,
}

impl Deliveries {
    /// Has deliveries that failed, are held or unknown sent again at once, with
    /// the same key and all attempts.
    ///
    /// # Errors
    /// When the database refuses it: the role has to be an `operator`.
    pub async fn retry(&self, client: &Client, deliveries: &[i64]) -> Result<Decided, StoreError> {
        self.decide(client, deliveries, (&self.sql.operator.retry, "retrying deliveries")).await
    }

    /// Ends deliveries whose outcome is unknown, and gives up those that are held or have
    /// failed, by somebody who has looked: their
    /// outcome is `settled` from then on, and their attempts say what was known.
    ///
    /// # Errors
    /// As [`Deliveries::retry`].
    pub async fn settle(
        &self,
        client: &Client,
        deliveries: &[i64],
        settlement: Settlement,
    ) -> Result<Decided, StoreError> {
        let sql = &self.sql.operator;
        let sql = match settlement {
            Settlement::Delivered => &sql.settle_delivered,
            Settlement::Failed => &sql.settle_failed,
        };
        self.decide(client, deliveries, (sql, "settling deliveries")).await
    }

    async fn decide(
        &self,
        client: &Client,
        deliveries: &[i64],
        (sql, attempted): (&str, &'static str),
    ) -> Result<Decided, StoreError> {
        let failed = |error: PgError| self.error(attempted, "operator", &error);
        let rows = client.query_typed(sql, &[(&deliveries, Type::INT8_ARRAY)]).await;
        let mut done: Vec<i64> = rows.map_err(failed)?.iter().map(|row| row.get(0)).collect();
        done.sort_unstable();
        let is_left = |id: &i64| done.binary_search(id).is_err();
        let mut left: Vec<i64> = deliveries.iter().copied().filter(is_left).collect();
        left.sort_unstable();
        left.dedup();
        if left.is_empty() {
            return Ok(Decided { done, left: Vec::new() });
        }
        let states = &self.sql.operator.states;
        let rows = client.query_typed(states, &[(&left, Type::INT8_ARRAY)]).await;
        let rows = rows.map_err(failed)?;
        let state_of = |id: i64| {
            let row = rows.iter().find(|row| row.get::<_, i64>(0) == id);
            (id, row.map(|row: &Row| DeliveryState::of_column(row.get(1))))
        };
        Ok(Decided { done, left: left.into_iter().map(state_of).collect() })
    }
}
