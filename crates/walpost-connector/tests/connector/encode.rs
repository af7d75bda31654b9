//! That no option is honoured which walpost-encode does not have, and none of its
//! options is forgotten: each structure is taken apart and made whole again.

use walpost_connector::{
    Avro, Converter, Handling, Json, JsonExpansion, JsonSchema, Login, Protobuf, Registry,
    SubjectStrategy,
};
use walpost_encode::{
    avro::{AvroOptions, AvroSerializer, Credentials, RegistryConfig, SubjectName},
    connect::{
        BinaryHandling, ColumnOptions, DecimalFormat, DecimalHandling, ExpandOptions,
        HstoreHandling, IntervalHandling, JsonConverterOptions, NameAdjustment, OnDifference,
        ShapeOptions, TimePrecision,
    },
    json_schema::JsonSchemaOptions,
    protobuf::ProtobufOptions,
};

use super::{JSON, refused, settings};

fn json(options: Json) -> JsonConverterOptions {
    let Json { schemas, decimal, replace_null_with_default } = options;
    JsonConverterOptions {
        schemas,
        // schemas.cache.size: a cache of its own.
        schemas_cache_size: JsonConverterOptions::default().schemas_cache_size,
        decimal_format: decimal,
        replace_null_with_default,
    }
}

fn expansion(options: JsonExpansion) -> ExpandOptions {
    let JsonExpansion { null, empty_array, names } = options;
    ExpandOptions { null_field: null, empty_array, names, on_difference: OnDifference::Park }
}

fn name_of_subject(strategy: SubjectStrategy) -> SubjectName {
    match strategy {
        SubjectStrategy::TopicName => SubjectName::Topic,
        SubjectStrategy::RecordName => SubjectName::Record,
        SubjectStrategy::TopicRecordName => SubjectName::TopicRecord,
    }
}

fn json_schema(options: &JsonSchema) -> JsonSchemaOptions {
    let JsonSchema { registry, additional_properties, decimal, ignores_defaults } = options;
    JsonSchemaOptions {
        subject: name_of_subject(registry.subject),
        additional_properties: *additional_properties,
        decimal_format: *decimal,
        ignore_default: *ignores_defaults,
        // schemas.cache.config: a cache of its own.
        schemas_cache_size: JsonSchemaOptions::default().schemas_cache_size,
    }
}

fn protobuf(options: &Protobuf) -> ProtobufOptions {
    let Protobuf {
        registry,
        scrubs_names,
        optional_nullables,
        wrapped_nullables,
        ignores_defaults,
    } = options;
    ProtobufOptions {
        subject: name_of_subject(registry.subject),
        scrub_invalid_names: *scrubs_names,
        optional_for_nullables: *optional_nullables,
        wrapper_for_nullables: *wrapped_nullables,
        ignore_default: *ignores_defaults,
        // schemas.cache.config: a cache of its own.
        schemas_cache_size: ProtobufOptions::default().schemas_cache_size,
    }
}

fn avro(options: &Avro) -> (AvroOptions, RegistryConfig) {
    let Avro { registry, meta_data, scrubs_names, is_apicurio } = options;
    let Registry { urls, login, subject, auto_register } = registry;
    let avro = AvroOptions {
        subject: name_of_subject(*subject),
        connect_meta_data: *meta_data,
        scrub_invalid_names: *scrubs_names,
        serializer: match is_apicurio {
            true => AvroSerializer::Apicurio,
            false => AvroSerializer::Confluent,
        },
        // schemas.cache.config: a cache of its own.
        schemas_cache_size: AvroOptions::default().schemas_cache_size,
    };
    let registry = RegistryConfig {
        urls: urls.iter().map(|url| url.expose().to_owned()).collect(),
        credentials: match login {
            Login::Url => None,
            Login::Basic { user, password } => {
                Some(Credentials::Basic(user.clone(), password.expose().to_owned()))
            }
            Login::Bearer(token) => Some(Credentials::Token(token.expose().to_owned())),
        },
        auto_register: *auto_register,
        timeout: std::time::Duration::from_secs(10),
    };
    (avro, registry)
}

#[test]
fn settings_are_options_of_the_conversion_and_their_defaults_are_the_same() {
    let connector = settings(&[
        ("key.converter", JSON),
        ("value.converter", JSON),
        ("transforms.outbox.table.expand.json.payload", "true"),
    ]);
    let topic_delimiter = connector.topic_delimiter;
    let Handling { columns, schema_names, field_names } = connector.handling;
    assert_eq!(columns, ColumnOptions::default());
    assert_eq!([schema_names, field_names], [NameAdjustment::default(); 2]);
    assert_eq!(topic_delimiter, ShapeOptions::default().topic_delimiter);
    let Converter::Json(value) = connector.converters.value else { panic!("JSON") };
    assert_eq!(json(value), JsonConverterOptions::default());
    let expanded = connector.transforms.router.expansion.unwrap();
    assert_eq!(expansion(expanded), ExpandOptions::default());
}

