pub(crate) mod transaction;

use std::{sync::Arc, time::Duration};

use walpost_event::Message;

use crate::{ack::Ticket, error::RelayError, published::Marks};

/// Where events go.
///
/// # Contract
///
/// - Messages are sent in commit order. A sink keeps that order per key at
///   their first appearance: when one of them is refused for good, nothing
///   that was sent behind it to the same partition may land.
/// - [`try_send`](Sink::try_send) never waits. A sink without room gives the
///   message back; the caller offers the same one again after
///   [`deliveries`](Sink::deliveries) has returned, which it then does also
///   without a delivery, as soon as there is room.
/// - Each accepted message gets exactly one [`Delivery`], in any order.
///   `Ok` means durable, not queued.
/// - After a delivery that failed the sink accepts nothing more; the caller
///   waits for the rest of the deliveries and builds a new one. A record that went
///   [apart](Sink::set_apart) and was refused is no such failure.
/// - [`deliveries`](Sink::deliveries) may be cancelled without losing any.
/// - A message goes to one of the [`places`](Sink::places), and only to one that
///   was [allowed](Sink::allow): a successor reads back the places that a
///   checkpoint names, so one is named before anything is written there.
pub trait Sink: Send {
    /// What the sink is called in the labels of metrics.
    const NAME: &'static str = "sink";

    /// The name under which a successor can fence this sink off, so that nothing
    /// of it appears any more; `None` where that is not possible.
    fn fence_id(&self) -> Option<&str> {
        None
    }

    /// Fences off a predecessor of that name, which may still live. Called before
    /// anything is read back; the slot is ours by then.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] when it is not known to be fenced off.
    fn fence(&mut self, predecessor: &str) -> impl Future<Output = Result<(), RelayError>> + Send {
        let _ = predecessor;
        async { Ok(()) }
    }

    /// Reads back what stands in `topics` from their floors to their ends, and
    /// tells `note` of each record. Called once, before anything else. With
    /// `settle`, what a predecessor had on its way may still land: the sink
    /// waits for so long and reads on to the ends of then.
    ///
    /// A sink that cannot be read back reads nothing.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] when it could not be read to the end.
    fn read_back(
        &mut self,
        topics: Vec<TopicFloors>,
        settle: Option<Duration>,
        note: Box<NoteMarks>,
    ) -> impl Future<Output = Result<(), RelayError>> + Send;

    /// The places that are known, in the order in which they were found. Those
    /// that were read back are there from the beginning; others come as their
    /// topics are met.
    fn places(&self) -> &[Place];

    /// The first `places` of them are named by a committed checkpoint.
    fn allow(&mut self, places: usize);

    /// Whether the stream is behind. While it is, messages may wait a moment for
    /// others, within a bound of the sink, so that they go in larger steps.
    fn gather(&mut self, gather: bool) {
        let _ = gather;
    }

    /// Whether messages of this topic go apart from now on: one at a time, by
    /// themselves, so that one that is refused ends nothing
    /// ([`DeliveryErrorKind::RefusedAlone`]). Returns whether they do, which is not
    /// what was asked for where the sink cannot, or one is on its way. Never waits.
    fn set_apart(&mut self, topic: &Arc<str>, apart: bool) -> bool {
        let _ = (topic, apart);
        false
    }

    /// Nothing more is sent before all that was sent is delivered: a sink that
    /// would wait for more, to deliver it together, waits no longer.
    fn hurry(&mut self) {}

    /// Where this message would go if it were sent now; `None` while it would
    /// not be. Learns what is missing, as [`try_send`](Sink::try_send) does.
    /// Naming the partition of the place in the message keeps it there.
    ///
    /// # Errors
    /// Why the sink will never take this message; never contents.
    fn lane_of(&mut self, message: &Message) -> Result<Option<Lane>, String>;

