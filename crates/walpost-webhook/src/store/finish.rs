use std::collections::HashSet;

use tokio_postgres::{
    Client, Error as PgError, GenericClient, Row,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError, claim::Lapsed, millis, order::at_once};
use crate::{Attempt, Outcome, Verdict};

/// Why a destination is disabled that answered 410.
const GONE: &str = "gone";

/// A claim that has come to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) lapsed: Lapsed,
    pub(crate) end: End,
    pub(crate) verdict: Verdict,
}

/// What came of its attempt.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) elapsed_ms: i32,
    pub(crate) detail: String,
    /// Of an answer that was no success.
    pub(crate) response: Option<Vec<u8>>,
}

impl End {
    pub(crate) fn of(attempt: Attempt) -> Self {
        let is_success =
            matches!(attempt.outcome, Outcome::Answered { status, .. } if status.is_success());
        let response = !is_success && !attempt.body.is_empty();
        Self {
            outcome: attempt.outcome,
            elapsed_ms: i32::try_from(attempt.elapsed.as_millis()).unwrap_or(i32::MAX),
            detail: attempt.detail,
            response: response.then(|| attempt.body.to_vec()),
        }
    }

    pub(crate) fn without_call(outcome: Outcome, detail: String) -> Self {
        Self { outcome, elapsed_ms: 0, detail, response: None }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self.outcome {
            Outcome::Answered { status, .. } => Some(status.as_u16()),
            Outcome::Unanswered { .. } => None,
        }
    }
}

impl Ended {
    /// The state that its row comes to, and the wait before its next attempt.
    fn state(&self) -> (&'static str, Option<i64>) {
        match self.verdict {
            Verdict::Delivered => ("delivered", None),
            Verdict::Retry { wait, .. } => ("pending", Some(millis(wait))),
            Verdict::Failed => ("failed", None),
            Verdict::Held => ("unknown", None),
            Verdict::Disable => ("held", None),
        }
    }
}

/// What was written down.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// Ids and fences of the claims that still held.
    pub(crate) held: HashSet<(i64, i64)>,
    /// Whether their destination is disabled.
    pub(crate) is_disabled: bool,
}

impl Finished {
    fn read(rows: &[Row]) -> Self {
        Self {
            held: rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
            is_disabled: rows.iter().any(|row| row.get(2)),
        }
    }
}

impl Deliveries {
    /// The same as [`finish`](Self::finish) in a transaction of its own.
    pub(crate) async fn finish_alone(
        &self,
        client: &Client,
        ended: &[Ended],
    ) -> Result<Finished, StoreError> {
        let failed = |error: PgError| self.error("ending deliveries", "sender", &error);
        at_once(client, self.finish(client, ended), failed).await
    }

    /// Writes down the ends of claims of one destination, in the transaction of `client`,
    /// which has to be read committed: those behind them may have been found meanwhile.
    pub(crate) async fn finish(
        &self,
        client: &impl GenericClient,
        ended: &[Ended],
    ) -> Result<Finished, StoreError> {
        let ids: Vec<i64> = ended.iter().map(|each| each.lapsed.id).collect();
        let fences: Vec<i64> = ended.iter().map(|each| each.lapsed.fence).collect();
        let (states, waits): (Vec<&str>, Vec<Option<i64>>) = ended.iter().map(Ended::state).unzip();
        let outcomes: Vec<&str> = ended.iter().map(|each| each.end.outcome.name()).collect();
        let status = |each: &Ended| each.end.status().map(i32::from);
        let statuses: Vec<Option<i32>> = ended.iter().map(status).collect();
        let elapsed: Vec<i32> = ended.iter().map(|each| each.end.elapsed_ms).collect();
        // PostgreSQL's text holds no NUL.
        let details: Vec<Option<String>> = ended
            .iter()
            .map(|each| {
                Some(each.end.detail.replace('\0', "\u{fffd}")).filter(|text| !text.is_empty())
            })
            .collect();
        let responses: Vec<Option<&[u8]>> =
            ended.iter().map(|each| each.end.response.as_deref()).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 9] = [
            (&ids, Type::INT8_ARRAY),
            (&fences, Type::INT8_ARRAY),
            (&states, Type::TEXT_ARRAY),
            (&waits, Type::INT8_ARRAY),
            (&outcomes, Type::TEXT_ARRAY),
            (&statuses, Type::INT4_ARRAY),
            (&elapsed, Type::INT4_ARRAY),
            (&details, Type::TEXT_ARRAY),
            (&responses, Type::BYTEA_ARRAY),
        ];
        let rows = client
            .query_typed(&self.sql.finish, &parameters)
            .await
            .map_err(|error| self.error("ending deliveries", "sender", &error))?;
        Ok(Finished::read(&rows))
    }

    /// Which of them have been written down, though nobody may have heard so. Another that
    /// ends a claim, behind its lease, has an outcome that no attempt has.
    pub(crate) async fn finished(
        &self,
        client: &impl GenericClient,
        ended: &[Ended],
    ) -> Result<Finished, StoreError> {
        let (ids, fences): (Vec<i64>, Vec<i64>) =
            ended.iter().map(|each| each.lapsed.claim()).unzip();
        let outcomes: Vec<&str> = ended.iter().map(|each| each.end.outcome.name()).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&ids, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY), (&outcomes, Type::TEXT_ARRAY)];
        let rows = client.query_typed(&self.sql.finished, &parameters).await;
        let rows = rows.map_err(|error| self.error("looking for ends", "sender", &error))?;
        Ok(Finished::read(&rows))
    }

    /// Gives claims back under which nothing was sent: they do not count. Returns
    /// how many still held.
    pub(crate) async fn give_back(
        &self,
        client: &impl GenericClient,
        unsent: &[Lapsed],
    ) -> Result<u64, StoreError> {
        let ids: Vec<i64> = unsent.iter().map(|each| each.id).collect();
        let fences: Vec<i64> = unsent.iter().map(|each| each.fence).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&ids, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)];
        let given = client.execute_typed(&self.sql.give_back, &parameters).await;
        given.map_err(|error| self.error("giving deliveries back", "sender", &error))
    }

    /// Disables a destination that wants nothing more.
    pub(crate) async fn gone(
        &self,
        client: &impl GenericClient,
        destination: &str,
    ) -> Result<(), StoreError> {
        self.disable(client, destination, GONE).await
    }
}
