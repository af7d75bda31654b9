//! Destinations of webhooks, checked.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use axum::http::{HeaderName, HeaderValue};
use walpost_event::error_chain;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_router::{MissingColumn, NullHeader, RouterConfig};
use walpost_webhook::{
    AddressPolicy, AlertFormat, Alerts, Breaker, ClientSettings, Deliveries, Destination, Endpoint,
    Message, OnHeadFailure, OnUnknownOutcome, Order, Pace, ProcessorSettings, Rate, RetryPolicy,
    Schedule, Secret,
    sink::{Columns, KeyOf, Subscription, Subscriptions, WebhookConnector},
};

use super::{
    Config, ConfigError, Origin,
    build::{fitting, one_of},
    duration::duration,
    settings::DestinationSection,
};

/// What `sink.kind` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkKind {
    Kafka,
    Webhook,
}

/// Where events go, with all that it takes.
pub(crate) enum Sink {
    Kafka(KafkaConnector),
    Webhook(Webhooks),
}

/// What a pipeline of webhooks needs beside the relay's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    subscriptions: Subscriptions,
    deliveries: Deliveries,
    queue_max_bytes: usize,
    /// One for each destination.
    pub(crate) processors: Vec<ProcessorSettings>,
}

/// Settings without a meaning for webhooks; whoever has set one expects some.
const WITHOUT_MEANING: [(&str, &str); 6] = [
    ("router", "additional_placement"),
    ("router", "additional_missing"),
    ("router", "null_header"),
    ("router", "headers_column"),
    ("sink", "publish"),
    ("sink", "transactional_id"),
];

impl Config {
    /// Refuses a command that is about topics where events go elsewhere.
    pub(crate) fn must_go_to_kafka(&self, instead: &str) -> Result<(), ConfigError> {
        match self.sink_kind()? {
            SinkKind::Kafka => Ok(()),
            SinkKind::Webhook => {
                let problem =
                    format!("sink.kind is \"webhook\", and this is about Kafka; {instead}");
                Err(self.wrong("sink", "kind", &problem))
            }
        }
    }

    /// Where events go.
    pub(crate) fn sink_kind(&self) -> Result<SinkKind, ConfigError> {
        self.choice(
            ("sink", "kind", &self.settings.sink.kind),
            &[("kafka", SinkKind::Kafka), ("webhook", SinkKind::Webhook)],
        )
    }

    /// Where events go, checked and not connected.
    pub(crate) fn sink(&self) -> Result<Sink, ConfigError> {
        Ok(match self.webhooks()? {
            Some(webhooks) => Sink::Webhook(webhooks),
            None => Sink::Kafka(self.kafka()?),
        })
    }

    /// The destinations; `None` where events go to Kafka.
    pub(crate) fn webhooks(&self) -> Result<Option<Webhooks>, ConfigError> {
        if self.sink_kind()? == SinkKind::Kafka {
            return Ok(None);
        }
        self.may_send_webhooks()?;
        let all = &self.settings.destinations;
        if all.is_empty() {
            let problem = "sink.kind is \"webhook\" and there is no destination; add a table \
                           [destination.<name>] with its url";
            return Err(self.wrong("sink", "kind", problem));
        }
        let one = |(name, section)| Checked { config: self, name, section };
        let checked: Vec<Checked<'_>> = all.iter().map(one).collect();
        let subscriptions = checked.iter().map(Checked::subscription);
        let subscriptions = Subscriptions::new(subscriptions.collect::<Result<Vec<_>, _>>()?);
        let subscriptions = subscriptions
            .map_err(|error| self.wrong("destination", "events", &error.to_string()))?;
        let processors = checked.iter().map(Checked::processor).collect::<Result<_, _>>()?;
        let bytes = self.settings.sink.queue_max_bytes;
        let queue_max_bytes = self.number("sink", "queue_max_bytes", bytes)?;
        let deliveries = self.deliveries()?;
        Ok(Some(Webhooks { subscriptions, deliveries, queue_max_bytes, processors }))
    }

