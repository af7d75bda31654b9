use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf, time::Duration};

use walpost_encode::{Encoder, Encoding, JsonOptions, JsonPayload, NullKey};
use walpost_event::error_chain;
use walpost_kafka::KafkaConnector;
use walpost_postgres::Database;
use walpost_relay::{
    EventEncoding, Initial, LostSlot, ParkMode, RecordPlace, RelayConfig, SourceKind, TableName,
};
use walpost_router::{
    InvalidOperation, MissingColumn, NameAdjustment, NullHeader, Router, RouterConfig,
};

use super::{
    Config, ConfigError, any_table,
    connector::{arrivals, complete, new_topic, options},
    polling::POLLING,
    settings::LogFormat,
    webhooks::SinkKind,
};

/// Debezium's keys whose values can be wrong in themselves, and ours.
const ROUTER_KEYS: [(&str, &str); 3] = [
    ("route.topic.regex", "topic_regex"),
    ("route.topic.replacement", "topic_replacement"),
    ("table.fields.additional.placement", "additional_placement"),
];

/// A century; beyond it times overflow.
const DEDUP_WINDOW_MAX_HOURS: u64 = 876_000;

impl Config {
    /// Where the outbox is, with the statements of a connector's sessions.
    pub(crate) fn database(&self) -> Result<Database, ConfigError> {
        let database = self.plain_database()?;
        let Some(connector) = self.connector() else { return Ok(database) };
        let statements = connector.database.initial_statements.iter();
        let statements = statements.map(|statement| statement.expose().to_owned()).collect();
        Ok(database.with_initial_statements(statements))
    }

    fn plain_database(&self) -> Result<Database, ConfigError> {
        let section = &self.settings.postgres;
        let url = match (section.url.trim(), section.url_file.as_str()) {
            ("", "") => return Err(ConfigError::Missing { key: "postgres.url" }),
            (url, "") => url.to_owned(),
            ("", _) => secret_file("postgres.url_file", &section.url_file)?,
            _ => return Err(ConfigError::Conflict("postgres.url", "postgres.url_file")),
        };
        let unusable = |source| {
            let origin = self.layers.origin("postgres", "url");
            ConfigError::Database { key: "postgres.url", origin, source: Box::new(source) }
        };
        if section.password_file.is_empty() {
            return Database::parse(&url).map_err(unusable);
        }
        let password = secret_file("postgres.password_file", &section.password_file)?;
        Database::parse(&with_password(&url, &password)).map_err(unusable)
    }

    /// The pipeline, checked; of a connector's filters the tables have to be
    /// [found](Self::filters) before.
    pub(crate) fn relay(&self) -> Result<RelayConfig, ConfigError> {
        match (self.filters(), &self.found_tables) {
            (None, _) => self.relay_of(self.named_tables()?),
            (Some(connector), Some(found)) => {
                let mut config = self.relay_of(found.clone())?;
                let arrivals = |looked_at| arrivals(connector, &config.schema, looked_at);
                config.new_tables = self.looked_at.map(arrivals);
                Ok(config)
            }
            (Some(_), None) => Err(ConfigError::NoTables),
        }
    }

    /// Checks the pipeline, whatever its tables are.
    pub(crate) fn check_pipeline(&self) -> Result<(), ConfigError> {
        match self.filters() {
            None => self.relay_of(self.named_tables()?).map(drop),
            Some(_) => self.relay_of(vec![any_table()]).map(drop),
        }
    }

    pub(super) fn named_tables(&self) -> Result<Vec<TableName>, ConfigError> {
        let table = |text: &String| {
            text.parse::<TableName>().map_err(|problem| self.wrong("pipeline", "tables", &problem))
        };
        self.settings.pipeline.tables.iter().map(table).collect()
    }

