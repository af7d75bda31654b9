//! A receiver of webhooks that writes one row per event, for tests to kill.
//!
//! `walpost-test-receiver DATABASE_URL PORT KEY`. At `/inline` an event is applied
//! before the answer, at `/inbox` behind it; KEY is one of Standard Webhooks. It
//! prints a line when SIGTERM no longer just kills it.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use walpost_inbox::{
    Database, Event, Handler, HandlerError, Head, Processor, tokio_postgres::Transaction,
};
use walpost_webhook::receive::{Receiver, Source};

/// Nothing keeps it from being written twice: whoever counts rows sees that.
struct Effects;

impl Handler for Effects {
    type Work = ();

    fn select(&self, _: &Head) -> Option<()> {
        Some(())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        (): &(),
        event: &Event,
    ) -> Result<(), HandlerError> {
        let head = event.head();
        let insert = "insert into effect (source, event_id) values ($1, $2)";
        tx.execute(insert, &[&head.source(), &head.event_id()]).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    eprintln!("receiver: listens to SIGTERM");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, port, key] = args.as_slice() else {
        panic!("walpost-test-receiver DATABASE_URL PORT KEY");
    };
    let database = || Database::config(url.parse().unwrap());
    let source = |name: &str| Source::standard(name, [key.parse().unwrap()]);
    let receiver = Receiver::builder(database())
        .answer_within(Duration::from_secs(2))
        .inline("/inline", source("inline"), Effects)
        .inbox("/inbox", source("inbox"))
        .build()
        .unwrap();
    let processor = Processor::builder(database()).poll_ms(100).handler(Effects).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().unwrap())).await.unwrap();
    let stop = watch::Sender::new(false);
    let stopped = |mut stop: watch::Receiver<bool>| async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let processing = {
        let stopped = stopped(stop.subscribe());
        tokio::spawn(async move { processor.run(stopped).await })
    };
    let serving =
        axum::serve(listener, receiver.router()).with_graceful_shutdown(stopped(stop.subscribe()));
    let serving = tokio::spawn(serving.into_future());
    terminate.recv().await;
    stop.send_replace(true);
    // A sender keeps its connections for a while.
    let _ = tokio::time::timeout(Duration::from_secs(1), serving).await;
    receiver.drained().await;
    processing.await.unwrap().unwrap();
}
