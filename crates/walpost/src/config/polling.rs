use std::time::Duration;

use walpost_relay::{AppliesTo, PollingConfig};

use super::{Config, ConfigError, duration::duration};

/// What `pipeline.source` is for a pipeline that polls.
pub(super) const POLLING: &str = "polling";

impl Config {
    /// How the outbox table is polled, checked; `None` where the WAL is read.
    pub(crate) fn polling(&self) -> Result<Option<PollingConfig>, ConfigError> {
        if self.settings.pipeline.source != POLLING {
            return Ok(None);
        }
        self.may_poll()?;
        self.polling_section().map(Some)
    }

    /// How the outbox table is polled before or after a switch of the source,
    /// checked; whichever one the configuration names.
    pub(crate) fn polling_for_switch(&self) -> Result<PollingConfig, ConfigError> {
        if self.settings.sink.publish == "transactional" {
            let problem = "sink.publish is \"transactional\", and polling, from which or to which \
                           the source is switched, goes without; make it \"idempotent\" for the \
                           switch";
            return Err(self.wrong("sink", "publish", problem));
        }
        self.has_no_row_filter()?;
        self.polling_section()
    }

    fn has_no_row_filter(&self) -> Result<(), ConfigError> {
        if self.settings.pipeline.row_filter.is_empty() {
            return Ok(());
        }
        let problem = "pipeline.row_filter is set, and polling has no publication that would \
                       filter; make it \"\"";
        Err(self.wrong("pipeline", "row_filter", problem))
    }

    fn polling_section(&self) -> Result<PollingConfig, ConfigError> {
        let section = self.settings.polling.clone();
        let mut config = PollingConfig::default();
        config.id_column = section.id_column;
        config.aggregate_columns = section.aggregate_columns;
        config.order_columns = section.order_columns;
        config.status_column = section.status_column;
        config.pending_value = section.pending_value;
        config.published_value = section.published_value;
        config.failed_value = section.failed_value;
        config.attempts_column = section.attempts_column;
        config.next_attempt_at_column = section.next_attempt_at_column;
        config.last_attempt_at_column = section.last_attempt_at_column;
        config.published_at_column = section.published_at_column;
        config.last_error_column = section.last_error_column;
        config.created_at_column = section.created_at_column;
        config.retry_limit_column = section.retry_limit_column;
        config.retry_wait_ms_column = section.retry_wait_ms_column;
        config.retry_delays = self.delays(&section.retry_delays)?;
        config.max_attempts = self.number("polling", "max_attempts", section.max_attempts)?;
        config.max_attempts_applies_to = self.choice(
            ("polling", "max_attempts_applies_to", &section.max_attempts_applies_to),
            &[("row", AppliesTo::Row), ("all", AppliesTo::All)],
        )?;
        config.poll_interval_ms = section.poll_interval_ms;
        config.notify_channel = section.notify_channel;
        config.claim_max_aggregates =
            self.number("polling", "claim_max_aggregates", section.claim_max_aggregates)?;
        config.aggregate_max_events =
            self.number("polling", "aggregate_max_events", section.aggregate_max_events)?;
        config.claim_max_events =
            self.number("polling", "claim_max_events", section.claim_max_events)?;
        config.claim_max_bytes =
            self.number("polling", "claim_max_bytes", section.claim_max_bytes)?;
        config.send_timeout_ms = section.send_timeout_ms;
        config.claim_timeout_ms = section.claim_timeout_ms;
        config.validate().map_err(|problem| {
            let key = problem.split_whitespace().next().unwrap_or_default().to_owned();
            self.wrong("polling", &key, &format!("polling.{problem}"))
        })?;
        Ok(config)
    }

    /// Nothing is set that a pipeline that polls has not.
    fn may_poll(&self) -> Result<(), ConfigError> {
        if self.settings.pipeline.tables.len() != 1 {
            let problem = format!(
                "pipeline.tables names {} tables and pipeline.source is \"polling\", which polls \
                 one; make a pipeline for each",
                self.settings.pipeline.tables.len()
            );
            return Err(self.wrong("pipeline", "tables", &problem));
        }
        self.has_no_row_filter()?;
        if self.settings.sink.publish == "transactional" {
            let problem = "sink.publish is \"transactional\" and pipeline.source is \"polling\"; \
                           pollers of one pipeline would fence each other off, so make it \
                           \"idempotent\"";
            return Err(self.wrong("sink", "publish", problem));
        }
        if self.settings.retention.enabled {
            let problem = "retention.enabled is true and pipeline.source is \"polling\"; \
                           retention removes what a reader of the WAL has proven to be \
                           published, so make it false";
            return Err(self.wrong("retention", "enabled", problem));
        }
        if self.settings.pipeline.mark_published {
            let problem = "pipeline.mark_published is true and pipeline.source is \"polling\", \
                           which always says in a row that it is published; make it false";
            return Err(self.wrong("pipeline", "mark_published", problem));
        }
        if !self.settings.pipeline.dead_letter_topic.is_empty() {
            let problem = "pipeline.dead_letter_topic is set and pipeline.source is \"polling\", \
                           which parks nothing: a row that cannot be published says so itself, \
                           in its state and reason; remove it";
            return Err(self.wrong("pipeline", "dead_letter_topic", problem));
        }
        Ok(())
    }

    fn delays(&self, texts: &[String]) -> Result<Vec<Duration>, ConfigError> {
        let wrong = |text: &String| {
            let problem = format!(
                "polling.retry_delays has {text:?}; a delay is a whole number with ms, s, m or h, \
                 such as 30s"
            );
            self.wrong("polling", "retry_delays", &problem)
        };
        texts.iter().map(|text| duration(text).ok_or_else(|| wrong(text))).collect()
    }
}