    pub(super) fn relay_of(&self, tables: Vec<TableName>) -> Result<RelayConfig, ConfigError> {
        let section = self.settings.pipeline.clone();
        let mut config = RelayConfig::new(&section.name);
        if !section.slot.is_empty() {
            config.slot = section.slot;
        }
        config.tables = tables;
        if !section.row_filter.is_empty() {
            config.publication = format!("walpost_{}", section.name);
            config.row_filter = Some(section.row_filter);
        }
        config.row_filter_messages = section.row_filter_messages;
        if !section.publication.is_empty() {
            config.publication = section.publication;
        }
        config.allow_overlap = section.allow_overlap;
        config.message_prefixes = section.message_prefixes;
        config.schema = section.schema;
        config.source = self.choice(
            ("pipeline", "source", &section.source),
            &[
                ("native", SourceKind::Native),
                ("pgwire", SourceKind::Pgwire),
                // Reads no WAL: see `Config::polling`.
                (POLLING, SourceKind::Native),
            ],
        )?;
        config.initial = self.choice(
            ("pipeline", "initial", &section.initial),
            &[("", None), ("publish", Some(Initial::Publish)), ("skip", Some(Initial::Skip))],
        )?;
        config.on_lost_slot = self.choice(
            ("pipeline", "on_lost_slot", &section.on_lost_slot),
            &[("refuse", LostSlot::Refuse), ("recover", LostSlot::Recover)],
        )?;
        config.create_slot = section.create_slot;
        config.create_publication = section.create_publication;
        config.mark_published = section.mark_published;
        config.park = self.choice(
            ("pipeline", "park", &section.park),
            &[("aggregate", ParkMode::Aggregate), ("event", ParkMode::Event)],
        )?;
        config.parked_halt_after =
            self.number("pipeline", "parked_halt_after", section.parked_halt_after)?;
        config.missing_topic_timeout_ms = section.missing_topic_timeout_ms;
        config.dead_letter_topic =
            Some(section.dead_letter_topic).filter(|topic| !topic.is_empty());
        config.max_event_bytes =
            self.number("pipeline", "max_event_bytes", section.max_event_bytes)?;
        config.in_flight_max_events =
            self.number("pipeline", "in_flight_max_events", section.in_flight_max_events)?;
        config.checkpoint_interval_ms = section.checkpoint_interval_ms;
        config.settle_ms = section.settle_ms;
        config.resume_max_ids =
            self.number("pipeline", "resume_max_ids", section.resume_max_ids)?;
        config.statement_timeout_ms = section.statement_timeout_ms;
        config.slot_timeout_ms = section.slot_timeout_ms;
        config.wal_sender_timeout_ms = section.wal_sender_timeout_ms;
        config.drain_timeout_ms = section.drain_timeout_ms;
        config.start_timeout_ms = Some(section.start_timeout_ms).filter(|limit| *limit > 0);
        config.ready_stuck_ms = section.ready_stuck_ms;
        config.wal_budget_bytes = Some(section.wal_budget_bytes).filter(|limit| *limit > 0);
        config.position_header = section.position_header;
        config.source_header = section.source_header;
        config.ignored_records = self.ignored_records(&section.ignored_records)?;
        self.name_columns(&mut config)?;
        self.complete(&mut config);
        config.validate().map_err(|problem| self.wrong_setting(&problem))?;
        Ok(config)
    }

    fn name_columns(&self, config: &mut RelayConfig) -> Result<(), ConfigError> {
        config.placed_columns = self.webhook_columns()?;
        config.named_columns = self.named_columns()?;
        Ok(())
    }

    fn ignored_records(&self, records: &[String]) -> Result<Vec<RecordPlace>, ConfigError> {
        let places = records.iter().map(|record| record.parse());
        places.collect::<Result<_, String>>().map_err(|problem| {
            let problem = format!("pipeline.ignored_records: {problem}");
            self.wrong("pipeline", "ignored_records", &problem)
        })
    }

    /// What no key of ours says, where there is a connector.
    fn complete(&self, config: &mut RelayConfig) {
        let Some(connector) = self.connector() else { return };
        complete(connector, self.layers.is_set("pipeline", "message_prefixes"), config);
    }

    /// The routing, checked, for wherever events go.
    pub(crate) fn router(&self) -> Result<RouterConfig, ConfigError> {
        let router = self.router_section()?;
        match self.sink_kind()? {
            SinkKind::Kafka => Ok(router),
            SinkKind::Webhook => self.router_for_webhooks(router),
        }
    }

    fn router_section(&self) -> Result<RouterConfig, ConfigError> {
        let section = self.settings.router.clone();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let config = RouterConfig {
            event_id: section.event_id,
            event_key: section.event_key,
            event_type: section.event_type,
            event_payload: section.event_payload,
            event_timestamp: some(section.event_timestamp),
            additional_placement: some(section.additional_placement),
            additional_missing: self.choice(
                ("router", "additional_missing", &section.additional_missing),
                &[("error", MissingColumn::Error), ("ignore", MissingColumn::Ignore)],
            )?,
            invalid_operation: self.choice(
                ("router", "invalid_operation", &section.invalid_operation),
                &[
                    ("warn", InvalidOperation::Warn),
                    ("error", InvalidOperation::Error),
                    ("fatal", InvalidOperation::Fatal),
                ],
            )?,
            route_by_field: section.route_by_field,
            topic_regex: section.topic_regex,
            topic_replacement: section.topic_replacement,
            headers_column: some(section.headers_column),
            null_header: self.choice(
                ("router", "null_header", &section.null_header),
                &[("send", NullHeader::Send), ("omit", NullHeader::Omit)],
            )?,
            tombstone_on_empty_payload: section.tombstone_on_empty_payload,
            field_names: self
                .connector()
                .map_or(NameAdjustment::None, |connector| connector.handling.field_names),
        };
        // Its texts name Debezium's keys, which stand beside ours in the
        // default file.
        let router = Router::new(config.clone()).map_err(|error| {
            let problem = error_chain(&error);
            let named = ROUTER_KEYS.iter().find(|(theirs, _)| problem.contains(theirs));
            self.wrong("router", named.map_or("", |(_, ours)| ours), &problem)
        })?;
        let letters = &self.settings.pipeline.dead_letter_topic;
        if router.has_form_of(letters) {
            let problem = format!(
                "pipeline.dead_letter_topic is {letters:?}, which events may be routed to by \
                 router.topic_replacement, {:?}; take a name of another form",
                config.topic_replacement
            );
            return Err(self.wrong("pipeline", "dead_letter_topic", &problem));
        }
        Ok(config)
    }

