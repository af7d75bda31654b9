use std::{mem::ManuallyDrop, sync::Arc, time::Duration};

use futures_util::future::{join, join3};
use tokio_postgres::{
    Error as PgError, Row, SimpleQueryMessage, Transaction,
    types::{ToSql, Type},
};

use crate::{
    AfterExpiry, Error, Fingerprint, Lookup, Policy, Progress, Record, Response, Verdict, judge,
    sql::Sql,
};

/// Where a transaction goes back to when its response is an error.
const SAVEPOINT: &str = "savepoint walpost_idempotency";
const UNDO: &str = "rollback to savepoint walpost_idempotency";
const KIND: &str = "application";

/// A parameter of a statement.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The table of requests in one schema. Cheap to clone; holds no connection.
///
/// This is the whole of it without HTTP: [`claim`](Self::claim) a request on the
/// transaction of its own writes, and [`complete`](Self::complete) it there.
///
/// ```no_run
/// use walpost_idempotency::{
///     Claim, Error, Fingerprint, Idempotency, Key, Lookup, Policy, Request, Response, Scope,
///     tokio_postgres::Client,
/// };
///
/// # fn refused(_: Claim<walpost_idempotency::Claimed>) -> Response { unimplemented!() }
/// /// A gRPC method: its message is `body`, its key is in the metadata.
/// async fn place_order(
///     client: &mut Client,
///     principal: &str,
///     key: &Key,
///     body: &[u8],
/// ) -> Result<Response, Error> {
///     let policy = Policy::new("shop.Orders/Place");
///     let lookup = Lookup::new(&Scope::principal_and_route(principal, policy.route()), key);
///     let request = Request { route: policy.route(), body, ..Request::default() };
///     let idempotency = Idempotency::new();
///     let tx = idempotency.begin(client).await?;
///     match idempotency.claim(&tx, &lookup, &Fingerprint::of(&request), &policy).await? {
///         Claim::New(claimed) => {
///             // The effect, and its outbox event, on `tx`.
///             let response = Response::new(0, "placed");
///             idempotency.complete_and_commit(tx, &claimed, &response).await?;
///             Ok(response)
///         }
///         Claim::Replay(response) => Ok(response),
///         other => Ok(refused(other)),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub(crate) schema: String,
    pub(crate) sql: Arc<Sql>,
}

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Claim<T> {
    /// It is to be carried out, under this claim.
    New(T),
    /// It was carried out, and this was its answer.
    Replay(Response),
    /// It is being carried out.
    InFlight {
        /// When to ask again.
        retry_after: Duration,
    },
    /// It was begun, and an operator has to find out how far it came.
    Unresolved,
    /// Another request has the key.
    Mismatch,
    /// It was carried out, and its answer has expired; or it was begun, and its
    /// key has expired before anybody ended it.
    Gone,
}

/// A request that is to be carried out by the transaction that claimed it.
#[derive(Debug, PartialEq, Eq)]
pub struct Claimed {
    lookup: Lookup,
    fingerprint: Fingerprint,
    route: String,
    ttl_ms: i64,
    gone_ms: Option<i64>,
}

#[cfg(feature = "axum")]
impl Claimed {
    pub(crate) fn lookup(&self) -> &Lookup {
        &self.lookup
    }
}

impl Default for Idempotency {
    fn default() -> Self {
        Self::new()
    }
}

impl Idempotency {
    /// In the schema `walpost`.
    pub fn new() -> Self {
        Self::in_schema("walpost")
    }

    /// In another schema: its name as stored, without quotes.
    pub fn in_schema(schema: impl Into<String>) -> Self {
        let schema = schema.into();
        let sql = Arc::new(Sql::new(&schema));
        Self { schema, sql }
    }

