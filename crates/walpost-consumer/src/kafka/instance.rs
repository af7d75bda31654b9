//! The place of a static member in its group, looked at before it is taken. The
//! coordinator gives it to the member that comes back with all that it had, and
//! does not compare topics: others than before would belong to nobody.

use std::{
    collections::BTreeSet,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::KafkaResult,
};
use tokio::sync::mpsc;
use walpost_librdkafka::{Group, group};

use super::{command::GroupEvent, config::members_assign, context::Context};
use crate::{
    Error,
    tell::{Reminder, tell},
};

/// Between two looks at the group.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for the answer to one look.
const LIMIT: Duration = Duration::from_secs(2);
/// Looks without an answer, of brokers that have answered otherwise, until it is
/// joined all the same: the coordinator may refuse to tell.
const MAX_UNANSWERED: usize = 10;
/// Behind the instance's id in the id that the coordinator gives its member, and a
/// hyphen.
const UUID_LEN: usize = 36;

/// A static member of a group whose members assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    group: String,
    id: String,
}

/// What stands at the member's place.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Nobody, a member with the same topics, or one that a rebalance waits for.
    Fits,
    /// A member with other topics, which are these.
    Other(BTreeSet<String>),
    /// Partitions are being handed out; it has to be looked again.
    Unsettled,
}

impl Instance {
    /// None where nobody can stand at its place, or the brokers assign.
    pub(super) fn of(config: &ClientConfig) -> Option<Self> {
        let of = |name: &str| config.get(name).map(str::to_owned);
        let (group, id) = (of("group.id")?, of("group.instance.id")?);
        members_assign(config).then_some(Self { group, id })
    }

    /// Whether a member has the id that the coordinator gives one of this instance.
    fn is(&self, member: &str) -> bool {
        let rest = member.strip_prefix(&self.id).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.len() == UUID_LEN)
    }

    /// Of `topics` those count that `exist`, as a member subscribes to no others.
    fn place(&self, group: &Group, topics: &[String], exists: impl Fn(&str) -> bool) -> Place {
        let Some(member) = group.members.iter().find(|member| self.is(&member.id)) else {
            return Place::Fits;
        };
        // A rebalance that waits for it takes its topics as they are, and one that
        // hands partitions out is over at once. Of neither subscriptions are told.
        match group.state.as_str() {
            "Stable" => {}
            "PreparingRebalance" => return Place::Fits,
            _ => return Place::Unsettled,
        }
        let Some(theirs) = subscription(&member.metadata) else { return Place::Fits };
        let has_left_out = theirs.iter().any(|topic| !topics.contains(topic));
        let is_new = |topic: &String| !theirs.contains(topic) && exists(topic);
        match has_left_out || topics.iter().any(is_new) {
            true => Place::Other(theirs),
            false => Place::Fits,
        }
    }
}

/// The topics in a member's metadata, by Kafka's protocol of consumers: version,
/// then names with their lengths.
fn subscription(metadata: &[u8]) -> Option<BTreeSet<String>> {
    let (_version, rest) = metadata.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut topics = BTreeSet::new();
    for _ in 0..i32::from_be_bytes(*count) {
        let (len, name) = rest.split_first_chunk::<2>()?;
        let (name, behind) = name.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        topics.insert(str::from_utf8(name).ok()?.to_owned());
        rest = behind;
    }
    Some(topics)
}

/// Joins the group: at once, or as an instance once its place fits, on a thread of
/// its own, as a look waits for its answer.
pub(super) fn join(
    consumer: &Arc<BaseConsumer<Context>>,
    instance: Option<Instance>,
    topics: Vec<String>,
    events: mpsc::Sender<GroupEvent>,
) -> Result<Joining, Error> {
    let Some(instance) = instance else {
        subscribe(consumer, &topics)?;
        return Ok(Joining { thread: None });
    };
    let look = Look { consumer: Arc::clone(consumer), instance, topics };
    let thread = std::thread::Builder::new().name("walpost-joining".to_owned());
    let thread = thread.spawn(move || {
        look.until_it_fits();
        if let Err(error) = subscribe(&look.consumer, &look.topics) {
            let _ = events.blocking_send(GroupEvent::Fatal(error));
        }
    });
    let thread = thread.map_err(|error| Error::Kafka {
        attempted: "starting the thread that joins the group".to_owned(),
        source: error.into(),
    })?;
    Ok(Joining { thread: Some(thread) })
}