    /// How events become bytes: as the connector says it, where there is one.
    pub(crate) fn encoding(&self) -> Result<EventEncoding, ConfigError> {
        let Some(connector) = self.connector() else { return Ok(self.plain_encoding()?.into()) };
        let rivals = ["key", "value", "json_payload", "null_key"];
        if let Some(key) = rivals.into_iter().find(|key| self.layers.is_set("encode", key)) {
            let problem = format!(
                "encode.{key} is set, and the connector's converters make the bytes; remove it"
            );
            return Err(self.wrong("encode", key, &problem));
        }
        if self.sink_kind()? == SinkKind::Webhook {
            let problem = "sink.kind is \"webhook\", and a connector publishes to Kafka alone; \
                           leave the connector's file out, or remove it";
            return Err(self.wrong("sink", "kind", problem));
        }
        Ok(options(connector, &self.settings.router).into())
    }

    /// The same of a pipeline without a connector.
    pub(super) fn plain_encoding(&self) -> Result<Encoding, ConfigError> {
        let section = &self.settings.encode;
        let options = JsonOptions {
            json_payload: self.choice(
                ("encode", "json_payload", &section.json_payload),
                &[("embed", JsonPayload::Embed), ("escape", JsonPayload::Escape)],
            )?,
            null_key: self.choice(
                ("encode", "null_key", &section.null_key),
                &[("none", NullKey::None), ("null", NullKey::Null)],
            )?,
        };
        let encoders = [("raw", Encoder::Raw), ("json", Encoder::Json(options))];
        Ok(Encoding {
            key: self.choice(("encode", "key", &section.key), &encoders)?,
            value: self.choice(("encode", "value", &section.value), &encoders)?,
        })
    }

    /// A sink beside the pipeline's, not connected: never transactional, as it
    /// would fence the pipeline's off.
    pub(crate) fn kafka_beside(&self) -> Result<KafkaConnector, ConfigError> {
        let mut settings = self.settings.kafka.clone();
        settings.retain(|_, value| !value.is_empty());
        let file = &self.settings.sink.sasl_password_file;
        if !file.is_empty() {
            if settings.contains_key("sasl.password") {
                return Err(ConfigError::Conflict(
                    "kafka.sasl.password",
                    "sink.sasl_password_file",
                ));
            }
            let password = secret_file("sink.sasl_password_file", file)?;
            settings.insert("sasl.password".to_owned(), password);
        }
        let bytes = self.settings.sink.queue_max_bytes;
        let bytes = self.number("sink", "queue_max_bytes", bytes)?;
        let kafka = KafkaConnector::new(settings)?.queue_max_bytes(bytes);
        Ok(match self.connector().and_then(|connector| connector.topic_creation.clone()) {
            Some(creation) => kafka.create_topics(move |topic| new_topic(&creation, topic)),
            None => kafka,
        })
    }

    /// For how long consumers deduplicate, in hours; `None` for ever.
    pub(crate) fn dedup_window_hours(&self) -> Result<Option<u64>, ConfigError> {
        let hours = self.settings.replay.dedup_window_hours;
        if hours > DEDUP_WINDOW_MAX_HOURS {
            let problem = format!(
                "replay.dedup_window_hours is {hours}; it lies between 0 and \
                 {DEDUP_WINDOW_MAX_HOURS}"
            );
            return Err(self.wrong("replay", "dedup_window_hours", &problem));
        }
        Ok(Some(hours).filter(|hours| *hours > 0))
    }

