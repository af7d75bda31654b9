use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use walpost_event::error_chain;
use walpost_webhook::{Attempt, Client, Message, Outcome};

use crate::{
    config::Config,
    failure::{Exit, Failure},
    output,
};

const PAYLOAD: &str = r#"{"type":"walpost.test"}"#;

/// Which destination to send to, and what.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Its name in the configuration
    name: String,
    /// What is sent
    #[arg(long, value_name = "TEXT", default_value = PAYLOAD)]
    payload: String,
    /// The key; without it a new one
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// One request as a delivery would be sent, with no row about it.
pub(super) async fn run(config: &Config, args: &Args) -> Result<(), Failure> {
    let webhooks = config.webhooks()?.ok_or_else(|| {
        let text = "sink.kind is \"kafka\", so there are no destinations";
        Failure::found(Exit::Configuration, text).next_step("make it \"webhook\"")
    })?;
    let names: Vec<&str> = webhooks.names().collect();
    let found = webhooks.processors.iter().find(|one| one.name == args.name);
    let Some(of) = found else {
        let text = format!("there is no [destination.{}]", args.name);
        let next_step = format!("name one of these: {}", names.join(", "));
        return Err(Failure::found(Exit::Nothing, &text).next_step(next_step));
    };
    let now = SystemTime::now();
    let key = args.key.clone().unwrap_or_else(|| {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("walpost-test-{}", since.as_millis())
    });
    let message = Message::new(key.clone(), args.payload.clone().into_bytes());
    let request = of.destination.request(&message, now).await.map_err(|error| {
        let text = format!("no request can be made: {}", error_chain(&error));
        let next_step = format!("mend [destination.{}]", args.name);
        Failure::found(Exit::Configuration, &text).next_step(next_step)
    })?;
    let attempt = Client::new(of.client.clone()).send(&request).await;
    if args.json {
        output::print(format_args!("{}\n", as_json(&args.name, &key, &attempt)))?;
    } else {
        output::print(as_text(&args.name, &key, &attempt))?;
    }
    let has_arrived =
        matches!(attempt.outcome, Outcome::Answered { status, .. } if status.is_success());
    match has_arrived {
        true => Ok(()),
        false => {
            let text = format!("{} would not have taken a delivery", args.name);
            Err(Failure::found(Exit::Running, &text).told_in_json())
        }
    }
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn as_json(name: &str, key: &str, attempt: &Attempt) -> serde_json::Value {
    let status = match attempt.outcome {
        Outcome::Answered { status, .. } => Some(status.as_u16()),
        Outcome::Unanswered { .. } => None,
    };
    json!({
        "destination": name,
        "idempotency_key": key,
        "outcome": attempt.outcome.name(),
        "status": status,
        "elapsed_ms": millis(attempt.elapsed),
        "detail": Some(&attempt.detail).filter(|detail| !detail.is_empty()),
        "answer": String::from_utf8_lossy(&attempt.body),
    })
}

fn as_text(name: &str, key: &str, attempt: &Attempt) -> String {
    let Attempt { outcome, detail, body, elapsed, .. } = attempt;
    let mut text = format!("{name}: {outcome} in {} ms, key {key}\n", millis(*elapsed));
    if !detail.is_empty() {
        text.push_str(&format!("{detail}\n"));
    }
    if !body.is_empty() {
        // An answer may have whatever a terminal obeys.
        let shown: String = String::from_utf8_lossy(body)
            .chars()
            .map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c })
            .collect();
        text.push_str(&format!("{}\n", shown.trim_end()));
    }
    text
}
