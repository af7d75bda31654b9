//! Whether the keys outlive the records whose copies they are to find.

use std::time::{Duration, Instant};

use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode},
};
use tokio::runtime::Handle;
use walpost_event::RetrySchedule;

use super::RedisGuard;
use crate::{
    Error,
    kafka::admin_config,
    settings::Settings,
    tell::{Reminder, tell},
};

const ANSWER_LIMIT_MS: u64 = 10_000;

/// Waits until the topics' retention is known, and refuses one that is longer
/// than the keys live.
pub(crate) async fn keys_outlive_topics(
    guard: &RedisGuard,
    settings: &Settings,
) -> Result<(), Error> {
    let Some(longest) = guard.longest_retention() else { return Ok(()) };
    let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
    let (mut reminder, mut failures) = (Reminder::default(), 0);
    loop {
        let reason = match look(settings).await {
            Ok(topics) => {
                let kept = topics.into_iter().find(|topic| topic.outlives(longest));
                return kept.map_or(Ok(()), |topic| {
                    Err(refused(guard.refusal(&topic.name, topic.retention)))
                });
            }
            Err(Looked::Away(reason)) => reason,
            Err(Looked::Denied(topic)) => {
                return Err(refused(format!(
                    "how long topic {topic} keeps records may not be asked for: grant \
                     DescribeConfigs on it, or call accept_short_ttl()"
                )));
            }
        };
        failures += 1;
        if reminder.is_due(Instant::now()) {
            tell!(
                warn,
                { reason = reason },
                "how long the topics keep records is not known, nothing is consumed until it is; \
                 trying again"
            );
        }
        tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
    }
}

fn refused(problem: String) -> Error {
    Error::Setting { setting: "guard".to_owned(), problem }
}

#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Away(String),
    Denied(String),
}

/// How long a topic keeps records, `None` for ever.
#[derive(Debug, PartialEq, Eq)]
struct Topic {
    name: String,
    retention: Option<Duration>,
}

impl Topic {
    fn outlives(&self, longest: Duration) -> bool {
        self.retention.is_none_or(|retention| retention > longest)
    }
}

async fn look(settings: &Settings) -> Result<Vec<Topic>, Looked> {
    let (config, topics, runtime) =
        (admin_config(settings), settings.topics.clone(), Handle::current());
    // The client is dropped there too, which waits.
    let asked = tokio::task::spawn_blocking(move || {
        let client: AdminClient<DefaultClientContext> = config.create()?;
        let limit = Some(Duration::from_millis(ANSWER_LIMIT_MS));
        let options = AdminOptions::new().request_timeout(limit);
        let ask = |topic: String| {
            let name = [ResourceSpecifier::Topic(&topic)];
            let answer = runtime.block_on(client.describe_configs(&name, &options))?.pop();
            Ok(answer.map(|answer| (topic, answer)))
        };
        topics.into_iter().filter_map(|topic| ask(topic).transpose()).collect()
    });
    type Answers = Vec<(String, Result<ConfigResource, RDKafkaErrorCode>)>;
    let answers: Result<Answers, KafkaError> = match asked.await {
        Ok(answers) => answers,
        Err(_) => return Err(Looked::Away("the question panicked".to_owned())),
    };
    let answers = answers.map_err(|error| Looked::Away(error.to_string()))?;
    answers.into_iter().map(|(name, answer)| read(name, answer)).collect()
}

fn read(name: String, answer: Result<ConfigResource, RDKafkaErrorCode>) -> Result<Topic, Looked> {
    let resource = answer.map_err(|code| match code {
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => Looked::Denied(name.clone()),
        other => Looked::Away(format!("topic {name}: {other}")),
    })?;
    let value = |of: &str| resource.get(of).and_then(|entry| entry.value.clone());
    let Some(retention) = value("retention.ms") else {
        return Err(Looked::Denied(name));
    };
    let deletes = value("cleanup.policy").is_none_or(|policy| policy.contains("delete"));
    let retention = retention.parse().ok().filter(|_| deletes).map(Duration::from_millis);
    Ok(Topic { name, retention })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_ever_outlives_everything() {
        let topic = |retention| Topic { name: "t".into(), retention };
        let day = Duration::from_secs(86_400);
        assert!(topic(None).outlives(day * 1000));
        assert!(topic(Some(day * 2)).outlives(day));
        assert!(!topic(Some(day)).outlives(day));
    }
}
