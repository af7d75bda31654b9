//! Where a connector's offset is, and which one of those there it is.

use std::path::PathBuf;

use walpost_connector::Setting;
use walpost_takeover::OffsetKey;

use super::{file::OffsetsFile, topic::Topic};
use crate::{
    config::Config,
    failure::{Exit, Failure},
};

/// Whose offset, and where it is kept; a connector's file says all of it.
#[derive(Debug, clap::Args)]
pub(super) struct WhoseArgs {
    /// Name of the connector, unless --connector names its file; of Debezium Server, kafka
    #[arg(long, value_name = "NAME")]
    connector_name: Option<String>,
    /// Its topic.prefix; may be left out where the connector has one offset
    #[arg(long)]
    topic_prefix: Option<String>,
    /// The topic with its offsets: the worker's offset.storage.topic, or the connector's
    /// offsets.storage.topic
    #[arg(long, value_name = "TOPIC", conflicts_with = "offsets_file")]
    offsets_topic: Option<String>,
    /// The file with its offsets: offset.storage.file.filename of a standalone worker, or of
    /// Debezium's engine or server
    #[arg(long, value_name = "FILE")]
    offsets_file: Option<PathBuf>,
}

/// The same, whoever said it.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    pub(super) connector: String,
    pub(super) topic_prefix: Option<String>,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Topic(String),
    File(PathBuf),
}

impl WhoseArgs {
    /// The options, and for what they do not say the connector's file.
    pub(super) fn with(&self, config: &Config) -> Result<Whose, Failure> {
        let connector = config.connector();
        let missing =
            |what: &str, write: &str| Failure::found(Exit::Configuration, what).next_step(write);
        let its_name = || {
            let is_name = |setting: &&Setting| setting.property == "name";
            let setting = connector?.settings.iter().find(is_name)?;
            setting.value.as_text().map(str::to_owned)
        };
        let its_place = || {
            let offsets = &connector?.offsets;
            let topic = offsets.topic.clone().map(Place::Topic);
            topic.or_else(|| offsets.file.clone().map(Place::File))
        };
        let name = self.connector_name.clone().or_else(its_name).ok_or_else(|| {
            missing(
                "no connector is named",
                "name it with --connector-name, or its file with \
                                              --connector",
            )
        })?;
        let topic = self.offsets_topic.clone().map(Place::Topic);
        let place = topic.or_else(|| self.offsets_file.clone().map(Place::File));
        let place = place.or_else(its_place).ok_or_else(|| {
            missing(
                "nothing says where the connector's offsets are",
                "name the place with --offsets-topic or --offsets-file, or the worker's file with \
                 --worker beside --connector",
            )
        })?;
        let its_prefix = || connector.map(|connector| connector.topic_prefix.clone());
        let topic_prefix = self.topic_prefix.clone().or_else(its_prefix);
        Ok(Whose { connector: name, topic_prefix, place })
    }
}

/// An offset as it is kept.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) key: Vec<u8>,
    /// `None` where it was deleted.
    pub(super) value: Option<Vec<u8>>,
    /// For people.
    pub(super) place: String,
    /// Of the topic.
    pub(super) partition: Option<i32>,
}

/// Where offsets are kept.
#[derive(Clone, Debug)]
pub(super) enum Store {
    Topic(Topic),
    File(OffsetsFile),
}

impl Store {
    pub(super) fn of(config: &Config, whose: &Whose) -> Result<Self, Failure> {
        Ok(match &whose.place {
            Place::Topic(name) => {
                Self::Topic(Topic { name: name.clone(), settings: config.kafka_client()? })
            }
            Place::File(path) => Self::File(OffsetsFile { path: path.clone() }),
        })
    }

    /// The one offset that is meant, deleted or not; `None` where there is none.
    pub(super) async fn find(&self, whose: &Whose) -> Result<Option<Stored>, Failure> {
        let store = self.clone();
        let stored = blocking(move || match store {
            Self::Topic(topic) => topic.read(),
            Self::File(file) => file.read(),
        })
        .await
        .map_err(|text| Failure::found(self.exit(), &text))?;
        choose(stored, whose)
    }

