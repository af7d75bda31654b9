//! The sender of webhooks, as `walpost run` is: from the outbox to the mailer, and
//! no second attempt where the first may have had its effect.

use std::time::Duration;

use stand::{Sender, Sending};
use walpost_postgres::Database;
use walpost_webhook::{
    AddressPolicy, Destination, Endpoint, OnUnknownOutcome, ProcessorSettings, Schedule, Secret,
    sink::Subscription,
};

use crate::Failed;

/// The one destination.
pub(crate) const MAILER: &str = "mailer";
/// Longer than the mailer takes.
const LIMIT: Duration = Duration::from_secs(15);
/// The least for that limit: then nobody knows what became of a delivery whose
/// sender was killed.
const LEASE: Duration = Duration::from_secs(20);
const WAITS_S: [u64; 9] = [1, 2, 5, 10, 30, 300, 1_800, 14_400, 14_400];
/// So many are in question where a sender is killed.
const CONCURRENCY: u32 = 4;

/// Sends what is in the outbox to the mailer at `url`.
pub(crate) fn start(database: &Database, url: &str, key: &str) -> Result<Sending, Failed> {
    let addresses = AddressPolicy::with_private_networks();
    let mut destination = Destination::new(Endpoint::parse(url, addresses)?);
    destination.signing_keys = vec![Secret::Text(key.to_owned())];
    let mut settings = ProcessorSettings::new(MAILER, destination);
    settings.client.timeout = LIMIT;
    settings.lease = LEASE;
    settings.pace.concurrency = CONCURRENCY;
    settings.policy.schedule = Schedule::new(WAITS_S.map(Duration::from_secs));
    settings.policy.on_unknown_outcome = OnUnknownOutcome::Hold;
    let mut subscription = Subscription::new(MAILER);
    subscription.events = vec!["account.created".to_owned()];
    Sender::new("signup").to(subscription, settings).start(database)
}
