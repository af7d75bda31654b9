use std::{fmt, str::FromStr};

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryState {
    /// It waits for its next attempt, or for its first.
    Pending,
    /// An attempt is being made.
    Sending,
    /// It has arrived.
    Delivered,
    /// No attempt is left.
    Failed,
    /// Its destination is disabled.
    Held,
    /// Nobody knows whether it has arrived: somebody has to look.
    Unknown,
}

impl DeliveryState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Sending, Self::Delivered, Self::Failed, Self::Held, Self::Unknown];
    /// All but those that are done.
    pub const OPEN: [Self; 5] =
        [Self::Pending, Self::Sending, Self::Failed, Self::Held, Self::Unknown];

    /// As the column has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Unknown => "unknown",
        }
    }

    /// From the column, which has these alone.
    pub(super) fn of_column(text: &str) -> Self {
        text.parse().expect("the table has these states alone")
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery is pending, sending, delivered, failed, held or unknown")]
pub struct NoSuchState;

impl FromStr for DeliveryState {
    type Err = NoSuchState;

    fn from_str(text: &str) -> Result<Self, NoSuchState> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(NoSuchState)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_read_from_its_name() {
        for state in DeliveryState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for text in ["", "Pending", "done"] {
            assert_eq!(text.parse::<DeliveryState>(), Err(NoSuchState), "{text}");
        }
    }
}
