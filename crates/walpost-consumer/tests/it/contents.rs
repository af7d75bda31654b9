//! What an event contains stays out of every text.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio_postgres::types::{FromSql, Type};
use tracing_subscriber::fmt::MakeWriter;
use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};

use crate::support::{World, run};

/// In every event, and quoted by PostgreSQL in every failure below.
const CONTENTS: &str = "s3cr3t";

/// Fails as the event's id says, by what PostgreSQL makes of the contents.
struct Quoting;

impl Handler for Quoting {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let note = "insert into note (name, parent) values ($1, $2)";
        match event.id() {
            "unique" => {
                tx.execute(note, &[&CONTENTS, &None::<&str>]).await?;
                tx.execute(note, &[&CONTENTS, &None::<&str>]).await?;
            }
            "check" => drop(tx.execute(note, &[&format!("{CONTENTS} bad"), &None::<&str>]).await?),
            "deferred" => drop(tx.execute(note, &[&"child", &CONTENTS]).await?),
            "integer" => drop(tx.query("select $1::text::int", &[&CONTENTS]).await?),
            "raised" => {
                let raised = tx.query("select refuse($1)", &[&CONTENTS]).await;
                raised.map_err(HandlerError::retry)?;
            }
            "name" => {
                let named = tx.query("select $1::text::regclass", &[&CONTENTS]).await;
                named.map_err(HandlerError::park)?;
            }
            "nested" => {
                let failed = tx.query("select $1::text::int", &[&CONTENTS]).await;
                failed.map_err(|error| HandlerError::park(Saving(Box::new(error))))?;
            }
            "read" => {
                let row = tx.query_one("select $1::text", &[&CONTENTS]).await?;
                let Unreadable = row.try_get(0)?;
            }
            _ => {
                let failed = tx.query("select $1::text::int", &[&CONTENTS]).await;
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
        name text primary key constraint plain check (name not like '%bad'),
        parent text references note deferrable initially deferred
    );
    create function refuse(name text) returns void language plpgsql as $$ begin
        raise exception 'no % here', name using errcode = '42501', detail = name, hint = name;
    end $$";

#[tokio::test]
async fn a_failure_shows_what_was_violated_and_not_by_which_values() {
    let (log, _guard) = Log::listen();
    let world = World::new(1).await;
    world.client.batch_execute(TABLES).await.unwrap();
    let expected = [
        (
            "unique",
            "ERROR 23505 (unique violation), constraint note_pkey, schema public, table note",
        ),
        ("check", "ERROR 23514 (check violation), constraint plain, schema public, table note"),
        (
            "deferred",
            "ERROR 23503 (foreign key violation), constraint note_parent_fkey, schema public, \
             table note",
        ),
        ("integer", "ERROR 22P02 (invalid text representation)"),
        ("raised", "ERROR 42501"),
        ("name", "ERROR 42P01"),
        ("nested", "saving a note: ERROR 22P02 (invalid text representation)"),
        ("read", "error deserializing column 0"),
    ];
    world.publish(0, expected.map(|(id, _)| id)).await;
    world.publish(0, ["halt"]).await;
    let consumer = world.consumer().max_attempts(1).max_batch_events(1);
    let mut running = run(consumer.handler(Quoting).unwrap());
    let halted = running.until_halted().await;
    let status = format!("{:?}", running.status.borrow());
    let error = running.end().await.unwrap_err();

    let parked = "select event_id, reason from walpost.consumer_parked order by off";
    let parked = world.client.query(parked, &[]).await.unwrap();
    let reasons: Vec<(&str, &str)> = parked.iter().map(|row| (row.get(0), row.get(1))).collect();
    for ((id, reason), (expected_id, expected)) in reasons.iter().zip(expected) {
        assert_eq!(*id, expected_id);
        assert_eq!(reason.split_once(": ").unwrap().1, expected, "{id}");
    }
    assert_eq!(reasons.len(), expected.len());
    let logged = log.text();
    assert!(logged.contains("23505") && logged.contains("saving a note"), "{logged}");
    for text in [halted, status, format!("{error} {error:?}"), logged] {
        assert!(!text.contains(CONTENTS), "{text}");
    }
}
