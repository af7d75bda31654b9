//! Whether the handler's transactions are in the consumer's database: in
//! another one no fence would hold them.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;
use uuid::Uuid;
use walpost_event::RetrySchedule;

use crate::{
    Database, Error,
    database_error::Verdict,
    partition::start,
    report::report,
    store::Store,
    tell::{Reminder, tell},
};

/// Waits until that can be told. `None` is the consumer's own client.
pub(crate) async fn is_the_same_database(
    database: &Database,
    store: Option<&dyn Store>,
) -> Result<(), Error> {
    let Some(store) = store else { return Ok(()) };
    let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
    let (mut reminder, mut failures) = (Reminder::default(), 0);
    loop {
        let reason = match look(database, store).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                return Err(Error::Setting {
                    setting: "handler".to_owned(),
                    problem: format!(
                        "its connections lead to another database than the consumer's, {}; \
                         the effects have to be where the consumer's tables are",
                        database.place()
                    ),
                });
            }
            Err(Looked::Away(reason)) => reason,
            Err(Looked::Refused(error)) => return Err(error),
        };
        failures += 1;
        if reminder.is_due(Instant::now()) {
            tell!(
                warn,
                { reason = reason },
                "the handler's database cannot be reached, nothing is consumed until it can; \
                 trying again"
            );
        }
        tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
    }
}

enum Looked {
    Away(String),
    Refused(Error),
}

/// A lock that one client takes is seen by the other in the same database
/// alone.
async fn look(database: &Database, store: &dyn Store) -> Result<bool, Looked> {
    let key = (Uuid::new_v4().as_u128() >> 65) as i64;
    let mut client = database.connect().await.map_err(|error| Looked::Away(report(&*error)))?;
    let own = async {
        let tx = start(&mut client).await?;
        let lock = "select pg_advisory_xact_lock($1)";
        tx.query_typed(lock, &[(&key, Type::INT8)]).await?;
        Ok::<_, tokio_postgres::Error>(tx)
    };
    let tx = own.await.map_err(|error| Looked::Away(report(&error)))?;
    let seen = store.sees_lock(key).await;
    // Nothing was written.
    let _ = tx.rollback().await;
    seen.map_err(|error| match error.verdict() {
        Verdict::Transient | Verdict::Cancelled => Looked::Away(error.to_string()),
        _ => Looked::Refused(Error::Database {
            attempted: "asking the handler's database which one it is was refused".to_owned(),
            source: error.into(),
        }),
    })
}
