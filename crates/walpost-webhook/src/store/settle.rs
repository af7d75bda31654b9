//! What an operator decides about deliveries that do not go on by themselves: those that
//! failed, are held or unknown; and about those that nobody is to send any more.

use tokio_postgres::{
    Client, Error as PgError, Row, SimpleQueryMessage,
    types::{ToSql, Type},
};

use super::{Deliveries, DeliveryState, StoreError};

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

/// Id and destination of one that it was about.
type Done = (i64, String);

impl Deliveries {
    /// Has deliveries that failed, are held or unknown sent again at once, with
    /// the same key and all attempts.
    ///
    /// # Errors
    /// When the database refuses it: the role has to be an `operator`.
    pub async fn retry(&self, client: &Client, deliveries: &[i64]) -> Result<Decided, StoreError> {
        let retry = client.query_typed(&self.sql.operator.retry, &ids(&deliveries)).await;
        let retry = retry.map(named);
        self.decided(client, deliveries, (retry, "retrying deliveries")).await
    }

    /// Ends deliveries whose outcome is unknown, and gives up those that are pending, are
    /// held or have failed, by somebody who has looked: their
    /// outcome is `settled` from then on, and their attempts say what was known. One that
    /// is being sent is left as it is.
    ///
    /// # Errors
    /// As [`Deliveries::retry`].
    pub async fn settle(
        &self,
        client: &Client,
        deliveries: &[i64],
        settlement: Settlement,
    ) -> Result<Decided, StoreError> {
        let settled = match settlement {
            Settlement::Delivered => {
                let sql = &self.sql.operator.settle_delivered;
                client.query_typed(sql, &ids(&deliveries)).await.map(named)
            }
            Settlement::Failed => self.give_up(client, deliveries).await,
        };
        self.decided(client, deliveries, (settled, "settling deliveries")).await
    }

    /// What is pending is held first, which is the way to an end that no claim can cross:
    /// who claims passes over what is locked, and whoever was first has it as `sending`. In
    /// one message, so that both are one transaction, also where the caller has none.
    async fn give_up(&self, client: &Client, deliveries: &[i64]) -> Result<Vec<Done>, PgError> {
        let ids: Vec<String> = deliveries.iter().map(ToString::to_string).collect();
        let sql = self.sql.operator.give_up.replace("$1", &format!("'{{{}}}'", ids.join(",")));
        let said = client.simple_query(&sql).await?;
        let ended = said.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse().ok()?, row.get(1)?.into())),
            _ => None,
        });
        Ok(ended.collect())
    }

    async fn decided(
        &self,
        client: &Client,
        deliveries: &[i64],
        (ended, attempted): (Result<Vec<Done>, PgError>, &'static str),
    ) -> Result<Decided, StoreError> {
        let failed = |error: PgError| self.error(attempted, "operator", &error);
        let (mut done, mut destinations): (Vec<i64>, Vec<String>) =
            ended.map_err(failed)?.into_iter().unzip();
        done.sort_unstable();
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

fn named(rows: Vec<Row>) -> Vec<Done> {
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn ids<'a>(deliveries: &'a &[i64]) -> [(&'a (dyn ToSql + Sync), Type); 1] {
    [(deliveries, Type::INT8_ARRAY)]
}
