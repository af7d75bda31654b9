//! `POST /subscriptions`: validated, enqueued and answered; the provider is not
//! called. And where to look afterwards.

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State as Of},
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use walpost_idempotency::{
    AfterExpiry, Policy, PolicyError,
    http::{Database, IdempotencyLayer, Tx, TxError},
};
use walpost_outbox::OutboxTable;

use crate::table;

/// Whose a request is. The gateway in front sets it from what the user has proved,
/// and lets none pass that comes from outside.
const USER: HeaderName = HeaderName::from_static("x-user");

#[derive(Clone, Debug)]
struct Service {
    outbox: OutboxTable,
    database: walpost_postgres::Database,
}

#[derive(Deserialize)]
struct Wanted {
    plan: String,
}

pub(crate) fn router(
    database: &walpost_postgres::Database,
    outbox: OutboxTable,
) -> Result<Router, PolicyError> {
    let policy = Policy::new("POST /subscriptions").after_expiry(AfterExpiry::Gone);
    let pool = Database::config(database.config().clone());
    let layer = IdempotencyLayer::new(pool, policy, |parts: &Parts| user(&parts.headers))?;
    let service = Service { outbox, database: database.clone() };
    Ok(Router::new()
        .route("/subscriptions", post(subscribe).layer(layer))
        .route("/subscriptions/{id}", get(look))
        .with_state(service))
}

fn user(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(USER)?.to_str().ok()?.to_owned())
}

/// Row, request to the provider and this answer are one transaction.
async fn subscribe(Of(service): Of<Service>, tx: Tx, headers: HeaderMap, body: Bytes) -> Response {
    let (Some(user), Ok(wanted)) = (user(&headers), serde_json::from_slice::<Wanted>(&body)) else {
        return answer(StatusCode::BAD_REQUEST, json!({ "problem": "bad_request" }));
    };
    let enqueued = tx.run(move |tx| {
        Box::pin(async move {
            if let Some(problem) = table::problem(tx, &user, &wanted.plan).await? {
                return Ok(Err(problem));
            }
            let request = table::request(tx, &service.outbox, &user, &wanted.plan).await;
            let refused = |detail| TxError::Database { detail, is_transient: false };
            Ok(Ok(request.map_err(refused)?))
        })
    });
    let enqueued: Result<Result<String, &str>, TxError> = enqueued.await;
    match enqueued {
        Ok(Ok(id)) => {
            let place = [(header::LOCATION, format!("/subscriptions/{id}"))];
            let told = json!({ "subscription": id, "state": "pending" });
            (place, answer(StatusCode::ACCEPTED, told)).into_response()
        }
        Ok(Err(problem)) => answer(StatusCode::UNPROCESSABLE_ENTITY, json!({ "problem": problem })),
        Err(error) => error.into_response(),
    }
}

async fn look(Of(service): Of<Service>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let user = user(&headers).unwrap_or_default();
    let select = "select state, plan_id from subscription where id = $1 and user_id = $2";
    let Ok(client) = service.database.connect().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    match client.query_opt(select, &[&id, &user]).await {
        Ok(Some(row)) => {
            let (state, plan): (&str, &str) = (row.get(0), row.get(1));
            answer(StatusCode::OK, json!({ "subscription": id, "state": state, "plan": plan }))
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn answer(status: StatusCode, body: Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