    /// What an error names as the place of a message that it will never take: its
    /// topic, unless the sink has none.
    fn place_name(&self, message: &Message) -> Arc<str> {
        message.topic.clone()
    }

    /// Queues a message, and says for which place.
    ///
    /// # Errors
    /// [`Unsent`] when there is no room, or when the sink knows beforehand that
    /// it will never take this message.
    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent>;

    /// Waits for deliveries and appends them.
    fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) -> impl Future<Output = ()> + Send;

    /// Messages that were accepted and have no delivery yet.
    fn outstanding(&self) -> usize;

    /// What keeps the sink from accepting anything, for people: a topic that
    /// does not exist, a broker that does not answer.
    fn trouble(&self) -> Option<String>;

    /// Gives up what is queued, waits for what is on its way no longer than
    /// the sink's own bound, and releases every resource.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A message that [`Sink::try_send`] did not take.
#[derive(Debug)]
pub enum Unsent {
    /// No room now; offer it again later.
    Full(Box<Message>),
    /// Another one of its topic is on its way, which goes [apart](Sink::set_apart):
    /// messages of other topics go on.
    Apart(Box<Message>),
    /// Its topic cannot be used now, and it alone: messages of others go on.
    Away {
        /// The message; offer it again later.
        message: Box<Message>,
        /// Why; never contents.
        detail: Arc<str>,
    },
    /// It can never be taken; the sink goes on.
    Never {
        /// Topic, or whatever names the place in the sink.
        topic: Arc<str>,
        /// Why; never contents.
        detail: String,
    },
}

/// The fate of one message.
#[derive(Debug)]
pub struct Delivery {
    /// The ticket given to [`Sink::try_send`].
    pub ticket: Ticket,
    /// Where it is durable, or why it is not.
    pub result: Result<Landed, DeliveryError>,
}

/// Where a message landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The place.
    pub lane: Lane,
    /// Its offset there; the sink does not always learn it.
    pub offset: Option<i64>,
}

/// Dense index of a [`Place`] within one sink.
pub type Lane = u32;

/// Where events keep their order within a sink, such as a topic-partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Topic, or whatever the place belongs to.
    pub topic: Arc<str>,
    /// What tells the topic from another one of the same name.
    pub topic_id: Option<Arc<str>>,
    /// Number of the partition.
    pub partition: i32,
    /// Nothing of this pipeline above the checkpoint stands below this offset.
    pub start: i64,
    /// Everything below this offset was there when the place was found.
    pub end: i64,
}

/// From where a topic is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFloors {
    /// Its name.
    pub name: Arc<str>,
    /// Its id, where the brokers had one: another one means another topic.
    pub id: Option<Arc<str>>,
    /// By partition the lowest offset that may hold an event above the
    /// checkpoint.
    pub floors: Vec<i64>,
}

/// Is told of each record that was read back.
pub type NoteMarks = dyn FnMut(Marks<'_>) + Send;

/// Why a message is not durable, or not known to be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{topic}: {detail}")]
pub struct DeliveryError {
    /// What is known of the message.
    pub kind: DeliveryErrorKind,
    /// Topic, or whatever names the place in the sink.
    pub topic: Arc<str>,
    /// What the sink said; never contents.
    pub detail: Arc<str>,
}

/// What a failed delivery says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryErrorKind {
    /// The sink looked at this message, or at what it was sent with, and will
    /// not take it: too large, invalid. It did not land. Only a message that was
    /// alone with the sink is refused for itself.
    Rejected,
    /// The same of a message that went [apart](Sink::set_apart): it is refused for
    /// itself, and the sink goes on.
    RefusedAlone,
    /// It did not land because of another message or of a purge.
    NotSent,
    /// Nobody knows whether it landed.
    Unknown,
    /// It did not land because its topic takes none of ours: it does not exist
    /// any more, or we have no right. Others may.
    Unavailable,
    /// The sink as a whole refuses: rights on the cluster, a producer that was
    /// fenced.
    Refused,
}
