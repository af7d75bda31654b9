//! Claims: short transactions that take events under a lease, before anything is
//! done with them, so that an attempt counts whatever becomes of it.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, Error as PgError, IsolationLevel, Row, Transaction, types::Type};

use crate::{Head, OnUnknown, Order, State, sql::Sql};

/// A key of the advisory lock under which claims in order are made.
const SERIAL_LOCK: &str = "select pg_try_advisory_xact_lock(hashtextextended($1, 0))";
const UNKNOWN: &str = "unknown_type";
const PANICKED: &str = "select_panicked";

/// What to claim, and how.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) source: Option<&'a str>,
    pub(crate) order: Order,
    pub(crate) limit: u32,
    pub(crate) lease_ms: u32,
    pub(crate) attempts_max: u32,
    pub(crate) name: &'a str,
    pub(crate) on_unknown: OnUnknown,
    /// Whether to look for expired claims as well.
    pub(crate) expires: bool,
}

/// An event that is ours until its lease ends.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) head: Head,
    pub(crate) fence: i64,
    /// No later than the server's end of the lease.
    pub(crate) deadline: Instant,
    pub(crate) received: Instant,
    pub(crate) is_retry: bool,
}

/// What is done with an event that may be claimed.
#[derive(Debug)]
pub(crate) enum Choice<W> {
    Take(W),
    Unknown,
    Panicked,
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) struct Claimed<W> {
    pub(crate) taken: Vec<(Claim, W)>,
    pub(crate) ignored: u64,
    pub(crate) reviewed: u64,
    /// Claims that were taken away.
    pub(crate) expired: u64,
    /// Events that were left without a further attempt.
    pub(crate) given_up: u64,
    /// Whether there may be more at once.
    pub(crate) is_full: bool,
}

/// An event that may be claimed, locked.
struct Candidate {
    head: Head,
    fence: i64,
    state: State,
    age_seconds: f64,
}

/// Whether there is anything to claim or to take away.
pub(crate) async fn probe(
    client: &Client,
    sql: &Sql,
    source: Option<&str>,
) -> Result<bool, PgError> {
    Ok(client.query_typed_one(&sql.scoped(source).probe, &[(&source, Type::TEXT)]).await?.get(0))
}

/// Takes expired claims away where the terms say so, and claims what is due, all
/// in one transaction.
pub(crate) async fn claim<W>(
    client: &mut Client,
    sql: &Sql,
    terms: &Terms<'_>,
    choose: impl Fn(&Head) -> Choice<W>,
) -> Result<Claimed<W>, PgError> {
    let begun = Instant::now();
    let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let tx = tx.start().await?;
    let (expired, mut given_up) =
        if terms.expires { expire(&tx, sql, terms).await? } else { (0, 0) };
    let candidates = match terms.order {
        Order::Concurrent => due(&tx, sql, terms).await?,
        Order::Serial => first(&tx, sql, terms).await?.into_iter().collect(),
    };
    let is_full = !candidates.is_empty() && candidates.len() >= terms.limit as usize;
    let (mut taken, mut ignored, mut reviewed) = (Vec::new(), 0, 0);
    for candidate in candidates {
        let (aside, reason) = match choose(&candidate.head) {
            Choice::Take(work) => {
                taken.push((candidate.claim(begun, terms.lease_ms), work));
                continue;
            }
            Choice::Unknown => (terms.on_unknown.state(), UNKNOWN),
            Choice::Panicked => (State::Review, PANICKED),
        };
        let number = candidate.head.number;
        let Head { event_id, event_type, .. } = &candidate.head;
        if candidate.state == State::Failed {
            // Its type was known once, and terminal states are not for it.
            tx.execute_typed(&sql.give_up, &[(&number, Type::INT8), (&reason, Type::TEXT)]).await?;
            given_up += 1;
            tracing::warn!(number, ?event_id, ?event_type, reason, "given up");
            continue;
        }
        let to = aside.as_str();
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&number, Type::INT8), (&to, Type::TEXT), (&reason, Type::TEXT)];
        tx.execute_typed(&sql.set_aside, &parameters).await?;
        *(if aside == State::Ignored { &mut ignored } else { &mut reviewed }) += 1;
        tracing::info!(number, ?event_id, ?event_type, reason, state = to, "set aside");
    }
    if !taken.is_empty() {
        take(&tx, sql, terms, &taken).await?;
    }
    tx.commit().await?;
    // In order there may be a next one as soon as the first is out of the way.
    let is_full = is_full || (terms.order == Order::Serial && ignored + reviewed + given_up > 0);
    Ok(Claimed { taken, ignored, reviewed, expired, given_up, is_full })
}

