//! Who carries refunds to the provider: what `walpost run` does with
//! `sink.kind = "webhook"`.

use std::time::Duration;

use stand::{Sender, Sending};
use walpost_postgres::Database;
use walpost_webhook::{
    AddressPolicy, Breaker, Destination, Endpoint, Pace, ProcessorSettings, Schedule,
    sink::Subscription,
};

use crate::{Failed, Settings};

/// Name of the destination.
const PAYMENT: &str = "payment";
/// Soon, since one looks on; [`Schedule::erp`] is for hours.
const RETRY_EVERY: Duration = Duration::from_millis(500);
const RETRIES: u32 = 1_000;

/// Each `RefundDue` goes to the provider with its event's id as `Idempotency-Key`,
/// again and again until there is an answer.
pub(crate) fn start(
    database: &Database,
    payment: &str,
    settings: &Settings,
) -> Result<Sending, Failed> {
    let addresses = AddressPolicy::with_private_networks();
    let endpoint = Endpoint::parse(payment, addresses)?.at_path("/refunds")?;
    let mut processor = ProcessorSettings::new(PAYMENT, Destination::new(endpoint));
    processor.client.timeout = settings.call_timeout;
    processor.policy.schedule = Schedule::fixed(RETRY_EVERY, RETRIES);
    processor.pace = Pace { poll: Duration::from_millis(50), ..Pace::looping() };
    // What was claimed by a process that was killed is sent after this.
    processor.lease = settings.call_timeout + Duration::from_secs(5);
    let wait = Duration::from_millis(500);
    processor.breaker = Some(Breaker { wait, wait_max: wait, ..Breaker::default() });
    let mut refunds = Subscription::new(PAYMENT);
    refunds.events = vec!["RefundDue".to_owned()];
    Sender::new("checkout").to(refunds, processor).start(database)
}