    /// The routing for webhooks: the columns that they are about, and no others.
    pub(super) fn router_for_webhooks(
        &self,
        mut router: RouterConfig,
    ) -> Result<RouterConfig, ConfigError> {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let section = &self.settings.webhook;
        let columns = Columns {
            event_type: some(&router.event_type),
            destination: some(&section.destination_column),
            key: some(&section.key_column),
            path: some(&section.path_column),
            content_type: some(&section.content_type_column),
            retry_limit: some(&section.retry_limit_column),
            retry_wait_ms: some(&section.retry_wait_ms_column),
        };
        router.additional_placement = columns.placement().map_err(|column| {
            let problem = format!(
                "a column of webhooks is {column:?}; its name may have no comma, colon or blank"
            );
            self.wrong("webhook", "", &problem)
        })?;
        router.additional_missing = MissingColumn::Error;
        // A row without a value has a header all the same, so that none of the
        // application's own is taken for it.
        router.null_header = NullHeader::Send;
        router.headers_column = None;
        Ok(router)
    }

    pub(super) fn deliveries(&self) -> Result<Deliveries, ConfigError> {
        let bytes = self.settings.webhook.body_max_bytes;
        let deliveries = Deliveries::in_schema(&self.settings.pipeline.schema);
        Ok(deliveries.body_max_bytes(self.number("webhook", "body_max_bytes", bytes)?))
    }

    /// Whom people are told at, if they are.
    fn alerts(&self) -> Result<Option<Alerts>, ConfigError> {
        let section = &self.settings.webhook;
        let name = &section.alert_destination;
        if name.is_empty() {
            return Ok(None);
        }
        if !self.settings.destinations.contains_key(name) {
            let problem = format!(
                "webhook.alert_destination is {name:?}, and there is no [destination.{name}]; add \
                 one with its url and events = []"
            );
            return Err(self.wrong("webhook", "alert_destination", &problem));
        }
        if section.alert_window_s == 0 {
            let problem =
                "webhook.alert_window_s is 0; one alert for each failure would be too many";
            return Err(self.wrong("webhook", "alert_window_s", problem));
        }
        let mut alerts = Alerts::to(name);
        alerts.format = self.choice(
            ("webhook", "alert_format", &section.alert_format),
            &[("slack", AlertFormat::Slack), ("json", AlertFormat::Json)],
        )?;
        alerts.window = Duration::from_secs(section.alert_window_s);
        Ok(Some(alerts))
    }

    fn may_send_webhooks(&self) -> Result<(), ConfigError> {
        for (section, key) in WITHOUT_MEANING {
            if self.layers.origin(section, key) != Origin::Default {
                let problem = format!(
                    "{section}.{key} is set and sink.kind is \"webhook\", where it has no \
                     meaning; remove it"
                );
                return Err(self.wrong(section, key, &problem));
            }
        }
        let pipeline = &self.settings.pipeline;
        if pipeline.mark_published {
            let problem = "pipeline.mark_published is true and sink.kind is \"webhook\"; a row \
                           would say that it is published once its deliveries are there to be \
                           sent, so make it false; walpost.webhook_mark has it say \
                           what became of them";
            return Err(self.wrong("pipeline", "mark_published", problem));
        }
        if !pipeline.dead_letter_topic.is_empty() {
            let problem = "pipeline.dead_letter_topic is set and sink.kind is \"webhook\", which \
                           has no topics; remove it";
            return Err(self.wrong("pipeline", "dead_letter_topic", problem));
        }
        Ok(())
    }
}

/// One destination, being checked.
struct Checked<'a> {
    config: &'a Config,
    name: &'a String,
    section: &'a DestinationSection,
}

