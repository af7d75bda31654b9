use std::time::Duration;

/// Settings of a pipeline that polls its outbox table instead of reading the
/// WAL.
///
/// [`PollingConfig::default`] fills in the defaults that the fields name, which
/// fit Walpost's own table with the columns that `walpost check` asks for. A
/// column is named as stored, without quotes; an empty name stands for a column
/// that the table does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollingConfig {
    /// Unique column that names a row. Default `id`.
    pub id_column: String,
    /// Columns that name the aggregate together, whose rows keep their order.
    /// None: each row stands for itself, and so does one with a NULL in them.
    /// Default `aggregatetype` and `aggregateid`.
    pub aggregate_columns: Vec<String>,
    /// Columns whose order is the insert order within an aggregate; ties go by
    /// [`id_column`](Self::id_column). Default `seq`.
    pub order_columns: Vec<String>,
    /// Column of the row's state, of any type that has equality, such as text, an
    /// enum, a number, a boolean or a time. Default `status`.
    pub status_column: String,
    /// Its value for a pending row. Default `NEW`; empty: NULL.
    pub pending_value: String,
    /// Its value for a published row. Default `PUBLISHED`; empty: the time of
    /// publication.
    pub published_value: String,
    /// Its value for a row that was given up. Default `FAILED`; empty: none, and
    /// Walpost's own table records it.
    pub failed_value: String,
    /// Column that counts failed attempts. Default `attempts`; none: they are
    /// counted in Walpost's own table.
    pub attempts_column: String,
    /// Column before whose time a row is not tried. Default `next_attempt_at`;
    /// none: likewise.
    pub next_attempt_at_column: String,
    /// Column for the time of the last attempt. Default none.
    pub last_attempt_at_column: String,
    /// Column for the time of publication. Default `published_at`.
    pub published_at_column: String,
    /// Column for the reason of the last failure. Default `last_error`.
    pub last_error_column: String,
    /// Column with the age of a row. Default `created_at`; none: the age of the
    /// oldest pending row is not told.
    pub created_at_column: String,
    /// Column with the number of attempts that a row may have beyond its first,
    /// before [`max_attempts`](Self::max_attempts). Default none.
    pub retry_limit_column: String,
    /// Column with the wait between a row's attempts in milliseconds, before
    /// [`retry_delays`](Self::retry_delays). Default none.
    pub retry_wait_ms_column: String,
    /// Waits after the first failed attempt, the second and so on; the last one
    /// repeats. Each may be shortened by up to half at random, so that not all
    /// come back at once. Default 5 s, 30 s, 5 min, 30 min and 4 h.
    pub retry_delays: Vec<Duration>,
    /// Failed attempts after which a row has failed. Default 8.
    pub max_attempts: u32,
    /// Which attempts count towards it. Default [`AppliesTo::Row`].
    pub max_attempts_applies_to: AppliesTo,
    /// Between two looks at the table when there was nothing to do. Default
    /// 200 ms.
    pub poll_interval_ms: u64,
    /// Channel of LISTEN on which a notification says that there are new rows.
    /// Default none: whoever notifies has its commits wait for one another.
    pub notify_channel: String,
    /// Aggregates of one claim. Default 200.
    pub claim_max_aggregates: usize,
    /// Rows of one aggregate in one claim. Default 1,000.
    pub aggregate_max_events: usize,
    /// Rows of one claim. Default 1,000.
    pub claim_max_events: usize,
    /// Bytes of the rows of one claim; the one that goes beyond is in it.
    /// Default 16 MiB.
    pub claim_max_bytes: usize,
    /// After which an attempt has failed that the sink has not acknowledged.
    /// Default 10,000 ms.
    pub send_timeout_ms: u64,
    /// After which the server gives up the claim of a poller that is silent. At
    /// least `send_timeout_ms` and five seconds. Default 30,000 ms.
    pub claim_timeout_ms: u64,
}

/// Which failed attempts count towards
/// [`max_attempts`](PollingConfig::max_attempts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppliesTo {
    /// Those that failed for the row's own sake: it has no route, is too large,
    /// or was refused alone.
    #[default]
    Row,
    /// All, also those that failed because the brokers did not answer.
    All,
}

impl Default for PollingConfig {
    fn default() -> Self {
        let delays = [5, 30, 300, 1_800, 14_400].map(Duration::from_secs);
        Self {
            id_column: "id".to_owned(),
            aggregate_columns: vec!["aggregatetype".to_owned(), "aggregateid".to_owned()],
            order_columns: vec!["seq".to_owned()],
            status_column: "status".to_owned(),
            pending_value: "NEW".to_owned(),
            published_value: "PUBLISHED".to_owned(),
            failed_value: "FAILED".to_owned(),
            attempts_column: "attempts".to_owned(),
            next_attempt_at_column: "next_attempt_at".to_owned(),
            last_attempt_at_column: String::new(),
            published_at_column: "published_at".to_owned(),
            last_error_column: "last_error".to_owned(),
            created_at_column: "created_at".to_owned(),
            retry_limit_column: String::new(),
            retry_wait_ms_column: String::new(),
            retry_delays: delays.to_vec(),
            max_attempts: 8,
            max_attempts_applies_to: AppliesTo::Row,
            poll_interval_ms: 200,
            notify_channel: String::new(),
            claim_max_aggregates: 200,
            aggregate_max_events: 1_000,
            claim_max_events: 1_000,
            claim_max_bytes: 16 * 1024 * 1024,
            send_timeout_ms: 10_000,
            claim_timeout_ms: 30_000,
        }
    }
}

