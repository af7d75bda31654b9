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
    error::RDKafkaErrorCode as Code,
};
use tokio::sync::mpsc;
use walpost_librdkafka::{
    Group, GroupState, TopicId, TopicIdError, group, member_metadata, topic_ids,
};

use super::{command::GroupEvent, config::members_assign, context::Context};
use crate::{
    Error,
    tell::{Reminder, tell},
};

/// Between two looks at the group.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for one answer; a look has several.
const LIMIT: Duration = Duration::from_secs(2);
/// Looks that brokers refuse, until it is joined all the same: they never will tell.
const MAX_REFUSED: usize = 10;
/// Looks without an answer, until that is told.
const MAX_IN_VAIN: usize = 10;

/// A static member of a group whose members assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    group: String,
    id: String,
}

/// Who stands at the member's place.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nobody, or a member that a rebalance waits for: that takes its topics as they
    /// are.
    Nobody,
    /// The member with this id.
    Member(String),
    /// One to whom partitions are being handed out, which is over at once: its topics
    /// are not told until then.
    Unsettled,
}

/// Whether the member's place can be taken.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Fits,
    /// A member with other topics is there, which are these.
    Other(BTreeSet<String>),
    /// It has to be looked again.
    Unsettled,
}

impl Instance {
    /// None where nobody can stand at its place, or the brokers assign.
    pub(super) fn of(config: &ClientConfig) -> Option<Self> {
        let of = |name: &str| config.get(name).map(str::to_owned);
        let (group, id) = (of("group.id")?, of("group.instance.id")?);
        members_assign(config).then_some(Self { group, id })
    }

    fn found(&self, group: Option<Group>) -> Found {
        let Some(Group { state, members }) = group else { return Found::Nobody };
        let here = members.into_iter().find(|member| member.instance.as_ref() == Some(&self.id));
        match (here, state) {
            (None, _) | (Some(_), GroupState::PreparingRebalance) => Found::Nobody,
            (Some(member), GroupState::Stable) => Found::Member(member.id),
            (Some(_), GroupState::Other) => Found::Unsettled,
        }
    }
}

/// Whether `topics` fit at the place of a member with `theirs`. Of new ones those count
/// that exist, as a member subscribes to no others; `exists` is of any.
fn compare(
    theirs: BTreeSet<String>,
    topics: &[String],
    exists: impl FnOnce(&[&str]) -> Result<bool, Code>,
) -> Result<Place, Code> {
    let ours: BTreeSet<&str> = topics.iter().map(String::as_str).collect();
    let new: Vec<&str> = ours.iter().copied().filter(|topic| !theirs.contains(*topic)).collect();
    let has_left_out = theirs.iter().any(|topic| !ours.contains(&**topic));
    match has_left_out || (!new.is_empty() && exists(&new)?) {
        true => Ok(Place::Other(theirs)),
        false => Ok(Place::Fits),
    }
}

/// Whether any of the topics exists that this is the answer for.
fn any_exists(answer: Vec<Result<TopicId, TopicIdError>>) -> Result<bool, Code> {
    let mut unknown = None;
    for topic in answer {
        match topic {
            Ok(_) | Err(TopicIdError::NotSupported) => return Ok(true),
            Err(TopicIdError::Kafka(
                Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::InvalidTopic
                | Code::TopicAuthorizationFailed,
            )) => {}
            Err(error) => unknown = Some(code(&error)),
        }
    }
    unknown.map_or(Ok(false), Err)
}

fn code(error: &TopicIdError) -> Code {
    match error {
        TopicIdError::Kafka(code) => *code,
        TopicIdError::TimedOut { .. } => Code::OperationTimedOut,
        _ => Code::Fail,
    }
}

/// What came of the looks so far.
#[derive(Debug, Default)]
struct Looks {
    refused: usize,
    in_vain: usize,
}

impl Looks {
    /// Whether it joins after this one.
    fn joins(&mut self, look: &Result<Place, Code>) -> bool {
        match look {
            Ok(place) => {
                *self = Self::default();
                *place == Place::Fits
            }
            Err(code) => {
                self.in_vain += 1;
                self.refused += usize::from(is_refusal(*code));
                self.refused >= MAX_REFUSED
            }
        }
    }

