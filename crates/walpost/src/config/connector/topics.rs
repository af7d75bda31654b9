use walpost_connector::TopicCreation;
use walpost_kafka::TopicSettings;

/// What a topic is made like that does not exist, by its group.
pub(crate) fn new_topic(creation: &TopicCreation, topic: &str) -> Option<TopicSettings> {
    let group = creation.group(topic)?;
    Some(TopicSettings {
        partitions: group.partitions,
        replication: group.replication,
        config: group.config.clone(),
    })
}
