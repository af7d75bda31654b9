use clap::{Subcommand, ValueEnum};
use serde_json::json;
use walpost_relay::{RelayError, SourceSwitch, SwitchStep, SwitchTo, Switched};

use crate::{
    command::{connector, kafka_sink::PipelineKafka},
    config::{ConfigArgs, Sink},
    failure::Failure,
    log, output,
};

/// What to do with the source.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        let Command::Switch(args) = &self.command;
        args.json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Switches the pipeline, whose relays are stopped, without losing or repeating an event; one
    /// that was ended half-way goes on
    Switch(Switch),
}

#[derive(Debug, clap::Args)]
struct Switch {
    /// What is to bring the events
    #[arg(long, value_enum)]
    to: To,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    /// Relays that poll the outbox table, as many as wanted
    Polling,
    /// One relay that reads the WAL
    Wal,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let Command::Switch(args) = &args.command;
    let config = connector::load(config).await?;
    let (database, relay, router) = (config.database()?, config.relay()?, config.router()?);
    let (polling, encoding) = (config.polling_for_switch()?, config.encoding()?);
    let sink = config.sink()?;
    log::start(&config)?;
    let outbox = database.clone();
    let pipeline = relay.pipeline.clone();
    let failed = |error: RelayError| Failure::of_relay(error, false);
    let switch = SourceSwitch::new(database, relay, polling, router, encoding).map_err(failed)?;
    let to = match args.to {
        To::Polling => SwitchTo::Polling,
        To::Wal => SwitchTo::Wal,
    };
    let mut is_begun = false;
    let tell = async |step: SwitchStep| {
        is_begun |= !matches!(step, SwitchStep::CutMade);
        output::note(step);
    };
    let switched = match sink {
        Sink::Kafka(connector) => {
            let mut kafka = PipelineKafka::new(&config, connector, &outbox);
            switch.run(to, async || kafka.connect().await, tell).await
        }
        Sink::Webhook(webhooks) => {
            let connector = webhooks.connector(&outbox);
            switch.run(to, async || connector.connect().await, tell).await
        }
    };
    let switched = switched.map_err(|error| ended(error, is_begun))?;
    if args.json {
        return output::print(format_args!("{}\n", as_json(&pipeline, args.to, switched)));
    }
    output::print(as_text(&pipeline, args.to, switched))
}

/// What went wrong, and that it can be gone on with where nothing has to be done
/// first.
fn ended(error: RelayError, is_begun: bool) -> Failure {
    let transient = error.is_transient();
    let failure = Failure::of_relay(error, is_begun);
    match transient {
        true => failure.next_step("run the same command again: it goes on where it was"),
        false => failure,
    }
}

impl To {
    fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Wal => "wal",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Wal => "native",
        }
    }
}

fn as_json(pipeline: &str, to: To, switched: Switched) -> serde_json::Value {
    json!({
        "pipeline": pipeline,
        "source": to.name(),
        "already": switched.is_already,
        "switched_at_lsn": switched.position.map(|position| position.to_string()),
    })
}

fn as_text(pipeline: &str, to: To, switched: Switched) -> String {
    let what = match to {
        To::Polling => "polls its outbox table",
        To::Wal => "reads the WAL",
    };
    let next = format!("start `walpost run` with pipeline.source = {:?}", to.setting());
    match (switched.is_already, switched.position) {
        (true, _) => format!("pipeline {pipeline} {what} already; {next}\n"),
        (false, Some(position)) => {
            format!("pipeline {pipeline} {what} from {position} on; {next}\n")
        }
        (false, None) => format!("pipeline {pipeline} {what} as before; {next}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_goes_away_by_itself_can_be_gone_on_with() {
        let error = || RelayError::TakenOver { pipeline: "main".to_owned() };
        let text = format!("{:?}", ended(error(), true));
        assert!(text.contains("run the same command again"), "{text}");
        let error = RelayError::Prerequisite { problem: "p".into(), remedy: "r".into() };
        assert!(format!("{:?}", ended(error, true)).contains("Some(\"r\")"));
    }
}
