mod listener;
mod registries;
mod webhooks;

use std::path::PathBuf;

use rdkafka::metadata::{Metadata, MetadataTopic};
use serde_json::{Value, json};
use walpost_connector::Connector;
use walpost_event::error_chain;
use walpost_kafka::{KafkaConnector, colliding_topics};
use walpost_postgres::Database;
use walpost_relay::{CheckResult, Outcome, PollingConfig, RelayConfig, check_retention};
use walpost_router::RouterConfig;

use crate::{
    command::{brokers, connector, run::Prepared},
    config::{Config, ConfigArgs, Sink, connector::ConnectorFile},
    failure::{BROKERS, Exit, Failure, next_step_of_connect},
    log, output,
    table::Table,
};

/// How to print what was found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// File of a Debezium connector, as --connector has it
    #[arg(value_name = "CONNECTOR", conflicts_with = "file")]
    pub(crate) of: Option<PathBuf>,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let file = config.connector.read()?;
    let verdicts = file.as_ref().map(connector::as_json);
    if let Some(file) = &file {
        tell_verdicts(file, verdicts.as_ref(), args.json)?;
    }
    let mut config = Config::load_over(config, file)?;
    config.check_pipeline()?;
    config.suppose_tables();
    let prepared = Prepared::new(&config).map_err(|failure| failure.in_properties(&config))?;
    prepared.verify().map_err(|failure| failure.in_properties(&config))?;
    let (database, router) = (config.database()?, config.router()?);
    let wanted = WantedTopics::of(&config, &router);
    let sink = config.sink()?;
    let encoding = config.encoding()?;
    log::check(&config)?;
    let listener = match config.listen()? {
        Some(address) => vec![listener::check(address).await],
        None => Vec::new(),
    };
    let polling = config.polling()?;
    let (retention, pruners) = (config.retention()?, config.pruners()?);
    let connected = check_connection(&database).await;
    let is_connected = connected.is_ok();
    let mut postgres = match connected {
        Err(problem) => vec![problem],
        Ok(()) => match connector::find_tables(&mut config).await {
            Err(failure) => vec![tables_missing(&failure)],
            Ok(()) => {
                let relay = config.relay()?;
                let mut found = check_postgres(&database, &relay, polling.as_ref(), &router).await;
                if config.settings.retention.enabled {
                    let id = &router.event_id;
                    let retention = check_retention(&database, &relay, id, &retention).await;
                    found.push(retention);
                }
                found
            }
        },
    };
    postgres.extend(pruners.check(is_connected).await);
    for found in &mut postgres {
        found.detail = config.in_properties(&found.detail);
        found.next_step = found.next_step.take().map(|text| config.in_properties(&text));
    }
    let (name, unready, sink) = match sink {
        Sink::Webhook(webhooks) => {
            let unready = (Exit::Configuration, "the destinations are not ready for `walpost run`");
            ("Webhooks", unready, webhooks::check(&database, &webhooks).await)
        }
        Sink::Kafka(connector) => {
            let kafka = move || check_kafka(&connector, &wanted);
            let mut kafka = tokio::task::spawn_blocking(kafka).await.map_err(Failure::running)?;
            kafka.extend(registries::check(&encoding).await);
            ("Kafka", (Exit::Kafka, "Kafka is not ready for `walpost run`"), kafka)
        }
    };
    let unusable = (Exit::Configuration, "the address of http.listen cannot be used");
    let not_ready = (Exit::Postgres, "PostgreSQL is not ready for `walpost run`");
    let exit = first_failed([(&postgres, not_ready), (&sink, unready), (&listener, unusable)]);
    let groups = [("PostgreSQL", postgres), (name, sink), ("HTTP", listener)];
    if args.json {
        output::print(format_args!("{}\n", as_json(&groups, exit.is_none(), verdicts.as_ref())))?;
    } else {
        output::print(as_text(&groups))?;
    }
    exit.map_or(Ok(()), |(exit, text)| Err(Failure::found(exit, text).told_in_json()))
}

