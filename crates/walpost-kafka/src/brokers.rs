use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    metadata::{Metadata, MetadataBroker, MetadataTopic},
    producer::{BaseProducer, Producer},
    types::RDKafkaErrorCode,
};
use walpost_librdkafka::{
    Existence, TopicIdError, existence, topic_ids, topics_in_use, topics_settings,
};

use crate::{
    creation::{Creation, make_missing},
    deliveries::{Answer, Context, Found, Origin, Reports, Unusable, lock},
    questions::{Asked, Question},
    rules::SETTINGS,
    topic::{MaxMessageBytes, TopicLimits, collides, colliding_topics, explain, unanswered},
};

/// Bound on each request to a broker.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at all topics for the sake of one that is missing.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Asks the brokers about topics, through the producer's own connections.
pub(crate) struct Brokers {
    pub(crate) producer: Arc<BaseProducer<Context>>,
    pub(crate) reports: Arc<Reports>,
    /// Whether it was said that a topic's limit is denied.
    pub(crate) denial_said: Arc<AtomicBool>,
    /// How topics are made that do not exist.
    pub(crate) creation: Option<Creation>,
    /// Topics that are missing, and what is in their way: when all topics were
    /// looked at for it.
    pub(crate) looked: Mutex<HashMap<String, (Instant, Option<Unusable>)>>,
}

impl Brokers {
    /// Asks, and leaves what was learnt with the reports. Blocks for at most
    /// eight [`REQUEST_TIMEOUT`]s, and one for each partition of a new topic.
    pub(crate) fn ask(&self, question: &Question) -> Asked {
        match question {
            Question::Topic(topic) => {
                let found = self.resolve(topic);
                let asked = if found.is_ok() { Asked::Answered } else { Asked::Again };
                self.reports.answer(Answer { topic: topic.clone(), found });
                asked
            }
            Question::Refresh => {
                if let Err(code) = self.refresh() {
                    tracing::debug!(%code, "the topics in use were not looked at again");
                }
                Asked::Answered
            }
            Question::Reach => {
                if topics_in_use(self.producer.client(), REQUEST_TIMEOUT).is_ok() {
                    self.reports.reached();
                }
                Asked::Answered
            }
        }
    }

    /// Where the brokers have auto.create.topics.enable, and nobody has said how
    /// the topic is to be made, this creates the topic.
    fn resolve(&self, topic: &str) -> Result<Found, Unusable> {
        self.ask_for(topic).map_err(|unusable| match unusable.is_missing {
            true => self.colliding(topic).unwrap_or(unusable),
            false => unusable,
        })
    }

    /// Whether what keeps a topic from being there is another one's name, which no
    /// advice to create it would help.
    fn colliding(&self, topic: &str) -> Option<Unusable> {
        if !topic.contains(['.', '_']) {
            return None;
        }
        let mut looked = lock(&self.looked);
        if let Some((at, found)) = looked.get(topic)
            && at.elapsed() < LOOK_AGAIN
        {
            return found.clone();
        }
        let found = self.find_colliding(topic);
        looked.insert(topic.to_owned(), (Instant::now(), found.clone()));
        found
    }

    fn find_colliding(&self, topic: &str) -> Option<Unusable> {
        let all = self.producer.client().fetch_metadata(None, REQUEST_TIMEOUT).ok()?;
        let names = || all.topics().iter().map(MetadataTopic::name);
        if names().any(|name| name == topic) {
            return None;
        }
        let other = colliding_topics(topic, names()).next()?;
        Some(collides(topic, other))
    }

    fn ask_for(&self, topic: &str) -> Result<Found, Unusable> {
        if let Some(settings) = self.creation.as_ref().and_then(|of| of(topic)) {
            make_missing(self.producer.client(), topic, &settings, REQUEST_TIMEOUT)?;
        }
        let metadata = self
            .producer
            .client()
            .fetch_metadata(Some(topic), REQUEST_TIMEOUT)
            .map_err(|error| unanswered(topic, "the metadata", &error))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let found = found.ok_or_else(|| self.denied(topic, RDKafkaErrorCode::UnknownTopic))?;
        if let Some(error) = found.error() {
            return Err(self.denied(topic, error.into()));
        }
        let partitions = i32::try_from(found.partitions().len()).unwrap_or(i32::MAX);
        if partitions == 0 {
            return Err(self.denied(topic, RDKafkaErrorCode::UnknownTopicOrPartition));
        }
        let broker = any_broker(&metadata).map_err(|code| explain(topic, code))?;
        let client = self.producer.client();
        let answer = topics_settings(client, &[topic], &SETTINGS, broker, REQUEST_TIMEOUT);
        let answer = answer.and_then(|mut answers| answers.remove(0));
        let limits = TopicLimits::read(partitions, answer)
            .map_err(|code| unanswered(topic, "the settings", &code))?;
        self.say(topic, limits.max_message_bytes);
        Ok(Found { limits, origin: Some(self.origin(topic, partitions)?) })
    }

