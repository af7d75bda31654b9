use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use stand::{ANSWERS, Answered, Faults, Stand, bad_request, key, once, response};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, Transaction};

use crate::Failed;

/// No unique key but the id: a second charge would show.
const TABLES: &str = "
    create table if not exists charge (
        id bigint generated always as identity primary key,
        reference text not null,
        amount_cents bigint not null,
        charged_at timestamptz not null default now());
    create table if not exists refund (
        id bigint generated always as identity primary key,
        charge bigint not null references charge,
        reference text not null,
        amount_cents bigint not null)";

/// A card that is refused.
const REFUSED_CARD: &str = "empty";

/// Charges cards. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Payment {
    client: Arc<Mutex<Client>>,
    faults: Faults,
    /// Otherwise each request is a new one, as with many older providers.
    knows_keys: bool,
}

#[derive(Deserialize)]
struct AskCharge {
    reference: String,
    amount_cents: i64,
    card: String,
}

#[derive(Deserialize)]
struct AskRefund {
    reference: String,
    charge: String,
    amount_cents: i64,
}

impl Payment {
    pub(crate) async fn open(
        stand: &Stand,
        faults: Faults,
        knows_keys: bool,
    ) -> Result<Self, Failed> {
        let tables = format!("{TABLES};{ANSWERS}");
        let database = stand.database("payment", [], &tables).await?;
        let client = Arc::new(Mutex::new(database.connect().await?));
        Ok(Self { client, faults, knows_keys })
    }

    pub(crate) fn router(self) -> Router {
        let faults = self.faults.router();
        Router::new()
            .route("/charges", post(charge))
            .route("/charges/{reference}", get(look_up))
            .route("/refunds", post(refund))
            .with_state(self)
            .merge(faults)
    }
}

async fn charge(State(payment): State<Payment>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(ask) = serde_json::from_slice::<AskCharge>(&body) else { return bad_request() };
    let Some(key) = key(&headers) else { return bad_request() };
    let faults = payment.faults.clone();
    let work = async move {
        let mut client = payment.client.lock().await;
        if payment.knows_keys {
            let request = String::from_utf8_lossy(&body);
            let work = async |tx: &Transaction<'_>| insert_charge(tx, &ask).await;
            return response(once(&mut client, &key, &request, work).await);
        }
        let unkeyed = async {
            let tx = client.transaction().await?;
            let answer = insert_charge(&tx, &ask).await?;
            tx.commit().await?;
            Ok(answer)
        };
        response(unkeyed.await)
    };
    faults.around(work).await
}

async fn insert_charge(tx: &Transaction<'_>, ask: &AskCharge) -> Result<Answered, Error> {
    if ask.card == REFUSED_CARD {
        return Ok((StatusCode::PAYMENT_REQUIRED, json!({ "problem": "card_refused" })));
    }
    let insert = "insert into charge (reference, amount_cents) values ($1, $2) returning id";
    let id: i64 = tx.query_one(insert, &[&ask.reference, &ask.amount_cents]).await?.get(0);
    Ok((StatusCode::CREATED, json!({ "id": id.to_string() })))
}

async fn look_up(State(payment): State<Payment>, Path(reference): Path<String>) -> Response {
    let client = payment.client.lock().await;
    let select = "select id from charge where reference = $1 order by id";
    let found = client.query(select, &[&reference]).await.map(|rows| {
        let id = |row: &tokio_postgres::Row| json!({ "id": row.get::<_, i64>(0).to_string() });
        let charges: Vec<Value> = rows.iter().map(id).collect();
        (StatusCode::OK, json!({ "charges": charges }))
    });
    response(found)
}

async fn refund(State(payment): State<Payment>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(ask) = serde_json::from_slice::<AskRefund>(&body) else { return bad_request() };
    let (Some(key), Ok(charge)) = (key(&headers), ask.charge.parse::<i64>()) else {
        return bad_request();
    };
    let faults = payment.faults.clone();
    let work = async move {
        let mut client = payment.client.lock().await;
        // A provider without keys knows a refund by its charge, which has one.
        let key = if payment.knows_keys { key } else { format!("refund of {charge}") };
        let request = String::from_utf8_lossy(&body);
        let work = async |tx: &Transaction<'_>| insert_refund(tx, charge, &ask).await;
        response(once(&mut client, &key, &request, work).await)
    };
    faults.around(work).await
}

async fn insert_refund(
    tx: &Transaction<'_>,
    charge: i64,
    ask: &AskRefund,
) -> Result<Answered, Error> {
    let insert = "insert into refund (charge, reference, amount_cents) \
                  select id, reference, $3 from charge where id = $1 and reference = $2 \
                  returning id";
    let made = tx.query_opt(insert, &[&charge, &ask.reference, &ask.amount_cents]).await?;
    Ok(match made {
        Some(row) => (StatusCode::CREATED, json!({ "id": row.get::<_, i64>(0).to_string() })),
        None => (StatusCode::NOT_FOUND, json!({ "problem": "no_such_charge" })),
    })
}
