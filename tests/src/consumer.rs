//! A consumer that writes one row per event, for tests to kill and to pause.
//!
//! `walpost-test-consumer DATABASE_URL BOOTSTRAP NAME TOPIC[,TOPIC…]`. Environment:
//! `TEST_STOP_IN_HANDLER=N` raises SIGSTOP within the handler of the N-th event
//! of the process; an event with `"poison": true` fails in the database, one
//! with `"panic": true` panics; `TEST_ON_RESET=rerun|fill|refuse`;
//! `TEST_SESSION_TIMEOUT_MS`; `TEST_HANDLER_TIMEOUT_MS`; `TEST_KAFKA=name=value;…`
//! for settings of librdkafka; `WALPOST_FAILPOINT` as in the consumer crate. SIGUSR1
//! has it raise SIGSTOP within the handler of the next event. It prints a line when
//! SIGTERM no longer just kills it.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use walpost_consumer::{
    Consumer, Database, Event, Handler, HandlerError, OnReset, RetrySchedule,
    tokio_postgres::Transaction,
};

/// `walpost_tests::chaos` waits for it.
const LISTENS: &str = "consumer: listens to SIGTERM";

struct Effects {
    handled: AtomicU64,
    stop_at: Option<u64>,
    stop_at_next: Arc<AtomicBool>,
}

impl Handler for Effects {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let aggregate = String::from_utf8_lossy(event.key().unwrap_or_default()).into_owned();
        let value: serde_json::Value = event.json()?;
        if value["poison"] == true {
            tx.execute("select 1 / 0", &[]).await?;
        }
        assert!(value["panic"] != true, "as the event has it");
        let seq = value["seq"].as_i64().unwrap_or(-1);
        let insert = "insert into effect (event_id, aggregate, seq) values ($1, $2, $3)";
        tx.execute(insert, &[&event.id(), &aggregate, &seq]).await?;
        let handled = self.handled.fetch_add(1, Ordering::Relaxed) + 1;
        if self.stop_at == Some(handled) || self.stop_at_next.swap(false, Ordering::Relaxed) {
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::STOP)
                .map_err(HandlerError::halt)?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    eprintln!("{LISTENS}");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, bootstrap, name, topic] = args.as_slice() else {
        panic!("walpost-test-consumer DATABASE_URL BOOTSTRAP NAME TOPIC");
    };
    let on_reset = match std::env::var("TEST_ON_RESET").as_deref() {
        Ok("fill") => OnReset::Fill,
        Ok("refuse") => OnReset::Refuse,
        _ => OnReset::Rerun,
    };
    let stop_at = std::env::var("TEST_STOP_IN_HANDLER").ok().map(|text| text.parse().unwrap());
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let more = std::env::var("TEST_KAFKA").unwrap_or_default();
    let more = more.split(';').filter_map(|setting| setting.split_once('='));
    let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let handler = Effects { handled: AtomicU64::new(0), stop_at, stop_at_next: stop_when_told() };
    let consumer = Consumer::builder(name)
        .kafka("bootstrap.servers", bootstrap)
        .kafka_settings(more)
        .topics(topic.split(','))
        .database(Database::config(url.parse().unwrap()))
        .session_timeout_ms(number("TEST_SESSION_TIMEOUT_MS", 6_000))
        .handler_timeout_ms(number("TEST_HANDLER_TIMEOUT_MS", 30_000))
        .max_batch_events(50)
        .on_reset(on_reset)
        .max_attempts(2)
        .retry_schedule(RetrySchedule::new([Duration::from_millis(10)]))
        .handler(handler)
        .unwrap();
    if let Err(error) = consumer
        .run(async move {
            terminate.recv().await;
        })
        .await
    {
        eprintln!("consumer: {}", walpost_event::error_chain(&error));
        std::process::exit(1);
    }
}

/// Becomes true at each SIGUSR1.
fn stop_when_told() -> Arc<AtomicBool> {
    let told = Arc::new(AtomicBool::new(false));
    let (stop, mut signals) = (told.clone(), signal(SignalKind::user_defined1()).unwrap());
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    told
}