    /// Its schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// A transaction for a claim: `read committed`, under which it sees what the
    /// one before it has committed.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn begin<'a>(
        &self,
        client: &'a mut tokio_postgres::Client,
    ) -> Result<Transaction<'a>, Error> {
        let isolation = tokio_postgres::IsolationLevel::ReadCommitted;
        let begun = client.build_transaction().isolation_level(isolation).start().await;
        begun.map_err(|error| self.failed("beginning a transaction", &error))
    }

    /// Claims a request on the transaction that will carry it out, in one round
    /// trip. Call it first.
    ///
    /// No twin is waited for: whoever has the key in another transaction makes
    /// this [`Claim::InFlight`]. The claim ends with `tx`, however that ends. The
    /// server ends the session, and with it the claim, if it is idle meanwhile for
    /// twice the policy's `handler_timeout`, and a statement that takes as long,
    /// unless `statement_timeout` is set.
    ///
    /// Under `repeatable read` and `serializable` a twin that has just committed
    /// may not be seen; then the completion is refused.
    ///
    /// Not cancellation-safe: if this future is dropped, roll `tx` back.
    ///
    /// # Errors
    /// After all of them `tx` can only be rolled back.
    pub async fn claim(
        &self,
        tx: &Transaction<'_>,
        lookup: &Lookup,
        fingerprint: &Fingerprint,
        policy: &Policy,
    ) -> Result<Claim<Claimed>, Error> {
        // Behind that of whoever waits, who knows better what to do.
        let limit_ms = limit_ms(policy);
        let looked = self.look(tx, lookup, Some(limit_ms), policy);
        let (looked, saved) = join(looked, tx.batch_execute(SAVEPOINT)).await;
        let failed = |error: PgError| self.failed("claiming a request", &error);
        let looked = looked.map_err(failed)?;
        saved.map_err(failed)?;
        Ok(match verdict(looked, fingerprint, policy) {
            Verdict::New | Verdict::TakeOver { .. } => Claim::New(Claimed {
                lookup: *lookup,
                fingerprint: *fingerprint,
                route: policy.route.clone(),
                ttl_ms: millis(policy.ttl),
                gone_ms: gone_ms(policy),
            }),
            other => refused(other),
        })
    }

    /// Stores the response of a claimed request; it commits or vanishes with
    /// `tx`.
    ///
    /// # Errors
    /// [`Error::HandlerEnded`] and [`Error::GivenUp`], after which, as after all
    /// others, `tx` can only be rolled back.
    pub async fn complete(
        &self,
        tx: &Transaction<'_>,
        claimed: &Claimed,
        response: &Response,
    ) -> Result<(), Error> {
        let stored = self.store(tx, claimed, response).await;
        stored.map_err(|error| self.failed("storing a response", &error))
    }

    /// The same, and COMMIT, in one round trip.
    ///
    /// # Errors
    /// As [`complete`](Self::complete). After [`Error::Unavailable`] it is not
    /// known whether the commit happened: the request, sent again, finds out.
    pub async fn complete_and_commit(
        &self,
        tx: Transaction<'_>,
        claimed: &Claimed,
        response: &Response,
    ) -> Result<(), Error> {
        self.commit_behind(tx, None, claimed, response, "commit").await.map(drop)
    }

    /// The same behind a statement as text; `end` is COMMIT with what comes before
    /// it, whose rows are returned.
    pub(crate) async fn commit_behind(
        &self,
        tx: Transaction<'_>,
        before: Option<&str>,
        claimed: &Claimed,
        response: &Response,
        end: &str,
    ) -> Result<Vec<SimpleQueryMessage>, Error> {
        // COMMIT is sent behind the other statement, not once that has answered,
        // for which `tx` must be borrowed. It is over then, so nothing is left for
        // its `Drop` to do.
        let tx = ManuallyDrop::new(tx);
        let before = async {
            match before {
                Some(statement) => tx.batch_execute(statement).await,
                None => Ok(()),
            }
        };
        let stored = self.store(&tx, claimed, response);
        let (before, stored, ended) = join3(before, stored, tx.simple_query(end)).await;
        let ended = before.and(stored).and(ended);
        ended.map_err(|error| self.failed("storing a response", &error))
    }

    /// Undoes what was written on `tx` since the claim, and goes on though a
    /// statement of it has failed: so that an error can be stored as the
    /// response, without half of its effects.
    ///
    /// # Errors
    /// `tx` can only be rolled back.
    pub async fn undo(&self, tx: &Transaction<'_>) -> Result<(), Error> {
        let undone = tx.batch_execute(UNDO).await;
        undone.map_err(|error| self.failed("undoing a request's writes", &error))
    }

    /// Whether another transaction has the key, the time, and what is stored.
    pub(crate) async fn look(
        &self,
        tx: &Transaction<'_>,
        lookup: &Lookup,
        limit_ms: Option<i64>,
        policy: &Policy,
    ) -> Result<Row, PgError> {
        let lookup = &lookup.as_bytes()[..];
        // A lease is claimed by a transaction that lasts no time.
        let idle_ms = limit_ms.unwrap_or(millis(policy.lease));
        let parameters: [Parameter<'_>; 3] =
            [(&lookup, Type::BYTEA), (&limit_ms, Type::INT8), (&idle_ms, Type::INT8)];
        tx.query_typed_one(&self.sql.look, &parameters).await
    }

    async fn store(
        &self,
        tx: &Transaction<'_>,
        claimed: &Claimed,
        response: &Response,
    ) -> Result<(), PgError> {
        let lookup = &claimed.lookup.as_bytes()[..];
        let fingerprint = &claimed.fingerprint.as_bytes()[..];
        let parts = Parts::of(response);
        let parameters: [Parameter<'_>; 9] = [
            (&lookup, Type::BYTEA),
            (&fingerprint, Type::BYTEA),
            (&claimed.route, Type::TEXT),
            (&parts.status, Type::INT4),
            (&parts.names, Type::TEXT_ARRAY),
            (&parts.values, Type::BYTEA_ARRAY),
            (&parts.body, Type::BYTEA),
            (&claimed.ttl_ms, Type::INT8),
            (&claimed.gone_ms, Type::INT8),
        ];
        tx.query_typed_one(&self.sql.complete, &parameters).await.map(drop)
    }

    pub(crate) fn failed(&self, attempted: &'static str, error: &PgError) -> Error {
        self.failed_as(KIND, attempted, error)
    }

    pub(crate) fn failed_as(
        &self,
        kind: &'static str,
        attempted: &'static str,
        error: &PgError,
    ) -> Error {
        Error::from_driver(attempted, (&self.sql.schema, kind), error)
    }
}

