//! What records are made of, the same for Walpost and Debezium.

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::services::Services;

const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const AVRO: &str = "io.apicurio.registry.utils.converter.AvroConverter";

/// What keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// The columns as they are
    Text,
    /// The payload expanded into fields, as JSON with its schema beside it
    JsonWithSchemas,
    /// The payload expanded into fields, as Avro under the id of a registry
    Avro,
}

impl Encoding {
    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::JsonWithSchemas => "json-with-schemas",
            Self::Avro => "avro",
        }
    }

    /// Whether a registry takes part.
    pub(crate) fn has_registry(self) -> bool {
        self == Self::Avro
    }

    /// What a connector's file says beside `connectors/orders.json`.
    ///
    /// # Errors
    /// When there is to be a registry and is none.
    pub(crate) fn properties(self, services: &Services) -> Result<Vec<(String, String)>> {
        let of_both = |suffix: &str, value: &str| {
            ["key", "value"].map(|part| (format!("{part}.converter{suffix}"), value.to_owned()))
        };
        let mut properties = Vec::new();
        match self {
            Self::Text => return Ok(properties),
            Self::JsonWithSchemas => {
                properties.extend(of_both("", JSON));
                properties.extend(of_both(".schemas.enable", "true"));
            }
            Self::Avro => {
                let registry = services.registry.as_ref().context("no registry was started")?;
                properties.extend(of_both("", AVRO));
                properties.extend(of_both(".apicurio.registry.url", &registry.own_url()));
                properties.extend(of_both(".apicurio.registry.auto-register", "true"));
                properties.extend(of_both(".apicurio.registry.as-confluent", "true"));
                properties.extend(of_both(".apicurio.registry.use-id", "contentId"));
                properties.extend(of_both(".apicurio.registry.headers.enabled", "false"));
                properties.push(("schema.name.adjustment.mode".to_owned(), "avro".to_owned()));
            }
        }
        let expand = "transforms.outbox.table.expand.json.payload";
        properties.push((expand.to_owned(), "true".to_owned()));
        Ok(properties)
    }
}