    /// A broker has said that a topic cannot be used. That one does not exist says
    /// little where another broker knows it.
    fn denied(&self, topic: &str, code: RDKafkaErrorCode) -> Unusable {
        use RDKafkaErrorCode as Code;
        if matches!(code, Code::UnknownTopic | Code::UnknownTopicOrPartition)
            && let Ok(judged) = existence(self.producer.client(), &[topic], REQUEST_TIMEOUT)
            && let Some(Existence::There(_)) = judged.first()
        {
            let reason = "one broker does not know the topic, which another one does";
            return unanswered(topic, "the metadata", &reason);
        }
        explain(topic, code)
    }

    /// The id first: ends of a topic that was created anew meanwhile are then
    /// those of the newer one, and lower.
    fn origin(&self, topic: &str, partitions: i32) -> Result<Origin, Unusable> {
        let client = self.producer.client();
        let id = match topic_ids(client, &[topic], REQUEST_TIMEOUT) {
            Ok(mut ids) => match ids.remove(0) {
                Ok(id) => Some(id.to_string().into()),
                Err(TopicIdError::NotSupported) => None,
                Err(error) => return Err(unanswered(topic, "the id", &error)),
            },
            Err(TopicIdError::NotSupported) => None,
            Err(error) => return Err(unanswered(topic, "the id", &error)),
        };
        let mut spans = Vec::new();
        for partition in 0..partitions {
            let ends = client.fetch_watermarks(topic, partition, REQUEST_TIMEOUT);
            let (_, end) = ends.map_err(|error| unanswered(topic, "the end", &error))?;
            spans.push((end, end));
        }
        Ok(Origin { id, spans })
    }

    /// One request for all partitions and one for all limits, however many
    /// topics there are.
    fn refresh(&self) -> Result<(), RDKafkaErrorCode> {
        let client = self.producer.client();
        let found = topics_in_use(client, REQUEST_TIMEOUT)?;
        let names: Vec<&str> = found.partitions.iter().map(|(name, _)| name.as_str()).collect();
        let limits = topics_settings(client, &names, &SETTINGS, found.broker, REQUEST_TIMEOUT)?;
        for ((name, partitions), answer) in found.partitions.iter().zip(limits) {
            if let Ok(limits) = TopicLimits::read(*partitions, answer) {
                let found = Ok(Found { limits, origin: None });
                self.reports.answer(Answer { topic: name.as_str().into(), found });
            }
        }
        Ok(())
    }

    /// Says once for the whole process what somebody should change.
    fn say(&self, topic: &str, limit: MaxMessageBytes) {
        match limit {
            MaxMessageBytes::Denied if !self.denial_said.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    topic,
                    "the brokers do not tell the topic's settings, so any record is tried, and one \
                     that it does not take may end a session before it is parked; grant \
                     DescribeConfigs on the topics"
                );
            }
            MaxMessageBytes::Denied | MaxMessageBytes::Untold => {
                tracing::debug!(topic, "the brokers do not tell the settings");
            }
            MaxMessageBytes::Told(_) => {}
        }
    }
}

/// The broker that has just answered, else any: each knows all topics, and by
/// itself librdkafka would wait for the controller.
fn any_broker(metadata: &Metadata) -> Result<i32, RDKafkaErrorCode> {
    let brokers = || metadata.brokers().iter().map(MetadataBroker::id);
    brokers()
        .find(|id| *id == metadata.orig_broker_id())
        .or_else(|| brokers().next())
        .ok_or(RDKafkaErrorCode::BrokerNotAvailable)
}