/// How the process ends: by the first group in which a check failed.
fn first_failed(
    groups: [(&[CheckResult], (Exit, &'static str)); 3],
) -> Option<(Exit, &'static str)> {
    let has_failed =
        |results: &[CheckResult]| results.iter().any(|result| result.outcome == Outcome::Fail);
    groups.into_iter().find(|(results, _)| has_failed(results)).map(|(_, exit)| exit)
}

/// What is refused is told at once, as there is nothing to look at then.
fn tell_verdicts(
    file: &ConnectorFile,
    verdicts: Option<&Value>,
    json: bool,
) -> Result<(), Failure> {
    let refused = file.check().err().map(Failure::from);
    if !json {
        output::print(connector::as_text(file))?;
    } else if refused.is_some() {
        output::print(format_args!("{}\n", as_json(&[], false, verdicts)))?;
    }
    let next_step = "mend the properties that are refused";
    refused.map_or(Ok(()), |failure| Err(failure.next_step(next_step).told_in_json()))
}

fn tables_missing(failure: &Failure) -> CheckResult {
    CheckResult {
        name: "tables",
        outcome: Outcome::Fail,
        detail: failure.text().to_owned(),
        next_step: failure.remedy().map(str::to_owned),
    }
}

/// Without a session there is one finding, with what to do about it.
async fn check_connection(database: &Database) -> Result<(), CheckResult> {
    database.connect().await.map(drop).map_err(|error| CheckResult {
        name: "connection",
        outcome: Outcome::Fail,
        detail: error_chain(&error),
        next_step: Some(next_step_of_connect(&error).to_owned()),
    })
}

async fn check_postgres(
    database: &Database,
    relay: &RelayConfig,
    polling: Option<&PollingConfig>,
    router: &RouterConfig,
) -> Vec<CheckResult> {
    match polling {
        Some(polling) => walpost_relay::check_polling(database, relay, polling, router).await,
        None => walpost_relay::check(database, relay, router).await,
    }
}

/// What is written to, as far as it is known beforehand.
struct WantedTopics {
    /// Of events.
    replacement: String,
    letters: Option<String>,
    heartbeats: Option<String>,
    /// A topic that is missing is made.
    are_made: bool,
}

impl WantedTopics {
    fn of(config: &Config, router: &RouterConfig) -> Self {
        let connector = config.connector();
        let letters = config.settings.pipeline.dead_letter_topic.clone();
        let beats = |connector: &Connector| connector.heartbeat.interval_ms.is_some();
        let heartbeats = connector.filter(|connector| beats(connector));
        Self {
            replacement: router.topic_replacement.clone(),
            letters: Some(letters).filter(|topic| !topic.is_empty()),
            heartbeats: heartbeats.map(|connector| connector.heartbeat.topic.clone()),
            are_made: connector.is_some_and(|connector| connector.topic_creation.is_some()),
        }
    }
}

fn check_kafka(connector: &KafkaConnector, wanted: &WantedTopics) -> Vec<CheckResult> {
    let servers = connector.bootstrap_servers();
    match brokers::ask(&connector.admin_config()) {
        Err(reason) => vec![CheckResult {
            name: "brokers",
            outcome: Outcome::Fail,
            detail: format!("no answer from {servers}: {reason}"),
            next_step: Some(BROKERS.to_owned()),
        }],
        Ok(metadata) => {
            let brokers = metadata.brokers().len();
            let detail = format!("{servers}, {brokers} {}", plural(brokers, "broker"));
            let found =
                CheckResult { name: "brokers", outcome: Outcome::Ok, detail, next_step: None };
            let beside = [("dead letters", &wanted.letters), ("heartbeats", &wanted.heartbeats)];
            let beside = beside.into_iter().filter_map(|(name, topic)| {
                Some(topic_beside(&metadata, name, topic.as_deref()?, wanted.are_made))
            });
            [found, topics(&metadata, wanted)].into_iter().chain(beside).collect()
        }
    }
}

fn topic_beside(
    metadata: &Metadata,
    name: &'static str,
    topic: &str,
    is_made: bool,
) -> CheckResult {
    let ok = |detail| CheckResult { name, outcome: Outcome::Ok, detail, next_step: None };
    let names = || metadata.topics().iter().map(MetadataTopic::name);
    if let Some(collides) = collision(name, topic, names()) {
        return collides;
    }
    match names().any(|found| found == topic) {
        true => ok(format!("topic {topic} is there")),
        false if is_made => ok(format!("topic {topic} will be created")),
        false => CheckResult {
            name,
            outcome: Outcome::Warn,
            detail: format!("topic {topic} does not exist"),
            next_step: Some(format!(
                "create it, unless the brokers do; {name} wait until it is there"
            )),
        },
    }
}

/// A topic that is missing and that no broker will create, for the sake of another
/// one's name.
fn collision<'a>(
    name: &'static str,
    topic: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<CheckResult> {
    if names.clone().any(|found| found == topic) {
        return None;
    }
    let other = colliding_topics(topic, names).next()?;
    Some(CheckResult {
        name,
        outcome: Outcome::Fail,
        detail: format!(
            "topic {topic} does not exist, and Kafka creates none beside {other}: its metrics \
             take \".\" and \"_\" for one"
        ),
        next_step: Some(format!("choose another name, or delete {other} if it is not used")),
    })
}

/// Which topics the events go to is known only when they come, so this is a
/// hint and no verdict.
fn topics(metadata: &Metadata, wanted: &WantedTopics) -> CheckResult {
    let WantedTopics { replacement, are_made, .. } = wanted;
    let prefix = replacement.split(['$', '\\']).next().unwrap_or_default();
    let mut names: Vec<&str> = metadata.topics().iter().map(MetadataTopic::name).collect();
    if prefix == replacement
        && let Some(collides) = collision("topics", replacement, names.iter().copied())
    {
        return collides;
    }
    names.retain(|name| name.starts_with(prefix) && !name.starts_with("__"));
    names.sort_unstable();
    let count = names.len();
    let (outcome, next_step) = match count {
        0 if *are_made => (Outcome::Ok, None),
        0 => (
            Outcome::Warn,
            Some(
                "create the topics, unless the brokers have auto.create.topics.enable; events \
                 for a topic that is missing wait"
                    .to_owned(),
            ),
        ),
        _ => (Outcome::Ok, None),
    };
    names.truncate(5);
    let dots = if count > names.len() { ", …" } else { "" };
    let list =
        if names.is_empty() { String::new() } else { format!(": {}{dots}", names.join(", ")) };
    let detail =
        format!("events go to {replacement}; {count} {} there{list}", plural(count, "topic"));
    CheckResult { name: "topics", outcome, detail, next_step }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Warn => "warn",
        Outcome::Fail => "FAIL",
    }
}

fn as_text(groups: &[(&str, Vec<CheckResult>)]) -> String {
    let mut table = Table::default();
    for (group, results) in groups {
        for result in results {
            table.row([word(result.outcome), group, result.name, &result.detail]);
        }
    }
    let mut text = table.to_string();
    for result in groups.iter().flat_map(|(_, results)| results) {
        if let Some(next_step) = &result.next_step {
            text.push_str(&format!("next step ({}): {next_step}\n", result.name));
        }
    }
    text
}

/// `connector` are the verdicts on its properties, where there is one.
fn as_json(groups: &[(&str, Vec<CheckResult>)], is_ok: bool, connector: Option<&Value>) -> Value {
    let mut checks = Vec::new();
    for (group, results) in groups {
        checks.extend(results.iter().map(|result| {
            json!({
                "group": group.to_lowercase(),
                "name": result.name,
                "outcome": word(result.outcome).to_lowercase(),
                "detail": result.detail,
                "next_step": result.next_step,
            })
        }));
    }
    let mut told = json!({ "ok": is_ok, "checks": checks });
    if let Some(connector) = connector {
        told["connector"] = connector.clone();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> [(&'static str, Vec<CheckResult>); 1] {
        let result = |name, outcome, next_step: Option<&str>| CheckResult {
            name,
            outcome,
            detail: "d".to_owned(),
            next_step: next_step.map(str::to_owned),
        };
        let fine = result("server", Outcome::Ok, None);
        [("Kafka", vec![fine, result("topics", Outcome::Fail, Some("create"))])]
    }

    #[test]
    fn a_topic_that_kafka_will_not_create_fails_with_the_name_in_its_way() {
        let names = ["shop_order", "shop-order"];
        let found = |topic| collision("topics", topic, names.into_iter());
        let told = found("shop.order").unwrap();
        assert_eq!(told.outcome, Outcome::Fail);
        assert!(told.detail.contains("beside shop_order"), "{}", told.detail);
        assert!(found("shop_order").is_none() && found("other").is_none());
    }

    #[test]
    fn next_steps_follow_the_table() {
        assert_eq!(
            as_text(&groups()),
            "ok    Kafka  server  d\nFAIL  Kafka  topics  d\nnext step (topics): create\n"
        );
    }

    #[test]
    fn json_has_every_check() {
        let json = as_json(&groups(), false, None);
        assert_eq!(json["ok"], false);
        assert_eq!(json["checks"][1]["outcome"], "fail");
        assert_eq!(json["checks"][1]["next_step"], "create");
    }
}
