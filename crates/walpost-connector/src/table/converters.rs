use super::{
    Kind::{Boolean, Class, Number, OneOf, Password, Text, Url},
    Rule, Section, honoured, ignored,
    kind::COUNT,
    only, refused,
};
use crate::choices::DecimalFormat;

/// What stands before the options of a converter.
pub(crate) const CONVERTER: &str = "<converter>.";

pub(super) const COMMON: Section = converter(
    "Of every converter",
    &[],
    &[
        ignored("converter.type", Text, "", "Kafka Connect writes it itself"),
        ignored("plugin.version", Text, "", "Walpost is of one version"),
    ],
);

pub(super) const STRING: Section = converter(
    "StringConverter",
    &["org.apache.kafka.connect.storage.StringConverter"],
    &[only(
        "converter.encoding",
        "UTF-8",
        &["UTF-8", "UTF8"],
        "Walpost writes UTF-8 alone; remove it",
    )],
);

pub(super) const JSON: Section = converter(
    "JsonConverter",
    &["org.apache.kafka.connect.json.JsonConverter"],
    &[
        honoured("schemas.enable", Boolean, "true", "write {\"schema\": …, \"payload\": …}"),
        ignored("schemas.cache.size", COUNT, "1000", "Walpost has a cache of its own"),
        honoured("decimal.format", OneOf(DecimalFormat::NAMES), "BASE64", "how numeric is written"),
        honoured("replace.null.with.default", Boolean, "true", "a default instead of null"),
        only("schema.content", "", &[""], "Walpost writes the record's own schema; remove it"),
    ],
);

pub(super) const BYTE_ARRAY: Section = converter(
    "ByteArrayConverter",
    &["org.apache.kafka.connect.converters.ByteArrayConverter"],
    &[],
);

pub(super) const BINARY_DATA: Section = converter(
    "BinaryDataConverter",
    &["io.debezium.converters.BinaryDataConverter", "io.debezium.converters.ByteBufferConverter"],
    &[
        honoured("delegate.converter.type", Class, "", "class of the converter of all but bytes"),
        honoured("delegate.converter.type.*", Text, "", "options of that converter"),
    ],
);

pub(super) const SIMPLE_HEADER: Section = converter(
    "SimpleHeaderConverter",
    &["org.apache.kafka.connect.storage.SimpleHeaderConverter"],
    &[],
);

/// Of the converters that need a registry.
pub(super) const REGISTRY: Section = converter(
    "Schema registry",
    &[
        "io.confluent.connect.avro.AvroConverter",
        "io.confluent.connect.json.JsonSchemaConverter",
        "io.confluent.connect.protobuf.ProtobufConverter",
    ],
    REGISTRY_RULES,
);

const REGISTRY_RULES: &[Rule] = &[
    honoured("schema.registry.url", Url, "", "addresses of the registry"),
    honoured("auto.register.schemas", Boolean, "true", "register schemas that are new"),
    honoured("use.latest.version", Boolean, "false", "the newest version of the subject"),
    honoured("latest.compatibility.strict", Boolean, "true", "which the schema has to fit"),
    honoured(
        "use.schema.id",
        Number(-1, i32::MAX as i64),
        "-1",
        "this schema, whatever the record's",
    ),
    honoured("id.compatibility.strict", Boolean, "true", "which the schema has to fit"),
    honoured("normalize.schemas", Boolean, "false", "let the registry normalise them"),
    honoured("key.subject.name.strategy", OneOf(STRATEGIES), STRATEGIES[0], "the subject of keys"),
    honoured(
        "value.subject.name.strategy",
        OneOf(STRATEGIES),
        STRATEGIES[0],
        "the subject of values",
    ),
    honoured(
        "basic.auth.credentials.source",
        OneOf(&["URL", "USER_INFO"]),
        "URL",
        "where user and password are; SASL_INHERIT is not known",
    ),
    honoured("basic.auth.user.info", Password, "", "user:password"),
    honoured("schema.registry.basic.auth.user.info", Password, "", "the same, formerly"),
    honoured(
        "bearer.auth.credentials.source",
        OneOf(&["STATIC_TOKEN"]),
        "STATIC_TOKEN",
        "where the token is",
    ),
    honoured("bearer.auth.token", Password, "", "the token"),
    honoured("schema.registry.ssl.truststore.location", Text, "", "PEM file of authorities"),
    only(
        "schema.registry.ssl.truststore.type",
        "",
        &["PEM"],
        "Walpost reads PEM alone; convert the store, and write PEM",
    ),
    honoured("schema.registry.ssl.keystore.location", Text, "", "PEM file of certificate and key"),
    only(
        "schema.registry.ssl.keystore.type",
        "",
        &["PEM"],
        "Walpost reads PEM alone; convert the store, and write PEM",
    ),
    honoured("schema.registry.ssl.key.password", Password, "", "password of the key"),
    refused(
        "schema.registry.ssl.truststore.password",
        "Walpost reads PEM alone, which has none; convert the store, and remove it",
    ),
    refused(
        "schema.registry.ssl.keystore.password",
        "Walpost reads PEM alone; write schema.registry.ssl.key.password",
    ),
    only(
        "schema.registry.ssl.endpoint.identification.algorithm",
        "https",
        &["https"],
        "the name of the registry is always checked; remove it",
    ),
    ignored("schemas.cache.config", COUNT, "1000", "Walpost has a cache of its own"),
    ignored("max.schemas.per.subject", COUNT, "1000", "Walpost has a cache of its own"),
    ignored("latest.cache.size", COUNT, "1000", "Walpost has a cache of its own"),
    ignored("latest.cache.ttl.sec", Number(-1, i64::MAX), "-1", "Walpost has a cache of its own"),
    ignored("schema.registry.url.randomize", Boolean, "false", "addresses are tried in order"),
    ignored("http.connect.timeout.ms", COUNT, "60000", "Walpost has a bound of its own"),
    ignored("http.read.timeout.ms", COUNT, "60000", "Walpost has a bound of its own"),
    ignored("max.retries", COUNT, "3", "Walpost tries again for ever"),
    ignored("retries.wait.ms", COUNT, "1000", "Walpost tries again for ever"),
    ignored("retries.max.wait.ms", COUNT, "20000", "Walpost tries again for ever"),
];

