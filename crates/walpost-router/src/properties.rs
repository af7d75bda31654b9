use crate::{
    config::{InvalidOperation, MissingColumn, RouterConfig, key},
    error::ConfigError,
};

/// Keys whose feature Walpost does not have, with the value at which Debezium
/// does nothing either.
const UNSUPPORTED: [(&str, Option<&str>); 6] = [
    ("table.field.event.schema.version", None),
    ("table.expand.json.payload", Some("false")),
    ("tracing.span.context.field", Some("tracingspancontext")),
    ("tracing.operation.name", Some("debezium-read")),
    ("tracing.with.context.field.only", Some("false")),
    ("field.name.adjustment.mode", Some("none")),
];

/// Keys that only refine JSON expansion, with their legal values.
const EXPANSION: [(&str, &str, [&str; 2]); 2] = [
    ("table.json.payload.null.behavior", "ignore or optional_bytes", ["ignore", "optional_bytes"]),
    (
        "table.json.payload.empty.array.behavior",
        "ignore or optional_string",
        ["ignore", "optional_string"],
    ),
];

/// Keys that Debezium has dropped, with their successors.
const REMOVED: [(&str, &str); 7] = [
    ("table.field.payload", key::EVENT_PAYLOAD),
    ("table.field.payload.id", key::EVENT_KEY),
    ("table.field.payload.type", key::EVENT_TYPE),
    ("table.field.schema.version", "table.field.event.schema.version"),
    ("table.field.event.payload.id", key::EVENT_KEY),
    ("debezium.op.invalid.behavior", key::INVALID_OPERATION),
    ("debezium.expand.json.payload", "table.expand.json.payload"),
];

impl RouterConfig {
    /// Reads Debezium's keys, without the `transforms.<name>.` before them.
    /// Keys that are not given keep Debezium's default.
    ///
    /// Both spellings of the key for missing columns are known:
    /// `table.field.additional.missing` and, up to Debezium 3.5,
    /// `table.fields.additional.error.on.missing`.
    ///
    /// ```
    /// use walpost_router::RouterConfig;
    ///
    /// let config = RouterConfig::from_properties([("route.by.field", "kind")])?;
    /// assert_eq!(config.route_by_field, "kind");
    /// assert_eq!(config.event_id, "id");
    /// # Ok::<(), walpost_router::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] for an unknown key (which Debezium ignores), a key that
    /// Debezium dropped, one whose feature Walpost does not have, and a value
    /// outside the legal ones. Names, regex, replacement and placements are
    /// checked by [`Router::new`](crate::Router::new).
    pub fn from_properties<K: AsRef<str>, V: AsRef<str>>(
        properties: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (key, value) in properties {
            config.set(key.as_ref(), value.as_ref())?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            key::EVENT_ID => self.event_id = value.to_owned(),
            key::EVENT_KEY => self.event_key = value.to_owned(),
            key::EVENT_TYPE => self.event_type = value.to_owned(),
            key::EVENT_PAYLOAD => self.event_payload = value.to_owned(),
            key::EVENT_TIMESTAMP => self.event_timestamp = Some(value.to_owned()),
            key::PLACEMENT => self.additional_placement = Some(value.to_owned()),
            key::MISSING => self.additional_missing = missing(value)?,
            key::MISSING_BEFORE_3_6 => {
                self.additional_missing = match boolean(key::MISSING_BEFORE_3_6, value)? {
                    true => MissingColumn::Error,
                    false => MissingColumn::Ignore,
                };
            }
            key::INVALID_OPERATION => self.invalid_operation = invalid_operation(value)?,
            key::ROUTE_BY => self.route_by_field = value.to_owned(),
            key::TOPIC_REGEX => self.topic_regex = value.to_owned(),
            key::TOPIC_REPLACEMENT => self.topic_replacement = value.to_owned(),
            key::TOMBSTONE => {
                self.tombstone_on_empty_payload = boolean(key::TOMBSTONE, value)?;
            }
            other => check_unused(other, value)?,
        }
        Ok(())
    }
}

/// A key that sets no field: harmless at some values, refused else.
fn check_unused(key: &str, value: &str) -> Result<(), ConfigError> {
    if let Some((key, harmless)) = UNSUPPORTED.iter().find(|(known, _)| *known == key) {
        return match harmless {
            Some(harmless) if harmless.eq_ignore_ascii_case(value.trim()) => Ok(()),
            _ => Err(ConfigError::Unsupported { key, value: value.to_owned() }),
        };
    }
    if let Some((key, expected, legal)) = EXPANSION.iter().find(|(known, ..)| *known == key) {
        let is_legal = legal.iter().any(|legal| legal.eq_ignore_ascii_case(value.trim()));
        return if is_legal { Ok(()) } else { Err(invalid(key, value, expected)) };
    }
    if let Some((key, successor)) = REMOVED.iter().find(|(known, _)| *known == key) {
        return Err(ConfigError::RemovedKey { key, successor });
    }
    Err(ConfigError::UnknownKey { key: key.to_owned() })
}

fn missing(value: &str) -> Result<MissingColumn, ConfigError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "error" => Ok(MissingColumn::Error),
        "ignore" => Ok(MissingColumn::Ignore),
        _ => Err(invalid(key::MISSING, value, "error or ignore")),
    }
}

fn invalid_operation(value: &str) -> Result<InvalidOperation, ConfigError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "warn" => Ok(InvalidOperation::Warn),
        "error" => Ok(InvalidOperation::Error),
        "fatal" => Ok(InvalidOperation::Fatal),
        _ => Err(invalid(key::INVALID_OPERATION, value, "warn, error or fatal")),
    }
}

fn boolean(key: &'static str, value: &str) -> Result<bool, ConfigError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(key, value, "true or false")),
    }
}

fn invalid(key: &'static str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::InvalidValue { key, value: value.to_owned(), expected }
}
