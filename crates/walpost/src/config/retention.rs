use std::time::Duration;

use walpost_idempotency::Idempotency;
use walpost_inbox::Inbox;
use walpost_postgres::Database;
use walpost_relay::RetentionConfig;

use super::{Config, ConfigError, Origin, build::secret_file, webhooks::SinkKind};

/// Ten years.
const DAYS_MAX: u64 = 3_653;

/// Who has rows leave beside the pipeline: of deliveries, the inbox, and requests
/// under idempotency keys, where that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Pruners {
    pub(crate) deliveries: Option<Placed<walpost_webhook::Pruner>>,
    pub(crate) inbox: Option<Placed<walpost_inbox::Pruner>>,
    pub(crate) idempotency: Option<Placed<walpost_idempotency::Pruner>>,
}

/// A pruner, and where its tables are.
#[derive(Debug)]
pub(crate) struct Placed<P> {
    pub(crate) pruner: P,
    pub(crate) database: Database,
    /// That is another one than the pipeline's.
    pub(crate) is_elsewhere: bool,
}

impl Config {
    /// When rows leave the outbox, checked.
    pub(crate) fn retention(&self) -> Result<RetentionConfig, ConfigError> {
        let section = &self.settings.retention;
        let number = |key, value| self.number("retention", key, value);
        let mut retention = RetentionConfig::default();
        retention.keep_days = number("keep_days", section.keep_days)?;
        retention.archive_days = number("archive_days", section.archive_days)?;
        retention.parked_days = number("parked_days", section.parked_days)?;
        retention.batch_rows = number("batch_rows", section.batch_rows)?;
        retention.pause_ms = section.pause_ms;
        retention.interval_minutes = number("interval_minutes", section.interval_minutes)?;
        retention.validate().map_err(|problem| {
            let key = problem.split_whitespace().next().unwrap_or_default();
            self.wrong("retention", key, &format!("retention.{problem}"))
        })?;
        Ok(retention)
    }

    /// Who has other rows leave, checked.
    pub(crate) fn pruners(&self) -> Result<Pruners, ConfigError> {
        Ok(Pruners {
            deliveries: self.deliveries_pruner()?,
            inbox: self.inbox_pruner()?,
            idempotency: self.idempotency_pruner()?,
        })
    }

    fn deliveries_pruner(&self) -> Result<Option<Placed<walpost_webhook::Pruner>>, ConfigError> {
        let section = &self.settings.webhook;
        let (archive, delete) = ("archive_after_days", "delete_after_days");
        let archive_days = self.days("webhook", archive, section.archive_after_days, 0)?;
        let delete_days = self.days("webhook", delete, section.delete_after_days, 1)?;
        if delete_days < archive_days {
            let problem = format!(
                "webhook.{delete} is {delete_days}, fewer than the {archive_days} of \
                 webhook.{archive}; both count from when a delivery arrived"
            );
            return Err(self.wrong("webhook", delete, &problem));
        }
        if !section.prune {
            return Ok(None);
        }
        if !matches!(self.sink_kind()?, SinkKind::Webhook) {
            let problem = "webhook.prune is true and sink.kind is \"kafka\", which has no \
                           deliveries; make it false";
            return Err(self.wrong("webhook", "prune", problem));
        }
        let steps = self.retention()?;
        let prune = walpost_webhook::Prune::new(archive_days, delete_days);
        let pruner = walpost_webhook::Pruner::new(prune.batch_rows(steps.batch_rows))
            .deliveries(self.deliveries()?)
            .every(every(&steps))
            .pause(pause(&steps));
        Ok(Some(self.placed(pruner, None)?))
    }

    fn inbox_pruner(&self) -> Result<Option<Placed<walpost_inbox::Pruner>>, ConfigError> {
        let section = &self.settings.inbox;
        let payload_days = self.days("inbox", "payload_days", section.payload_days, 0)?;
        let keep_days = self.days("inbox", "keep_days", section.keep_days, 1)?;
        if !section.prune {
            return Ok(None);
        }
        let keys = ["inbox.url", "inbox.url_file"];
        let elsewhere = elsewhere(keys, &section.url, &section.url_file)?;
        let steps = self.retention()?;
        let prune = walpost_inbox::Prune::new(payload_days, keep_days);
        let pruner = walpost_inbox::Pruner::new(prune.batch_rows(steps.batch_rows))
            .inbox(Inbox::in_schema(self.schema_or(&section.schema)))
            .every(every(&steps))
            .pause(pause(&steps));
        Ok(Some(self.placed(pruner, elsewhere)?))
    }

    fn idempotency_pruner(
        &self,
    ) -> Result<Option<Placed<walpost_idempotency::Pruner>>, ConfigError> {
        let section = &self.settings.idempotency;
        if !section.prune {
            return Ok(None);
        }
        let keys = ["idempotency.url", "idempotency.url_file"];
        let elsewhere = elsewhere(keys, &section.url, &section.url_file)?;
        let steps = self.retention()?;
        let pruner = walpost_idempotency::Pruner::new()
            .idempotency(Idempotency::in_schema(self.schema_or(&section.schema)))
            .batch_rows(steps.batch_rows)
            .every(every(&steps))
            .pause(pause(&steps));
        Ok(Some(self.placed(pruner, elsewhere)?))
    }

    fn days(&self, section: &str, key: &str, days: u64, least: u64) -> Result<u32, ConfigError> {
        if !(least..=DAYS_MAX).contains(&days) {
            let problem =
                format!("{section}.{key} is {days}; it lies between {least} and {DAYS_MAX}");
            return Err(self.wrong(section, key, &problem));
        }
        self.number(section, key, days)
    }

    fn placed<P>(&self, pruner: P, elsewhere: Option<Database>) -> Result<Placed<P>, ConfigError> {
        let is_elsewhere = elsewhere.is_some();
        let database = elsewhere.map_or_else(|| self.database(), Ok)?;
        Ok(Placed { pruner, database, is_elsewhere })
    }

    fn schema_or(&self, schema: &str) -> String {
        match schema {
            "" => self.settings.pipeline.schema.clone(),
            schema => schema.to_owned(),
        }
    }
}

/// Where tables are, unless beside the pipeline's.
fn elsewhere(
    [url_key, file_key]: [&'static str; 2],
    url: &str,
    url_file: &str,
) -> Result<Option<Database>, ConfigError> {
    let parse = |url: &str, key| {
        let unusable = |source| {
            let source = Box::new(source);
            ConfigError::Database { key, origin: Origin::Default, source }
        };
        Database::parse(url).map(Some).map_err(unusable)
    };
    match (url.trim(), url_file) {
        ("", "") => Ok(None),
        (url, "") => parse(url, url_key),
        ("", file) => parse(&secret_file(file_key, file)?, file_key),
        _ => Err(ConfigError::Conflict(url_key, file_key)),
    }
}

fn every(steps: &RetentionConfig) -> Duration {
    Duration::from_secs(60 * u64::from(steps.interval_minutes))
}

fn pause(steps: &RetentionConfig) -> Duration {
    Duration::from_millis(steps.pause_ms)
}
