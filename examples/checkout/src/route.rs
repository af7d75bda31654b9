//! `POST /checkouts`, in leased mode: what a provider did cannot be rolled back.

use std::time::Duration;

use axum::{
    Router,
    body::Bytes,
    extract::State as Of,
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::json;
use walpost_idempotency::{
    AfterExpiry, Mode, Policy, PolicyError,
    http::{Database, IdempotencyLayer, Run},
};

use crate::{
    advance::{By, Ended, Shop},
    checkout::{Checkout, Order, State},
    failpoint::Failpoint,
    table::NewCheckout,
};

/// Whose a request is. The gateway in front sets it from what the customer has
/// proved, and lets none pass that comes from outside.
const CUSTOMER: HeaderName = HeaderName::from_static("x-customer");
/// Longer than all calls of a checkout together.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn router(
    shop: Shop,
    database: &walpost_postgres::Database,
) -> Result<Router, PolicyError> {
    let policy = Policy::new("POST /checkouts")
        .mode(Mode::Leased)
        .lease(shop.settings.lease)
        .handler_timeout(HANDLER_TIMEOUT)
        // Who comes back after that gets 410, and is not charged anew.
        .after_expiry(AfterExpiry::Gone);
    let database = Database::config(database.config().clone());
    let layer = IdempotencyLayer::new(database, policy, customer)?;
    Ok(Router::new().route("/checkouts", post(check_out).layer(layer)).with_state(shop))
}

fn customer(request: &Parts) -> Option<String> {
    Some(request.headers.get(CUSTOMER)?.to_str().ok()?.to_owned())
}

async fn check_out(Of(shop): Of<Shop>, run: Run, headers: HeaderMap, body: Bytes) -> Response {
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    };
    let customer = headers.get(CUSTOMER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let new = NewCheckout {
        // The same in each run of this request, also where the first one died
        // before anybody learnt of it.
        id: run.key_for("checkout"),
        customer: customer.to_owned(),
        order,
        charge_key: run.key_for("charge"),
        shipment_key: run.key_for("shipment"),
    };
    // A run that goes on behind another one begins where that has stopped.
    let point = run.recovery_point().unwrap_or(State::Accepted.name()).to_owned();
    let table = shop.table.clone();
    let begun = run.phase(&point, |tx| Box::pin(async move { table.begin(tx, &new).await })).await;
    Failpoint::Committed.reached();
    let checkout = match begun {
        Ok(checkout) => checkout,
        Err(error) => return error.into_response(),
    };
    match shop.advance(By::Run(&run), checkout).await {
        Ok(Ended::Done(checkout)) => ended(&checkout),
        Ok(Ended::Later(checkout)) => later(&checkout),
        Err(error) => error.into_response(),
    }
}

/// What the customer is told for good; it is kept under the key.
fn ended(checkout: &Checkout) -> Response {
    let (status, refund) = match checkout.state {
        State::Shipped => (StatusCode::CREATED, None),
        State::RefundDue => (StatusCode::OK, Some(checkout.order.amount_cents)),
        _ => (StatusCode::PAYMENT_REQUIRED, None),
    };
    let told = json!({
        "checkout": checkout.id,
        "state": checkout.state.name(),
        "shipment": checkout.shipment,
        "refund_cents": refund,
    });
    (status, [(header::CONTENT_TYPE, "application/json")], told.to_string()).into_response()
}

/// 503 is not kept: the same key goes on.
fn later(checkout: &Checkout) -> Response {
    let told = json!({ "checkout": checkout.id, "state": checkout.state.name() });
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, told.to_string()).into_response()
}
