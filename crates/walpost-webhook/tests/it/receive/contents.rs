//! What comes in, and what it is signed with, is in no answer, log or metric.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use tracing_subscriber::fmt::MakeWriter;
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting};

use super::{
    handler::ByType,
    server::Server,
    sign::{KEY, SENDERS, Sender, seconds_ago},
    world::World,
};
use crate::world::LIMIT;

const SECRET: &str = "s3cr3t";

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// With the secret in it wherever its sender could have one.
fn body(id: &str, kind: &str) -> String {
    format!(r#"{{"id":"{id}","type":"{kind}","data":"{SECRET}"}}"#)
}

// One thread, which has the subscriber and the recorder.
#[tokio::test]
async fn a_secret_that_is_received_is_in_no_answer_log_or_metric() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("off,walpost_webhook=trace,walpost_inbox=trace")
        .with_writer(log.clone())
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    // With one subscriber alone, who meets a line first decides for all threads whether it
    // is written.
    let _other = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);

    let world = World::new().await;
    world.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    let receiver = |answer_within| {
        let builder = world.builder().answer_within(answer_within).body_max_bytes(2_000);
        let builder = builder.inline("/webhooks/stripe", Sender::Stripe.source(), ByType::new());
        builder.inbox("/webhooks/standard", Sender::Standard.source()).build().unwrap()
    };
    let (patient, hasty) = (receiver(LIMIT), receiver(Duration::from_secs(2)));
    let server = Server::start(patient.router()).await;
    let mut texts = vec![format!("{patient:?} {:?}", SENDERS.map(Sender::source))];
    send_what_is_stored(&server, &mut texts).await;
    // Its handler never ends.
    send(&Server::start(hasty.router()).await, "hold", &mut texts).await;
    send_what_is_refused(&server, &mut texts).await;
    let (logged, measured) = (String::from_utf8_lossy(&log.bytes()).into_owned(), metrics.render());
    for outcome in [
        "processed",
        "stored",
        "duplicate",
        "given_up",
        "refused",
        "invalid",
        "too_large",
        "conflict",
        "changed",
        "timed_out",
        "store_error",
        "failed",
    ] {
        assert!(measured.contains(&format!("outcome=\"{outcome}\"")), "{outcome}: {measured}");
    }
    let refused = "walpost_webhook_refused_total{source=\"stripe\",problem=\"timestamp_too_old\"}";
    assert!(measured.contains(refused), "{measured}");
    assert!(measured.contains("walpost_webhook_receive_seconds"), "{measured}");
    assert!(logged.contains("given up") && logged.contains("23505"), "{logged}");
    texts.extend([logged, measured]);
    for text in &texts {
        for secret in [SECRET, MARKER, KEY, &KEY[6..]] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let planted =
        "select count(*) from walpost.inbox where position('s3cr3t'::bytea in payload) > 0";
    assert!(world.number(planted).await > 0, "it is where it belongs");
}

async fn send_what_is_stored(server: &Server, texts: &mut Vec<String>) {
    let kinds = [
        "apply",
        "apply",
        "fails",
        "gives_up",
        "json",
        "panics",
        "transient",
        "unique",
        "swallow",
        "unknown",
    ];
    for kind in kinds.into_iter().chain(Quoting::ALL.map(|quoting| quoting.name)) {
        send(server, kind, texts).await;
    }
}

async fn send(server: &Server, kind: &str, texts: &mut Vec<String>) {
    let body = body(kind, kind);
    for sender in [Sender::Stripe, Sender::Standard] {
        let headers = sender.headers(kind, kind, body.as_bytes());
        let answer = server.post(&sender.path(), &headers, body.as_bytes()).await;
        texts.push(format!("{answer:?}"));
    }
}

async fn send_what_is_refused(server: &Server, texts: &mut Vec<String>) {
    let other = format!("{} ", body("apply", "apply"));
    let long = body(&SECRET.repeat(100), "apply");
    let huge = body(&SECRET.repeat(1_000), "apply");
    let odd = format!(r#"{{"type":"apply","id":["{SECRET}"]}}"#);
    let none = format!(r#"{{"type":"apply","no":"{SECRET}"}}"#);
    for body in [&other, &long, &huge, &odd, &none, &SECRET.to_owned()] {
        for sender in [Sender::Stripe, Sender::Standard] {
            let now = sender.headers("apply", "", body.as_bytes());
            let old = sender.headers_at("apply", "", body.as_bytes(), seconds_ago(1_000));
            let mut malformed = now.clone();
            malformed.last_mut().unwrap().1.push_str(SECRET);
            for headers in [now, old, malformed] {
                let answer = server.post(&sender.path(), &headers, body.as_bytes()).await;
                texts.push(format!("{answer:?}"));
            }
        }
    }
}
