//! What an operator does about deliveries whose outcome is unknown: the README
//! says it in commands.

use std::{fmt, time::Duration};

use tokio::time::sleep;
use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_webhook::{Deliveries, DeliveryEntry, DeliveryFilter, DeliveryState, Settlement};

use crate::{Failed, mail_server::Spool, mailer::message_id, sender::MAILER};

const AT_A_TIME: u32 = 1_000;
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Operator {
    app: Client,
    mailer: Client,
    spool: Option<Spool>,
    deliveries: Deliveries,
}

/// What became of deliveries that were unknown.
#[derive(Default)]
pub(crate) struct Settled {
    /// The mailer knew, or had not begun.
    known: usize,
    /// The mail server had the mail.
    found: usize,
    /// It had not, and they were sent.
    sent: usize,
    /// Nobody has looked: the mail server is not ours.
    left: Vec<String>,
}

impl Operator {
    pub(crate) async fn new(
        app: &Database,
        mailer: &Database,
        spool: Option<Spool>,
    ) -> Result<Self, Failed> {
        let (app, mailer) = (app.connect().await?, mailer.connect().await?);
        Ok(Self { app, mailer, spool, deliveries: Deliveries::new() })
    }

    /// While a sender and a mailer run, and no mailer of the time in which the
    /// outcomes became unknown: such a one may still be about to hand a mail over.
    pub(crate) async fn settle(&self) -> Result<Settled, Failed> {
        let mut settled = Settled::default();
        // First ask the mailer. It never hands a mail over that it may have handed
        // over before, so that does no harm.
        let unknown = self.unknown().await?;
        self.deliveries.retry(&self.app, &ids(&unknown)).await?;
        let still = self.ended().await?;
        settled.known = unknown.len().saturating_sub(still.len());
        if still.is_empty() {
            return Ok(settled);
        }
        let Some(spool) = &self.spool else {
            settled.left = still.iter().map(|one| message_id(&one.event_id)).collect();
            return Ok(settled);
        };
        // Then ask the mail server, and say what it said.
        let mails = spool.message_ids()?;
        let (found, missing): (Vec<_>, Vec<_>) =
            still.into_iter().partition(|one| mails.contains_key(&message_id(&one.event_id)));
        let arrived = Settlement::Delivered;
        self.deliveries.settle(&self.app, &ids(&found), arrived).await?;
        let events: Vec<&str> = missing.iter().map(|one| &*one.event_id).collect();
        let forget = "delete from mail where event_id = any ($1) and accepted_at is null";
        self.mailer.execute(forget, &[&events]).await?;
        self.deliveries.retry(&self.app, &ids(&missing)).await?;
        let again = self.ended().await?;
        settled.found = found.len();
        settled.sent = missing.len().saturating_sub(again.len());
        settled.left = again.iter().map(|one| message_id(&one.event_id)).collect();
        Ok(settled)
    }

    /// Waits until nothing is on its way, and says what is unknown then.
    async fn ended(&self) -> Result<Vec<DeliveryEntry>, Failed> {
        loop {
            let open = [DeliveryState::Pending, DeliveryState::Sending];
            let filter = DeliveryFilter::new(1).states(open).destination(MAILER);
            if self.deliveries.list(&self.app, &filter).await?.is_empty() {
                return self.unknown().await;
            }
            sleep(POLL).await;
        }
    }

    async fn unknown(&self) -> Result<Vec<DeliveryEntry>, Failed> {
        let filter = DeliveryFilter::new(AT_A_TIME).states([DeliveryState::Unknown]);
        Ok(self.deliveries.list(&self.app, &filter.destination(MAILER)).await?)
    }
}

fn ids(deliveries: &[DeliveryEntry]) -> Vec<i64> {
    deliveries.iter().map(|delivery| delivery.id).collect()
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { known, found, sent, left } = self;
        write!(
            f,
            "settled: {known} by the mailer, {found} found at the mail server, {sent} sent after all"
        )?;
        for id in left {
            write!(f, "\nask the mail server for {id}")?;
        }
        Ok(())
    }
}