/// The thread, which ends with this value once the context is closed.
pub(super) struct Joining {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Joining {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn subscribe(consumer: &BaseConsumer<Context>, topics: &[String]) -> Result<(), Error> {
    if consumer.context().is_closing() {
        return Ok(());
    }
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(|error| Error::Kafka {
        attempted: "subscribing to the topics".to_owned(),
        source: error.into(),
    })
}

struct Look {
    consumer: Arc<BaseConsumer<Context>>,
    instance: Instance,
    topics: Vec<String>,
}

impl Look {
    fn until_it_fits(&self) {
        let mut unanswered = 0;
        let mut reminder = Reminder::default();
        while !self.consumer.context().is_closing() {
            match self.place() {
                Ok(Place::Fits) => return,
                Ok(Place::Unsettled) => {}
                Ok(Place::Other(theirs)) => {
                    if reminder.is_due(Instant::now()) {
                        self.tell(theirs);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "looking at the group failed");
                    // It came with the first answer.
                    let client = self.consumer.client();
                    unanswered += usize::from(client.fetch_cluster_id(Duration::ZERO).is_some());
                    if unanswered >= MAX_UNANSWERED {
                        return;
                    }
                }
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn place(&self) -> KafkaResult<Place> {
        let found = group(self.consumer.client(), &self.instance.group, LIMIT)?;
        Ok(found.map_or(Place::Fits, |group| {
            self.instance.place(&group, &self.topics, |topic| self.exists(topic))
        }))
    }

    fn exists(&self, topic: &str) -> bool {
        let found = self.consumer.fetch_metadata(Some(topic), LIMIT);
        found.is_ok_and(|found| found.topics().iter().any(|of| !of.partitions().is_empty()))
    }

    fn tell(&self, theirs: BTreeSet<String>) {
        let instance = &self.instance.id;
        let theirs = theirs.into_iter().collect::<Vec<_>>().join(", ");
        tell!(
            info,
            { instance = instance, before = theirs },
            "the topics are not those of this group.instance.id's member before, whose \
             partitions alone it would get; it joins when the session of that one has ended"
        );
    }
}

#[cfg(test)]
mod tests {
    use walpost_librdkafka::GroupMember;

    use super::*;

    const ID: &str = "pod-0-0b8ad2a3-7d24-4b63-8f9e-1b1d3c1b7c55";

    fn metadata(topics: &[&str]) -> Vec<u8> {
        let mut metadata = vec![0, 1];
        metadata.extend((topics.len() as i32).to_be_bytes());
        for topic in topics {
            metadata.extend((topic.len() as u16).to_be_bytes());
            metadata.extend(topic.as_bytes());
        }
        // User data, and the partitions of a member that has some.
        metadata.extend([255; 4]);
        metadata.extend([0; 4]);
        metadata
    }

    fn place(state: &str, id: &str, theirs: &[&str]) -> Place {
        let instance = Instance { group: "shipping".to_owned(), id: "pod-0".to_owned() };
        let member = |id: &str, metadata| GroupMember { id: id.to_owned(), metadata };
        let members = vec![member("rdkafka-1", Vec::new()), member(id, metadata(theirs))];
        let ours = ["orders", "refunds", "to-come"].map(str::to_owned);
        let group = Group { state: state.to_owned(), members };
        instance.place(&group, &ours, |topic| topic != "to-come")
    }

    #[test]
    fn the_place_of_the_same_topics_is_taken_and_that_of_others_waited_for() {
        assert_eq!(place("Stable", ID, &["refunds", "orders"]), Place::Fits);
        for others in [&["orders"] as &[_], &["orders", "refunds", "letters"], &[]] {
            let theirs = others.iter().map(|topic| (*topic).to_owned()).collect();
            assert_eq!(place("Stable", ID, others), Place::Other(theirs), "{others:?}");
            assert_eq!(place("PreparingRebalance", ID, others), Place::Fits);
            assert_eq!(place("CompletingRebalance", ID, others), Place::Unsettled);
        }
    }

    #[test]
    fn members_of_other_instances_are_not_in_the_way() {
        let of_other = ID.replace("pod-0", "pod-0-1");
        for id in ["pod-1", "pod-0", &of_other, &ID.replace("pod-0", "pod-1")] {
            assert_eq!(place("Stable", id, &["orders"]), Place::Fits, "{id}");
        }
    }

    #[test]
    fn a_subscription_that_is_cut_off_is_none() {
        let whole = metadata(&["orders", "refunds"]);
        let end = whole.len() - 8;
        for len in 0..end {
            assert_eq!(subscription(&whole[..len]), None, "{len}");
        }
        assert_eq!(subscription(&whole[..end]).unwrap().len(), 2);
    }
}
