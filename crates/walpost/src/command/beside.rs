//! What publishes beside a pipeline, each through a sink of its own: dead letters,
//! heartbeats, and the rows that each start publishes once more.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::timeout};
use walpost_kafka::{KafkaConnector, KafkaSink};
use walpost_postgres::Database;
use walpost_relay::{
    DeadLetters, EventEncoding, Forms, Heartbeats, RelayConfig, RelayError, RunningRelay,
    SnapshotAgain,
};
use walpost_router::RouterConfig;

/// For what is on its way when the pipeline has stopped.
const END: Duration = Duration::from_secs(10);

/// What is to publish beside a pipeline.
pub(super) struct Beside {
    letters: Option<DeadLetters>,
    heartbeats: Option<(Heartbeats, Arc<Forms>)>,
    again: Option<SnapshotAgain>,
}

impl Beside {
    /// Nothing is connected yet.
    pub(super) fn new(
        database: &Database,
        relay: &RelayConfig,
        router: &RouterConfig,
        encoding: &EventEncoding,
    ) -> Result<Self, RelayError> {
        let forms = match encoding {
            EventEncoding::Connect(options) => Some(Arc::new(Forms::new(options)?)),
            // Heartbeats are a connector's.
            EventEncoding::Plain(_) => None,
        };
        Ok(Self {
            letters: DeadLetters::new(database, relay, router),
            heartbeats: Heartbeats::new(database, relay).zip(forms),
            again: SnapshotAgain::new(database, relay, router, encoding.clone())?,
        })
    }

    /// Starts it, to end with the pipeline.
    pub(super) fn start(self, kafka: &KafkaConnector, running: &RunningRelay) -> Publishing {
        let Self { letters, heartbeats, again } = self;
        let mut tasks = JoinSet::new();
        if let Some(letters) = letters {
            tasks.spawn(letters.run(running.status(), sinks(kafka)));
        }
        if let Some((heartbeats, forms)) = heartbeats {
            let form = move |record| {
                let forms = forms.clone();
                async move { forms.message(record).await }
            };
            tasks.spawn(heartbeats.run(running.status(), sinks(kafka), form));
        }
        if let Some(again) = again {
            tasks.spawn(again.run(running.status(), sinks(kafka)));
        }
        Publishing(tasks)
    }
}

/// Sinks that fence nobody off, one for each call.
fn sinks(kafka: &KafkaConnector) -> impl FnMut() -> Connecting + Send + 'static {
    let kafka = kafka.clone();
    move || {
        let kafka = kafka.clone();
        Box::pin(async move { kafka.connect().await })
    }
}

type Connecting = std::pin::Pin<Box<dyn Future<Output = Result<KafkaSink, RelayError>> + Send>>;

/// What publishes beside a pipeline that runs.
#[derive(Default)]
pub(super) struct Publishing(JoinSet<()>);

impl Publishing {
    /// Waits for the end of what ends with the pipeline, which has stopped.
    pub(super) async fn end(self) {
        let Self(mut tasks) = self;
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(END, all).await.is_err() {
            tracing::warn!(
                "records beside the pipeline were on their way at the stop; dead letters among \
                 them may come again"
            );
        }
    }
}
