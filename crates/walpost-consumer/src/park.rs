/// What waits while an event is parked.
///
/// ```
/// use walpost_consumer::{Consumer, Park};
///
/// let builder = Consumer::builder("mailing").park(Park::Event);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Park {
    /// The later events of its key: they are set aside too, untried, and are
    /// applied in their order once the parked one was retried or discarded. So
    /// the order of each key holds. Events of other keys go on. The default.
    ///
    /// An event without a key, or without a usable id, is parked alone.
    #[default]
    Key,
    /// Nothing: later events of its key overtake it.
    Event,
}
