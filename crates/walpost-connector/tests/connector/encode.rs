//! That no option is honoured which walpost-encode does not have, and none of its
//! options is forgotten: each structure is taken apart and made whole again.

use walpost_connector::{
    Avro, Converter, Handling, Json, JsonExpansion, Login, Registry, SubjectStrategy,
};
use walpost_encode::{
    avro::{AvroOptions, Credentials, RegistryConfig, SubjectName},
    connect::{
        BinaryHandling, ColumnOptions, DecimalHandling, ExpandOptions, HstoreHandling,
        IntervalHandling, JsonConverterOptions, NameAdjustment, OnDifference, TimePrecision,
    },
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

fn avro(options: &Avro) -> (AvroOptions, RegistryConfig) {
    let Avro { registry, meta_data, scrubs_names } = options;
    let Registry { urls, login, subject, auto_register } = registry;
    let avro = AvroOptions {
        subject: match subject {
            SubjectStrategy::TopicName => SubjectName::Topic,
            SubjectStrategy::RecordName => SubjectName::Record,
            SubjectStrategy::TopicRecordName => SubjectName::TopicRecord,
        },
        connect_meta_data: *meta_data,
        scrub_invalid_names: *scrubs_names,
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
    let Handling { columns, schema_names } = connector.handling;
    assert_eq!(columns, ColumnOptions::default());
    assert_eq!(schema_names, NameAdjustment::default());
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
    ]);
    let Handling { columns, schema_names } = connector.handling;
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
    let name = "field.name.adjustment.mode";
    refused(&[(name, "avro")], name, "write none");
    refused(&[("money.fraction.digits", "256")], "money.fraction.digits", "from 0 to 255");
}
