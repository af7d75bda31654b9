//! Asks the provider what has changed, for webhooks that never come.

use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use stand::Stop;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;
use walpost_event::error_chain;
use walpost_outbox::OutboxTable;
use walpost_postgres::Database;
use walpost_webhook::{AddressPolicy, Client as Http, ClientSettings, Endpoint, Outcome, Request};

use crate::{
    Failed, Settings,
    news::{News, NewsError, settle},
    requests::authorization,
};

/// The changes of one question.
#[derive(Deserialize)]
struct Changes {
    changes: Vec<News>,
    /// Where to go on; where we were, if nothing has changed.
    seen: i64,
}

/// Asks, and writes down.
pub(crate) struct Reconciler {
    database: Database,
    outbox: OutboxTable,
    http: Http,
    billing: Endpoint,
    settings: Settings,
}

impl Reconciler {
    pub(crate) fn new(
        database: Database,
        outbox: OutboxTable,
        billing: &str,
        settings: Settings,
    ) -> Result<Self, Failed> {
        let addresses = AddressPolicy::with_private_networks();
        let billing = Endpoint::parse(billing, addresses)?;
        let timeout = settings.call_timeout;
        let client =
            ClientSettings { timeout, body_max_bytes: 1 << 20, ..ClientSettings::default() };
        Ok(Self { database, outbox, http: Http::new(client), billing, settings })
    }

    /// Until it is told to stop.
    pub(crate) async fn run(self, stop: Stop) {
        let mut tick = interval(self.settings.reconcile_every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.requested() => return,
                _ = tick.tick() => {}
            }
            if let Err(error) = self.catch_up().await {
                let error = error_chain(&*error);
                tracing::warn!(error, "the provider's changes are not written down");
            }
        }
    }

    async fn catch_up(&self) -> Result<(), Failed> {
        let mut client = self.database.connect().await?;
        while self.step(&mut client).await? {}
        Ok(())
    }

    /// Changes and how far we have seen are one transaction; the call is made
    /// before it. Whether there was anything.
    async fn step(&self, client: &mut Client) -> Result<bool, Failed> {
        let seen: i64 = client.query_one("select seen from billing_feed", &[]).await?.get(0);
        let Changes { changes, seen: now } = self.ask(seen).await?;
        if changes.is_empty() {
            return Ok(false);
        }
        let tx = client.transaction().await?;
        for news in &changes {
            settle(&tx, &self.outbox, news).await.map_err(|error| match error {
                NewsError::Database(error) => Failed::from(error),
                NewsError::Outbox(error) => error.into(),
            })?;
        }
        // Another one beside us has gone on: what we have then changes nothing.
        let update = "update billing_feed set seen = greatest(seen, $1)";
        tx.execute(update, &[&now]).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn ask(&self, seen: i64) -> Result<Changes, Failed> {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", authorization());
        let endpoint = self.billing.at_path(&format!("/changes/{seen}"))?;
        let request =
            Request { endpoint, method: Method::GET, headers, body: [].as_slice().into() };
        let attempt = self.http.send(&request).await;
        match attempt.outcome {
            Outcome::Answered { status: StatusCode::OK, .. } => {
                Ok(serde_json::from_slice(&attempt.body)?)
            }
            other => Err(format!("the provider says {other}").into()),
        }
    }
}
