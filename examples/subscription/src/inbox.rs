//! The provider's webhooks: verified, taken once, and processed.

use std::time::Duration;

use axum::Router;
use serde::Deserialize;
use tokio_postgres::Transaction;
use walpost_inbox::{Database, Event, Handler, HandlerError, Head, Processor, RetrySchedule};
use walpost_outbox::OutboxTable;
use walpost_webhook::receive::{Place, Receiver, Source};

use crate::{
    Failed,
    news::{News, NewsError, settle},
};

/// Where the provider sends to.
pub(crate) const PATH: &str = "/webhooks/billing";
/// What it signs with. Of an example; yours is in a file or a vault.
pub(crate) const SIGNING_KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

const BILLING: &str = "billing";
const RETRY_EVERY: Duration = Duration::from_millis(500);
const RETRIES: usize = 50;

/// What a webhook says.
#[derive(Deserialize)]
struct Told {
    subscription: News,
}

/// Makes of each webhook what it is in our rows.
pub(crate) struct Billing {
    outbox: OutboxTable,
}

/// Takes webhooks in, and answers; the work is the processor's.
pub(crate) fn receiver(database: &walpost_postgres::Database) -> Result<Router, Failed> {
    let source = Source::standard(BILLING, [SIGNING_KEY.parse()?])
        .related_reference(Place::pointer("/subscription/reference"));
    let database = Database::config(database.config().clone());
    Ok(Receiver::builder(database).inbox(PATH, source).build()?.router())
}

pub(crate) fn processor(
    database: &walpost_postgres::Database,
    outbox: OutboxTable,
) -> Result<Processor<Billing>, Failed> {
    let database = Database::config(database.config().clone());
    let retries = RetrySchedule::new(vec![RETRY_EVERY; RETRIES]);
    // Short, so that what a killed one had claimed is soon claimed again.
    let builder = Processor::builder(database).source(BILLING).retries(retries);
    Ok(builder.handler_timeout_ms(2_000).lease_ms(3_000).handler(Billing { outbox })?)
}

impl Handler for Billing {
    type Work = ();

    fn select(&self, event: &Head) -> Option<()> {
        event.event_type().starts_with("subscription.").then_some(())
    }

    /// Row and event commit together with the state of the webhook.
    async fn process(
        &self,
        tx: &Transaction<'_>,
        (): &(),
        event: &Event,
    ) -> Result<(), HandlerError> {
        let told: Told = event.json()?;
        settle(tx, &self.outbox, &told.subscription).await.map_err(|error| match error {
            NewsError::Database(error) => error.into(),
            NewsError::Outbox(_) => HandlerError::retry("its event cannot be written"),
        })
    }
}
