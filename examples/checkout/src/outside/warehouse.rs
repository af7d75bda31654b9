use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::post,
};
use serde::Deserialize;
use serde_json::json;
use stand::{ANSWERS, Answered, Faults, Stand, bad_request, key, once, response};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, Transaction};

use crate::Failed;

/// No unique key but the id: a second shipment would show.
const TABLES: &str = "
    create table if not exists stock (sku text primary key, pieces bigint not null);
    insert into stock values ('lamp', 1000000) on conflict do nothing;
    create table if not exists shipment (
        id bigint generated always as identity primary key,
        reference text not null,
        sku text not null,
        city text not null)";

/// Ships what it has. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Warehouse {
    client: Arc<Mutex<Client>>,
    faults: Faults,
}

#[derive(Deserialize)]
struct AskShipment {
    reference: String,
    sku: String,
    city: String,
}

impl Warehouse {
    pub(crate) async fn open(stand: &Stand, faults: Faults) -> Result<Self, Failed> {
        let tables = format!("{TABLES};{ANSWERS}");
        let database = stand.database("warehouse", [], &tables).await?;
        Ok(Self { client: Arc::new(Mutex::new(database.connect().await?)), faults })
    }

    pub(crate) fn router(self) -> Router {
        let faults = self.faults.router();
        Router::new().route("/shipments", post(ship)).with_state(self).merge(faults)
    }
}

async fn ship(State(warehouse): State<Warehouse>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(ask) = serde_json::from_slice::<AskShipment>(&body) else { return bad_request() };
    let Some(key) = key(&headers) else { return bad_request() };
    let faults = warehouse.faults.clone();
    let work = async move {
        let mut client = warehouse.client.lock().await;
        let request = String::from_utf8_lossy(&body);
        let work = async |tx: &Transaction<'_>| insert_shipment(tx, &ask).await;
        response(once(&mut client, &key, &request, work).await)
    };
    faults.around(work).await
}

async fn insert_shipment(tx: &Transaction<'_>, ask: &AskShipment) -> Result<Answered, Error> {
    let take = "update stock set pieces = pieces - 1 where sku = $1 and pieces > 0";
    if tx.execute(take, &[&ask.sku]).await? == 0 {
        return Ok((StatusCode::CONFLICT, json!({ "problem": "out_of_stock" })));
    }
    let insert = "insert into shipment (reference, sku, city) values ($1, $2, $3) returning id";
    let id: i64 = tx.query_one(insert, &[&ask.reference, &ask.sku, &ask.city]).await?.get(0);
    Ok((StatusCode::CREATED, json!({ "id": id.to_string() })))
}
