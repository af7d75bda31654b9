//! Points at which a test ends the process: see `stand::reached`. Compiled to
//! nothing without the feature `failpoints`, and not to be copied.

/// Where the process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// Somebody outside is about to be asked.
    Asking,
    /// The answer has come, and nothing says so.
    Answered,
    /// A step is written, and not committed.
    Written,
    /// A step is committed.
    Committed,
}

/// The names of all of them, for tests.
#[cfg(feature = "failpoints")]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    Failpoint::ALL.into_iter().map(Failpoint::name)
}

impl Failpoint {
    const ALL: [Self; 4] = [Self::Asking, Self::Answered, Self::Written, Self::Committed];

    fn name(self) -> &'static str {
        match self {
            Self::Asking => "before_call",
            Self::Answered => "after_call",
            Self::Written => "before_step_commit",
            Self::Committed => "after_step_commit",
        }
    }

    pub(crate) fn reached(self) {
        stand::reached("checkout", &Self::ALL.map(Self::name), self.name());
    }
}
