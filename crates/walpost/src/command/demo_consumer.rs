use serde::Deserialize;
use walpost_consumer::{
    Consumer, Database, Error, Event, Handler, HandlerError, OnReset, SliceError,
    tokio_postgres::Transaction,
};

use crate::{
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
    log,
    signals::Signals,
};

/// A broker refuses shorter ones unless told otherwise.
pub(crate) const SESSION_TIMEOUT_MS: u64 = 6_000;

/// The consumer of `walpost demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Topic to read
    #[arg(long)]
    topic: String,
    /// Name of the consumer, and of its group
    #[arg(long)]
    name: String,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let database = config.database()?;
    log::start(&config)?;
    let mut signals = Signals::listen()?;
    let connect = move || {
        let database = database.clone();
        async move { database.connect().await }
    };
    let consumer = Consumer::builder(&args.name)
        .kafka_settings(config.kafka_client()?)
        .topics([&args.topic])
        .database(Database::connect_with(connect))
        .on_reset(OnReset::Rerun)
        .session_timeout_ms(SESSION_TIMEOUT_MS)
        .handler(Shipping)
        .map_err(|error| Failure::new(Exit::Configuration, error))?;
    let stopped = async {
        let signal = signals.next().await;
        tracing::info!(signal, "stopping");
    };
    consumer.run(stopped).await.map_err(|error| {
        let exit = match &error {
            Error::Setting { .. } => Exit::Configuration,
            Error::Database { .. } | Error::NotMigrated { .. } | Error::NotGranted { .. } => {
                Exit::Postgres
            }
            Error::Kafka { .. } => Exit::Kafka,
            _ => Exit::Running,
        };
        Failure::new(exit, error)
    })
}

/// Books a shipment for every event. Its table has no unique key, so an effect
/// that is made twice shows.
struct Shipping;

#[derive(Deserialize)]
struct Change<'event> {
    order: &'event str,
    sequence: i64,
}

impl Handler for Shipping {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let (mut ids, mut orders, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
        for (index, event) in events.iter().enumerate() {
            let change: Change<'_> = event.json().map_err(|error| SliceError::at(index, error))?;
            ids.push(event.id());
            orders.push(change.order);
            sequences.push(change.sequence);
        }
        tx.execute(
            "insert into shipment (event_id, order_id, sequence)
             select e.event_id, e.order_id, e.sequence
             from unnest($1::text[], $2::text[], $3::bigint[])
                 with ordinality e (event_id, order_id, sequence, place)
             order by e.place",
            &[&ids, &orders, &sequences],
        )
        .await?;
        Ok(())
    }
}
