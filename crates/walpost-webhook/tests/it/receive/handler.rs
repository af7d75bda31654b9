//! A handler that writes an effect, and then does what the event's type says.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_postgres::Transaction;
use walpost_inbox::{Event, Handler, HandlerError, Head};
use walpost_outbox::{NewEvent, OutboxTable, write};
use walpost_testkit::{MARKER, Quoting};

/// Holds handlers of the type `hold`.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits until one is in its transaction.
    pub(super) async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    /// Lets one go on.
    pub(super) fn open(&self) {
        self.open.add_permits(1);
    }
}

#[derive(Clone, Debug)]
pub(super) struct ByType {
    pub(super) gate: Gate,
}

impl ByType {
    pub(super) fn new() -> Self {
        Self { gate: Gate::new() }
    }
}

impl Handler for ByType {
    type Work = String;

    fn select(&self, event: &Head) -> Option<String> {
        assert!(event.event_type() != "select_panics");
        (event.event_type() != "unknown").then(|| event.event_type().to_owned())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        work: &String,
        event: &Event,
    ) -> Result<(), HandlerError> {
        let id = event.head().event_id();
        tx.execute("insert into effect (event_id) values ($1)", &[&id]).await?;
        match &**work {
            "apply" => {}
            "emit" => {
                let new = NewEvent::new("shipment", id, "ShipmentPlanned");
                let written = write(tx, &OutboxTable::default(), &new).await;
                written.map_err(|_| HandlerError::retry("no event was written"))?;
            }
            "hold" => {
                self.gate.reached.add_permits(1);
                self.gate.open.acquire().await.unwrap().forget();
            }
            "first_fails" => {
                // Sequences are not rolled back.
                let row = tx.query_one("select nextval('tries')", &[]).await?;
                if row.get::<_, i64>(0) == 1 {
                    return Err(HandlerError::retry("not yet"));
                }
            }
            "fails" => return Err(HandlerError::retry("not today")),
            "gives_up" => return Err(HandlerError::give_up("no such invoice")),
            "transient" => return Err(HandlerError::transient("the ledger is closed")),
            "panics" => panic!("as it was told to"),
            "json" => event.json::<()>()?,
            "swallow" => {
                let _ = tx.batch_execute("select 1/0").await;
            }
            "ends" => tx.batch_execute("commit").await?,
            // Found out by COMMIT.
            "late" => {
                tx.execute("insert into late values ('a'), ('a')", &[]).await?;
            }
            "slow_commit" => {
                tx.execute("insert into slow values (1)", &[]).await?;
            }
            "conflict" => {
                let sql = "do $$ begin if nextval('tries') <= 2 then \
                           raise exception 'later' using errcode = '40001'; end if; end $$";
                tx.batch_execute(sql).await?;
            }
            "unique" => {
                let name = String::from_utf8_lossy(event.payload()).into_owned();
                tx.execute("insert into once values ($1), ($1)", &[&name]).await?;
            }
            other => {
                let quoting =
                    Quoting::named(other).unwrap_or_else(|| panic!("no such type: {other}"));
                tx.query(quoting.statement, &[&MARKER]).await?;
            }
        }
        Ok(())
    }
}
