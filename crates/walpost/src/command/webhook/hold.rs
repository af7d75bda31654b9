use serde_json::json;
use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_webhook::{Deliveries, DestinationBacklog, DestinationState};

use super::{destination, failure};
use crate::{
    command::{cells::cell, inbox::utc, sql},
    failure::{Exit, Failure},
    output,
    table::thousands,
};

/// After so many batches there is a line about how far it is.
const TOLD_BATCHES: u64 = 10;
const REASON_MAX_CHARS: usize = 500;

/// Which destination to disable.
#[derive(Debug, clap::Args)]
pub(super) struct HoldArgs {
    /// Its name
    name: String,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Which destination to enable.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// Its name
    name: String,
    /// Deliveries of one transaction
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_rows: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why, for whoever looks later".to_owned()),
        text if text.chars().count() > REASON_MAX_CHARS => {
            Err(format!("at most {REASON_MAX_CHARS} characters"))
        }
        text => Ok(text.to_owned()),
    }
}

pub(super) async fn hold(
    database: &Database,
    deliveries: &Deliveries,
    args: &HoldArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let before = destination(&client, deliveries, &args.name).await?;
    deliveries.disable(&client, &args.name, &args.reason).await.map_err(failure)?;
    let after = destination(&client, deliveries, &args.name).await?;
    let was_disabled = before.state == DestinationState::Disabled;
    if args.json {
        let line = json!({
            "destination": after.destination,
            "done": !was_disabled,
            "state": after.state.as_str(),
            "reason": after.reason,
            "changed_at": after.changed_at.map(utc),
        });
        return output::print(format_args!("{line}\n"));
    }
    let name = cell(&after.destination);
    if was_disabled {
        return output::print(format_args!("{name} was disabled already: {}\n", why(&after)));
    }
    output::print(format_args!("{name} is disabled: what is for it is held\n"))?;
    if after.sending > 0 {
        output::note(format_args!("{} are on their way still", thousands(after.sending)));
    }
    Ok(())
}

pub(super) async fn resume(
    database: &Database,
    deliveries: &Deliveries,
    args: &ResumeArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let before = destination(&client, deliveries, &args.name).await?;
    deliveries.enable(&client, &args.name).await.map_err(failure)?;
    let released = release(&client, deliveries, args, before.held).await?;
    let after = destination(&client, deliveries, &args.name).await?;
    let name = cell(&after.destination);
    if args.json {
        let line = json!({
            "destination": after.destination,
            "done": before.state == DestinationState::Disabled,
            "state": after.state.as_str(),
            "reason": after.reason,
            "released": released,
            "held": after.held,
        });
        output::print(format_args!("{line}\n"))?;
    } else {
        let is_now = match before.state {
            DestinationState::Disabled => "is enabled",
            DestinationState::Active | DestinationState::New => "was enabled already",
        };
        output::print(format_args!("{name} {is_now}; {} were let go\n", thousands(released)))?;
    }
    let failure = match (after.state, after.held) {
        (DestinationState::Disabled, _) => {
            let text = format!("{name} was disabled again meanwhile: {}", why(&after));
            Failure::found(Exit::Running, &text)
                .next_step("mend what the reason says, with the receiver, before the next resume")
        }
        (_, held) if held > 0 => {
            let text = format!("{} are held still: somebody had locked them", thousands(held));
            Failure::found(Exit::Running, &text).next_step("run it again")
        }
        _ => return Ok(()),
    };
    Err(if args.json { failure.told_in_json() } else { failure })
}

async fn release(
    client: &Client,
    deliveries: &Deliveries,
    args: &ResumeArgs,
    held: u64,
) -> Result<u64, Failure> {
    let (mut released, mut batches) = (0, 0);
    loop {
        let count = deliveries.release(client, &args.name, args.batch_rows).await;
        let count = count.map_err(failure)?;
        released += count;
        batches += 1;
        if count < u64::from(args.batch_rows) {
            return Ok(released);
        }
        if batches % TOLD_BATCHES == 0 {
            output::note(format_args!("{} of {} let go", thousands(released), thousands(held)));
        }
    }
}

fn why(destination: &DestinationBacklog) -> String {
    let reason = cell(destination.reason.as_deref().unwrap_or_default());
    match destination.changed_at {
        Some(at) => format!("{reason}, since {}", utc(at)),
        None => reason,
    }
}
