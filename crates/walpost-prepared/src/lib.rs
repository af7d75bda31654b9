//! Transactions behind a pooler, by a client that looks up types.
//!
//! `tokio_postgres` asks the server about each type that PostgreSQL does not have
//! built in (enums, domains, types of extensions), by statements that it
//! prepares once and keeps as long as it lives. A pooler in transaction mode
//! gives the next transaction another server connection, which does not have
//! them: SQLSTATE 26000. On the first one they stay, and another client that
//! prepares a statement of the same name gets SQLSTATE 42P05.
//!
//! So no such statement outlives its transaction. [`AT_END`] comes last in it,
//! removes them, and says whether there were any: then the client has types to
//! look up, and is of no further use. [`Types`] has the next ones look up every
//! type of the database at once, so that nothing is left to look up later.
//!
//! Nothing here tells whether there is a pooler: without one the same happens,
//! and costs one more connection.

use std::{
    pin::pin,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use futures_util::{TryStreamExt, future::join};
use tokio_postgres::{
    Client, Error, SimpleQueryMessage, SimpleQueryStream, Statement, Transaction,
    error::SqlState,
    types::{Kind, Type},
};

/// Comes last in a transaction, as text, behind which COMMIT may follow at once.
/// [`Left::read`] reads its row.
///
/// The names are those that `tokio_postgres` gives. A pooler that follows
/// prepared statements gives them others, and takes care of them.
pub const AT_END: &str = "select count(*) as walpost_kept, \
    (select max(t.oid) from pg_catalog.pg_type t) as walpost_types \
    from pg_catalog.pg_prepared_statements where name ~ '^s[0-9]+$'; \
    do $walpost$ declare kept text; begin \
    for kept in select name from pg_catalog.pg_prepared_statements where name ~ '^s[0-9]+$' loop \
    execute format('deallocate %I', kept); end loop; end $walpost$";

/// Every type that a parameter or a column may have and that is not built in. Row types of tables
/// and their array types come last, because a database with many tables has more of them than one
/// connection looks up. Those of temporary tables may vanish in between.
const TYPES: &str = "select t.oid from pg_catalog.pg_type t \
    left join pg_catalog.pg_type e on e.oid = t.typelem and e.typarray = t.oid \
    left join pg_catalog.pg_class c on c.oid = coalesce(e.typrelid, t.typrelid) \
    where t.oid >= 16384 and t.typisdefined \
    and t.typtype in ('b', 'c', 'd', 'e', 'm', 'r') and coalesce(c.relpersistence <> 't', true) \
    order by coalesce(c.relkind <> 'c', false), t.oid limit 2000";
/// Types that one statement looks up.
const TOGETHER: usize = 100;
/// Look-ups that failed or did not last, before there are no more.
const MAX_IN_VAIN: u32 = 100;

/// What a transaction has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The client has kept statements, which are gone now.
    kept: bool,
    /// The newest type of the database.
    newest: u64,
}

impl Left {
    /// Reads the row of [`AT_END`]; `None` for any other message.
    pub fn read(message: &SimpleQueryMessage) -> Option<Self> {
        let SimpleQueryMessage::Row(row) = message else { return None };
        let kept = row.try_get("walpost_kept").ok()??;
        let newest = row.try_get("walpost_types").ok()??;
        Some(Self { kept: kept != "0", newest: newest.parse().ok()? })
    }
}

/// Runs `end`, removes what the client has kept, and commits, in one round trip.
///
/// # Errors
/// That of the server, which has committed nothing unless the connection was lost. The connection
/// may not be used again.
pub async fn commit(tx: Transaction<'_>, end: &str) -> Result<Option<Left>, Error> {
    let ended = tx.client().simple_query_raw(&format!("{end}; {AT_END}")).await?;
    // Behind a statement that failed, COMMIT rolls back.
    let (left, committed) = join(drain(ended), tx.commit()).await;
    let left = left?;
    committed.map(|()| left)
}

/// Reads the answer to statements, and the row of [`AT_END`] if it is among them.
///
/// # Errors
/// That of the server.
pub async fn drain(stream: SimpleQueryStream) -> Result<Option<Left>, Error> {
    let mut stream = pin!(stream);
    let mut left = None;
    while let Some(message) = stream.try_next().await? {
        left = left.or(Left::read(&message));
    }
    Ok(left)
}