/// What the server waits for beyond the sink: statements.
const CLAIM_MARGIN_MS: u64 = 5_000;

impl PollingConfig {
    /// Checks what the server would refuse later, and bounds.
    ///
    /// # Errors
    /// Text that names the setting, its value and what it may be.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in
            [("id_column", &self.id_column), ("status_column", &self.status_column)]
        {
            if value.is_empty() {
                return Err(format!("{name} is {value:?}; it has to be named"));
            }
        }
        let [pending, published, failed] =
            [&self.pending_value, &self.published_value, &self.failed_value];
        let is_same = |one: &String, other: &String| !one.is_empty() && one == other;
        if is_same(pending, published) || is_same(pending, failed) || is_same(published, failed) {
            return Err(format!(
                "pending_value is {pending:?}, published_value {published:?} and failed_value \
                 {failed:?}; they differ"
            ));
        }
        if self.notify_channel.len() > 63 {
            return Err(format!("notify_channel is {:?}; at most 63 bytes", self.notify_channel));
        }
        self.validate_written()?;
        if self.order_columns.is_empty() && !self.aggregate_columns.is_empty() {
            return Err("order_columns is []; an aggregate needs an order".to_owned());
        }
        self.validate_bounds()
    }

    /// A statement can write a column once.
    fn validate_written(&self) -> Result<(), String> {
        let written = [
            ("status_column", &self.status_column),
            ("attempts_column", &self.attempts_column),
            ("next_attempt_at_column", &self.next_attempt_at_column),
            ("last_attempt_at_column", &self.last_attempt_at_column),
            ("published_at_column", &self.published_at_column),
            ("last_error_column", &self.last_error_column),
        ];
        for (index, (name, column)) in written.iter().enumerate() {
            // The time of publication may be the state.
            let is_state = |other: &str| {
                *name == "published_at_column"
                    && other == "status_column"
                    && self.published_value.is_empty()
            };
            let others = written[..index].iter().filter(|(other, _)| !is_state(other));
            let mut same = others.filter(|(_, other)| !other.is_empty());
            let same = same.find(|one| one.1 == *column);
            if let Some((other, _)) = same {
                return Err(format!("{name} is {column:?}, and so is {other}"));
            }
        }
        Ok(())
    }

    fn validate_bounds(&self) -> Result<(), String> {
        if self.retry_delays.is_empty() {
            return Err("retry_delays is []; at least one".to_owned());
        }
        let longest = Duration::from_secs(30 * 86_400);
        if let Some(delay) = self.retry_delays.iter().find(|delay| **delay > longest) {
            return Err(format!("retry_delays has {} s; at most 30 days", delay.as_secs()));
        }
        let claim_min = self.send_timeout_ms.saturating_add(CLAIM_MARGIN_MS);
        let bounds = [
            ("max_attempts", u64::from(self.max_attempts), 1, 30_000),
            ("poll_interval_ms", self.poll_interval_ms, 1, 60_000),
            ("claim_max_aggregates", self.claim_max_aggregates as u64, 1, 10_000),
            ("aggregate_max_events", self.aggregate_max_events as u64, 1, 10_000),
            ("claim_max_events", self.claim_max_events as u64, 1, 100_000),
            ("claim_max_bytes", self.claim_max_bytes as u64, 1024, 1 << 30),
            ("send_timeout_ms", self.send_timeout_ms, 100, 600_000),
            ("claim_timeout_ms", self.claim_timeout_ms, claim_min, 3_600_000),
        ];
        for (name, value, low, high) in bounds {
            if !(low..=high).contains(&value) {
                return Err(format!("{name} is {value}; it lies between {low} and {high}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(PollingConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_value() {
        let refusal = |change: fn(&mut PollingConfig)| {
            let mut config = PollingConfig::default();
            change(&mut config);
            config.validate().unwrap_err()
        };
        let text = refusal(|config| config.id_column.clear());
        assert!(text.starts_with("id_column is"), "{text}");
        let mut of_time = PollingConfig {
            status_column: "published_at".to_owned(),
            pending_value: String::new(),
            failed_value: String::new(),
            ..PollingConfig::default()
        };
        assert!(of_time.validate().unwrap_err().starts_with("published_at_column is"));
        of_time.published_value.clear();
        assert_eq!(of_time.validate(), Ok(()), "the state is the time of publication");
        let text = refusal(|config| config.failed_value = "NEW".to_owned());
        assert!(text.contains("failed_value \"NEW\""), "{text}");
        let text = refusal(|config| config.notify_channel = "n".repeat(64));
        assert!(text.starts_with("notify_channel is"), "{text}");
        let text = refusal(|config| config.order_columns.clear());
        assert!(text.starts_with("order_columns is []"), "{text}");
        let text = refusal(|config| config.retry_delays.clear());
        assert!(text.starts_with("retry_delays is []"), "{text}");
        let text = refusal(|config| config.last_attempt_at_column = "published_at".to_owned());
        assert!(text.starts_with("published_at_column is \"published_at\", and so"), "{text}");
        let text = refusal(|config| config.claim_timeout_ms = config.send_timeout_ms);
        assert!(text.starts_with("claim_timeout_ms is 10000; it lies between 15000"), "{text}");
    }
}
