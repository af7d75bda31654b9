//! What an operator decides about deliveries that do not go on by themselves: those that
//! failed, are held or unknown; and about those that nobody is to send any more.

use std::convert;

use tokio::join;
use tokio_postgres::{
    Client, Error as PgError, Row,
    types::{ToSql, Type},
};

use super::{Deliveries, DeliveryState, StoreError, order::at_once};

/// What somebody has found out about a delivery, or decided. One that is given up stays
/// with its body: only what is delivered moves to the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It has arrived.
    Delivered,
    /// It has not, and is not sent again. Also for one that is pending or held, and for
    /// one that has failed: those that wait for it go.
    Failed,
}

/// What became of a decision about several deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decided {
    /// Ids of those that it was about.
    pub done: Vec<i64>,
    /// Names of their destinations, each once.
    pub destinations: Vec<String>,
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
        let retry = client.query_typed(&self.sql.operator.retry, &ids(&deliveries)).await;
        self.decided(client, deliveries, (retry, "retrying deliveries")).await
    }

    /// Ends deliveries whose outcome is unknown, and gives up those that are pending, are
    /// held or have failed, by somebody who has looked: their
    /// outcome is `settled` from then on, and their attempts say what was known. One that
    /// is being sent is left as it is. In a transaction of its own.
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
        let settled = match settlement {
            Settlement::Delivered => {
                client.query_typed(&sql.settle_delivered, &ids(&deliveries)).await
            }
            Settlement::Failed => self.give_up(client, deliveries).await,
        };
        self.decided(client, deliveries, (settled, "settling deliveries")).await
    }

    /// What is pending is held first, which is the way to an end that no claim can cross:
    /// who claims passes over what is locked, and whoever was first has it as `sending`.
    async fn give_up(&self, client: &Client, deliveries: &[i64]) -> Result<Vec<Row>, PgError> {
        let sql = &self.sql.operator;
        let given_up = async {
            let parameters = ids(&deliveries);
            let (aside, settled) = join!(
                biased;
                client.execute_typed(&sql.set_aside, &parameters),
                client.query_typed(&sql.settle_failed, &parameters),
            );
            aside.and(settled)
        };
        at_once(client, given_up, convert::identity).await
    }

    async fn decided(
        &self,
        client: &Client,
        deliveries: &[i64],
        (rows, attempted): (Result<Vec<Row>, PgError>, &'static str),
    ) -> Result<Decided, StoreError> {
        let failed = |error: PgError| self.error(attempted, "operator", &error);
        let rows = rows.map_err(failed)?;
        let mut done: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        done.sort_unstable();
        let mut destinations: Vec<String> = rows.iter().map(|row| row.get(1)).collect();
        destinations.sort_unstable();
        destinations.dedup();
        let is_left = |id: &i64| done.binary_search(id).is_err();
        let mut left: Vec<i64> = deliveries.iter().copied().filter(is_left).collect();
        left.sort_unstable();
        left.dedup();
        if left.is_empty() {
            return Ok(Decided { done, destinations, left: Vec::new() });
        }
        let states = &self.sql.operator.states;
        let rows = client.query_typed(states, &[(&left, Type::INT8_ARRAY)]).await;
        let rows = rows.map_err(failed)?;
        let state_of = |id: i64| {
            let row = rows.iter().find(|row| row.get::<_, i64>(0) == id);
            (id, row.map(|row: &Row| DeliveryState::of_column(row.get(1))))
        };
        let left = left.into_iter().map(state_of).collect();
        Ok(Decided { done, destinations, left })
    }
}

fn ids<'a>(deliveries: &'a &[i64]) -> [(&'a (dyn ToSql + Sync), Type); 1] {
    [(deliveries, Type::INT8_ARRAY)]
}
