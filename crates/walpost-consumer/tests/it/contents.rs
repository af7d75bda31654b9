//! What an event contains stays out of every text.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio_postgres::types::{FromSql, Type};
use tracing_subscriber::fmt::MakeWriter;
use walpost_consumer::{Event, Handler, HandlerError, error_chain, tokio_postgres::Transaction};
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting};

use crate::support::{World, run};

/// Fails as the event's id says, by what PostgreSQL makes of the contents.
struct Failing;

impl Handler for Failing {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if let Some(quoting) = Quoting::named(event.id()) {
            let failed = tx.query(quoting.statement, &[&MARKER]).await;
            failed.map_err(HandlerError::retry)?;
        }
        match event.id() {
            "deferred" => {
                let note = "insert into note (name, parent) values ($1, $1 || 'x')";
                tx.execute(note, &[&MARKER]).await?;
            }
            "written" => {
                let failed = tx.batch_execute(&format!("select * from {MARKER}")).await;
                failed.map_err(HandlerError::park)?;
            }
            "nested" => {
                let failed = tx.query("select $1::text::int", &[&MARKER]).await;
                failed.map_err(|error| HandlerError::park(Saving(Box::new(error))))?;
            }
            "read" => {
                let row = tx.query_one("select $1::text", &[&MARKER]).await?;
                let Unreadable = row.try_get(0)?;
            }
            _ => {
                let failed = tx.query("select $1::text::int", &[&MARKER]).await;
                failed.map_err(HandlerError::halt)?;
            }
        }
        Ok(())
    }
}

/// An application's error around PostgreSQL's.
#[derive(Debug, thiserror::Error)]
#[error("saving a note")]
struct Saving(#[source] Box<tokio_postgres::Error>);

/// A type whose error quotes what it was to be read from.
struct Unreadable;

impl<'a> FromSql<'a> for Unreadable {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Err(format!("cannot read {}", String::from_utf8_lossy(raw)).into())
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// What was logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What this thread logs, while the guard is held.
    pub(crate) fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("off,walpost_consumer=trace")
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Its lines with this text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

const TABLES: &str = "
    create table note (
        name text primary key,
        parent text references note deferrable initially deferred
    )";

#[tokio::test]
async fn a_failure_shows_what_was_violated_and_not_by_which_values() {
    let (log, _guard) = Log::listen();
    let world = World::new(1).await;
    world.client.batch_execute(TABLES).await.unwrap();
    world.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    let others = [
        (
            "deferred",
            "ERROR 23503 (foreign key violation), constraint note_parent_fkey, schema public, \
             table note, full text in the server's log",
        ),
        ("written", "ERROR 42P01 (undefined table), full text in the server's log"),
        (
            "nested",
            "saving a note: ERROR 22P02 (invalid text representation), full text in the server's \
             log",
        ),
        ("read", "error deserializing column 0"),
    ];
    let quoting = Quoting::ALL.map(|quoting| (quoting.name, quoting.state));
    let expected = [&quoting[..], &others].concat();
    world.publish(0, expected.iter().map(|(id, _)| id)).await;
    world.publish(0, ["halt"]).await;
    let consumer = world.consumer().max_attempts(1).max_batch_events(1).halt_after_parked(99);
    let mut running = run(consumer.handler(Failing).unwrap());
    let halted = running.until_halted().await;
    let status = format!("{:?}", running.status.borrow());
    let error = running.end().await.unwrap_err();

    let parked = "select event_id, reason from walpost.consumer_parked order by off";
    let parked = world.client.query(parked, &[]).await.unwrap();
    let reasons: Vec<(&str, &str)> = parked.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(reasons.len(), expected.len());
    for ((id, reason), (expected_id, expected)) in reasons.iter().zip(&expected) {
        assert_eq!(id, expected_id);
        assert!(reason.contains(expected), "{id}: {reason}");
        assert!(!reason.contains(MARKER), "{id}: {reason}");
    }
    let logged = log.text();
    assert!(logged.contains("23505") && logged.contains("saving a note"), "{logged}");
    for text in [halted, status, format!("{error} {error:?} {}", error_chain(&error)), logged] {
        assert!(!text.contains(MARKER), "{text}");
    }
}
