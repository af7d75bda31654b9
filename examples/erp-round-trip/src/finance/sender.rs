//! The same as `walpost run` with finance-outbox/webhook.toml, or polling.toml of this
//! folder, in this process, with shorter waits and without retention.

use std::{net::SocketAddr, time::Duration};

use stand::{Failed, Sender};
use walpost_relay::PollingConfig;
use walpost_webhook::{
    AddressPolicy, Breaker, Destination, Endpoint, ProcessorSettings, RetryPolicy, Schedule,
    Secret,
    sink::{Columns, Subscription},
};

use crate::settings::{self, KEY, PATH, Source};

const LOGISTICS: &str = "logistics";
/// Eight attempts, the first of which follow each other fast: those of
/// `Schedule::erp` begin with 5 s.
const WAITS_S: [u64; 7] = [1, 5, 30, 300, 1_800, 14_400, 14_400];
const TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The least that there may be: for so long a kill keeps what was claimed.
const LEASE: Duration = Duration::from_secs(7);

pub(super) fn sender(source: Source) -> Result<Sender, Failed> {
    let mut sender = Sender::new("finance");
    sender.relay.tables = vec!["public.finance_outbox".parse()?];
    sender.relay.publication = "finance".to_owned();
    sender.relay.message_prefixes = Vec::new();
    sender.router.event_id = "id".to_owned();
    // There is no order between two events, so each is a key of its own.
    sender.router.event_key = "id".to_owned();
    sender.router.event_type = "event_type".to_owned();
    sender.router.route_by_field = "event_type".to_owned();
    sender.columns = Columns {
        event_type: Some("event_type".to_owned()),
        key: Some("idempotency_key".to_owned()),
        ..Columns::default()
    };
    sender.polling = (source == Source::Polling).then(polling);
    let mut subscription = Subscription::new(LOGISTICS);
    subscription.events = vec!["invoice.*".to_owned()];
    Ok(sender.to(subscription, logistics(settings::logistics()?)?))
}

fn logistics(address: SocketAddr) -> Result<ProcessorSettings, Failed> {
    // Only here: beside us, and without TLS.
    let policy = AddressPolicy::with_private_networks();
    let endpoint = Endpoint::parse(&format!("http://{address}{PATH}"), policy)?;
    let mut destination = Destination::new(endpoint);
    destination.key_headers = vec!["x-idempotency-key".parse()?];
    destination.signing_keys = vec![Secret::Text(KEY.to_owned())];
    let mut settings = ProcessorSettings::new(LOGISTICS, destination);
    settings.client.timeout = TIMEOUT;
    settings.client.connect_timeout = CONNECT_TIMEOUT;
    settings.lease = LEASE;
    settings.policy = RetryPolicy::new(match settings::retry_wait()? {
        Some(wait) => Schedule::fixed(wait, u32::MAX),
        None => Schedule::new(WAITS_S.map(Duration::from_secs)),
    });
    let (wait, wait_max) = (Duration::from_secs(1), Duration::from_secs(2));
    settings.breaker = Some(Breaker { wait, wait_max, ..Breaker::default() });
    Ok(settings)
}

/// The poller is done with a row once its delivery is there, and says `sending`;
/// `delivered` and `failed` come from `walpost.webhook_mark`.
fn polling() -> PollingConfig {
    let mut polling = PollingConfig::default();
    polling.aggregate_columns = Vec::new();
    polling.order_columns = vec!["created_at".to_owned()];
    polling.status_column = "delivery_status".to_owned();
    polling.pending_value = "pending".to_owned();
    polling.published_value = "sending".to_owned();
    polling.failed_value = "failed".to_owned();
    polling.attempts_column = "delivery_attempts".to_owned();
    polling.next_attempt_at_column = "next_attempt_at".to_owned();
    polling.last_attempt_at_column = "last_attempt_at".to_owned();
    polling.published_at_column = String::new();
    polling.last_error_column = String::new();
    polling.send_timeout_ms = 2_000;
    polling.claim_timeout_ms = 7_000;
    polling
}
