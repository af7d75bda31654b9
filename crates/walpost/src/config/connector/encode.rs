//! How the connector's rows become bytes: its converters, and what its columns
//! and its router make of a row.

use walpost_connector::{
    Connector, ContextHeaders, Converter, Converters, HeaderConverter, Json, JsonExpansion,
    Transforms,
};
use walpost_encode::{
    avro::RegistryConfig,
    connect::{self, EnvelopeNames, ExpandOptions, JsonConverter, JsonConverterOptions},
};
use walpost_relay::{ConnectOptions, Registries};

use super::{registry, transforms};
use crate::config::settings::RouterSection;

/// The options of the encoding; `router` is what holds for the router's keys.
pub(crate) fn options(connector: &Connector, router: &RouterSection) -> ConnectOptions {
    let (converters, registries) = converters(&connector.converters);
    ConnectOptions {
        shape: shape(connector),
        typing: typing(connector, router),
        transforms: transforms::transforms(&connector.transforms),
        converters,
        registries,
        context_headers: match connector.context_headers {
            ContextHeaders::None => walpost_relay::ContextHeaders::None,
            ContextHeaders::Three => walpost_relay::ContextHeaders::Three,
            ContextHeaders::Four => walpost_relay::ContextHeaders::Four,
        },
    }
}

pub(super) fn shape(connector: &Connector) -> connect::ShapeOptions {
    connect::ShapeOptions {
        topic_prefix: connector.topic_prefix.clone(),
        topic_delimiter: connector.topic_delimiter.clone(),
        schema_names: connector.handling.schema_names,
        field_names: connector.handling.field_names,
        columns: connector.handling.columns,
        // The relay knows which columns route.
        without_defaults: Vec::new(),
    }
}

fn typing(connector: &Connector, router: &RouterSection) -> connect::TypingOptions {
    let ours = &connector.transforms.router;
    connect::TypingOptions {
        key_column: router.event_key.as_str().into(),
        payload_column: router.event_payload.as_str().into(),
        expand: ours.expansion.map(expansion),
        messages: messages(&connector.transforms),
        version_column: ours.schema_version.as_deref().map(Into::into),
        ignore_missing: router.additional_missing == "ignore",
        // As in Debezium, whose consumers have seen those names.
        envelope_names: EnvelopeNames::FirstRouted,
        // The relay knows them from the router.
        ..connect::TypingOptions::default()
    }
}

fn messages(transforms: &Transforms) -> ExpandOptions {
    let null_field = match transforms.keeps_null_members() {
        Some(true) => connect::NullField::OptionalBytes,
        Some(false) | None => connect::NullField::Ignore,
    };
    ExpandOptions { null_field, ..ExpandOptions::default() }
}

fn expansion(expansion: JsonExpansion) -> ExpandOptions {
    let JsonExpansion { null, empty_array, names } = expansion;
    let on_difference = connect::OnDifference::Park;
    ExpandOptions { null_field: null, empty_array, names, on_difference }
}

fn converters(converters: &Converters) -> (connect::Converters, Registries) {
    let (key, key_registry) = converter(&converters.key, true);
    let (value, value_registry) = converter(&converters.value, false);
    let header = match converters.header {
        HeaderConverter::Simple => connect::HeaderConverter::Simple,
        HeaderConverter::String => connect::HeaderConverter::Of(connect::Converter::String),
        HeaderConverter::StringIn(charset) => {
            connect::HeaderConverter::Of(connect::Converter::StringIn(charset))
        }
        HeaderConverter::Json(options) => connect::HeaderConverter::Of(json(options)),
    };
    // None of its converters has a registry.
    let registries = Registries { key: key_registry, value: value_registry, header: None };
    (connect::Converters { key, value, header }, registries)
}

fn converter(of: &Converter, is_key: bool) -> (connect::Converter, Option<RegistryConfig>) {
    match of {
        Converter::String => (connect::Converter::String, None),
        Converter::StringIn(charset) => (connect::Converter::StringIn(*charset), None),
        Converter::Json(options) => (json(*options), None),
        Converter::ByteArray => (connect::Converter::ByteArray, None),
        Converter::BinaryData { delegate: None } => (connect::Converter::BinaryData(None), None),
        Converter::BinaryData { delegate: Some(delegate) } => {
            let (delegate, registry) = converter(delegate, is_key);
            (connect::Converter::BinaryData(Some(Box::new(delegate))), registry)
        }
        Converter::Avro(avro) => {
            let converter = registry::avro(avro, is_key);
            (connect::Converter::Avro(converter), Some(registry::config(&avro.registry)))
        }
        Converter::JsonSchema(json) => {
            let converter = registry::json_schema(json, is_key);
            (connect::Converter::JsonSchema(converter), Some(registry::config(&json.registry)))
        }
        Converter::Protobuf(protobuf) => {
            let converter = registry::protobuf(protobuf, is_key);
            (connect::Converter::Protobuf(converter), Some(registry::config(&protobuf.registry)))
        }
    }
}

fn json(options: Json) -> connect::Converter {
    let Json { schemas, decimal, replace_null_with_default } = options;
    connect::Converter::Json(JsonConverter::new(JsonConverterOptions {
        schemas,
        decimal_format: decimal,
        replace_null_with_default,
        ..JsonConverterOptions::default()
    }))
}