/// The first one is the default.
pub(crate) const STRATEGIES: &[&str] = &[
    "io.confluent.kafka.serializers.subject.TopicNameStrategy",
    "io.confluent.kafka.serializers.subject.RecordNameStrategy",
    "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
];

pub(super) const AVRO: Section = converter(
    "AvroConverter",
    &["io.confluent.connect.avro.AvroConverter"],
    &[
        honoured(
            "enhanced.avro.schema.support",
            Boolean,
            "false",
            "keep names of enums and packages",
        ),
        honoured("connect.meta.data", Boolean, "true", "write connect.name and its neighbours"),
        honoured("scrub.invalid.names", Boolean, "false", "make names legal in Avro"),
        only("avro.codec", "null", &["null"], "a record is not compressed by itself; remove it"),
    ],
);

pub(super) const JSON_SCHEMA: Section = converter(
    "JsonSchemaConverter",
    &["io.confluent.connect.json.JsonSchemaConverter"],
    &[
        honoured("decimal.format", OneOf(DecimalFormat::NAMES), "BASE64", "how numeric is written"),
        honoured(
            "object.additional.properties",
            Boolean,
            "true",
            "additionalProperties of objects",
        ),
        honoured(
            "use.optional.for.nonrequired",
            Boolean,
            "false",
            "what is not required is optional",
        ),
    ],
);

pub(super) const PROTOBUF: Section = converter(
    "ProtobufConverter",
    &["io.confluent.connect.protobuf.ProtobufConverter"],
    &[
        honoured("enhanced.protobuf.schema.support", Boolean, "false", "keep names of packages"),
        honoured("scrub.invalid.names", Boolean, "false", "make names legal in Protobuf"),
        honoured("optional.for.nullables", Boolean, "false", "optional for what may be null"),
        honoured("wrapper.for.nullables", Boolean, "false", "wrappers for what may be null"),
        honoured(
            "wrapper.for.raw.primitives",
            Boolean,
            "true",
            "wrappers for values that are no structure",
        ),
    ],
);

pub(super) const APICURIO: Section = converter(
    "Converters of Apicurio",
    &["io.apicurio.registry.utils.converter.AvroConverter"],
    &[
        honoured(
            "apicurio.registry.url",
            Url,
            "",
            "address of the registry, as its API v2 or v3 has it",
        ),
        honoured(
            "apicurio.registry.auto-register",
            Boolean,
            "false",
            "register schemas that are new",
        ),
        honoured(
            "apicurio.registry.find-latest",
            Boolean,
            "false",
            "the newest version of the artefact",
        ),
        only(
            "apicurio.registry.as-confluent",
            "false",
            &["true"],
            "Walpost frames values as Confluent does; write true, which consumers have to do too",
        ),
        only(
            "apicurio.registry.headers.enabled",
            "false",
            &["false"],
            "Walpost writes the id into the value; write false",
        ),
        only(
            "apicurio.registry.use-id",
            "globalId",
            &["contentId"],
            "the API for Confluent's clients goes by content; write contentId",
        ),
        only(
            "apicurio.registry.converter.serializer",
            "",
            &["io.apicurio.registry.serde.avro.AvroKafkaSerializer"],
            "Walpost writes Avro with it; remove it",
        ),
        ignored("apicurio.registry.converter.deserializer", Text, "", "a source reads no records"),
        refused("apicurio.*", "Walpost does not know it; remove it"),
    ],
);

const fn converter(
    title: &'static str,
    classes: &'static [&'static str],
    rules: &'static [Rule],
) -> Section {
    Section { title, prefix: CONVERTER, classes, rules }
}

/// Why a class of converters is refused, and what to write; for those that
/// people have.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    (
        "io.debezium.converters.ByteArrayConverter",
        "it fails on what the connector gives for bytea; write io.debezium.converters.BinaryDataConverter",
    ),
    (
        "io.debezium.converters.CloudEventsConverter",
        "it makes events of change events, and behind the router there are none; write JsonConverter, and place what the event should say",
    ),
    (
        "io.apicurio.registry.utils.converter.ExtJsonConverter",
        "Walpost has it not; write org.apache.kafka.connect.json.JsonConverter or io.confluent.connect.json.JsonSchemaConverter",
    ),
    (
        "io.apicurio.registry.utils.converter.ProtobufConverter",
        "Walpost has it not; write io.confluent.connect.protobuf.ProtobufConverter at the registry's /apis/ccompat/v7",
    ),
];
