use super::{
    ConverterClass,
    Kind::{Boolean, Class, Number, OneOf, Password, Text, Url},
    Of, Rule, Section, honoured, ignored,
    kind::COUNT,
    only, refused,
};
use crate::choices::Choice;
use walpost_encode::connect::DecimalFormat;

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
    &[("org.apache.kafka.connect.storage.StringConverter", ConverterClass::String)],
    &[honoured(
        "converter.encoding",
        Text,
        "UTF-8",
        "Java's name of the encoding: UTF-8, US-ASCII, ISO-8859-1, ISO-8859-15, windows-1252, \
         UTF-16, UTF-16BE or UTF-16LE",
    )],
);

pub(super) const JSON: Section = converter(
    "JsonConverter",
    &[("org.apache.kafka.connect.json.JsonConverter", ConverterClass::Json)],
    &[
        honoured("schemas.enable", Boolean, "true", "write {\"schema\": …, \"payload\": …}"),
        ignored("schemas.cache.size", COUNT, "1000", "Walpost has a cache of its own"),
        honoured("decimal.format", OneOf(DecimalFormat::NAMES), "BASE64", "how numeric is written"),
        honoured(
            "replace.null.with.default",
            Boolean,
            "true",
            "a default instead of null; in a bare payload it changes nothing",
        ),
        only("schema.content", "", &[""], "Walpost writes the record's own schema; remove it"),
    ],
);

pub(super) const BYTE_ARRAY: Section = converter(
    "ByteArrayConverter",
    &[("org.apache.kafka.connect.converters.ByteArrayConverter", ConverterClass::ByteArray)],
    &[],
);

pub(super) const BINARY_DATA: Section = converter(
    "BinaryDataConverter",
    &[
        ("io.debezium.converters.BinaryDataConverter", ConverterClass::BinaryData),
        ("io.debezium.converters.ByteBufferConverter", ConverterClass::BinaryData),
    ],
    &[
        honoured("delegate.converter.type", Class, "", "class of the converter of all but bytes"),
        honoured("delegate.converter.type.*", Text, "", "options of that converter"),
    ],
);

pub(super) const SIMPLE_HEADER: Section = converter(
    "SimpleHeaderConverter",
    &[("org.apache.kafka.connect.storage.SimpleHeaderConverter", ConverterClass::SimpleHeader)],
    &[],
);

/// Of the registry, beside [`AVRO`], [`JSON_SCHEMA`] and [`PROTOBUF`].
pub(super) const REGISTRY: Section = converter(
    "Schema registry",
    &[
        ("io.confluent.connect.avro.AvroConverter", ConverterClass::Avro),
        ("io.confluent.connect.json.JsonSchemaConverter", ConverterClass::JsonSchema),
        ("io.confluent.connect.protobuf.ProtobufConverter", ConverterClass::Protobuf),
    ],
    REGISTRY_RULES,
);

const LATEST: &str = "the record's own schema is registered or looked up, not another one; write \
                      false, and register what consumers should read";
const OF_LATEST: &str = "it is of use.latest.version and its neighbours, which are refused";
const STORES: &str = "the registry's certificate is checked by the system's authorities, and the \
                      client has none; add the authority to the system's, and remove it";
const CACHE: &str = "Walpost has a cache of its own";
const BOUND: &str = "Walpost has a bound of its own";
const FOREVER: &str = "Walpost tries again for ever";

