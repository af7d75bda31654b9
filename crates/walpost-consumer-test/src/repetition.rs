use std::fmt;

use crate::{Report, TableChange, difference::write_table};

/// What a second run of the same events changed, with no guard between. Made by
/// [`Unguarded::twice`](crate::Unguarded::twice).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Repetition {
    /// The first run.
    pub first: Report,
    /// The second.
    pub second: Report,
    /// What the second run changed.
    pub changes: Vec<TableChange>,
}

impl Repetition {
    /// Whether the second run changed nothing, and parked nothing that the first
    /// had not.
    pub fn is_idempotent(&self) -> bool {
        self.changes.is_empty()
            && self.second.unfinished().is_none()
            && self.second.parked.len() == self.first.parked.len()
    }

    /// That the transition itself is idempotent.
    ///
    /// # Panics
    /// With the rows that the second run changed, if not.
    #[track_caller]
    pub fn assert_idempotent(&self) {
        assert!(self.is_idempotent(), "the handler is not idempotent by itself: {self}");
    }
}

/// The changed rows, table by table.
impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_idempotent() {
            return write!(f, "a second run changed nothing ({})", self.second);
        }
        write!(f, "a second run, without a guard: {}", self.second)?;
        write_table(f, &self.changes)
    }
}
