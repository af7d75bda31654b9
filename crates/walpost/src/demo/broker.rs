use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::RDKafkaErrorCode,
};
use tokio::time;

use crate::{
    command::brokers,
    demo::Options,
    failure::{BROKERS, Exit, Failure},
    output,
    table::thousands,
};

/// Partitions of the demo's topic.
pub(super) const PARTITIONS: i32 = 12;

/// The mock keeps about 5 MB and 100,000 records of a partition and silently
/// drops what is older. The fullest of 12 partitions gets less than a quarter
/// of the events, each below 300 bytes; the rest is for second copies.
pub(super) const MOCK_MAX_EVENTS: u64 = 50_000;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const GROUP_TRIES: u32 = 20;
const GROUP_INTERVAL: Duration = Duration::from_millis(500);

/// What the events are published to.
pub(super) enum Broker {
    /// librdkafka's, in this process, with listening sockets of its own.
    Mock { cluster: MockCluster<'static, DefaultProducerContext> },
    /// The user's.
    Real { settings: BTreeMap<String, String> },
}

/// Refuses more events than the mock holds, and more kills than there are
/// events between them.
pub(super) fn check_size(options: &Options) -> Result<(), Failure> {
    if u64::from(options.kills) > options.events {
        let text = format!("{} kills do not fit into {} events", options.kills, options.events);
        return Err(Failure::found(Exit::Configuration, &text)
            .next_step("use fewer --kills, or more --events"));
    }
    if options.kafka.is_some() || options.events <= MOCK_MAX_EVENTS {
        return Ok(());
    }
    let (asked, limit) = (thousands(options.events), thousands(MOCK_MAX_EVENTS));
    let text = format!(
        "{asked} events are more than the embedded mock broker holds without dropping some; its \
         limit is {limit}"
    );
    Err(Failure::found(Exit::Configuration, &text).next_step(format!(
        "use --events {MOCK_MAX_EVENTS}, or a real broker with --kafka HOST:PORT"
    )))
}

impl Broker {
    /// Starts the mock, or takes the user's once it answers. Blocks.
    pub(super) fn open(kafka: Option<BTreeMap<String, String>>) -> Result<Self, Failure> {
        match kafka {
            Some(settings) => {
                brokers::ask(&client_config(&settings)).map_err(|reason| {
                    let servers = settings.get("bootstrap.servers").map_or("", String::as_str);
                    let text = format!("no answer from the brokers at {servers}: {reason}");
                    Failure::found(Exit::Kafka, &text).next_step(BROKERS)
                })?;
                Ok(Self::Real { settings })
            }
            None => MockCluster::new(1)
                .map(|cluster| Self::Mock { cluster })
                .map_err(|error| failed(error).context("cannot start the embedded mock broker")),
        }
    }

    /// Settings for clients.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        match self {
            Self::Mock { cluster } => {
                [("bootstrap.servers".to_owned(), cluster.bootstrap_servers())].into()
            }
            Self::Real { settings } => settings.clone(),
        }
    }

    /// One line for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Mock { .. } => {
                "a mock, for showing and no proof (a real one: --kafka HOST:PORT)".to_owned()
            }
            Self::Real { settings } => {
                let servers = settings.get("bootstrap.servers").map_or("", String::as_str);
                format!("yours, at {servers}")
            }
        }
    }

    /// Creates the topic.
    pub(super) async fn create_topic(&self, topic: &str) -> Result<(), Failure> {
        let settings = match self {
            Self::Mock { cluster } => {
                return cluster
                    .create_topic(topic, PARTITIONS, 1)
                    .map_err(|error| failed(error).context("cannot create the topic"));
            }
            Self::Real { settings } => settings,
        };
        let admin = admin(settings)?;
        let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(-1));
        let created = admin
            .create_topics([&new], &options())
            .await
            .map_err(|error| failed(error).context("cannot create the topic"))?;
        for result in created {
            result.map_err(|(topic, code)| {
                let text = format!("the broker does not create topic {topic}: {code}");
                Failure::found(Exit::Kafka, &text)
            })?;
        }
        Ok(())
    }

    /// Removes topic and group. What cannot be removed is said.
    pub(super) async fn remove(&self, topic: &str, group: &str) {
        let Self::Real { settings } = self else { return };
        let Ok(admin) = admin(settings) else { return };
        let done = admin.delete_topics(&[topic], &options()).await.map(first);
        match done {
            Ok(None | Some(RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
            Ok(Some(code)) => output::note(format_args!("could not delete topic {topic}: {code}")),
            Err(error) => output::note(format_args!("could not delete topic {topic}: {error}")),
        }
        if let Some(reason) = remove_group(&admin, group).await {
            output::note(format_args!("could not delete consumer group {group}: {reason}"));
        }
    }
}

/// A group whose member was killed is not empty until that one is missed.
async fn remove_group(
    admin: &AdminClient<DefaultClientContext>,
    group: &str,
) -> Option<RDKafkaErrorCode> {
    let mut reason = None;
    for _ in 0..GROUP_TRIES {
        reason = match admin.delete_groups(&[group], &options()).await.map(first) {
            Ok(None | Some(RDKafkaErrorCode::GroupIdNotFound)) => return None,
            Ok(Some(code)) => Some(code),
            Err(error) => {
                return Some(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail));
            }
        };
        time::sleep(GROUP_INTERVAL).await;
    }
    reason
}

/// The error of the only answer.
fn first(answers: Vec<Result<String, (String, RDKafkaErrorCode)>>) -> Option<RDKafkaErrorCode> {
    answers.into_iter().find_map(|answer| answer.err().map(|(_, code)| code))
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST_TIMEOUT))
        .operation_timeout(Some(REQUEST_TIMEOUT))
}

fn admin(
    settings: &BTreeMap<String, String>,
) -> Result<AdminClient<DefaultClientContext>, Failure> {
    client_config(settings).create().map_err(failed)
}

pub(super) fn client_config(settings: &BTreeMap<String, String>) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in settings {
        config.set(name, value);
    }
    config
}

pub(super) fn failed(error: rdkafka::error::KafkaError) -> Failure {
    Failure::new(Exit::Kafka, error)
}

#[cfg(test)]
mod tests {
    use walpost_kafka::partition_for_key;

    use super::*;
    use crate::demo::shop;

    #[test]
    fn the_fullest_partition_holds_less_than_a_quarter() {
        let mut orders = [0; PARTITIONS as usize];
        for order in 0..shop::ORDERS {
            let key = shop::order_id(order);
            orders[partition_for_key(key.as_bytes(), PARTITIONS) as usize] += 1;
        }
        let fullest = *orders.iter().max().unwrap();
        assert!(fullest * 4 < shop::ORDERS, "{orders:?}");
        const { assert!(MOCK_MAX_EVENTS / 4 * 300 < 5_000_000 * 4 / 5) };
    }
}