#[test]
fn every_option_of_a_registry_reaches_its_client() {
    let connector = settings(&[
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter.schema.registry.url", "http://a, http://b"),
        ("value.converter.basic.auth.credentials.source", "user_info"),
        ("value.converter.basic.auth.user.info", "u:p:q"),
        ("value.converter.auto.register.schemas", "false"),
        ("value.converter.connect.meta.data", "false"),
        ("value.converter.scrub.invalid.names", "true"),
        (
            "value.converter.value.subject.name.strategy",
            "io.confluent.kafka.serializers.subject.RecordNameStrategy",
        ),
    ]);
    let Converter::Avro(options) = &connector.converters.value else { panic!("Avro") };
    let (options, registry) = avro(options);
    assert_eq!(options.subject, SubjectName::Record);
    assert!(!options.connect_meta_data && options.scrub_invalid_names);
    assert_eq!(registry.urls, ["http://a", "http://b"]);
    assert_eq!(registry.credentials, Some(Credentials::Basic("u".into(), "p:q".into())));
    assert!(!registry.auto_register);
}

#[test]
fn options_of_json_under_a_schema_have_confluents_defaults() {
    let base = [
        ("value.converter", "io.confluent.connect.json.JsonSchemaConverter"),
        ("value.converter.schema.registry.url", "http://a"),
    ];
    let more = [
        ("value.converter.object.additional.properties", "false"),
        ("value.converter.decimal.format", "numeric"),
        ("value.converter.ignore.default.for.nullables", "true"),
        (
            "value.converter.value.subject.name.strategy",
            "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
        ),
    ];
    let of = |properties: &[(&str, &str)]| {
        let connector = settings(properties);
        assert!(connector.converters.value.writes_schemas());
        let Converter::JsonSchema(options) = &connector.converters.value else {
            panic!("JSON under a schema")
        };
        json_schema(options)
    };
    assert_eq!(of(&base), JsonSchemaOptions::default());
    let expected = JsonSchemaOptions {
        subject: SubjectName::TopicRecord,
        additional_properties: false,
        decimal_format: DecimalFormat::Numeric,
        ignore_default: true,
        ..JsonSchemaOptions::default()
    };
    assert_eq!(of(&[&base[..], &more].concat()), expected);
}

#[test]
fn options_of_protobuf_have_confluents_defaults() {
    let base = [
        ("key.converter", "io.confluent.connect.protobuf.ProtobufConverter"),
        ("key.converter.schema.registry.url", "http://a"),
    ];
    let of = |properties: &[(&str, &str)]| {
        let connector = settings(properties);
        let Converter::Protobuf(options) = &connector.converters.key else { panic!("Protobuf") };
        protobuf(options)
    };
    assert_eq!(of(&base), ProtobufOptions::default());
    let options = [
        "scrub.invalid.names",
        "optional.for.nullables",
        "wrapper.for.nullables",
        "ignore.default.for.nullables",
    ];
    for (index, option) in options.into_iter().enumerate() {
        let name = format!("key.converter.{option}");
        let expected = ProtobufOptions {
            scrub_invalid_names: index == 0,
            optional_for_nullables: index == 1,
            wrapper_for_nullables: index == 2,
            ignore_default: index == 3,
            ..ProtobufOptions::default()
        };
        assert_eq!(of(&[base[0], base[1], (&name, "true")]), expected, "{option}");
    }
}

#[test]
fn every_option_of_columns_reaches_the_conversion() {
    let connector = settings(&[
        ("time.precision.mode", "connect"),
        ("decimal.handling.mode", "double"),
        ("binary.handling.mode", "base64-url-safe"),
        ("interval.handling.mode", "string"),
        ("hstore.handling.mode", "map"),
        ("money.fraction.digits", "4"),
        ("include.unknown.datatypes", "true"),
        ("schema.name.adjustment.mode", "avro_unicode"),
        ("field.name.adjustment.mode", "avro"),
        ("topic.delimiter", "_"),
    ]);
    let topic_delimiter = connector.topic_delimiter;
    let Handling { columns, schema_names, field_names } = connector.handling;
    let ColumnOptions {
        time,
        decimal,
        binary,
        interval,
        hstore,
        money_fraction_digits,
        unknown_types,
    } = columns;
    assert_eq!(time, TimePrecision::Connect);
    assert_eq!(decimal, DecimalHandling::Double);
    assert_eq!(binary, BinaryHandling::Base64UrlSafe);
    assert_eq!(interval, IntervalHandling::String);
    assert_eq!(hstore, HstoreHandling::Map);
    assert_eq!((money_fraction_digits, unknown_types), (4, true));
    assert_eq!(schema_names, NameAdjustment::AvroUnicode);
    assert_eq!((field_names, &*topic_delimiter), (NameAdjustment::Avro, "_"));
    let name = "field.name.adjustment.mode";
    refused(&[(name, "latin")], name, "avro_unicode");
    refused(&[("money.fraction.digits", "256")], "money.fraction.digits", "from 0 to 255");
}
