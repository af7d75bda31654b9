use std::sync::Arc;

use walpost_event::Message;

use crate::ack::Ticket;

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
///   waits for the rest of the deliveries and builds a new one.
/// - [`deliveries`](Sink::deliveries) may be cancelled without losing any.
pub trait Sink: Send {
    /// Queues a message.
    ///
    /// # Errors
    /// [`Unsent`] when there is no room, or when the sink knows beforehand that
    /// it will never take this message.
    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<(), Unsent>;

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
    /// Durable, or why not.
    pub result: Result<(), DeliveryError>,
}

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
    /// The sink looked at this very message and will never take it: too large,
    /// invalid. It did not land.
    Rejected,
    /// It did not land because of another message or of a purge.
    NotSent,
    /// Nobody knows whether it landed.
    Unknown,
    /// The sink as a whole refuses: rights, a topic that does not exist, a
    /// producer that was fenced.
    Refused,
}
