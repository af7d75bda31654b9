//! Those who send the deliveries of `walpost run`, one for each destination, and
//! who looks at what waits.

use std::time::Duration;

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time,
};
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_webhook::{Bell, Processor, StoreError, Watch};

use crate::{
    config::Webhooks,
    failure::{Exit, Failure},
};

/// For what is on its way when the process is told to stop; beyond it leases end.
const DRAIN: Duration = Duration::from_secs(20);

/// A processor by the name of its destination, or who works beside them all.
type Ended = Option<(String, Result<(), StoreError>)>;

/// Processors of destinations.
pub(crate) struct Senders {
    stop: watch::Sender<bool>,
    tasks: JoinSet<Ended>,
    /// Those of them that have not ended.
    destinations: usize,
    /// Why one of them has ended by itself.
    failure: Option<Failure>,
}

impl Senders {
    /// Where nothing is sent by this process.
    pub(crate) fn none() -> Self {
        Self {
            stop: watch::Sender::new(false),
            tasks: JoinSet::new(),
            destinations: 0,
            failure: None,
        }
    }

    pub(crate) fn start(database: &Database, webhooks: Webhooks) -> Result<Self, Failure> {
        let mut senders = Self::none();
        let watch = Watch::new(database.clone())
            .deliveries(webhooks.deliveries())
            .destinations(webhooks.names());
        let stopped = senders.stopped();
        senders.tasks.spawn(async move {
            if let Err(error) = watch.run(stopped).await {
                let error = error_chain(&error);
                tracing::error!(error, "what waits is not counted; deliveries go on");
            }
            None
        });
        let bell = Bell::new(database.clone());
        for settings in webhooks.processors {
            let name = settings.name.clone();
            let processor = Processor::new(database.clone(), settings)
                .map_err(|error| Failure::new(Exit::Configuration, error))?;
            processor.woken_by(&bell);
            let stopped = senders.stopped();
            senders.tasks.spawn(async move {
                let ended = processor.run(stopped).await;
                Some((name, ended))
            });
            senders.destinations += 1;
        }
        if webhooks.notifies {
            let stopped = senders.stopped();
            senders.tasks.spawn(async move {
                bell.run(stopped).await;
                None
            });
        }
        Ok(senders)
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // Who drops the other end wants an end as well.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Waits until one of them has ended by itself, which none should.
    pub(crate) async fn ended(&mut self) {
        loop {
            let ended = match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(ended) => ended,
            };
            if self.note(ended) {
                return;
            }
        }
    }

    pub(crate) fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Ends them, once what they have begun is done.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.tell_to_stop();
        let drained = time::timeout(DRAIN, async {
            while let Some(ended) = self.tasks.join_next().await {
                self.note(ended);
            }
        });
        if drained.await.is_err() && self.destinations > 0 {
            tracing::warn!(
                destinations = self.destinations,
                "requests were on their way at the stop; they are sent again when their leases end"
            );
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Whether it has failed.
    fn note(&mut self, ended: Result<Ended, JoinError>) -> bool {
        if let Ok(Some(_)) = &ended {
            self.destinations -= 1;
        }
        let failure = match ended {
            Ok(None | Some((_, Ok(())))) => return false,
            Ok(Some((destination, Err(error)))) => {
                tracing::error!(destination, error = error_chain(&error), "nothing is sent");
                Failure::postgres(error).context(&format!("sending to {destination}"))
            }
            Err(error) => Failure::running(error),
        };
        self.failure.get_or_insert(failure);
        true
    }
}