/// Rolls back, and removes what the client has kept. `again` are the statements
/// that roll back and begin another transaction: in one that has failed nothing
/// else can be done, and behind its end a pooler may give another server.
///
/// # Errors
/// That of the server; the connection may not be used again.
pub async fn roll_back(tx: Transaction<'_>, again: &str) -> Result<Option<Left>, Error> {
    let chained = tx.simple_query(&format!("{again}; {AT_END}")).await?;
    tx.rollback().await?;
    Ok(chained.iter().find_map(Left::read))
}

/// Which types the connections of a pool have looked up: shared by all of them.
#[derive(Debug, Default)]
pub struct Types {
    /// The newest type when it was last known that some are looked up; 0 before, and after
    /// looking up all of them did not help.
    newest: AtomicU64,
    /// How many look-ups failed or did not last. At [`MAX_IN_VAIN`] connections look up no
    /// more types, and each serves until it has kept a statement.
    in_vain: AtomicU32,
}

impl Types {
    /// Has a new connection look up what is to be looked up. Returns the mark of
    /// the connection for the other functions.
    ///
    /// # Errors
    /// That of the server; the connection may not be used.
    pub async fn teach(&self, client: &mut Client) -> Result<u64, Error> {
        if self.newest.load(Ordering::Relaxed) == 0 {
            return Ok(0);
        }
        match look_up_all(client).await {
            Ok(newest) => {
                self.learn(newest);
                Ok(newest)
            }
            Err(error) => {
                // A lost connection says nothing about types, and neither does a server that
                // is starting, full or away behind a pooler.
                let is_away = |state: &SqlState| {
                    ["08", "53", "57", "58"].iter().any(|class| state.code().starts_with(class))
                };
                if error.code().is_some_and(|state| !is_away(state)) {
                    self.count_in_vain();
                }
                Err(error)
            }
        }
    }

    /// Whether a connection that was idle may be used.
    pub fn fits(&self, mark: u64) -> bool {
        mark == self.newest.load(Ordering::Relaxed)
    }

    /// A transaction was committed: whether its connection may be used again.
    pub fn committed(&self, mark: u64, left: Option<Left>) -> bool {
        match left {
            Some(Left { kept: false, .. }) => true,
            // It had looked up all of them.
            Some(Left { newest, .. }) if newest == mark => {
                self.give_up();
                false
            }
            Some(Left { newest, .. }) => {
                self.learn(newest);
                false
            }
            None => false,
        }
    }

    /// A transaction was rolled back. `left`: what it left in its session, `None` if unknown.
    /// `lacked_statement`: its failure was SQLSTATE 26000.
    pub fn rolled_back(&self, mark: u64, left: Option<Left>, lacked_statement: bool) -> Reuse {
        if let Some(Left { newest, .. }) = left.filter(|left| mark != 0 && left.newest != mark) {
            let is_news = self.learn(newest);
            if lacked_statement && is_news {
                self.count_in_vain();
            }
            return Reuse { connection: false, try_again: lacked_statement };
        }
        if lacked_statement {
            // A connection that has looked up nothing has lost nothing: the statement was
            // the handler's own.
            let was_taught = mark != 0;
            if was_taught {
                self.give_up();
            }
            return Reuse { connection: false, try_again: was_taught };
        }
        Reuse { connection: self.committed(mark, left), try_again: false }
    }

    /// Whether connections are now to look up more than before.
    fn learn(&self, newest: u64) -> bool {
        let gave_up = self.in_vain.load(Ordering::Relaxed) >= MAX_IN_VAIN;
        !gave_up && self.newest.swap(newest, Ordering::Relaxed) != newest
    }

    fn count_in_vain(&self) {
        if self.in_vain.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_IN_VAIN {
            self.give_up();
        }
    }

    fn give_up(&self) {
        self.in_vain.store(MAX_IN_VAIN, Ordering::Relaxed);
        self.newest.store(0, Ordering::Relaxed);
    }
}

