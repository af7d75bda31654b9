/// What is in a polled outbox table, of which at most 100,000 rows are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PollingSight {
    /// Rows to be published.
    pub pending: u64,
    /// Rows that could not be, and wait to be requeued.
    pub failed: u64,
    /// Age of the oldest pending row, where the table tells it.
    pub oldest_pending_seconds: Option<f64>,
}
