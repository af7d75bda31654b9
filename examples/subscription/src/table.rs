//! The rows, and the events that are written with them.

use std::sync::Arc;

use serde::Serialize;
use tokio_postgres::{Error as PgError, Transaction};
use walpost_event::error_chain;
use walpost_outbox::{Error, NewEvent, OutboxTable, Uuid, walpost_contracts::Contracts, write};

use crate::{Failed, state::State};

/// A user may have any number of subscriptions to a plan, so nothing here could
/// tell a second one that was not asked for. `stray` is what the provider has and
/// nobody here has asked for, or has it after it would not: it stays empty, or
/// somebody has to look.
///
/// The outbox has a column for the path of a request.
pub(crate) const TABLES: &str = "
    select pg_advisory_xact_lock(5002);
    create table if not exists app_user (id text primary key, email_verified boolean not null);
    create table if not exists plan (id text primary key);
    create table if not exists subscription (
        id text primary key,
        user_id text not null references app_user,
        plan_id text not null references plan,
        state text not null default 'pending',
        external_id text unique,
        requested_at timestamptz not null default clock_timestamp());
    create table if not exists stray (
        external_id text primary key,
        reference text not null,
        found_at timestamptz not null default clock_timestamp());
    create table if not exists billing_feed (
        is_only boolean primary key default true check (is_only),
        seen bigint not null);
    alter table walpost.outbox add column if not exists path text;
    insert into plan values ('basic'), ('pro') on conflict do nothing;
    insert into billing_feed values (true, 0) on conflict do nothing";

const REQUESTED: &str = include_str!("../../../docs/events/subscription/subscription-requested.md");
const CHANGED: &str = include_str!("../../../docs/events/subscription/subscription-changed.md");
/// Aggregate type of the events.
const AGGREGATE: &str = "subscription";

/// What the provider is asked for: the body of the request.
#[derive(Serialize)]
struct Requested<'a> {
    reference: &'a str,
    user_id: &'a str,
}

/// What others are told.
#[derive(Serialize)]
struct Changed<'a> {
    subscription: &'a str,
    user_id: &'a str,
    plan_id: &'a str,
    state: &'static str,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) plan: String,
    pub(crate) state: State,
    pub(crate) external_id: Option<String>,
}

/// The outbox, with its contracts.
pub(crate) fn outbox() -> Result<OutboxTable, Failed> {
    let documents = [("requested.md", REQUESTED), ("changed.md", CHANGED)];
    let documents = documents.map(|(name, text)| (name.into(), text.to_owned()));
    Ok(OutboxTable::default().with_contracts(Arc::new(Contracts::parse(documents)?)))
}

/// Why a user may not have the plan; none where it may.
pub(crate) async fn problem(
    tx: &Transaction<'_>,
    user: &str,
    plan: &str,
) -> Result<Option<&'static str>, PgError> {
    let select = "select (select email_verified from app_user where id = $1), \
                  exists (select from plan where id = $2)";
    let row = tx.query_one(select, &[&user, &plan]).await?;
    Ok(match (row.get::<_, Option<bool>>(0), row.get(1)) {
        (None, _) => Some("unknown_user"),
        (Some(false), _) => Some("email_not_verified"),
        (Some(true), false) => Some("unknown_plan"),
        (Some(true), true) => None,
    })
}

/// Writes the row and the request to the provider; its id.
pub(crate) async fn request(
    tx: &Transaction<'_>,
    outbox: &OutboxTable,
    user: &str,
    plan: &str,
) -> Result<String, String> {
    let id = Uuid::now_v7().to_string();
    let insert = "insert into subscription (id, user_id, plan_id) values ($1, $2, $3)";
    tx.execute(insert, &[&id, &user, &plan]).await.map_err(|error| error_chain(&error))?;
    let requested = async {
        let event = NewEvent::new(AGGREGATE, &id, "SubscriptionRequested")
            .column("path", format!("/plan/{plan}/subscribe"))
            .json(&Requested { reference: &id, user_id: user })?;
        write(tx, outbox, &event).await
    };
    requested.await.map_err(|error| error_chain(&error))?;
    Ok(id)
}

/// The row, which nobody else changes until this transaction has ended.
pub(crate) async fn lock(tx: &Transaction<'_>, id: &str) -> Result<Option<Subscription>, PgError> {
    let select = "select user_id, plan_id, state, external_id from subscription where id = $1 \
                  for update";
    let row = tx.query_opt(select, &[&id]).await?;
    Ok(row.map(|row| Subscription {
        id: id.to_owned(),
        user: row.get(0),
        plan: row.get(1),
        state: State::of(row.get(2)).expect("the table has states of ours"),
        external_id: row.get(3),
    }))
}

/// Changes the row.
pub(crate) async fn settle(
    tx: &Transaction<'_>,
    id: &str,
    state: State,
    external_id: &str,
) -> Result<(), PgError> {
    let update = "update subscription set state = $2, external_id = $3 where id = $1";
    tx.execute(update, &[&id, &state.name(), &external_id]).await?;
    Ok(())
}

/// Tells others of a change.
pub(crate) async fn tell(
    tx: &Transaction<'_>,
    outbox: &OutboxTable,
    of: &Subscription,
    state: State,
) -> Result<(), Error> {
    let Subscription { id, user, plan, .. } = of;
    let changed = Changed { subscription: id, user_id: user, plan_id: plan, state: state.name() };
    let event = NewEvent::new(AGGREGATE, id, "SubscriptionChanged").json(&changed)?;
    write(tx, outbox, &event).await?;
    Ok(())
}

/// Notes what nobody here has asked for.
pub(crate) async fn note_stray(
    tx: &Transaction<'_>,
    external_id: &str,
    reference: &str,
) -> Result<(), PgError> {
    let insert = "insert into stray (external_id, reference) values ($1, $2) \
                  on conflict do nothing";
    tx.execute(insert, &[&external_id, &reference]).await?;
    Ok(())
}