impl Checked<'_> {
    /// A problem with a key, told where it was set: in the table of the name, or
    /// for all.
    fn wrong(&self, key: &str, problem: &str) -> ConfigError {
        let own = format!("destination.{}", self.name);
        let problem = format!("{own}.{key} {problem}");
        match self.config.layers.origin(&own, key) {
            Origin::Default => self.config.wrong("destination", key, &problem),
            origin => ConfigError::Value { origin, problem },
        }
    }

    fn choice<T: Copy>(
        &self,
        (key, value): (&str, &str),
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        one_of(value, choices).map_err(|problem| self.wrong(key, &problem))
    }

    fn number<T: TryFrom<u64>>(&self, key: &str, value: u64) -> Result<T, ConfigError> {
        fitting(value).map_err(|problem| self.wrong(key, &problem))
    }

    fn subscription(&self) -> Result<Subscription, ConfigError> {
        let mut subscription = Subscription::new(self.name);
        subscription.events.clone_from(&self.section.events);
        subscription.key = self.choice(
            ("key", &self.section.key),
            &[("event", KeyOf::Event), ("delivery", KeyOf::Delivery)],
        )?;
        subscription.order = self.order()?;
        Ok(subscription)
    }

    fn order(&self) -> Result<Order, ConfigError> {
        self.choice(
            ("order", &self.section.order),
            &[("none", Order::None), ("key", Order::Key), ("all", Order::All)],
        )
    }

    fn processor(&self) -> Result<ProcessorSettings, ConfigError> {
        let section = self.section;
        let mut settings = ProcessorSettings::new(self.name, self.destination()?);
        settings.client = self.client();
        settings.policy = self.policy()?;
        settings.pace = Pace {
            poll: Duration::from_millis(section.poll_interval_ms),
            concurrency: self.number("concurrency", section.concurrency)?,
            ..Pace::default()
        };
        settings.retry_share_percent =
            self.number("retry_share_percent", section.retry_share_percent)?;
        settings.order = self.order()?;
        settings.on_head_failure = self.choice(
            ("on_head_failure", &section.on_head_failure),
            &[("block", OnHeadFailure::Block), ("skip", OnHeadFailure::Skip)],
        )?;
        settings.lease = Duration::from_millis(section.lease_ms);
        settings.rate = self.rate()?;
        settings.breaker = self.breaker()?;
        settings.in_flight_max_bytes =
            self.number("in_flight_max_bytes", section.in_flight_max_bytes)?;
        settings.deliveries = self.config.deliveries()?;
        settings.alerts = self.config.alerts()?;
        settings.claimed_by = format!("walpost {}", std::process::id());
        settings.check().map_err(|error| {
            let of = match &error {
                walpost_webhook::StoreError::Setting { setting, .. } => *setting,
                _ => "",
            };
            let key = match of {
                "poll" => "poll_interval_ms",
                "lease" => "lease_ms",
                "rate" => "rate_per_second",
                "breaker" => "breaker_wait_s",
                other => other,
            };
            self.wrong(key, &format!("cannot be used: {error}"))
        })?;
        Ok(settings)
    }

    fn rate(&self) -> Result<Option<Rate>, ConfigError> {
        let section = self.section;
        if section.rate_per_second == 0 {
            return match section.rate_burst {
                0 => Ok(None),
                _ => Err(self.wrong("rate_burst", "is set and rate_per_second is 0")),
            };
        }
        let per_second: u32 = self.number("rate_per_second", section.rate_per_second)?;
        let mut rate = Rate::per_second(per_second.into());
        if section.rate_burst > 0 {
            rate.burst = self.number("rate_burst", section.rate_burst)?;
        }
        Ok(Some(rate))
    }

    fn breaker(&self) -> Result<Option<Breaker>, ConfigError> {
        let section = self.section;
        let breaker = Breaker {
            failures: self.number("breaker_failures", section.breaker_failures)?,
            wait: Duration::from_secs(section.breaker_wait_s),
            wait_max: Duration::from_secs(section.breaker_wait_max_s),
        };
        Ok(Some(breaker).filter(|breaker| breaker.failures > 0))
    }

    fn addresses(&self) -> AddressPolicy {
        match self.section.allow_private_networks {
            true => AddressPolicy::with_private_networks(),
            false => AddressPolicy::public(),
        }
    }

    fn client(&self) -> ClientSettings {
        let millis = Duration::from_millis;
        ClientSettings {
            timeout: millis(self.section.timeout_ms),
            connect_timeout: millis(self.section.connect_timeout_ms),
            idle_timeout: millis(self.section.idle_timeout_ms),
            addresses: self.addresses(),
            ..ClientSettings::default()
        }
    }

    fn policy(&self) -> Result<RetryPolicy, ConfigError> {
        let section = self.section;
        let wait = |text: &String| {
            duration(text).ok_or_else(|| {
                let problem = format!(
                    "has {text:?}; a wait is a whole number with ms, s, m or h, such as 30s"
                );
                self.wrong("retry_waits", &problem)
            })
        };
        let waits: Vec<Duration> =
            section.retry_waits.iter().map(wait).collect::<Result<_, _>>()?;
        if waits.is_empty() && section.retry_limit > 0 {
            let problem = "is [] and retry_limit is not 0; name a wait, or make it 0";
            return Err(self.wrong("retry_waits", problem));
        }
        if section.retry_jitter_percent > 100 {
            let problem = format!("is {}; at most 100", section.retry_jitter_percent);
            return Err(self.wrong("retry_jitter_percent", &problem));
        }
        let limit = self.number("retry_limit", section.retry_limit)?;
        let jitter = section.retry_jitter_percent as f64 / 100.0;
        let mut policy = RetryPolicy::new(Schedule::new(waits).retry_limit(limit).jitter(jitter));
        policy.retry_after_cap = Duration::from_secs(section.retry_after_max_s);
        policy.on_unknown_outcome = self.choice(
            ("on_unknown_outcome", &section.on_unknown_outcome),
            &[("resend", OnUnknownOutcome::Resend), ("hold", OnUnknownOutcome::Hold)],
        )?;
        Ok(policy)
    }

    fn destination(&self) -> Result<Destination, ConfigError> {
        let section = self.section;
        let url = section.url.trim();
        if url.is_empty() {
            return Err(self.wrong("url", "is not set; where do its webhooks go to?"));
        }
        if url.starts_with("http://") && !section.allow_http {
            let problem = "is http://, which anybody on the way reads and changes; make it https://, \
                           or set allow_http = true";
            return Err(self.wrong("url", problem));
        }
        let endpoint = Endpoint::parse(url, self.addresses())
            .map_err(|error| self.wrong("url", &format!("cannot be used: {error}")))?;
        let mut destination = Destination::new(endpoint);
        let method = section.method.parse();
        destination.method =
            method.map_err(|_| self.wrong("method", "is no method, such as POST"))?;
        for header in &section.headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| self.wrong("headers", "has one without a colon: name: value"))?;
            let name: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| self.wrong("headers", "has one whose name is none"))?;
            let mut value: HeaderValue = value.trim().parse().map_err(|_| {
                self.wrong("headers", &format!("has a value for {name} that no header can have"))
            })?;
            value.set_sensitive(true);
            destination.headers.append(name, value);
        }
        let key_header = |name: &String| {
            let problem = format!("has {name:?}, which is no name of a header");
            name.parse().map_err(|_| self.wrong("key_headers", &problem))
        };
        destination.key_headers =
            section.key_headers.iter().map(key_header).collect::<Result<_, _>>()?;
        destination.token = match (&*section.token_file, &*section.token_variable) {
            ("", "") => None,
            (file, "") => Some(Secret::File(PathBuf::from(file))),
            ("", variable) => Some(Secret::Env(variable.to_owned())),
            _ => return Err(self.wrong("token_file", "and token_variable are both set")),
        };
        let files = section.signing_key_files.iter().map(|file| Secret::File(file.into()));
        let variables = section.signing_key_variables.iter().cloned().map(Secret::Env);
        destination.signing_keys = files.chain(variables).collect();
        Ok(destination)
    }
}

impl Webhooks {
    /// Of what makes deliveries in this database.
    pub(crate) fn connector(&self, database: &Database) -> WebhookConnector {
        let connector = WebhookConnector::new(
            database.clone(),
            self.deliveries.clone(),
            self.subscriptions.clone(),
        );
        connector.queue_max_bytes(self.queue_max_bytes)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.processors.iter().map(|one| one.name.as_str())
    }

    /// The tables of this pipeline's deliveries.
    pub(crate) fn deliveries(&self) -> Deliveries {
        self.deliveries.clone()
    }

    /// For each destination whether a request can be made now, with its secrets; a
    /// problem where not.
    pub(crate) async fn try_requests(&self) -> Vec<(String, Option<String>)> {
        let (message, now) = (Message::new("check", "{}"), SystemTime::now());
        let mut tried = Vec::new();
        for processor in &self.processors {
            let made = processor.destination.request(&message, now).await;
            tried.push((processor.name.clone(), made.err().map(|error| error_chain(&error))));
        }
        tried
    }
}
