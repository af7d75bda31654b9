//! What an event contains, and what a failure quotes of it, is in no text.

use std::sync::{Arc, Mutex, MutexGuard};

use metrics_exporter_prometheus::PrometheusBuilder;
use tracing_subscriber::fmt::MakeWriter;
use walpost_inbox::{NewEvent, State};
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting};

use crate::support::{ByType, SECRET, World, run};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }

    fn text(&self) -> String {
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

const KINDS: [&str; 11] = [
    "apply",
    "unknown",
    "select_panics",
    "panics",
    "json",
    "unique",
    "integer",
    "syntax",
    "raise",
    "name",
    "give_up",
];

// One thread, which has the subscriber and the recorder.
#[tokio::test]
async fn a_secret_that_is_received_and_quoted_is_in_no_log_error_metric_or_reason() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("off,walpost_inbox=trace")
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
    let mut texts = Vec::new();
    for kind in KINDS.into_iter().chain(Quoting::ALL.map(|quoting| quoting.name)) {
        let event = NewEvent::new(kind, kind, format!("\"{SECRET}\"")).related_reference("7");
        texts.push(format!("{event:?} {:?}", world.insert(&event).await));
        // A copy with other contents.
        let other = NewEvent::new(kind, kind, format!("\"{SECRET} other\""));
        texts.push(format!("{:?}", world.insert(&other).await));
    }
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 1).await;
    world.until(State::Review, 2).await;
    world.until(State::Failed, 8 + Quoting::ALL.len() as i64).await;
    texts.push(format!("{:?} {:?}", running.processor, running.processor.snapshot()));
    running.stop().await;

    let mut client = world.database.connect().await;
    let schema = "alter table walpost.inbox add constraint refused check (payload_bytes > 99)";
    world.client.batch_execute(&format!("{schema} not valid")).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let event = NewEvent::new("x", "x", SECRET);
    let error = world.inbox.insert_once(&tx, &event).await.unwrap_err();
    texts.push(format!("{error} {error:?} {}", walpost_event::error_chain(&error)));
    assert!(texts.last().unwrap().contains("refused"), "{texts:?}");

    let reasons = "select coalesce(reason, '') from walpost.inbox order by seq";
    let reasons = world.texts(reasons, &[]).await;
    assert!(reasons.iter().any(|reason| reason.contains("23505")), "{reasons:?}");
    for quoting in Quoting::ALL {
        assert!(reasons.iter().any(|reason| reason.contains(quoting.state)), "{quoting:?}");
    }
    let (logged, measured) = (log.text(), metrics.render());
    assert!(logged.contains("given up") && logged.contains("23505"), "{logged}");
    let metrics = [
        "result=\"conflict\"",
        "walpost_inbox_given_up_total",
        "walpost_inbox_seconds",
        "walpost_inbox_oldest_pending_seconds",
        "walpost_inbox_events{processor=\"inbox\",state=\"review\"}",
    ];
    for metric in metrics {
        assert!(measured.contains(metric), "{measured}");
    }
    texts.extend([logged, measured]);
    for text in texts.iter().chain(&reasons) {
        assert!(!text.contains(SECRET) && !text.contains(MARKER), "{text}");
    }
    let planted = "select count(*) from walpost.inbox where position($1::bytea in payload) > 0";
    let planted = world.client.query_one(planted, &[&SECRET.as_bytes()]).await.unwrap();
    let all = KINDS.len() + Quoting::ALL.len();
    assert_eq!(planted.get::<_, i64>(0), all as i64, "it is where it belongs");
}
