use std::time::Duration;

use walpost_connector::{Avro, JsonSchema, Login, Protobuf, Registry, SubjectStrategy};
use walpost_encode::{
    avro::{AvroConverter, AvroOptions, AvroSerializer, Credentials, RegistryConfig, SubjectName},
    json_schema::{JsonSchemaConverter, JsonSchemaOptions},
    protobuf::{ProtobufConverter, ProtobufOptions},
};

/// Of one answer of the registry.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Confluent's converter to Avro, of keys or values.
pub(super) fn avro(avro: &Avro, is_key: bool) -> AvroConverter {
    let Avro { registry, meta_data, scrubs_names, is_apicurio } = avro;
    let options = AvroOptions {
        subject: subject(registry.subject),
        connect_meta_data: *meta_data,
        scrub_invalid_names: *scrubs_names,
        serializer: match is_apicurio {
            true => AvroSerializer::Apicurio,
            false => AvroSerializer::Confluent,
        },
        ..AvroOptions::default()
    };
    AvroConverter::new(options, is_key)
}

/// Confluent's converter to JSON under a schema, of keys or values.
pub(super) fn json_schema(json: &JsonSchema, is_key: bool) -> JsonSchemaConverter {
    let JsonSchema { registry, additional_properties, decimal, ignores_defaults } = json;
    let options = JsonSchemaOptions {
        subject: subject(registry.subject),
        additional_properties: *additional_properties,
        decimal_format: *decimal,
        ignore_default: *ignores_defaults,
        ..JsonSchemaOptions::default()
    };
    JsonSchemaConverter::new(options, is_key)
}

/// Confluent's converter to Protobuf, of keys or values.
pub(super) fn protobuf(protobuf: &Protobuf, is_key: bool) -> ProtobufConverter {
    let Protobuf {
        registry,
        scrubs_names,
        optional_nullables,
        wrapped_nullables,
        ignores_defaults,
    } = protobuf;
    let options = ProtobufOptions {
        subject: subject(registry.subject),
        scrub_invalid_names: *scrubs_names,
        optional_for_nullables: *optional_nullables,
        wrapper_for_nullables: *wrapped_nullables,
        ignore_default: *ignores_defaults,
        ..ProtobufOptions::default()
    };
    ProtobufConverter::new(options, is_key)
}

fn subject(strategy: SubjectStrategy) -> SubjectName {
    match strategy {
        SubjectStrategy::TopicName => SubjectName::Topic,
        SubjectStrategy::RecordName => SubjectName::Record,
        SubjectStrategy::TopicRecordName => SubjectName::TopicRecord,
    }
}

/// Where a converter's registry is, and how to log in.
pub(super) fn config(registry: &Registry) -> RegistryConfig {
    let Registry { urls, login, auto_register, .. } = registry;
    RegistryConfig {
        urls: urls.iter().map(|url| url.expose().to_owned()).collect(),
        credentials: match login {
            Login::Url => None,
            Login::Basic { user, password } => {
                Some(Credentials::Basic(user.clone(), password.expose().to_owned()))
            }
            Login::Bearer(token) => Some(Credentials::Token(token.expose().to_owned())),
        },
        auto_register: *auto_register,
        timeout: TIMEOUT,
    }
}
