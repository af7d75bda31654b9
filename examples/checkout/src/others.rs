//! How the payment provider and the warehouse are asked, and what their answers
//! mean.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use walpost_webhook::{
    AddressPolicy, Attempt, Client, ClientSettings, Endpoint, EndpointError, Outcome, Request,
};

use crate::{checkout::Checkout, failpoint::Failpoint};

/// What came of a request that has an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It is done, and this is what it is known by.
    Done(String),
    /// It will never be done, and under this key it stays so.
    Refused,
    /// It has not gone out.
    NotSent,
    /// It is done or not: there was no answer, or one that says neither.
    Unknown,
}

/// What a look has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This charge.
    Charge(String),
    /// No charge so far.
    Nothing,
    /// Nobody has answered.
    Unknown,
}

/// Somebody with an HTTP API.
#[derive(Clone, Debug)]
struct Api {
    client: Client,
    url: Endpoint,
}

/// Whoever charges cards.
#[derive(Clone, Debug)]
pub(crate) struct Payment(Api);

/// Whoever ships.
#[derive(Clone, Debug)]
pub(crate) struct Warehouse(Api);

#[derive(Serialize)]
struct AskCharge<'a> {
    reference: &'a str,
    amount_cents: i64,
    card: &'a str,
}

#[derive(Serialize)]
struct AskShipment<'a> {
    reference: &'a str,
    sku: &'a str,
    city: &'a str,
}

#[derive(Deserialize)]
struct Made {
    id: String,
}

#[derive(Deserialize)]
struct Charges {
    charges: Vec<Made>,
}

impl Payment {
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, EndpointError> {
        Ok(Self(Api::new(url, timeout)?))
    }

    /// Asks for a charge.
    pub(crate) async fn charge(&self, checkout: &Checkout) -> Reply {
        let Checkout { id, order, .. } = checkout;
        let ask = AskCharge { reference: id, amount_cents: order.amount_cents, card: &order.card };
        self.0.ask("/charges", &checkout.charge_key, &ask, StatusCode::PAYMENT_REQUIRED).await
    }

    /// Asks which charge there is under the checkout's id.
    pub(crate) async fn look_up(&self, checkout: &Checkout) -> Found {
        let path = format!("/charges/{}", checkout.id);
        let attempt = self.0.send(Method::GET, &path, None, Vec::new()).await;
        let Outcome::Answered { status: StatusCode::OK, .. } = attempt.outcome else {
            return Found::Unknown;
        };
        match serde_json::from_slice::<Charges>(&attempt.body) {
            Ok(found) => match found.charges.into_iter().next() {
                Some(charge) => Found::Charge(charge.id),
                None => Found::Nothing,
            },
            Err(_) => Found::Unknown,
        }
    }
}

impl Warehouse {
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, EndpointError> {
        Ok(Self(Api::new(url, timeout)?))
    }

    /// Asks for a shipment. That it is out of stock is an answer under the key, so
    /// whoever asks again, however late, learns the same.
    pub(crate) async fn ship(&self, checkout: &Checkout) -> Reply {
        let Checkout { id, order, .. } = checkout;
        let ask = AskShipment { reference: id, sku: &order.sku, city: &order.city };
        self.0.ask("/shipments", &checkout.shipment_key, &ask, StatusCode::CONFLICT).await
    }
}

impl Api {
    fn new(url: &str, timeout: Duration) -> Result<Self, EndpointError> {
        let addresses = AddressPolicy::with_private_networks();
        let url = Endpoint::parse(url, addresses)?;
        let settings = ClientSettings { timeout, ..ClientSettings::default() };
        Ok(Self { client: Client::new(settings), url })
    }

    async fn ask(&self, path: &str, key: &str, ask: &impl Serialize, refusal: StatusCode) -> Reply {
        let Ok(body) = serde_json::to_vec(ask) else { return Reply::NotSent };
        Failpoint::Asking.reached();
        let attempt = self.send(Method::POST, path, Some(key), body).await;
        Failpoint::Answered.reached();
        let reply = reply(&attempt, refusal);
        if matches!(reply, Reply::NotSent | Reply::Unknown) {
            tracing::info!(path, outcome = %attempt.outcome, "no answer that says what was done");
        }
        reply
    }

    async fn send(&self, method: Method, path: &str, key: Option<&str>, body: Vec<u8>) -> Attempt {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            let key = HeaderValue::from_str(key).expect("keys of ours are hexadecimal");
            headers.insert("idempotency-key", key);
        }
        let endpoint = self.url.at_path(path).expect("paths of ours are paths");
        self.client.send(&Request { endpoint, method, headers, body: body.into() }).await
    }
}

fn reply(attempt: &Attempt, refusal: StatusCode) -> Reply {
    match attempt.outcome {
        Outcome::Answered { status, .. } if status.is_success() => {
            match serde_json::from_slice::<Made>(&attempt.body) {
                Ok(made) => Reply::Done(made.id),
                Err(_) => Reply::Unknown,
            }
        }
        Outcome::Answered { status, .. } if status == refusal => Reply::Refused,
        Outcome::Unanswered { sent: false, .. } => Reply::NotSent,
        Outcome::Answered { .. } | Outcome::Unanswered { .. } => Reply::Unknown,
    }
}
