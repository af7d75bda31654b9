use tokio::{sync::watch, task::JoinSet};
use walpost_encode::{Encoder, Encoding};
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{
    Initial, PollingConfig, PollingRelay, Relay, RelayConfig, RelayError, RunningRelay,
};
use walpost_router::{MissingColumn, NullHeader, RouterConfig};
use walpost_webhook::{
    Bell, Processor, ProcessorSettings, StoreError,
    sink::{Columns, Subscription, Subscriptions, WebhookConnector},
};

use crate::Failed;

/// The same as `walpost run` with `sink.kind = "webhook"`, in this process: an outbox
/// that is read, deliveries, and who sends them, woken when there are new ones.
/// Without what operators have of it: nothing counts what waits, nothing is pruned,
/// and there is neither HTTP nor configuration.
#[derive(Debug)]
pub struct Sender {
    /// The pipeline, and the table of the outbox.
    pub relay: RelayConfig,
    /// How the outbox is polled; it is read from the WAL where there is none.
    pub polling: Option<PollingConfig>,
    /// Names of the outbox's columns; those of webhooks are in `columns`.
    pub router: RouterConfig,
    /// What a row says of its webhook.
    pub columns: Columns,
    /// Each destination, and what it takes.
    pub destinations: Vec<(Subscription, ProcessorSettings)>,
}

/// A [`Sender`] that runs.
#[derive(Debug)]
pub struct Sending {
    relay: RunningRelay,
    stop: watch::Sender<bool>,
    /// The processors, and the bell that wakes them.
    senders: JoinSet<Result<(), StoreError>>,
}

impl Sender {
    /// Of Walpost's own outbox table, to nobody yet.
    #[must_use]
    pub fn new(pipeline: &str) -> Self {
        let mut relay = RelayConfig::new(pipeline);
        // What was written before the first start goes first.
        relay.initial = Some(Initial::Publish);
        let event_type = Some("type".to_owned());
        let columns = Columns { event_type, ..Columns::default() };
        let (router, destinations) = (RouterConfig::default(), Vec::new());
        Self { relay, polling: None, router, columns, destinations }
    }

    /// Also to this destination.
    #[must_use]
    pub fn to(mut self, subscription: Subscription, settings: ProcessorSettings) -> Self {
        self.destinations.push((subscription, settings));
        self
    }

    /// Starts to read, to make deliveries and to send them.
    ///
    /// # Errors
    /// When a setting cannot be; nothing is connected yet.
    pub fn start(mut self, database: &Database) -> Result<Sending, Failed> {
        self.router.additional_placement = self.columns.placement()?;
        self.router.additional_missing = MissingColumn::Error;
        self.router.null_header = NullHeader::Send;
        let subscriptions = self.destinations.iter().map(|(subscription, _)| subscription.clone());
        let subscriptions = Subscriptions::new(subscriptions)?;
        let deliveries = walpost_webhook::Deliveries::new();
        let connector = WebhookConnector::new(database.clone(), deliveries, subscriptions);
        let bell = Bell::new(database.clone());
        let mut checked = Vec::new();
        for (_, settings) in self.destinations {
            let processor = Processor::new(database.clone(), settings)?;
            processor.woken_by(&bell);
            checked.push(processor);
        }
        self.relay.slot = slot(database.dbname());
        let relay = started(database, self.relay, self.polling, self.router, connector)?;
        let stop = watch::Sender::new(false);
        let stopped = || {
            let mut stopped = stop.subscribe();
            async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            }
        };
        let mut senders = JoinSet::new();
        for processor in checked {
            let stopped = stopped();
            senders.spawn(async move { processor.run(stopped).await });
        }
        let stopped = stopped();
        senders.spawn(async move {
            bell.run(stopped).await;
            Ok(())
        });
        Ok(Sending { relay, stop, senders })
    }
}

/// Slots belong to the whole server, and have 63 of few characters.
fn slot(database: &str) -> String {
    let few = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    let name = database.to_ascii_lowercase();
    "walpost_".chars().chain(name.chars().map(few)).take(63).collect()
}

fn started(
    database: &Database,
    relay: RelayConfig,
    polling: Option<PollingConfig>,
    router: RouterConfig,
    connector: WebhookConnector,
) -> Result<RunningRelay, RelayError> {
    let database = database.clone();
    let encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
    let connect = async move || connector.connect().await;
    Ok(match polling {
        None => Relay::new(database, relay, router, encoding)?.start(connect),
        Some(polling) => {
            PollingRelay::new(database, relay, polling, router, encoding)?.start(connect)
        }
    })
}

impl Sending {
    /// Waits until a part of it has ended, which none should, and says why.
    pub async fn ended(&mut self) -> Failed {
        tokio::select! {
            ended = self.relay.finished() => match ended {
                Ok(()) => "the relay ended by itself".into(),
                Err(error) => error_chain(&error).into(),
            },
            Some(ended) = self.senders.join_next() => match ended {
                Ok(Ok(())) => "a sender ended by itself".into(),
                Ok(Err(error)) => error_chain(&error).into(),
                Err(panic) => panic.into(),
            },
        }
    }

    /// Ends it, once what it has begun is done.
    ///
    /// # Errors
    /// When a part of it had failed.
    pub async fn stop(mut self) -> Result<(), Failed> {
        self.relay.stop();
        self.stop.send_replace(true);
        while let Some(ended) = self.senders.join_next().await {
            ended??;
        }
        Ok(self.relay.finished().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_named_as_its_database_as_far_as_it_can_be() {
        assert_eq!(slot("try_shop"), "walpost_try_shop");
        assert_eq!(slot("Try-Shöp"), "walpost_try_sh_p");
        assert_eq!(slot(&"a".repeat(63)), format!("walpost_{}", "a".repeat(55)));
    }
}