/// What follows a transaction that was rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The connection may be used again.
    pub connection: bool,
    /// The failure was for want of a statement that another connection has.
    pub try_again: bool,
}

async fn look_up_all(client: &mut Client) -> Result<u64, Error> {
    let tx = client.transaction().await?;
    let rows = tx.query_typed(TYPES, &[]).await?;
    let types: Vec<Type> = rows.iter().map(|row| named_by_oid(row.get(0))).collect();
    for some in types.chunks(TOGETHER) {
        look_up(&tx, some).await?;
    }
    Ok(commit(tx, "").await?.map_or(0, |left| left.newest))
}

/// The server describes the parameters of a statement by the ids of their types.
async fn look_up(tx: &Transaction<'_>, types: &[Type]) -> Result<Statement, Error> {
    let parameters: Vec<String> = (1..=types.len()).map(|number| format!("${number}")).collect();
    tx.prepare_typed(&format!("select {}", parameters.join(", ")), types).await
}

fn named_by_oid(oid: u32) -> Type {
    Type::new(String::new(), oid, Kind::Simple, String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Option<Left> = Some(Left { kept: true, newest: 20_000 });
    const CLEAN: Option<Left> = Some(Left { kept: false, newest: 20_000 });

    #[test]
    fn a_client_that_has_looked_up_types_is_replaced_by_those_that_know_all() {
        let types = Types::default();
        assert!(types.committed(0, CLEAN) && types.fits(0));
        assert!(!types.committed(0, KEPT));
        assert!(!types.fits(0) && types.fits(20_000));
        assert!(types.committed(20_000, CLEAN));
    }

    #[test]
    fn a_new_type_makes_others_look_up_all_again_once_something_failed() {
        let types = Types::default();
        assert!(!types.committed(0, KEPT));
        let later = Some(Left { kept: false, newest: 20_001 });
        let reuse = types.rolled_back(20_000, later, true);
        assert_eq!(reuse, Reuse { connection: false, try_again: true });
        assert!(!types.fits(20_000) && types.fits(20_001));
        let reuse = types.rolled_back(20_001, later, false);
        assert_eq!(reuse, Reuse { connection: true, try_again: false });
    }

    #[test]
    fn a_statement_that_is_missing_all_the_same_ends_the_looking_up() {
        let types = Types::default();
        assert!(!types.committed(0, KEPT));
        let again = |types: &Types, mark| types.rolled_back(mark, CLEAN, true);
        assert_eq!(again(&types, 20_000), Reuse { connection: false, try_again: true });
        assert!(types.fits(0), "as before");
        assert_eq!(again(&types, 0), Reuse { connection: false, try_again: false });
        assert!(!types.committed(0, KEPT));
        assert!(types.fits(0), "it stays so");
    }

    #[test]
    fn a_statement_of_the_handlers_own_ends_no_looking_up() {
        let types = Types::default();
        assert!(!types.committed(0, KEPT));
        let reuse = types.rolled_back(0, CLEAN, true);
        assert_eq!(reuse, Reuse { connection: false, try_again: false });
        assert!(types.fits(20_000));
    }

    #[test]
    fn a_statement_kept_by_a_client_that_knows_all_ends_the_looking_up() {
        let types = Types::default();
        assert!(!types.committed(0, KEPT) && types.fits(20_000));
        assert!(!types.committed(20_000, KEPT));
        assert!(types.fits(0));
    }

    #[test]
    fn types_that_are_new_each_time_end_the_looking_up_at_last() {
        let types = Types::default();
        assert!(!types.committed(0, KEPT));
        for mark in (20_000..).take(MAX_IN_VAIN as usize) {
            assert!(types.fits(mark));
            let left = Some(Left { kept: false, newest: mark + 1 });
            let reuse = types.rolled_back(mark, left, true);
            assert_eq!(reuse, Reuse { connection: false, try_again: true });
        }
        assert!(types.fits(0));
    }

    #[test]
    fn a_session_that_nobody_cleaned_is_not_used_again() {
        let reuse = Types::default().rolled_back(0, None, false);
        assert_eq!(reuse, Reuse { connection: false, try_again: false });
    }
}