    /// Writes an offset in the place of `before`.
    pub(super) async fn write(
        &self,
        key: Vec<u8>,
        value: Vec<u8>,
        before: Option<&Stored>,
    ) -> Result<(), Failure> {
        let (store, partition) = (self.clone(), before.and_then(|stored| stored.partition));
        blocking(move || match store {
            Self::Topic(topic) => topic.write(&key, &value, partition),
            Self::File(file) => file.write(&key, &value),
        })
        .await
        .map_err(|text| Failure::found(self.exit(), &text))
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Topic(_) => Exit::Kafka,
            Self::File(_) => Exit::Configuration,
        }
    }
}

fn choose(stored: Vec<Stored>, whose: &Whose) -> Result<Option<Stored>, Failure> {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for one in stored {
        let Ok(key) = OffsetKey::parse(&one.key) else { continue };
        let Some(prefix) = key.topic_prefix() else { continue };
        let is_it = key.connector == whose.connector
            && whose.topic_prefix.as_ref().is_none_or(|wanted| wanted == prefix);
        match is_it {
            true => found.push((prefix.to_owned(), one)),
            false if one.value.is_some() => {
                others.push(format!("{} (topic.prefix {prefix})", key.connector));
            }
            false => {}
        }
    }
    // What was deleted counts where nothing else is there.
    if found.iter().any(|(_, one)| one.value.is_some()) {
        found.retain(|(_, one)| one.value.is_some());
    }
    let prefixes: Vec<String> = found.iter().map(|(prefix, _)| prefix.clone()).collect();
    let mut found = found.into_iter().map(|(_, one)| one);
    match (found.next(), found.next()) {
        (one, None) => {
            if one.is_none() && !others.is_empty() {
                tracing::debug!(others = others.join(", "), "offsets of others");
            }
            Ok(one)
        }
        (Some(one), Some(other)) if prefixes.iter().all(|prefix| *prefix == prefixes[0]) => {
            let (one, other) = (one.place, other.place);
            let text = format!("the offset is there twice: {one}, and {other}");
            Err(Failure::found(Exit::Configuration, &text)
                .next_step("delete the older one; Kafka Connect would take either"))
        }
        _ => {
            let (name, prefixes) = (&whose.connector, prefixes.join(", "));
            let text =
                format!("connector {name:?} has offsets of several topic prefixes: {prefixes}");
            Err(Failure::found(Exit::Configuration, &text)
                .next_step("name one by --topic-prefix: the connector's topic.prefix"))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &str, value: Option<&str>, partition: i32) -> Stored {
        Stored {
            key: key.as_bytes().to_vec(),
            value: value.map(|value| value.as_bytes().to_vec()),
            place: format!("partition {partition}"),
            partition: Some(partition),
        }
    }

    fn chosen(stored: Vec<Stored>, topic_prefix: Option<&str>) -> Result<Option<i32>, String> {
        let whose = Whose {
            connector: "orders".to_owned(),
            topic_prefix: topic_prefix.map(str::to_owned),
            place: Place::Topic("offsets".to_owned()),
        };
        choose(stored, &whose)
            .map(|one| one.and_then(|one| one.partition))
            .map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn the_connectors_own_offset_is_chosen() {
        let all = || {
            vec![
                stored(r#"["orders",{"server":"a"}]"#, Some("{}"), 1),
                stored(r#"["orders",{"server":"b"}]"#, None, 2),
                stored(r#"["orders",{"server":"a","database":"d"}]"#, Some("{}"), 3),
                stored(r#"["others",{"server":"a"}]"#, Some("{}"), 4),
                stored("\u{0}", Some("{}"), 5),
            ]
        };
        assert_eq!(chosen(all(), None), Ok(Some(1)));
        assert_eq!(chosen(all(), Some("b")), Ok(Some(2)), "deleted");
        assert_eq!(chosen(all(), Some("c")), Ok(None));
    }

    #[test]
    fn two_that_could_be_meant_are_refused() {
        let a = || stored(r#"["orders",{"server":"a"}]"#, Some("{}"), 1);
        let b = stored(r#"["orders",{"server":"b"}]"#, Some("{}"), 2);
        let text = chosen(vec![a(), b], None).unwrap_err();
        assert!(text.contains("several topic prefixes: a, b"), "{text}");
        let again = stored(r#"["orders",{"server":"a"}]"#, Some("{}"), 2);
        let text = chosen(vec![a(), again], None).unwrap_err();
        assert!(text.contains("twice: partition 1, and partition 2"), "{text}");
    }
}
