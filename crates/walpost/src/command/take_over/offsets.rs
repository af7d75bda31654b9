//! Where a connector's offset is, and which one of those there it is.

use std::path::PathBuf;

use walpost_takeover::OffsetKey;

use super::{file::OffsetsFile, topic::Topic};
use crate::{
    config::Config,
    failure::{Exit, Failure},
};

/// Whose offset, and where it is kept.
#[derive(Debug, clap::Args)]
pub(super) struct Whose {
    /// Name of the connector; of Debezium Server, kafka
    #[arg(long)]
    pub(super) connector: String,
    /// Its topic.prefix; may be left out where the connector has one offset
    #[arg(long)]
    pub(super) topic_prefix: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// One of the two.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Place {
    /// The topic with its offsets: the worker's offset.storage.topic, or the connector's
    /// offsets.storage.topic
    #[arg(long, value_name = "TOPIC")]
    offsets_topic: Option<String>,
    /// The file with its offsets: offset.storage.file.filename of a standalone worker, or of
    /// Debezium's engine or server
    #[arg(long, value_name = "FILE")]
    offsets_file: Option<PathBuf>,
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
        Ok(match (&whose.place.offsets_topic, &whose.place.offsets_file) {
            (Some(name), _) => {
                Self::Topic(Topic { name: name.clone(), settings: config.kafka_client()? })
            }
            (None, file) => Self::File(OffsetsFile { path: file.clone().unwrap_or_default() }),
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
            place: Place { offsets_topic: None, offsets_file: None },
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
