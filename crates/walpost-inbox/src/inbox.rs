use std::sync::Arc;

use crate::sql::Sql;

/// The table of received events in one schema. Cheap to clone; holds no
/// connection.
///
/// ```
/// use walpost_inbox::Inbox;
///
/// let inbox = Inbox::new();
/// assert_eq!(inbox.schema(), "walpost");
/// let other = Inbox::in_schema("billing").without_notify();
/// assert_eq!(other.schema(), "billing");
/// ```
#[derive(Clone, Debug)]
pub struct Inbox {
    pub(crate) schema: String,
    pub(crate) sql: Arc<Sql>,
    pub(crate) notify: bool,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbox {
    /// In the schema `walpost`.
    pub fn new() -> Self {
        Self::in_schema("walpost")
    }

    /// In another schema: its name as stored, without quotes.
    pub fn in_schema(schema: impl Into<String>) -> Self {
        let schema = schema.into();
        let sql = Arc::new(Sql::new(&schema));
        Self { schema, sql, notify: true }
    }

    /// Inserts do not wake processors, which then find events by looking.
    ///
    /// PostgreSQL commits transactions that notify one after another, which
    /// bounds how many a second can be received.
    #[must_use]
    pub fn without_notify(mut self) -> Self {
        self.notify = false;
        self
    }

    /// Its schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}
