use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use stand::{ANSWERS, Answered, Faults, Stand, bad_request, key, once, response};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, Row, Transaction};
use walpost_postgres::Database;

use super::telling::{self, Whims, enqueue};
use crate::{Failed, failpoint::Failpoint, requests::authorization};

/// No unique key but the id: a second subscription would show. `change` rises with
/// each change of any of them.
const TABLES: &str = "
    create sequence if not exists change;
    create table if not exists subscription (
        id bigint generated always as identity primary key,
        reference text not null,
        user_id text not null,
        plan_id text not null,
        state text not null,
        change bigint not null default nextval('change'))";

/// Users whose card is refused.
const POOR: &str = "-poor";
const CHANGES_MAX: i64 = 100;

/// Has subscriptions. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Billing {
    database: Database,
    client: Arc<Mutex<Client>>,
    faults: Faults,
    whims: Whims,
}

#[derive(Deserialize)]
struct Ask {
    reference: String,
    user_id: String,
}

impl Billing {
    /// One in `whims_every` of its webhooks is odd.
    pub(crate) async fn open(
        stand: &Stand,
        faults: Faults,
        whims_every: u64,
    ) -> Result<Self, Failed> {
        let tables = format!("{TABLES};{};{ANSWERS}", telling::TABLES);
        let database = stand.database("billing", [], &tables).await?;
        let client = Arc::new(Mutex::new(database.connect().await?));
        Ok(Self { database, client, faults, whims: Whims::new(whims_every) })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn router(self) -> Router {
        let (faults, whims) = (self.faults.router(), self.whims.router());
        Router::new()
            .route("/plan/{plan}/subscribe", post(subscribe))
            .route("/subscriptions/{reference}/cancel", post(cancel))
            .route("/changes/{seen}", get(changes))
            .with_state(self)
            .merge(faults)
            .merge(whims)
    }
}

fn is_ours(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|value| *value == authorization())
}

async fn subscribe(
    State(billing): State<Billing>,
    Path(plan): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_ours(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(ask) = serde_json::from_slice::<Ask>(&body) else { return bad_request() };
    let Some(key) = key(&headers) else { return bad_request() };
    let faults = billing.faults.clone();
    let work = async move {
        let mut client = billing.client.lock().await;
        let request = format!("{plan} {}", String::from_utf8_lossy(&body));
        let work = async |tx: &Transaction<'_>| insert(tx, &billing.whims, &plan, &ask).await;
        let done = once(&mut client, &key, &request, work).await;
        Failpoint::Subscribed.reached();
        response(done)
    };
    faults.around(work).await
}

async fn insert(
    tx: &Transaction<'_>,
    whims: &Whims,
    plan: &str,
    ask: &Ask,
) -> Result<Answered, Error> {
    let state = if ask.user_id.ends_with(POOR) { "failed" } else { "active" };
    let insert = "insert into subscription (reference, user_id, plan_id, state) \
                  values ($1, $2, $3, $4) returning id, reference, state, change";
    let row = tx.query_one(insert, &[&ask.reference, &ask.user_id, &plan, &state]).await?;
    enqueue(tx, whims, &webhook(&row)).await?;
    // What came of it the webhook tells.
    Ok((StatusCode::ACCEPTED, json!({ "status": "accepted" })))
}

/// As somebody at the provider does it.
async fn cancel(State(billing): State<Billing>, Path(reference): Path<String>) -> Response {
    let mut client = billing.client.lock().await;
    let cancelled = async {
        let tx = client.transaction().await?;
        let update = "update subscription set state = 'cancelled', change = nextval('change') \
                      where reference = $1 returning id, reference, state, change";
        for row in tx.query(update, &[&reference]).await? {
            enqueue(&tx, &billing.whims, &webhook(&row)).await?;
        }
        tx.commit().await?;
        Ok((StatusCode::OK, json!({})))
    };
    response(cancelled.await)
}

/// What has changed behind that one, in order.
async fn changes(
    State(billing): State<Billing>,
    Path(seen): Path<i64>,
    headers: HeaderMap,
) -> Response {
    if !is_ours(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let client = billing.client.lock().await;
    let select = "select id, reference, state, change from subscription where change > $1 \
                  order by change limit $2";
    let found = client.query(select, &[&seen, &CHANGES_MAX]).await.map(|rows| {
        let seen = rows.last().map_or(seen, |row| row.get(3));
        let changes: Vec<Value> = rows.iter().map(news).collect();
        (StatusCode::OK, json!({ "changes": changes, "seen": seen }))
    });
    response(found)
}

fn news(row: &Row) -> Value {
    let (id, reference, state): (i64, &str, &str) = (row.get(0), row.get(1), row.get(2));
    json!({ "id": id.to_string(), "reference": reference, "state": state })
}

fn webhook(row: &Row) -> String {
    let state: &str = row.get(2);
    json!({ "type": format!("subscription.{state}"), "subscription": news(row) }).to_string()
}