/// How long a statement of a request may take, and how long its session may be idle.
pub(crate) fn limit_ms(policy: &Policy) -> i64 {
    millis(policy.handler_timeout).saturating_mul(2)
}

/// A response as parameters.
pub(crate) struct Parts<'a> {
    pub(crate) status: i32,
    pub(crate) names: Vec<&'a str>,
    pub(crate) values: Vec<&'a [u8]>,
    pub(crate) body: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn of(response: &'a Response) -> Self {
        Self {
            status: response.status().into(),
            names: response.headers().iter().map(|(name, _)| name.as_str()).collect(),
            values: response.headers().iter().map(|(_, value)| value.as_slice()).collect(),
            body: response.body(),
        }
    }
}

pub(crate) fn verdict(row: Row, fingerprint: &Fingerprint, policy: &Policy) -> Verdict {
    let verdict = judge(read(&row), fingerprint, row.get("moment"), policy);
    let is_free: bool = row.get("is_free");
    match verdict {
        // Somebody else is about it at this moment.
        Verdict::New | Verdict::TakeOver { .. } | Verdict::Unresolved if !is_free => {
            Verdict::InFlight { retry_after: policy.retry_after }
        }
        verdict => verdict,
    }
}

/// A verdict that is none to carry the request out.
pub(crate) fn refused<T>(verdict: Verdict) -> Claim<T> {
    match verdict {
        Verdict::Replay(response) => Claim::Replay(response),
        Verdict::InFlight { retry_after } => Claim::InFlight { retry_after },
        Verdict::Mismatch => Claim::Mismatch,
        Verdict::Gone => Claim::Gone,
        Verdict::Unresolved => Claim::Unresolved,
        Verdict::New | Verdict::TakeOver { .. } => unreachable!("the caller has taken these"),
    }
}

fn read(row: &Row) -> Option<Record> {
    let progress = match row.get::<_, Option<&str>>("status")? {
        "in_progress" => Progress::InProgress {
            lease_until: row.get("lease_until"),
            recovery_point: row.get("recovery_point"),
        },
        "completed" => Progress::Completed(response(row)),
        _ => Progress::Tombstone,
    };
    let fingerprint: &[u8] = row.get("fingerprint");
    let fingerprint = fingerprint.try_into().expect("the table has 32 bytes there");
    Some(Record {
        fingerprint: Fingerprint::from_bytes(fingerprint),
        progress,
        expires_at: row.get("expires_at"),
        gone_until: row.get("gone_until"),
    })
}

fn response(row: &Row) -> Response {
    let status: i32 = row.get("response_status");
    let names: Vec<&str> = row.get("header_names");
    let values: Vec<&[u8]> = row.get("header_values");
    let body: Vec<u8> = row.get("body");
    let response = Response::new(u16::try_from(status).expect("0 to 999"), body);
    let headers = names.into_iter().zip(values);
    headers.fold(response, |response, (name, value)| response.header(name, value))
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn gone_ms(policy: &Policy) -> Option<i64> {
    (policy.after_expiry == AfterExpiry::Gone).then(|| millis(policy.tombstone))
}
