//! Who carries requests to the provider: what `walpost run` does with
//! `sink.kind = "webhook"`.

use std::time::Duration;

use http::HeaderValue;
use stand::{Sender, Sending};
use walpost_postgres::Database;
use walpost_webhook::{
    AddressPolicy, Breaker, Destination, Endpoint, Pace, ProcessorSettings, Schedule, Secret,
    sink::Subscription,
};

use crate::{Failed, Settings};

/// Name of the destination.
const BILLING: &str = "billing";
/// What the provider knows us by. Of an example; yours is in a file or a vault:
/// [`Secret::File`].
pub(crate) const TOKEN: &str = "token-of-an-example";
/// Soon, since one looks on; [`Schedule::erp`] is for hours.
const RETRY_EVERY: Duration = Duration::from_millis(500);
const RETRIES: u32 = 1_000;

/// Each `SubscriptionRequested` goes to the path in its row, with its event's id as
/// `Idempotency-Key` and our token, again and again until there is an answer.
pub(crate) fn start(
    database: &Database,
    billing: &str,
    settings: &Settings,
) -> Result<Sending, Failed> {
    let addresses = AddressPolicy::with_private_networks();
    let mut destination = Destination::new(Endpoint::parse(billing, addresses)?);
    destination.token = Some(Secret::Text(TOKEN.to_owned()));
    let mut processor = ProcessorSettings::new(BILLING, destination);
    processor.client.timeout = settings.call_timeout;
    processor.policy.schedule = Schedule::fixed(RETRY_EVERY, RETRIES);
    processor.pace = Pace { poll: Duration::from_millis(50), ..Pace::looping() };
    // What was claimed by a process that was killed is sent after this.
    processor.lease = settings.call_timeout + Duration::from_secs(5);
    let wait = Duration::from_millis(500);
    processor.breaker = Some(Breaker { wait, wait_max: wait, ..Breaker::default() });
    let mut requests = Subscription::new(BILLING);
    requests.events = vec!["SubscriptionRequested".to_owned()];
    let mut sender = Sender::new("subscription").to(requests, processor);
    sender.columns.path = Some("path".to_owned());
    sender.start(database)
}

/// The same token, for a question of our own.
pub(crate) fn authorization() -> HeaderValue {
    let mut value = HeaderValue::from_str(&format!("Bearer {TOKEN}")).expect("it is ASCII");
    value.set_sensitive(true);
    value
}
