//! Topics that do not exist, made as somebody has said.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use rdkafka::{
    client::{Client, ClientContext},
    types::RDKafkaErrorCode,
};
use walpost_librdkafka::{NewTopic, NotCreated, create_topic, topic_settings, topics_in_use};

use crate::{deliveries::Unusable, topic::unanswered};

/// A setting that every topic has.
const ASKED_FOR: &str = "cleanup.policy";

/// What a new topic is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    /// Partitions; `None` for the brokers' default.
    pub partitions: Option<u32>,
    /// Copies of each partition; `None` for the brokers' default.
    pub replication: Option<u16>,
    /// Settings such as `cleanup.policy`, under Kafka's names.
    pub config: BTreeMap<String, String>,
}

/// What a topic of this name is made like; `None` where nobody makes it here.
pub(crate) type Creation = Arc<dyn Fn(&str) -> Option<TopicSettings> + Send + Sync>;

/// Makes the topic if it does not exist. Asks for one of its settings first, which
/// makes no topic, not even where the brokers make those that are asked for:
/// whoever may not make topics may write to one that is there. Blocks for up to
/// three `timeout`s.
///
/// # Errors
/// Why it cannot be used yet, and what to do.
pub(crate) fn make_missing<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    settings: &TopicSettings,
    timeout: Duration,
) -> Result<(), Unusable> {
    use RDKafkaErrorCode as Code;
    let found = topics_in_use(client, timeout)
        .and_then(|known| topic_settings(client, &[topic], ASKED_FOR, known.broker, timeout))
        .and_then(|mut answers| answers.remove(0));
    let is_missing = match found {
        Ok(_) => return Ok(()),
        Err(Code::UnknownTopicOrPartition | Code::UnknownTopic) => true,
        // Nobody tells.
        Err(
            Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::UnsupportedFeature
            | Code::UnsupportedVersion,
        ) => false,
        Err(code) => return Err(unanswered(topic, ASKED_FOR, &code)),
    };
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let wanted = NewTopic {
        name: topic,
        partitions: settings.partitions.map(number),
        replication: settings.replication.map(i32::from),
        config: &settings.config,
    };
    match create_topic(client, &wanted, timeout) {
        Ok(()) => {
            tracing::info!(topic, %settings, "topic created");
            Ok(())
        }
        // Somebody else was faster.
        Err(NotCreated { code: Code::TopicAlreadyExists, .. }) => Ok(()),
        // It may be there all the same.
        Err(NotCreated {
            code: Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed,
            ..
        }) if !is_missing => Ok(()),
        Err(refused) => Err(told(topic, settings, &refused)),
    }
}

impl fmt::Display for TopicSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = || "the brokers' default".to_owned();
        let partitions = self.partitions.map_or_else(default, |number| number.to_string());
        let replication = self.replication.map_or_else(default, |number| number.to_string());
        write!(f, "partitions: {partitions}, replication.factor: {replication}")?;
        self.config.iter().try_for_each(|(name, value)| write!(f, ", {name}: {value}"))
    }
}

/// Why a topic was not made, and what to do.
fn told(topic: &str, settings: &TopicSettings, refused: &NotCreated) -> Unusable {
    use RDKafkaErrorCode as Code;
    let NotCreated { code, detail } = refused;
    let (what, is_its_own) = match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            (format!("grant Create on it, or create it with {settings}"), true)
        }
        Code::PolicyViolation
        | Code::InvalidConfig
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::InvalidRequest
        | Code::InvalidArgument
        | Code::InvalidTopic => {
            (format!("it was to have {settings}; mend that, or create it"), true)
        }
        _ => {
            ("it is tried again, see whether the brokers run and can be reached".to_owned(), false)
        }
    };
    let reason = format!("topic {topic:?} does not exist and was not created: {detail}; {what}");
    let is_missing = *code == Code::InvalidTopic;
    Unusable { reason: reason.into(), is_its_own, is_missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_brokers_refuse_is_the_topics_own_and_what_passes_is_not() {
        let settings = TopicSettings {
            partitions: Some(3),
            replication: None,
            config: [("cleanup.policy".to_owned(), "compact".to_owned())].into(),
        };
        let told = |code| told("shop", &settings, &NotCreated { code, detail: "so".to_owned() });
        let refused = told(RDKafkaErrorCode::InvalidReplicationFactor);
        assert!(refused.is_its_own);
        assert_eq!(
            &*refused.reason,
            "topic \"shop\" does not exist and was not created: so; it was to have partitions: 3, \
             replication.factor: the brokers' default, cleanup.policy: compact; mend that, or \
             create it"
        );
        assert!(told(RDKafkaErrorCode::TopicAuthorizationFailed).reason.contains("grant Create"));
        assert!(!told(RDKafkaErrorCode::OperationTimedOut).is_its_own);
    }
}
