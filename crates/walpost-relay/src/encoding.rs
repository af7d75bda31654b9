//! What a pipeline's messages look like: Walpost's own plain encoding, or what
//! Debezium and Kafka Connect would write.

use walpost_encode::{
    Encoding,
    avro::RegistryConfig,
    connect::{Converter, Converters, HeaderConverter, ShapeOptions, Transforms, TypingOptions},
};

use crate::{asking, config::RelayConfig, error::RelayError};

/// How the events of a pipeline become messages.
#[derive(Clone, Debug)]
pub enum EventEncoding {
    /// Raw or as JSON, from the row alone.
    Plain(Encoding),
    /// As Kafka Connect does it under Debezium.
    Connect(Box<ConnectOptions>),
}

impl From<Encoding> for EventEncoding {
    fn from(encoding: Encoding) -> Self {
        Self::Plain(encoding)
    }
}

impl From<ConnectOptions> for EventEncoding {
    fn from(options: ConnectOptions) -> Self {
        Self::Connect(Box::new(options))
    }
}

impl EventEncoding {
    /// Sets in a configuration what the encoding decides.
    pub(crate) fn fit(&self, config: &mut RelayConfig) {
        config.base_types = matches!(self, Self::Plain(_));
    }

    /// Checks what can be checked without asking anybody.
    ///
    /// # Errors
    /// [`RelayError::Config`] for a converter that needs a registry and has none, and a
    /// registry without an address.
    pub(crate) fn check(&self) -> Result<(), RelayError> {
        let Self::Connect(options) = self else { return Ok(()) };
        let ConnectOptions { converters, registries, .. } = &**options;
        let header = match &converters.header {
            HeaderConverter::Of(converter) => Some(converter),
            HeaderConverter::Simple => None,
        };
        let parts = [
            ("key", Some(&converters.key), &registries.key),
            ("value", Some(&converters.value), &registries.value),
            ("header", header, &registries.header),
        ];
        for (part, converter, registry) in parts {
            asking::registry(registry.as_ref())?;
            if registry.is_none() && converter.is_some_and(asks) {
                let text = format!("{part}.converter writes schemas into a registry and has none");
                return Err(RelayError::Config(text));
            }
        }
        Ok(())
    }
}

impl EventEncoding {
    /// Whether headers have texts as they are.
    pub(crate) fn has_plain_headers(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Connect(options) => matches!(
                options.converters.header,
                HeaderConverter::Simple | HeaderConverter::Of(Converter::String)
            ),
        }
    }
}

fn asks(converter: &Converter) -> bool {
    match converter {
        Converter::Avro(_) | Converter::JsonSchema(_) | Converter::Protobuf(_) => true,
        Converter::BinaryData(delegate) => delegate.as_deref().is_some_and(asks),
        _ => false,
    }
}

/// What of a connector's configuration decides bytes, topics and headers beside
/// the router's.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What columns become. The relay adds to
    /// [`without_defaults`](ShapeOptions::without_defaults) the columns that the
    /// router reads so, and that of the schema version.
    pub shape: ShapeOptions,
    /// The router's part beside routing.
    pub typing: TypingOptions,
    /// The transforms beside the router.
    pub transforms: Transforms,
    /// The converters.
    pub converters: Converters,
    /// Who knows the ids of schemas.
    pub registries: Registries,
    /// The headers `__debezium.context.*`.
    pub context_headers: ContextHeaders,
}

/// The schema registry of each converter that has one: one that writes Avro,
/// Protobuf, or JSON under a schema, is refused without.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// Of the converter of keys.
    pub key: Option<RegistryConfig>,
    /// Of the converter of values.
    pub value: Option<RegistryConfig>,
    /// Of the converter of headers.
    pub header: Option<RegistryConfig>,
}

/// The headers `__debezium.context.*`, which Debezium puts before all others
/// unless `extended.headers.enabled` is false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextHeaders {
    /// None: up to Debezium 3.1.
    #[default]
    None,
    /// `connectorLogicalName`, `taskId` and `connectorName`: 3.2 and 3.3.
    Three,
    /// The same and `runId`, which each start of a session draws anew: from 3.4
    /// on.
    Four,
}
