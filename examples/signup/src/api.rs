//! The service that signs up: the account, its event and the answer are one
//! transaction.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::{Config, Transaction};
use walpost_idempotency::{
    AfterExpiry, InFlight, Policy,
    http::{Database, IdempotencyLayer, Tx, TxError},
};
use walpost_outbox::{NewEvent, OutboxTable, walpost_contracts::Contracts, write};

use crate::Failed;

pub(crate) const TABLES: &str = "
    create table if not exists account (
        id bigint generated always as identity primary key,
        email text not null,
        name text not null,
        created_at timestamptz not null default now());
    create unique index if not exists account_email on account (lower(email))";

/// The aggregate type.
const AGGREGATE: &str = "account";
/// What this service and its readers agree on.
const ACCOUNT_CREATED: &str = include_str!("../../../docs/events/accounts/account-created.md");
const NAME_MAX_CHARS: usize = 100;

/// What a client sends.
#[derive(Deserialize)]
struct SignUp {
    email: String,
    name: String,
}

/// What readers of the event need to know.
#[derive(Serialize)]
struct AccountCreated<'a> {
    account_id: i64,
    email: &'a str,
    name: &'a str,
}

/// `POST /signup`, as far as it goes within the database.
pub(crate) fn router(config: Config) -> Result<Router, Failed> {
    let contracts = Contracts::parse([("account-created.md".into(), ACCOUNT_CREATED.to_owned())])?;
    let outbox = OutboxTable::default().with_contracts(Arc::new(contracts));
    let policy = Policy::new("POST /signup")
        // Whoever taps twice gets both answers, and both are the same.
        .in_flight(InFlight::Wait)
        // Behind 24 hours a key is not new again: its account is there.
        .after_expiry(AfterExpiry::Gone);
    // Nobody is authenticated who signs up, so all share one principal: see the
    // README for what follows from that.
    let anyone = |_: &_| Some("anyone".to_owned());
    let layer = IdempotencyLayer::new(Database::config(config), policy, anyone)?;
    Ok(Router::new().route("/signup", post(sign_up).layer(layer)).with_state(outbox))
}

async fn sign_up(
    State(outbox): State<OutboxTable>,
    tx: Tx,
    Json(wanted): Json<SignUp>,
) -> Result<Response, TxError> {
    if !wanted.is_fit() {
        let detail = "an address that mail can be sent to, and a name of 1 to 100 characters";
        return Ok(problem(StatusCode::UNPROCESSABLE_ENTITY, "unfit", detail));
    }
    let created = tx.run(move |tx| Box::pin(async move { create(tx, &outbox, &wanted).await }));
    let Some(account_id) = created.await? else {
        let detail = "there is an account with this address";
        return Ok(problem(StatusCode::CONFLICT, "email-taken", detail));
    };
    Ok((StatusCode::CREATED, Json(json!({ "account_id": account_id }))).into_response())
}

/// The account and its event; none where the address has an account. Nothing of
/// it is there before the layer has stored the answer and committed.
async fn create(
    tx: &Transaction<'_>,
    outbox: &OutboxTable,
    SignUp { email, name }: &SignUp,
) -> Result<Option<i64>, TxError> {
    // Of two keys with one address the second waits here for the first.
    let insert = "insert into account (email, name) values ($1, $2) \
                  on conflict (lower(email)) do nothing returning id";
    let Some(row) = tx.query_opt(insert, &[email, name]).await? else { return Ok(None) };
    let account_id: i64 = row.get(0);
    let payload = AccountCreated { account_id, email, name };
    let event = NewEvent::new(AGGREGATE, account_id.to_string(), "account.created").json(&payload);
    write(tx, outbox, &event.map_err(refused)?).await.map_err(refused)?;
    Ok(Some(account_id))
}

fn refused(error: walpost_outbox::Error) -> TxError {
    TxError::Database { is_transient: error.is_transient(), detail: error.to_string() }
}

impl SignUp {
    fn is_fit(&self) -> bool {
        let name = self.name.chars().count();
        (1..=NAME_MAX_CHARS).contains(&name)
            && !self.name.chars().any(char::is_control)
            && self.email.parse::<lettre::Address>().is_ok()
    }
}

/// RFC 9457.
fn problem(status: StatusCode, kind: &str, detail: &str) -> Response {
    let body = json!({ "type": kind, "status": status.as_u16(), "detail": detail });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
