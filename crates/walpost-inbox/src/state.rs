use std::{fmt, str::FromStr};

/// Where an event is. The table's trigger refuses every step but these:
///
/// | from | to | by |
/// |---|---|---|
/// | pending | processing | a claim |
/// | pending | ignored, review | a processor that does not know its type, or an operator |
/// | processing | succeeded | the effect's transaction, while the lease holds |
/// | processing | failed | a failed attempt, or anybody once the lease has expired |
/// | failed | processing | a claim, when `next_attempt_at` has come |
/// | review | pending, ignored | an operator |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Received, and claimed by nobody yet.
    Pending,
    /// Claimed under a lease.
    Processing,
    /// Its effect is committed. Stays so.
    Succeeded,
    /// It has no effect. Stays so.
    Ignored,
    /// An attempt failed: waits for the next one, or was given up.
    Failed,
    /// Waits for an operator.
    Review,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Processing,
        Self::Succeeded,
        Self::Ignored,
        Self::Failed,
        Self::Review,
    ];

    /// As in the column `processing_state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Ignored => "ignored",
            Self::Failed => "failed",
            Self::Review => "review",
        }
    }

    /// Whether it stays so.
    ///
    /// ```
    /// use walpost_inbox::State;
    ///
    /// assert!(State::Succeeded.is_terminal() && State::Ignored.is_terminal());
    /// assert!(!State::Failed.is_terminal());
    /// ```
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Ignored)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No state has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no state is called so; it is pending, processing, succeeded, ignored, failed or review")]
#[non_exhaustive]
pub struct ParseStateError;

impl FromStr for State {
    type Err = ParseStateError;

    fn from_str(text: &str) -> Result<Self, ParseStateError> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(ParseStateError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert_eq!("done".parse::<State>(), Err(ParseStateError));
    }
}