const REGISTRY_RULES: &[Rule] = &[
    honoured("schema.registry.url", Url, "", "addresses of the registry"),
    honoured("auto.register.schemas", Boolean, "true", "register schemas that are new"),
    only("use.latest.version", "false", &["false"], LATEST),
    ignored("latest.compatibility.strict", Boolean, "true", OF_LATEST),
    refused("use.latest.with.metadata", "the record's own schema is used; remove it"),
    only("use.schema.id", "-1", &["-1"], "the record's own schema is used; remove it"),
    refused("use.schema.guid", "the record's own schema is used; remove it"),
    ignored("id.compatibility.strict", Boolean, "true", OF_LATEST),
    only(
        "normalize.schemas",
        "false",
        &["false"],
        "schemas are sent as Confluent's converter writes them; write false, and set it at the \
         registry",
    ),
    honoured("key.subject.name.strategy", OneOf(STRATEGIES), STRATEGIES[0], "the subject of keys"),
    honoured(
        "value.subject.name.strategy",
        OneOf(STRATEGIES),
        STRATEGIES[0],
        "the subject of values",
    ),
    only(
        "context.name.strategy",
        STRATEGY_OF_CONTEXT,
        &[STRATEGY_OF_CONTEXT],
        "subjects are those of the default context; remove it",
    ),
    only(
        "key.schema.id.serializer",
        PREFIX_SERIALIZER,
        &[PREFIX_SERIALIZER],
        "the id is written before the value; remove it",
    ),
    only(
        "value.schema.id.serializer",
        PREFIX_SERIALIZER,
        &[PREFIX_SERIALIZER],
        "the id is written before the value; remove it",
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
    refused("schema.registry.ssl.*", STORES),
    refused("proxy.*", "the registry is asked without a proxy; make it reachable, and remove it"),
    refused("rule.*", "Walpost runs no rules of a registry; remove it"),
    refused("rules.*", "Walpost runs no rules of a registry; remove it"),
    ignored("schemas.cache.config", COUNT, "1000", CACHE),
    ignored("max.schemas.per.subject", COUNT, "1000", CACHE),
    ignored("latest.cache.size", COUNT, "1000", CACHE),
    ignored("latest.cache.ttl.sec", Number(-1, i64::MAX), "-1", CACHE),
    ignored("missing.id.cache.ttl.sec", Number(-1, i64::MAX), "-1", CACHE),
    ignored("missing.version.cache.ttl.sec", Number(-1, i64::MAX), "-1", CACHE),
    ignored("missing.schema.cache.ttl.sec", Number(-1, i64::MAX), "-1", CACHE),
    ignored("missing.cache.size", COUNT, "10000", CACHE),
    ignored("schema.registry.url.randomize", Boolean, "false", "addresses are tried in order"),
    ignored("http.connect.timeout.ms", COUNT, "60000", BOUND),
    ignored("http.read.timeout.ms", COUNT, "60000", BOUND),
    ignored("max.retries", COUNT, "3", FOREVER),
    ignored("retries.wait.ms", COUNT, "1000", FOREVER),
    ignored("retries.max.wait.ms", COUNT, "20000", FOREVER),
];

const STRATEGY_OF_CONTEXT: &str = "io.confluent.kafka.serializers.context.NullContextNameStrategy";
const PREFIX_SERIALIZER: &str = "io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer";

/// The first one is the default.
pub(crate) const STRATEGIES: &[&str] = &[
    "io.confluent.kafka.serializers.subject.TopicNameStrategy",
    "io.confluent.kafka.serializers.subject.RecordNameStrategy",
    "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
];

const ALONE: &str = "Walpost writes what the converter writes without it; write false";
const OF_READING: &str = "it is of records that are read, and a source writes";

pub(super) const AVRO: Section = converter(
    "AvroConverter",
    &[("io.confluent.connect.avro.AvroConverter", ConverterClass::Avro)],
    &[
        only("enhanced.avro.schema.support", "false", &["false"], ALONE),
        honoured("connect.meta.data", Boolean, "true", "write connect.name and its neighbours"),
        honoured("scrub.invalid.names", Boolean, "false", "make names legal in Avro"),
        only("ignore.default.for.nullables", "false", &["false"], ALONE),
        only("generalized.sum.type.support", "false", &["false"], ALONE),
        only("allow.optional.map.keys", "false", &["false"], ALONE),
        only("discard.type.doc.default", "false", &["false"], ALONE),
        only("avro.use.logical.type.converters", "false", &["false"], ALONE),
        only("avro.reflection.allow.null", "false", &["false"], ALONE),
        only("avro.remove.java.properties", "false", &["false"], ALONE),
        only("schema.reflection", "false", &["false"], ALONE),
        ignored("flatten.singleton.unions", Boolean, "true", OF_READING),
        ignored("specific.avro.reader", Boolean, "false", OF_READING),
        only("avro.codec", "null", &["null"], "a record is not compressed by itself; remove it"),
    ],
);

const NO_RULES: Rule = only(
    "validation.rules.execution",
    "DISABLED",
    &["DISABLED"],
    "Walpost runs no rules of a registry; write DISABLED",
);
const IGNORES_DEFAULTS: Rule = honoured(
    "ignore.default.for.nullables",
    Boolean,
    "false",
    "NULL stays NULL where there is a default",
);
const OF_CLASSES: &str = "it is of schemas that are derived from Java classes";

pub(super) const JSON_SCHEMA: Section = converter(
    "JsonSchemaConverter",
    &[("io.confluent.connect.json.JsonSchemaConverter", ConverterClass::JsonSchema)],
    &[
        honoured(
            "object.additional.properties",
            Boolean,
            "true",
            "an object may have members that its schema does not name",
        ),
        honoured("decimal.format", OneOf(DecimalFormat::NAMES), "BASE64", "how numeric is written"),
        IGNORES_DEFAULTS,
        only("generalized.sum.type.support", "false", &["false"], ALONE),
        only("preserve.additional.properties", "false", &["false"], ALONE),
        only("json.fail.invalid.schema", "false", &["false"], ALONE),
        only("json.indent.output", "false", &["false"], ALONE),
        only("json.validate.before.domain.rules", "false", &["false"], ALONE),
        NO_RULES,
        ignored("json.fail.unknown.properties", Boolean, "true", OF_CLASSES),
        ignored("json.write.dates.iso8601", Boolean, "false", OF_CLASSES),
        ignored("json.schema.spec.version", Text, "draft_7", OF_CLASSES),
        ignored("json.schema.scan.packages", Text, "", OF_CLASSES),
        ignored("json.envelope.detection", Boolean, "true", OF_CLASSES),
        ignored("json.oneof.for.nullables", Boolean, "true", OF_CLASSES),
        ignored("json.default.property.inclusion", Text, "", OF_CLASSES),
        ignored("use.optional.for.nonrequired", Boolean, "false", OF_READING),
        ignored("ignore.modern.dialects", Boolean, "false", OF_READING),
        ignored("flatten.singleton.unions", Boolean, "true", OF_READING),
    ],
);

pub(super) const PROTOBUF: Section = converter(
    "ProtobufConverter",
    &[("io.confluent.connect.protobuf.ProtobufConverter", ConverterClass::Protobuf)],
    &[
        honoured("scrub.invalid.names", Boolean, "false", "make names legal in Protobuf"),
        honoured(
            "optional.for.nullables",
            Boolean,
            "false",
            "fields that may be NULL are optional",
        ),
        honoured("wrapper.for.nullables", Boolean, "false", "fields that may be NULL are wrapped"),
        IGNORES_DEFAULTS,
        only("generalized.sum.type.support", "false", &["false"], ALONE),
        only("skip.known.types", "true", &["true"], "known types are no references; write true"),
        NO_RULES,
        refused("schema.format", "the schema is sent as the converter makes it; remove it"),
        ignored("enhanced.protobuf.schema.support", Boolean, "false", OF_READING),
        ignored("int.for.enums", Boolean, "false", OF_READING),
        ignored("optional.for.proto2", Boolean, "true", OF_READING),
        ignored("wrapper.for.raw.primitives", Boolean, "true", OF_READING),
        ignored("generate.struct.for.nulls", Boolean, "false", OF_READING),
        ignored("generate.index.for.unions", Boolean, "true", OF_READING),
        ignored("flatten.unions", Boolean, "false", OF_READING),
        ignored("reference.lookup.only", Boolean, "false", OF_REFERENCES),
        ignored("reference.subject.name.strategy", Text, "", OF_REFERENCES),
    ],
);

const OF_REFERENCES: &str = "the schemas of an outbox refer to no other ones";

pub(super) const APICURIO: Section = converter(
    "Converters of Apicurio",
    &[("io.apicurio.registry.utils.converter.AvroConverter", ConverterClass::ApicurioAvro)],
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
        only("apicurio.registry.find-latest", "false", &["false"], LATEST),
        only(
            "apicurio.registry.as-confluent",
            "false",
            &["true"],
            "Walpost frames values as Confluent does; write true, which consumers have to do too",
        ),
        only(
            "apicurio.registry.headers.enabled",
            "true",
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
    classes: &'static [(&'static str, ConverterClass)],
    rules: &'static [Rule],
) -> Section {
    Section { title, of: Of::Converter(classes), rules }
}

/// Why a class of converters is refused, and what to write; for those that
/// people have.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    (
        "io.debezium.converters.ByteArrayConverter",
        "it fails on what the connector gives for bytea; write \
         io.debezium.converters.BinaryDataConverter",
    ),
    (
        "io.debezium.converters.CloudEventsConverter",
        "it makes events of change events, and behind the router there are none; write \
         JsonConverter, and place what the event should say",
    ),
    (
        "io.apicurio.registry.utils.converter.ExtJsonConverter",
        "Walpost has it not; write org.apache.kafka.connect.json.JsonConverter",
    ),
    ("io.apicurio.registry.utils.converter.ProtobufConverter", NO_PROTOBUF),
];

const NO_PROTOBUF: &str = "Walpost has Confluent's alone; write \
                           io.confluent.connect.protobuf.ProtobufConverter, or \
                           io.debezium.converters.BinaryDataConverter for payloads that are \
                           Protobuf already";
