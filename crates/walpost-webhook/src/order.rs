/// Which deliveries of a destination go one after the other. Whoever is first and not
/// done blocks those behind: while it waits for its attempt, is sent, has failed, is held
/// or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// None: whatever is due is sent, many at once.
    #[default]
    None,
    /// Those with the same [order key](crate::NewDelivery::order_key); others go beside
    /// them, and those without a key beside all.
    Key,
    /// All of them, one at a time.
    All,
}

/// What becomes of those behind a delivery that has failed, where they go in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHeadFailure {
    /// They wait until somebody retries or settles it.
    #[default]
    Block,
    /// They go.
    Skip,
}

impl Order {
    /// As the destination's row has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
            Self::All => "all",
        }
    }

    /// How many of a destination's deliveries may be on their way at once, of so many.
    pub(crate) fn at_once(self, concurrency: u32) -> u32 {
        if self == Self::All { 1 } else { concurrency }
    }
}
