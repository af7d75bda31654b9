//! Where events go, and with `sink.kind = "webhook"` all that it takes, checked.

use std::time::{Duration, SystemTime};

use walpost_event::error_chain;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_router::{MissingColumn, NullHeader, RouterConfig};
use walpost_webhook::{
    AlertFormat, Alerts, Deliveries, Message, ProcessorSettings,
    sink::{Columns, Subscriptions, WebhookConnector},
};

use super::{Config, ConfigError, Origin, destination::NamedSection};

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
    /// Whether new deliveries wake their processors.
    pub(crate) notifies: bool,
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
        let one = |(name, section)| NamedSection { config: self, name, section };
        let sections: Vec<NamedSection<'_>> = all.iter().map(one).collect();
        let processors =
            sections.iter().map(NamedSection::processor).collect::<Result<Vec<_>, _>>()?;
        let subscriptions = sections.iter().zip(&processors).map(|(one, of)| one.subscription(of));
        let subscriptions = Subscriptions::new(subscriptions.collect::<Result<Vec<_>, _>>()?);
        let subscriptions = subscriptions
            .map_err(|error| self.wrong("destination", "events", &error.to_string()))?;
        let bytes = self.settings.sink.queue_max_bytes;
        let queue_max_bytes = self.number("sink", "queue_max_bytes", bytes)?;
        let deliveries = self.deliveries()?;
        let notifies = self.settings.webhook.notify;
        Ok(Some(Webhooks { subscriptions, deliveries, queue_max_bytes, notifies, processors }))
    }

    /// Columns that only webhooks are about, with their keys; none where events go
    /// to Kafka.
    pub(super) fn webhook_columns(&self) -> Result<Vec<(String, String)>, ConfigError> {
        if self.sink_kind()? == SinkKind::Kafka {
            return Ok(Vec::new());
        }
        let section = &self.settings.webhook;
        let columns = [
            (&self.settings.router.event_type, "router.event_type"),
            (&section.destination_column, "webhook.destination_column"),
            (&section.key_column, "webhook.key_column"),
            (&section.path_column, "webhook.path_column"),
            (&section.content_type_column, "webhook.content_type_column"),
            (&section.retry_limit_column, "webhook.retry_limit_column"),
            (&section.retry_wait_ms_column, "webhook.retry_wait_ms_column"),
        ];
        let named = columns.into_iter().filter(|(column, _)| !column.is_empty());
        Ok(named.map(|(column, key)| (column.clone(), key.to_owned())).collect())
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
    pub(super) fn alerts(&self) -> Result<Option<Alerts>, ConfigError> {
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

impl Webhooks {
    /// Of what makes deliveries in this database.
    pub(crate) fn connector(&self, database: &Database) -> WebhookConnector {
        let connector = WebhookConnector::new(
            database.clone(),
            self.deliveries.clone().notifies(self.notifies),
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