    /// The sink, not connected.
    pub(crate) fn kafka(&self) -> Result<KafkaConnector, ConfigError> {
        let connector = self.kafka_beside()?;
        if !self.is_transactional()? {
            return Ok(connector);
        }
        let id = match self.settings.sink.transactional_id.as_str() {
            "" => format!("walpost-{}", self.settings.pipeline.name),
            id => id.to_owned(),
        };
        let interval = Duration::from_millis(self.settings.sink.transaction_interval_ms);
        connector.transactional(&id, interval).map_err(|error| {
            let problem = format!("sink.transaction_interval_ms: {error}");
            self.wrong("sink", "transaction_interval_ms", &problem)
        })
    }

    fn is_transactional(&self) -> Result<bool, ConfigError> {
        let section = &self.settings.sink;
        let is_transactional = self.choice(
            ("sink", "publish", &section.publish),
            &[("idempotent", false), ("transactional", true)],
        )?;
        if !is_transactional && !section.transactional_id.is_empty() {
            let problem = "sink.transactional_id is set and sink.publish is \"idempotent\"; remove \
                           the one or make the other \"transactional\"";
            return Err(self.wrong("sink", "transactional_id", problem));
        }
        Ok(is_transactional)
    }

    /// The Kafka settings that clients of any kind understand: where the
    /// brokers are, and how to log in.
    pub(crate) fn kafka_client(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let config = self.kafka()?.admin_config();
        let settings = config.config_map();
        let owned = |(key, value): (&&str, &&str)| ((*key).to_owned(), (*value).to_owned());
        Ok(settings.iter().map(owned).collect())
    }

    /// Where to serve HTTP, `None` for nowhere.
    pub(crate) fn listen(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let listen = &self.settings.http.listen;
        if listen.is_empty() {
            return Ok(None);
        }
        let problem = |_| {
            let problem = format!("http.listen is {listen:?}; an address such as 127.0.0.1:9464");
            self.wrong("http", "listen", &problem)
        };
        listen.parse().map(Some).map_err(problem)
    }

    /// How log lines look.
    pub(crate) fn log_format(&self) -> Result<LogFormat, ConfigError> {
        self.choice(
            ("log", "format", &self.settings.log.format),
            &[("text", LogFormat::Text), ("json", LogFormat::Json)],
        )
    }

    /// A problem with the value of a key.
    pub(crate) fn wrong(&self, section: &str, key: &str, problem: &str) -> ConfigError {
        let origin = self.layers.origin(section, key);
        let problem = self.layers.without_secret(section, key, problem);
        ConfigError::Value { origin, problem }
    }

    /// A problem of the pipeline, whose text begins with the key.
    fn wrong_setting(&self, problem: &str) -> ConfigError {
        let key = problem.split_whitespace().next().unwrap_or_default();
        let key = if key == "pipeline" { "name" } else { key };
        self.wrong("pipeline", key, problem)
    }

    pub(super) fn choice<T: Copy>(
        &self,
        (section, key, value): (&str, &str, &str),
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        one_of(value, choices)
            .map_err(|problem| self.wrong(section, key, &format!("{section}.{key} {problem}")))
    }

    pub(super) fn number<T: TryFrom<u64>>(
        &self,
        section: &str,
        key: &str,
        value: u64,
    ) -> Result<T, ConfigError> {
        fitting(value)
            .map_err(|problem| self.wrong(section, key, &format!("{section}.{key} {problem}")))
    }
}

/// The choice of that name, or what is wrong with it.
pub(super) fn one_of<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let chosen = choices.iter().find(|(name, _)| *name == value);
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        format!("is {value:?}; one of {}", names.join(", "))
    })
}

/// A number of a narrower type, or what is wrong with it.
pub(super) fn fitting<T: TryFrom<u64>>(value: u64) -> Result<T, String> {
    value.try_into().map_err(|_| format!("is {value}, which is too large"))
}

/// A file that holds one secret, without the line break that editors add.
pub(super) fn secret_file(key: &'static str, path: &str) -> Result<String, ConfigError> {
    let path = PathBuf::from(path);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(source) => Err(ConfigError::SecretFile { key, path, source }),
    }
}

/// A connection string of either form, with a password that wins over its own.
fn with_password(url: &str, password: &str) -> String {
    if !url.contains("://") {
        let password = password.replace('\\', r"\\").replace('\'', r"\'");
        return format!("{url} password='{password}'");
    }
    let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}password={encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_from_a_file_reaches_the_connection() {
        for url in [
            "postgres://app@h/db",
            "postgres://app:old@h/db?connect_timeout=3",
            "host=h user=app dbname=db",
        ] {
            let password = r"ä'\ &=%";
            let database = Database::parse(&with_password(url, password)).unwrap();
            assert_eq!(database.config().get_password(), Some(password.as_bytes()), "{url}");
        }
    }
}
