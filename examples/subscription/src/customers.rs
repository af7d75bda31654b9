//! Users as they are: they send twins, hear no answer and come again. There to
//! look on.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use stand::Stop;
use tokio::{task::JoinSet, time::sleep};
use walpost_postgres::Database;
use walpost_webhook::{AddressPolicy, Client, ClientSettings, Endpoint, Outcome, Request};

use crate::Failed;

const AT_A_TIME: usize = 8;
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(15);
const BETWEEN_RETRIES: Duration = Duration::from_millis(300);

/// What a user does, by its number.
#[derive(Clone, Copy, Debug)]
struct User(u64);

impl User {
    /// Of one in ten the card is refused.
    fn name(self) -> String {
        let poor = if self.0 % 10 == 3 { "-poor" } else { "" };
        format!("user-{}{poor}", self.0)
    }

    /// Hears no answer to the first request.
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
pub(crate) async fn come(
    database: Database,
    url: String,
    users: u64,
    stop: Stop,
) -> Result<(), Failed> {
    let client = database.connect().await?;
    let names: Vec<String> = (0..users).map(|number| User(number).name()).collect();
    let insert = "insert into app_user select name, true from unnest($1::text[]) name \
                  on conflict do nothing";
    client.execute(insert, &[&names]).await?;
    let mut there = JoinSet::new();
    for number in 0..users {
        while there.len() >= AT_A_TIME {
            if let Some(gone) = there.join_next().await {
                gone??;
            }
        }
        there.spawn(subscribe(url.clone(), User(number), stop.clone()));
    }
    while let Some(gone) = there.join_next().await {
        gone??;
    }
    Ok(())
}

async fn subscribe(url: String, user: User, stop: Stop) -> Result<(), Failed> {
    let request = request(&url, user)?;
    let patient = client(PATIENT);
    let coming_again = async {
        if user.is_impatient() {
            client(IMPATIENT).send(&request).await;
        } else if user.has_twin() {
            tokio::join!(patient.send(&request), patient.send(&request));
        }
        loop {
            let outcome = patient.send(&request).await.outcome;
            if matches!(outcome, Outcome::Answered { status, .. } if status.is_success()) {
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

fn client(timeout: Duration) -> Client {
    Client::new(ClientSettings { timeout, ..ClientSettings::default() })
}

fn request(url: &str, user: User) -> Result<Request, Failed> {
    let endpoint = Endpoint::parse(url, AddressPolicy::with_private_networks())?;
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("x-user", HeaderValue::from_str(&user.name())?);
    headers.insert("idempotency-key", HeaderValue::from_static("\"first-subscription\""));
    let body = br#"{"plan":"basic"}"#.as_slice().into();
    Ok(Request {
        endpoint: endpoint.at_path("/subscriptions")?,
        method: Method::POST,
        headers,
        body,
    })
}
