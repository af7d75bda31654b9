use crate::{
    checkpoint::{Cut, Feed},
    config::RelayConfig,
    error::RelayError,
};

/// Who may claim rows, and which.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    /// Relays, all rows, while the pipeline polls.
    Relays,
    /// The switch to the WAL, what its cut sees, until all of that is published.
    Switch(Cut),
}

impl Gate {
    /// Only rows that this snapshot sees.
    pub(super) fn seen_by(&self) -> Option<&str> {
        match self {
            Self::Relays => None,
            Self::Switch(cut) => Some(&cut.snapshot),
        }
    }

    /// `feed` is what the row says now, if there is one.
    pub(super) fn admit(&self, config: &RelayConfig, feed: Option<Feed>) -> Result<(), RelayError> {
        match (self, feed) {
            (Self::Relays, Some(feed)) => feed.expect_polling(config),
            (Self::Switch(cut), Some(Feed::ToWal(Some(now)))) if now == *cut => Ok(()),
            // Somebody has deleted the row: a new session makes it.
            (Self::Relays, None) | (Self::Switch(_), _) => {
                Err(RelayError::TakenOver { pipeline: config.pipeline.clone() })
            }
        }
    }
}
