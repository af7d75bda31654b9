//! Points at which a test ends the process: see `stand::reached`. Compiled to
//! nothing without the feature `failpoints`, and not to be copied.

/// Where the process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// News of a subscription is at hand, and nothing is written.
    Settling,
    /// What the news change is written, and not committed.
    Settled,
    /// At the provider: a subscription and its webhook are committed, and nobody
    /// is told.
    Subscribed,
    /// At the provider: a webhook is about to be sent.
    Telling,
    /// At the provider: a webhook was answered, and nothing says so.
    Told,
}

/// The names of all of them, for tests.
#[cfg(feature = "failpoints")]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    Failpoint::ALL.into_iter().map(Failpoint::name)
}

impl Failpoint {
    const ALL: [Self; 5] =
        [Self::Settling, Self::Settled, Self::Subscribed, Self::Telling, Self::Told];

    fn name(self) -> &'static str {
        match self {
            Self::Settling => "before_settling",
            Self::Settled => "before_settled_commit",
            Self::Subscribed => "behind_subscribed_commit",
            Self::Telling => "before_telling",
            Self::Told => "behind_telling",
        }
    }

    pub(crate) fn reached(self) {
        stand::reached("subscription", &Self::ALL.map(Self::name), self.name());
    }
}
