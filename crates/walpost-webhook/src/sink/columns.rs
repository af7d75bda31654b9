//! Columns of the outbox that say something about a webhook, and the headers in
//! which the router hands them over.

use walpost_relay::ID_HEADER;

pub(super) const ID: &str = ID_HEADER;
pub(super) const EVENT_TYPE: &str = "webhook-type";
pub(super) const DESTINATION: &str = "webhook-destination";
pub(super) const KEY: &str = "webhook-key";
pub(super) const PATH: &str = "webhook-path";
pub(super) const CONTENT_TYPE: &str = "webhook-content-type";
pub(super) const RETRY_LIMIT: &str = "webhook-retry-limit";
pub(super) const RETRY_WAIT_MS: &str = "webhook-retry-wait-ms";

/// Columns of the outbox that say where, how and how often an event is sent;
/// none of them unless set, and where a row has null the destination decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Type of the event.
    pub event_type: Option<String>,
    /// Name of the one destination.
    pub destination: Option<String>,
    /// What the receiver knows it by.
    pub key: Option<String>,
    /// Path and query behind those of the destination.
    pub path: Option<String>,
    /// Type of the body.
    pub content_type: Option<String>,
    /// Retries behind the first attempt.
    pub retry_limit: Option<String>,
    /// Milliseconds before each of them.
    pub retry_wait_ms: Option<String>,
}

impl Columns {
    /// The router's `additional_placement` that hands them over; `None` where
    /// there is nothing to hand over.
    ///
    /// # Errors
    /// The column whose name cannot be in such a list.
    pub fn placement(&self) -> Result<Option<String>, String> {
        let columns = [
            (&self.event_type, EVENT_TYPE),
            (&self.destination, DESTINATION),
            (&self.key, KEY),
            (&self.path, PATH),
            (&self.content_type, CONTENT_TYPE),
            (&self.retry_limit, RETRY_LIMIT),
            (&self.retry_wait_ms, RETRY_WAIT_MS),
        ];
        let mut entries = Vec::new();
        for (column, header) in columns {
            let Some(column) = column else { continue };
            if column.contains([',', ':']) || column.trim() != column || column.is_empty() {
                return Err(column.clone());
            }
            entries.push(format!("{column}:header:{header}"));
        }
        Ok(Some(entries.join(",")).filter(|list| !list.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_handed_over_in_its_header() {
        let mut columns = Columns::default();
        assert_eq!(columns.placement().unwrap(), None);
        columns.event_type = Some("type".to_owned());
        columns.retry_wait_ms = Some("wait".to_owned());
        let placement = columns.placement().unwrap().unwrap();
        assert_eq!(placement, "type:header:webhook-type,wait:header:webhook-retry-wait-ms");
        for name in ["a,b", "a:b", " a", ""] {
            columns.path = Some(name.to_owned());
            assert_eq!(columns.placement().unwrap_err(), name);
        }
    }
}
