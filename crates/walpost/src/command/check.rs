mod webhooks;

use rdkafka::metadata::Metadata;
use serde_json::json;
use walpost_event::error_chain;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_relay::{CheckResult, Outcome, PollingConfig, RelayConfig};
use walpost_router::RouterConfig;

use crate::{
    command::brokers,
    config::{Config, ConfigArgs, Sink},
    failure::{BROKERS, Exit, Failure, next_step_of_connect},
    output,
    table::Table,
};

/// How to print what was found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let (database, relay, router) = (config.database()?, config.relay()?, config.router()?);
    let sink = config.sink()?;
    config.encoding()?;
    config.listen()?;
    let polling = config.polling()?;
    let (retention, pruners) = (config.retention()?, config.pruners()?);
    let connected = check_connection(&database).await;
    let is_connected = connected.is_ok();
    let mut postgres = match connected {
        Ok(()) => check_postgres(&database, &relay, polling.as_ref(), &router).await,
        Err(problem) => vec![problem],
    };
    if config.settings.retention.enabled && is_connected {
        let id = &router.event_id;
        postgres.push(walpost_relay::check_retention(&database, &relay, id, &retention).await);
    }
    postgres.extend(pruners.check(is_connected).await);
    let replacement = router.topic_replacement;
    let letters = relay.dead_letter_topic.clone();
    let (name, unready, sink) = match sink {
        Sink::Webhook(webhooks) => {
            let unready = (Exit::Configuration, "the destinations are not ready for `walpost run`");
            ("Webhooks", unready, webhooks::check(&database, &webhooks).await)
        }
        Sink::Kafka(connector) => {
            let kafka = move || check_kafka(&connector, &replacement, letters.as_deref());
            let kafka = tokio::task::spawn_blocking(kafka).await.map_err(Failure::running)?;
            ("Kafka", (Exit::Kafka, "Kafka is not ready for `walpost run`"), kafka)
        }
    };
    let has_failed =
        |results: &[CheckResult]| results.iter().any(|result| result.outcome == Outcome::Fail);
    let exit = match (has_failed(&postgres), has_failed(&sink)) {
        (true, _) => Some((Exit::Postgres, "PostgreSQL is not ready for `walpost run`")),
        (false, true) => Some(unready),
        (false, false) => None,
    };
    let groups = [("PostgreSQL", postgres), (name, sink)];
    if args.json {
        output::print(format_args!("{}\n", as_json(&groups, exit.is_none())))?;
    } else {
        output::print(as_text(&groups))?;
    }
    exit.map_or(Ok(()), |(exit, text)| Err(Failure::found(exit, text).told_in_json()))
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

fn check_kafka(
    connector: &KafkaConnector,
    replacement: &str,
    letters: Option<&str>,
) -> Vec<CheckResult> {
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
            let letters = letters.map(|topic| dead_letters(&metadata, topic));
            [found, topics(&metadata, replacement)].into_iter().chain(letters).collect()
        }
    }
}

fn dead_letters(metadata: &Metadata, topic: &str) -> CheckResult {
    let name = "dead letters";
    match metadata.topics().iter().any(|found| found.name() == topic) {
        true => {
            let detail = format!("topic {topic} is there");
            CheckResult { name, outcome: Outcome::Ok, detail, next_step: None }
        }
        false => CheckResult {
            name,
            outcome: Outcome::Warn,
            detail: format!("topic {topic} does not exist"),
            next_step: Some(
                "create it, unless the brokers do; dead letters wait until it is there".to_owned(),
            ),
        },
    }
}

/// Which topics the events go to is known only when they come, so this is a
/// hint and no verdict.
fn topics(metadata: &Metadata, replacement: &str) -> CheckResult {
    let prefix = replacement.split(['$', '\\']).next().unwrap_or_default();
    let mut names: Vec<&str> = metadata.topics().iter().map(|topic| topic.name()).collect();
    names.retain(|name| name.starts_with(prefix) && !name.starts_with("__"));
    names.sort_unstable();
    let count = names.len();
    let (outcome, next_step) = match count {
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

fn as_json(groups: &[(&str, Vec<CheckResult>)], is_ok: bool) -> serde_json::Value {
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
    json!({ "ok": is_ok, "checks": checks })
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
    fn next_steps_follow_the_table() {
        assert_eq!(
            as_text(&groups()),
            "ok    Kafka  server  d\nFAIL  Kafka  topics  d\nnext step (topics): create\n"
        );
    }

    #[test]
    fn json_has_every_check() {
        let json = as_json(&groups(), false);
        assert_eq!(json["ok"], false);
        assert_eq!(json["checks"][1]["outcome"], "fail");
        assert_eq!(json["checks"][1]["next_step"], "create");
    }
}
