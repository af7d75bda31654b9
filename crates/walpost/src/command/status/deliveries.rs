//! What became of events that are sent as webhooks.

use serde::Serialize;
use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_webhook::{Deliveries, DeliveryEntry, DeliveryFilter, DeliveryState, StoreError};

use crate::{
    command::{grants::with_role, webhook},
    failure::Failure,
    table::thousands,
};

/// Deliveries of one event that are shown at most.
const SHOWN_MAX: u32 = 1_000;

/// What is not done of all destinations, up to 10,000 of each state and destination.
#[derive(Debug, Default, Serialize)]
pub(super) struct Backlog {
    pending: u64,
    sending: u64,
    failed: u64,
    held: u64,
    unknown: u64,
}

/// What can be said of the deliveries.
#[derive(Debug)]
pub(super) enum Seen {
    /// There are no tables of deliveries.
    NoTables,
    /// The role may not look at them; with what to do.
    Denied(String),
    Backlog(Backlog),
}

impl Seen {
    pub(super) async fn look(
        client: &Client,
        database: &Database,
        schema: &str,
    ) -> Result<Self, Failure> {
        let there = "select exists (select from pg_class c join pg_namespace n \
                     on n.oid = c.relnamespace \
                     where n.nspname = $1 and c.relname = 'webhook_delivery')";
        let there = client.query_one(there, &[&schema]).await.map_err(Failure::postgres)?;
        if !there.get::<_, bool>(0) {
            return Ok(Self::NoTables);
        }
        let all = match Deliveries::in_schema(schema).backlog(client).await {
            Ok(all) => all,
            Err(StoreError::NotMigrated { .. }) => return Ok(Self::NoTables),
            Err(error @ StoreError::Denied { .. }) => {
                return Ok(Self::Denied(with_role(&error.to_string(), database)));
            }
            Err(error) => return Err(webhook::failure(error)),
        };
        let mut sum = Backlog::default();
        for one in &all {
            sum.pending += one.pending;
            sum.sending += one.sending;
            sum.failed += one.failed;
            sum.held += one.held;
            sum.unknown += one.unknown;
        }
        Ok(Self::Backlog(sum))
    }

    pub(super) fn backlog(self) -> Option<Backlog> {
        match self {
            Self::Backlog(backlog) => Some(backlog),
            Self::NoTables | Self::Denied(_) => None,
        }
    }

    /// A line for people; empty where there is nothing to say.
    pub(super) fn line(&self) -> String {
        match self {
            Self::NoTables => String::new(),
            Self::Denied(why) => format!("deliveries not known: {why}\n"),
            Self::Backlog(one) if one.failed + one.held + one.unknown == 0 => {
                "deliveries none failed, held or unknown\n".to_owned()
            }
            Self::Backlog(one) => format!(
                "deliveries {} failed, {} held, {} unknown; `walpost webhook list` says of which \
                 destinations, and what to do\n",
                thousands(one.failed),
                thousands(one.held),
                thousands(one.unknown)
            ),
        }
    }
}

/// Those of an event, under any of the texts of its id, also from the archive.
pub(super) async fn of_event(
    client: &Client,
    database: &Database,
    deliveries: &Deliveries,
    ids: &[String],
) -> Result<Vec<DeliveryEntry>, Failure> {
    let mut found: Vec<DeliveryEntry> = Vec::new();
    for id in ids {
        let filter = DeliveryFilter::new(SHOWN_MAX).event_id(id);
        let listed = deliveries.list(client, &filter).await;
        found.extend(listed.map_err(|error| webhook::failure(error).for_role(database))?);
    }
    found.sort_by_key(|entry| entry.id);
    found.dedup_by_key(|entry| entry.id);
    Ok(found)
}

/// What became of an event that has deliveries: one word, and how many of them are
/// how far.
pub(super) fn told(entries: &[DeliveryEntry]) -> (&'static str, String) {
    let states: Vec<DeliveryState> = entries.iter().map(|entry| entry.state).collect();
    let of = |state: DeliveryState| states.iter().filter(|one| **one == state).count();
    let word = match states.len() {
        all if of(DeliveryState::Delivered) == all => "delivered",
        _ if of(DeliveryState::Failed) > 0 => "failed",
        _ => "undelivered",
    };
    let counts = DeliveryState::ALL.map(|state| (of(state), state));
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, state)| format!("{count} {state}")).collect();
    let detail = format!(
        "its deliveries: {}; `walpost webhook show ID` has the attempts",
        counts.join(", ")
    );
    (word, detail)
}
