//! What an operator looks at and decides. None of it reads a payload, but for
//! the one function that is for that.

use std::time::SystemTime;

use tokio_postgres::{Client, Error as PgError, Row, types::Type};

use crate::{Error, Inbox, State};

/// Which events to list. All of them, the oldest first, unless narrowed.
///
/// ```
/// use walpost_inbox::{Filter, State};
///
/// let filter = Filter::new(100).states([State::Failed, State::Review]).event_type("paid");
/// assert_eq!(filter.limit(), 100);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    states: Vec<State>,
    source: Option<String>,
    event_type: Option<String>,
    event_id: Option<String>,
    number: Option<i64>,
    limit: u32,
}

impl Filter {
    /// At most so many events.
    pub fn new(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }

    /// In one of these states.
    pub fn states(mut self, states: impl IntoIterator<Item = State>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Of this source.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Of this type.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// With this id.
    pub fn event_id(mut self, event_id: impl Into<String>) -> Self {
        self.event_id = Some(event_id.into());
        self
    }

    /// How many at most.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

/// An event of the log, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its number, in the order of insertion.
    pub number: i64,
    /// Who sent it.
    pub source: String,
    /// Its id, as its sender gives it.
    pub event_id: String,
    /// What happened.
    pub event_type: String,
    /// What it is about.
    pub related_reference: Option<String>,
    /// How far it is.
    pub state: State,
    /// When it was inserted, by the server's clock, as all times here.
    pub received_at: SystemTime,
    /// When it succeeded or was ignored.
    pub processed_at: Option<SystemTime>,
    /// Attempts that count.
    pub attempts: u32,
    /// How often it was claimed.
    pub claims: i64,
    /// Name of the processor that claimed it last.
    pub claimed_by: Option<String>,
    /// Until when a claim holds.
    pub lease_until: Option<SystemTime>,
    /// When it may be claimed; `None` where an operator has to decide, or
    /// nothing is left to do.
    pub next_attempt_at: Option<SystemTime>,
    /// Why it failed, was ignored or waits for review.
    pub reason: Option<String>,
    /// Its size when it was received.
    pub payload_bytes: u64,
    /// Whether it is there, and was not pruned.
    pub has_payload: bool,
}

/// What became of a decision about several events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Numbers of those that it was about.
    pub done: Vec<i64>,
    /// Numbers of those that it is not for, with their state; `None` where no
    /// event has the number.
    pub left: Vec<(i64, Option<State>)>,
}

impl Inbox {
    /// Events by a filter, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read: the role has to be a `reader` at least.
    pub async fn list(&self, client: &Client, filter: &Filter) -> Result<Vec<Entry>, Error> {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        let limit = i64::from(filter.limit);
        let is_open = !states.is_empty() && !filter.states.iter().any(|state| state.is_terminal());
        let sql = &self.sql.operator;
        let rows = client
            .query_typed(
                if is_open { &sql.list_not_done } else { &sql.list },
                &[
                    (&states, Type::TEXT_ARRAY),
                    (&filter.source, Type::TEXT),
                    (&filter.event_type, Type::TEXT),
                    (&filter.event_id, Type::TEXT),
                    (&filter.number, Type::INT8),
                    (&limit, Type::INT8),
                ],
            )
            .await
            .map_err(|error| self.failed("listing the inbox", "reader", &error))?;
        Ok(rows.iter().map(Entry::read).collect())
    }

    /// The event of a number.
    ///
    /// # Errors
    /// As [`Inbox::list`].
    pub async fn show(&self, client: &Client, number: i64) -> Result<Option<Entry>, Error> {
        let filter = Filter { number: Some(number), ..Filter::new(1) };
        Ok(self.list(client, &filter).await?.pop())
    }

    /// The first bytes of an event's payload; `None` where it was pruned, or no
    /// event has the number.
    ///
    /// # Errors
    /// When it cannot be read: of the kinds of roles only a `processor` may.
    pub async fn payload(
        &self,
        client: &Client,
        number: i64,
        max_bytes: u32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let rows = client
            .query_typed(
                &self.sql.operator.payload,
                &[(&number, Type::INT8), (&max_bytes, Type::INT4)],
            )
            .await
            .map_err(|error| self.failed("reading a payload", "processor", &error))?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    /// Has events that failed tried again at once, with all their attempts
    /// anew, and those under review processed.
    ///
    /// # Errors
    /// When they cannot be changed: the role has to be an `operator`.
    pub async fn retry(&self, client: &Client, numbers: &[i64]) -> Result<Changed, Error> {
        let changed = client
            .query_typed(
                &self.sql.operator.retry,
                &[(&numbers, Type::INT8_ARRAY), (&self.schema, Type::TEXT)],
            )
            .await;
        self.changed("having events tried again", client, numbers, changed).await
    }

    /// Ignores events that are pending or under review, for good. One that
    /// failed is not ignored: have it tried again, with a handler that knows
    /// better.
    ///
    /// # Errors
    /// As [`Inbox::retry`].
    pub async fn ignore(&self, client: &Client, numbers: &[i64]) -> Result<Changed, Error> {
        let changed =
            client.query_typed(&self.sql.operator.ignore, &[(&numbers, Type::INT8_ARRAY)]).await;
        self.changed("ignoring events", client, numbers, changed).await
    }

    async fn changed(
        &self,
        attempted: &'static str,
        client: &Client,
        numbers: &[i64],
        changed: Result<Vec<Row>, PgError>,
    ) -> Result<Changed, Error> {
        let failed = |error: PgError| self.failed(attempted, "operator", &error);
        let mut done: Vec<i64> = changed.map_err(failed)?.iter().map(|row| row.get(0)).collect();
        done.sort_unstable();
        let mut left: Vec<i64> =
            numbers.iter().copied().filter(|number| done.binary_search(number).is_err()).collect();
        left.sort_unstable();
        left.dedup();
        if left.is_empty() {
            return Ok(Changed { done, left: Vec::new() });
        }
        let states = client
            .query_typed(&self.sql.operator.states, &[(&left, Type::INT8_ARRAY)])
            .await
            .map_err(failed)?;
        let state_of = |number: i64| {
            let row = states.iter().find(|row| row.get::<_, i64>(0) == number);
            (number, row.map(|row| state(row, 1)))
        };
        Ok(Changed { done, left: left.into_iter().map(state_of).collect() })
    }

    pub(crate) fn failed(
        &self,
        attempted: &'static str,
        kind: &'static str,
        error: &PgError,
    ) -> Error {
        Error::from_driver(attempted, (&self.sql.schema, kind), error)
    }
}

impl Entry {
    fn read(row: &Row) -> Self {
        let count = |index: usize| u32::try_from(row.get::<_, i32>(index)).unwrap_or_default();
        Self {
            number: row.get(0),
            source: row.get(1),
            event_id: row.get(2),
            event_type: row.get(3),
            related_reference: row.get(4),
            state: state(row, 5),
            received_at: row.get(6),
            processed_at: row.get(7),
            attempts: count(8),
            claims: row.get(9),
            claimed_by: row.get(10),
            lease_until: row.get(11),
            next_attempt_at: row.get(12),
            reason: row.get(13),
            payload_bytes: u64::from(count(14)),
            has_payload: row.get(15),
        }
    }
}

fn state(row: &Row, index: usize) -> State {
    row.get::<_, &str>(index).parse().expect("the table has these states alone")
}
