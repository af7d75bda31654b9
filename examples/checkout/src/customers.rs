//! Customers as they are: they send twins, hear no answer, come again, or never
//! do. There to look on.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use stand::Stop;
use tokio::{task::JoinSet, time::sleep};
use walpost_webhook::{AddressPolicy, Attempt, Client, ClientSettings, Endpoint, Outcome, Request};

use crate::{Failed, checkout::Order};

const AT_A_TIME: usize = 8;
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(40);
const BETWEEN_RETRIES: Duration = Duration::from_millis(300);

/// What a customer does, by its number.
#[derive(Clone, Copy, Debug)]
struct Customer(u64);

impl Customer {
    /// One in ten wants what is sold out.
    fn sku(self) -> &'static str {
        if self.0 % 10 == 3 { "chandelier" } else { "lamp" }
    }

    /// Gives up once it was told of its checkout, however far that is. Before, there
    /// may be none.
    fn never_comes_back(self) -> bool {
        self.0 % 5 == 4
    }

    /// Hears no answer to its first request.
    fn is_impatient(self) -> bool {
        self.0 % 4 == 1
    }

    /// Taps twice.
    fn has_twin(self) -> bool {
        self.0 % 7 == 2
    }
}

/// So many come, a few at a time, each with a key of its own: on a further start
/// they come again, and are told what they were told before.
pub(crate) async fn come(url: String, customers: u64, stop: Stop) -> Result<(), Failed> {
    let mut there = JoinSet::new();
    for number in 0..customers {
        while there.len() >= AT_A_TIME {
            if let Some(gone) = there.join_next().await {
                gone??;
            }
        }
        there.spawn(check_out(url.clone(), Customer(number), stop.clone()));
    }
    while let Some(gone) = there.join_next().await {
        gone??;
    }
    Ok(())
}

async fn check_out(url: String, customer: Customer, stop: Stop) -> Result<(), Failed> {
    let request = request(&url, customer)?;
    let patient = client(PATIENT);
    let coming_again = async {
        if customer.is_impatient() {
            client(IMPATIENT).send(&request).await;
        } else if customer.has_twin() {
            tokio::join!(patient.send(&request), patient.send(&request));
        }
        loop {
            let attempt = patient.send(&request).await;
            if is_final(attempt.outcome) || customer.never_comes_back() && names_one(&attempt) {
                return;
            }
            sleep(BETWEEN_RETRIES).await;
        }
    };
    tokio::select! {
        () = coming_again => {}
        () = stop.requested() => {}
    }
    Ok(())
}

fn is_final(outcome: Outcome) -> bool {
    let Outcome::Answered { status, .. } = outcome else { return false };
    status.is_success() || status == StatusCode::PAYMENT_REQUIRED
}

/// Whether it is the shop's answer, about a checkout that is there.
fn names_one(attempt: &Attempt) -> bool {
    let body = serde_json::from_slice::<Value>(&attempt.body);
    body.is_ok_and(|body| body.get("checkout").is_some())
}

fn client(timeout: Duration) -> Client {
    Client::new(ClientSettings { timeout, ..ClientSettings::default() })
}

fn request(url: &str, customer: Customer) -> Result<Request, Failed> {
    let endpoint = Endpoint::parse(url, AddressPolicy::with_private_networks())?;
    let order = Order {
        sku: customer.sku().to_owned(),
        city: ["Lisbon", "Oslo", "Vienna"][customer.0 as usize % 3].to_owned(),
        amount_cents: 4_900,
        card: "tok_1".to_owned(),
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("x-customer", HeaderValue::from_str(&format!("customer-{}", customer.0))?);
    headers.insert("idempotency-key", HeaderValue::from_str(&format!("\"cart-{}\"", customer.0))?);
    let body = serde_json::to_vec(&order)?.into();
    Ok(Request { endpoint: endpoint.at_path("/checkouts")?, method: Method::POST, headers, body })
}