    fn are_in_vain(&self) -> bool {
        self.in_vain >= MAX_IN_VAIN
    }
}

/// Whether brokers never will tell: for want of a right, or as they do not know the
/// question, as librdkafka's embedded one. Everything else may pass.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::GroupAuthorizationFailed
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::UnsupportedVersion
            | Code::UnsupportedFeature
    )
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
        let (mut looks, mut reminder) = (Looks::default(), Reminder::default());
        while !self.is_closing() {
            let look = self.place();
            if looks.joins(&look) {
                return;
            }
            match look {
                Ok(Place::Other(theirs)) if reminder.is_due(Instant::now()) => self.tell(theirs),
                Err(error) if looks.are_in_vain() && reminder.is_due(Instant::now()) => {
                    self.tell_unknown(error);
                }
                Err(error) => tracing::debug!(%error, "looking at the group failed"),
                Ok(_) => {}
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn is_closing(&self) -> bool {
        self.consumer.context().is_closing()
    }

    /// An error where it is not known.
    fn place(&self) -> Result<Place, Code> {
        let (client, of) = (self.consumer.client(), &self.instance);
        let member = match of.found(group(client, &of.group, LIMIT)?) {
            Found::Nobody => return Ok(Place::Fits),
            Found::Member(member) => member,
            Found::Unsettled => return Ok(Place::Unsettled),
        };
        if self.is_closing() {
            return Ok(Place::Unsettled);
        }
        // Without: it has just gone, or its coordinator was not among those who answered.
        let metadata = member_metadata(client, &of.group, &member, LIMIT)?.ok_or(Code::Partial)?;
        let Some(theirs) = subscription(&metadata) else { return Ok(Place::Fits) };
        compare(theirs, &self.topics, |new| {
            any_exists(topic_ids(client, new, LIMIT).map_err(|error| code(&error))?)
        })
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

    fn tell_unknown(&self, reason: Code) {
        let instance = &self.instance.id;
        tell!(
            warn,
            { instance = instance, reason = reason },
            "the brokers do not tell whether this group.instance.id's member before has the same \
             topics; it joins when they do. See whether the group's coordinator runs"
        );
    }
}

#[cfg(test)]
mod tests {
    use walpost_librdkafka::GroupMember;

    use super::*;

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

    fn names(topics: &[&str]) -> BTreeSet<String> {
        topics.iter().map(|topic| (*topic).to_owned()).collect()
    }

    fn found(state: GroupState, instance: Option<&str>) -> Found {
        let member = |id: &str, instance: Option<&str>| GroupMember {
            id: id.to_owned(),
            instance: instance.map(str::to_owned),
        };
        let members = vec![member("rdkafka-1", None), member("of-it", instance)];
        let of = Instance { group: "shipping".to_owned(), id: "pod-0".to_owned() };
        of.found(Some(Group { state, members }))
    }

    #[test]
    fn the_member_before_is_found_by_its_instance_and_in_a_stable_group() {
        let (stable, here) = (GroupState::Stable, Some("pod-0"));
        assert_eq!(found(stable, here), Found::Member("of-it".to_owned()));
        assert_eq!(found(GroupState::PreparingRebalance, here), Found::Nobody);
        assert_eq!(found(GroupState::Other, here), Found::Unsettled);
        for instance in [None, Some("pod-1"), Some("pod-0-1"), Some("pod")] {
            assert_eq!(found(stable, instance), Found::Nobody, "{instance:?}");
            assert_eq!(found(GroupState::Other, instance), Found::Nobody, "{instance:?}");
        }
        let of = Instance { group: "shipping".to_owned(), id: "pod-0".to_owned() };
        assert_eq!(of.found(None), Found::Nobody);
    }

    /// With `to-come` there or not, or of which nobody knows.
    fn place(theirs: &[&str], exists: Result<bool, Code>) -> Result<Place, Code> {
        let ours = ["orders", "refunds", "to-come"].map(str::to_owned);
        compare(names(theirs), &ours, |new| match new {
            ["to-come"] => exists,
            _ => Ok(true),
        })
    }

    #[test]
    fn the_place_of_the_same_topics_is_taken_and_that_of_others_waited_for() {
        assert_eq!(place(&["refunds", "orders"], Ok(false)), Ok(Place::Fits));
        assert_eq!(place(&["refunds", "orders", "to-come"], Err(Code::Fail)), Ok(Place::Fits));
        for others in [&["orders"] as &[_], &["orders", "refunds", "letters"], &[]] {
            assert_eq!(place(others, Ok(false)), Ok(Place::Other(names(others))), "{others:?}");
        }
        let before = &["orders", "refunds"];
        assert_eq!(place(before, Ok(true)), Ok(Place::Other(names(before))));
    }

    #[test]
    fn of_a_new_topic_of_which_nobody_knows_nothing_follows() {
        let unknown = Err(Code::OperationTimedOut);
        assert_eq!(place(&["orders", "refunds"], Err(Code::OperationTimedOut)), unknown);
    }

    #[test]
    fn a_topic_exists_unless_brokers_say_otherwise() {
        let kafka = |code| Err(TopicIdError::Kafka(code));
        let (unknown, id) = (kafka(Code::UnknownTopicOrPartition), Ok(TopicId::from(1)));
        let denied = kafka(Code::TopicAuthorizationFailed);
        let fails = || kafka(Code::LeaderNotAvailable);
        let old = Err(TopicIdError::NotSupported);
        assert_eq!(any_exists(vec![]), Ok(false));
        assert_eq!(any_exists(vec![unknown.clone(), denied]), Ok(false));
        assert_eq!(any_exists(vec![unknown.clone(), old]), Ok(true));
        assert_eq!(any_exists(vec![fails(), id]), Ok(true));
        assert_eq!(any_exists(vec![fails(), unknown]), Err(Code::LeaderNotAvailable));
    }

    /// After which of these looks it joins.
    fn joins(looks: impl IntoIterator<Item = Result<Place, Code>>) -> Option<usize> {
        let mut so_far = Looks::default();
        looks.into_iter().position(|look| so_far.joins(&look))
    }

    fn other() -> Result<Place, Code> {
        Ok(Place::Other(names(&["orders"])))
    }

    #[test]
    fn it_joins_at_the_first_answer_that_fits() {
        assert_eq!(joins([Ok(Place::Fits)]), Some(0));
        let away = Err(Code::OperationTimedOut);
        assert_eq!(joins([away, other(), Ok(Place::Unsettled), Ok(Place::Fits)]), Some(3));
    }

    #[test]
    fn a_coordinator_that_is_away_is_waited_for_and_one_that_refuses_is_not() {
        let always = |code| (0..1_000).map(move |_| Err(code));
        for code in [
            Code::OperationTimedOut,
            Code::BrokerTransportFailure,
            Code::Partial,
            Code::NotCoordinator,
            Code::CoordinatorNotAvailable,
            Code::CoordinatorLoadInProgress,
            Code::LeaderNotAvailable,
            Code::RequestTimedOut,
        ] {
            assert_eq!(joins(always(code)), None, "{code:?}");
        }
        for code in [Code::GroupAuthorizationFailed, Code::UnsupportedFeature] {
            assert_eq!(joins(always(code)), Some(MAX_REFUSED - 1), "{code:?}");
        }
        let answers_now_and_then = (0..1_000).map(|look| match look % MAX_REFUSED {
            0 => other(),
            _ => Err(Code::GroupAuthorizationFailed),
        });
        assert_eq!(joins(answers_now_and_then), None);
    }

    #[test]
    fn looks_in_vain_are_told_until_one_is_answered() {
        let mut looks = Looks::default();
        for look in 1..=2 * MAX_IN_VAIN {
            looks.joins(&Err(Code::OperationTimedOut));
            assert_eq!(looks.are_in_vain(), look >= MAX_IN_VAIN);
        }
        looks.joins(&other());
        assert!(!looks.are_in_vain());
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
