mod file;
mod offsets;
mod told;
mod topic;

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use walpost_relay::{
    HandBack, HandedBack, RelayError, TakeOverOrder, plan_hand_back, plan_take_over, take_over,
};
use walpost_takeover::{OffsetError, OffsetKey, StoredOffset};

use self::offsets::{Store, Stored, Whose, WhoseArgs};
use crate::{
    command::{connector, kafka_sink::PipelineKafka},
    config::{Config, ConfigArgs, Sink},
    failure::{Exit, Failure},
    log, output,
};

/// What changes hands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::FromDebezium(args) => args.json,
            Command::ToDebezium(args) => args.json,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows where a stopped connector has come to; with --yes the next start of `walpost run` goes
    /// on there, on the connector's slot
    FromDebezium(From),
    /// Shows where the stopped pipeline has come to; with --yes publishes what is committed by now
    /// and stores an offset for the connector, which goes on there
    ToDebezium(To),
}

#[derive(Debug, clap::Args)]
struct From {
    #[command(flatten)]
    whose: WhoseArgs,
    /// Begin where the slot stands, also where that is behind what the offset covers
    #[arg(long)]
    accept_slot_ahead: bool,
    /// Take over although consumers apply events twice that are published again
    #[arg(long)]
    accept_duplicates: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct To {
    #[command(flatten)]
    whose: WhoseArgs,
    /// Leave parked events to Walpost: the connector does not publish them
    #[arg(long)]
    leave_parked: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = connector::load(config).await?;
    match &args.command {
        Command::FromDebezium(args) => from_debezium(&config, args).await,
        Command::ToDebezium(args) => to_debezium(&config, args).await,
    }
}

async fn from_debezium(config: &Config, args: &From) -> Result<(), Failure> {
    let (database, relay, router) = (config.database()?, config.relay()?, config.router()?);
    let encoding = config.encoding()?;
    let whose = args.whose.with(config)?;
    let store = Store::of(config, &whose)?;
    let stored = store.find(&whose).await?;
    let (stored, offset) = offset(stored, &whose)?;
    let boundary = offset.boundary().map_err(|error| unusable(error, &stored))?;
    let order = TakeOverOrder {
        boundary,
        accept_slot_ahead: args.accept_slot_ahead,
        accept_duplicates: args.accept_duplicates,
    };
    let plan = match args.yes {
        true => take_over(&database, &relay, &router, &encoding, &order).await,
        false => plan_take_over(&database, &relay, &router, &encoding, &order).await,
    };
    let plan = plan.map_err(|error| Failure::of_relay(error, false))?;
    if args.json {
        let told = told::from_json(&stored, &offset, &boundary, &plan, &relay);
        output::print(format_args!("{told}\n"))?;
    } else {
        output::print(told::from_text(&stored, &offset, &boundary, &plan, &relay))?;
    }
    in_the_way(plan.obstacles, "the slot cannot be taken over", args.json)
}

async fn to_debezium(config: &Config, args: &To) -> Result<(), Failure> {
    let (database, relay) = (config.database()?, config.relay()?);
    let whose = args.whose.with(config)?;
    let store = Store::of(config, &whose)?;
    let before = store.find(&whose).await?;
    let key = key(before.as_ref(), &whose)?;
    let failed = |error: RelayError| Failure::of_relay(error, false);
    let (handed, is_done) = match args.yes {
        false => {
            (plan_hand_back(&database, &relay, args.leave_parked).await.map_err(failed)?, false)
        }
        true => hand_back(config, args, &store, before.as_ref(), key).await?,
    };
    let from = before.as_ref().filter(|stored| stored.value.is_some());
    if args.json {
        let told = told::to_json(from, &handed, &relay, is_done);
        output::print(format_args!("{told}\n"))?;
    } else {
        output::print(told::to_text(from, &handed, &relay, is_done))?;
    }
    in_the_way(handed.obstacles, "the slot cannot be handed over", args.json)
}

/// First the offset, then the slot: what dies in between is repeated.
async fn hand_back(
    config: &Config,
    args: &To,
    store: &Store,
    before: Option<&Stored>,
    key: Vec<u8>,
) -> Result<(HandedBack, bool), Failure> {
    let (database, relay, router) = (config.database()?, config.relay()?, config.router()?);
    let (encoding, sink) = (config.encoding()?, config.sink()?);
    log::start(config)?;
    let failed = |error: RelayError| Failure::of_relay(error, false);
    let outbox = database.clone();
    let opened = HandBack::open(&database, relay, router, encoding, args.leave_parked).await;
    let mut hand_back = opened.map_err(failed)?;
    let handed = match sink {
        Sink::Kafka(connector) => {
            let mut kafka = PipelineKafka::new(config, connector, &outbox);
            hand_back.publish_rest(async || kafka.connect().await).await
        }
        Sink::Webhook(webhooks) => {
            let connector = webhooks.connector(&outbox);
            hand_back.publish_rest(async || connector.connect().await).await
        }
    };
    let handed = handed.map_err(failed)?;
    if !handed.obstacles.is_empty() {
        return Ok((handed, false));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let value = StoredOffset::at_end_of_transaction(handed.published, now_us);
    store.write(key, value, before).await?;
    hand_back.move_slot(handed.published).await.map_err(failed)?;
    Ok((handed, true))
}

/// The key that is there, byte for byte, or the one that the connector looks for.
fn key(before: Option<&Stored>, whose: &Whose) -> Result<Vec<u8>, Failure> {
    match (before, &whose.topic_prefix) {
        (Some(before), _) => Ok(before.key.clone()),
        (None, Some(prefix)) => Ok(OffsetKey::of(&whose.connector, prefix)),
        (None, None) => Err(no_offset(whose)
            .next_step("say under which key to store one, by --topic-prefix: its topic.prefix")),
    }
}

fn no_offset(whose: &Whose) -> Failure {
    let text = format!("there is no stored offset of connector {:?}", whose.connector);
    Failure::found(Exit::Nothing, &text)
}

fn offset(stored: Option<Stored>, whose: &Whose) -> Result<(Stored, StoredOffset), Failure> {
    let none = || {
        no_offset(whose).next_step(
            "check the connector's name, its topic.prefix and where its offsets are; a connector \
             that has none has published nothing that it knows of, and a worker that was killed \
             while it wrote its file has left that empty: set pipeline.initial = \"skip\" and start \
             `walpost run`, which goes on where the slot stands",
        )
    };
    let stored = stored.ok_or_else(none)?;
    let value = stored.value.clone().ok_or_else(none)?;
    let offset = StoredOffset::parse(&value).map_err(|error| unusable(error, &stored))?;
    Ok((stored, offset))
}

fn unusable(error: OffsetError, stored: &Stored) -> Failure {
    let next_step = error.next_step();
    Failure::new(Exit::Configuration, error).context(&stored.place).next_step(next_step)
}

fn in_the_way(obstacles: Vec<(String, String)>, what: &str, is_json: bool) -> Result<(), Failure> {
    match obstacles.into_iter().next() {
        Some((problem, remedy)) => {
            let problem = format!("{what}: {problem}");
            let failure = Failure::found(Exit::Postgres, &problem).next_step(remedy);
            Err(if is_json { failure.told_in_json() } else { failure })
        }
        None => Ok(()),
    }
}
