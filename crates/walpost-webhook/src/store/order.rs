//! What is done under the lock of a destination's claims, and beside it.

use std::{convert, time::Duration};

use tokio::join;
use tokio_postgres::{
    Client, Error as PgError,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError, claim::Line, millis, order_sql::BEGIN, up_to};

/// How far the blocked ones were looked at: at those up to the delivery ahead and the id
/// of the last one; from the first on where it is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    blocked_by: i64,
    id: i64,
}

/// One transaction in one round trip, that sees what was committed before it got its
/// locks. What `asked` sends is sent between its begin and its end; behind a failure the
/// end is a roll-back.
pub(super) async fn at_once<T, E>(
    client: &Client,
    asked: impl Future<Output = Result<T, E>>,
    failed: impl Fn(PgError) -> E,
) -> Result<T, E> {
    let (begun, asked, ended) = join!(
        biased;
        client.batch_execute(BEGIN),
        asked,
        client.batch_execute("commit"),
    );
    begun.map_err(&failed)?;
    let asked = asked?;
    ended.map(|()| asked).map_err(failed)
}

impl Deliveries {
    /// Makes a destination known, and how its deliveries go.
    pub(crate) async fn register(
        &self,
        client: &Client,
        destination: &str,
        line: Line,
    ) -> Result<(), StoreError> {
        let (order, passes_failed) = (line.order.as_str(), line.passes_failed());
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&destination, Type::TEXT), (&order, Type::TEXT), (&passes_failed, Type::BOOL)];
        let register = client.execute_typed(&self.sql.register, &parameters);
        let registered = self.locked(client, destination, register);
        let known = at_once(client, registered, convert::identity).await;
        known.map(drop).map_err(|error| self.error("registering it", "sender", &error))
    }

    /// Notes for how long nothing but probes is sent to a destination; `None` where all is.
    pub(crate) async fn note_breaker(
        &self,
        client: &Client,
        destination: &str,
        open_for: Option<Duration>,
    ) -> Result<(), StoreError> {
        let open_ms = open_for.map(millis);
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&destination, Type::TEXT), (&open_ms, Type::INT8)];
        let noted = client.execute_typed(&self.sql.note_breaker, &parameters).await;
        noted.map(drop).map_err(|error| self.error("noting its breaker", "sender", &error))
    }

    /// What moves the cursor of a destination, or claims by an order, goes one after the
    /// other: each sees what those before it have done.
    pub(super) async fn locked<T>(
        &self,
        client: &Client,
        destination: &str,
        asked: impl Future<Output = Result<T, PgError>>,
    ) -> Result<T, PgError> {
        let lock = [(&destination as &(dyn ToSql + Sync), Type::TEXT)];
        let (locked, asked) = join!(biased; client.query_typed(&self.sql.order.lock, &lock), asked);
        locked.and(asked)
    }

    /// Makes up to `limit` deliveries due that an order held back which is none any more;
    /// how many.
    pub(crate) async fn let_all_go(
        &self,
        client: &Client,
        destination: &str,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let limit = i64::from(limit);
        let parameters = up_to(&destination, &limit);
        let let_go = client.execute_typed(&self.sql.order.let_all_go, &parameters);
        let let_go = at_once(client, let_go, convert::identity).await;
        let_go.map_err(|error| self.error("letting deliveries go", "sender", &error))
    }

    /// Has rows of outboxes say what became of the deliveries of up to `limit` events,
    /// where that was said by somebody who may not have seen all of them; of how many
    /// nothing more is to be said.
    pub(crate) async fn mark_again(&self, client: &Client, limit: u32) -> Result<u64, StoreError> {
        let limit = [(&i64::from(limit) as &(dyn ToSql + Sync), Type::INT8)];
        let marked = client.query_typed_one(&self.sql.order.mark_again, &limit);
        let marked = at_once(client, marked, convert::identity).await;
        let marked = marked.map_err(|error| self.error("marking events", "sender", &error))?;
        Ok(u64::try_from(marked.get::<_, i64>(0)).unwrap_or_default())
    }

    /// Looks at up to `limit` blocked deliveries behind those that were looked at, and
    /// makes those due whose delivery ahead is done: whoever ended it could not see them,
    /// or they were locked. Returns how far it came; from the first on where there are no
    /// more.
    pub(crate) async fn let_passed_go(
        &self,
        client: &Client,
        destination: &str,
        (line, limit, looked): (Line, u32, Looked),
    ) -> Result<Looked, StoreError> {
        let (limit, passes_failed) = (i64::from(limit), line.passes_failed());
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&destination, Type::TEXT),
            (&limit, Type::INT8),
            (&looked.blocked_by, Type::INT8),
            (&looked.id, Type::INT8),
            (&passes_failed, Type::BOOL),
        ];
        let let_go = client.query_typed(&self.sql.order.let_passed_go, &parameters);
        let rows = at_once(client, let_go, convert::identity).await;
        let rows = rows.map_err(|error| self.error("letting deliveries go", "sender", &error))?;
        let last = rows.first().filter(|row| row.get::<_, i64>(2) >= limit);
        Ok(last
            .map_or_else(Looked::default, |row| Looked { blocked_by: row.get(0), id: row.get(1) }))
    }

    /// Has up to `limit` deliveries go with all others in order that were created before
    /// the destination said so, by id; how many.
    pub(crate) async fn adopt(
        &self,
        client: &Client,
        destination: &str,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let limit = i64::from(limit);
        let parameters = up_to(&destination, &limit);
        let adopt = client.execute_typed(&self.sql.order.adopt, &parameters);
        let adopt = self.locked(client, destination, adopt);
        let adopted = at_once(client, adopt, convert::identity).await;
        adopted.map_err(|error| self.error("ordering deliveries", "sender", &error))
    }
}