/// How many claims were taken away, and of how many events that was the last.
async fn expire(tx: &Transaction<'_>, sql: &Sql, terms: &Terms<'_>) -> Result<(u64, u64), PgError> {
    let limit = i64::from(terms.limit.max(16));
    let attempts_max = i32::try_from(terms.attempts_max).unwrap_or(i32::MAX);
    let rows = tx
        .query_typed(
            &sql.scoped(terms.source).expire,
            &[(&terms.source, Type::TEXT), (&limit, Type::INT8), (&attempts_max, Type::INT4)],
        )
        .await?;
    let mut given_up = 0;
    for row in &rows {
        let (number, is_given_up): (i64, bool) = (row.get(0), row.get(1));
        given_up += u64::from(is_given_up);
        tracing::warn!(number, given_up = is_given_up, "a lease has expired");
    }
    Ok((rows.len() as u64, given_up))
}

async fn due(
    tx: &Transaction<'_>,
    sql: &Sql,
    terms: &Terms<'_>,
) -> Result<Vec<Candidate>, PgError> {
    let limit = i64::from(terms.limit);
    let rows = tx
        .query_typed(
            &sql.scoped(terms.source).due,
            &[(&terms.source, Type::TEXT), (&limit, Type::INT8)],
        )
        .await?;
    Ok(rows.iter().map(Candidate::read).collect())
}

/// The first event that is not done, if it may be claimed and no other claim is
/// being made. Whatever stands in its way holds up those behind it.
async fn first(
    tx: &Transaction<'_>,
    sql: &Sql,
    terms: &Terms<'_>,
) -> Result<Option<Candidate>, PgError> {
    let lock = format!("walpost inbox {} {}", sql.schema, terms.source.unwrap_or_default());
    let locked = tx.query_typed_one(SERIAL_LOCK, &[(&lock, Type::TEXT)]).await?;
    if !locked.get::<_, bool>(0) {
        return Ok(None);
    }
    let found =
        tx.query_typed(&sql.scoped(terms.source).first, &[(&terms.source, Type::TEXT)]).await?;
    let Some(row) = found.first().filter(|row| row.get(1)) else { return Ok(None) };
    let number: i64 = row.get(0);
    let rows = tx.query_typed(&sql.lock_first, &[(&number, Type::INT8)]).await?;
    Ok(rows.first().map(Candidate::read))
}

async fn take<W>(
    tx: &Transaction<'_>,
    sql: &Sql,
    terms: &Terms<'_>,
    taken: &[(Claim, W)],
) -> Result<(), PgError> {
    let numbers: Vec<i64> = taken.iter().map(|(claim, _)| claim.head.number).collect();
    let lease_ms = i64::from(terms.lease_ms);
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&numbers, Type::INT8_ARRAY), (&lease_ms, Type::INT8), (&terms.name, Type::TEXT)];
    tx.execute_typed(&sql.take, &parameters).await?;
    Ok(())
}

impl Candidate {
    fn read(row: &Row) -> Self {
        let attempts = u32::try_from(row.get::<_, i32>(5)).unwrap_or_default();
        Self {
            head: Head {
                number: row.get(0),
                source: row.get(1),
                event_id: row.get(2),
                event_type: row.get(3),
                related_reference: row.get(4),
                attempt: attempts + 1,
            },
            fence: row.get::<_, i64>(6),
            state: row.get::<_, &str>(7).parse().expect("the table has these states alone"),
            age_seconds: row.get(8),
        }
    }

    /// As it is once taken, under a lease that the server starts later than
    /// `begun`.
    fn claim(self, begun: Instant, lease_ms: u32) -> Claim {
        let age = Duration::try_from_secs_f64(self.age_seconds).unwrap_or_default();
        Claim {
            head: self.head,
            fence: self.fence + 1,
            deadline: begun + Duration::from_millis(u64::from(lease_ms)),
            received: begun.checked_sub(age).unwrap_or(begun),
            is_retry: self.state == State::Failed,
        }
    }
}
