use walpost_encode::connect::{Charset, DecimalFormat};

use super::registry::{self, Registry};
use crate::{
    judge::{Judge, Scope},
    table::{self, CONVERTERS, ConverterClass, Rule, converters as rules},
    verdicts::{Origin, Verdict},
};

/// How keys, values and headers become bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converters {
    /// Of keys; decides the partition.
    pub key: Converter,
    /// Of values.
    pub value: Converter,
    /// Of headers.
    pub header: HeaderConverter,
}

/// How a key or a value becomes bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Converter {
    /// The text of the value, in UTF-8.
    String,
    /// The same in another encoding: `converter.encoding`.
    StringIn(Charset),
    /// JSON.
    Json(Json),
    /// The bytes that it is; nothing else.
    ByteArray,
    /// The bytes that it is, and whatever else by a delegate.
    BinaryData {
        /// `delegate.converter.type`.
        delegate: Option<Box<Converter>>,
    },
    /// Avro under a schema of a registry.
    Avro(Avro),
    /// JSON under a JSON Schema of a registry.
    JsonSchema(JsonSchema),
    /// Protobuf under a schema of a registry.
    Protobuf(Protobuf),
}

/// How a header becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderConverter {
    /// `SimpleHeaderConverter`, the default: text, or JSON for what has parts.
    Simple,
    /// `StringConverter`.
    String,
    /// The same in another encoding than UTF-8.
    StringIn(Charset),
    /// `JsonConverter`.
    Json(Json),
}

/// Options of `JsonConverter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json {
    /// `schemas.enable`, default true: the schema stands beside each payload.
    pub schemas: bool,
    /// `decimal.format`, default BASE64.
    pub decimal: DecimalFormat,
    /// `replace.null.with.default`, default true.
    pub replace_null_with_default: bool,
}

/// Options of Confluent's `AvroConverter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Avro {
    /// The registry.
    pub registry: Registry,
    /// `connect.meta.data`, default true.
    pub meta_data: bool,
    /// `scrub.invalid.names`, default false.
    pub scrubs_names: bool,
    /// Whether the converter is Apicurio's.
    pub is_apicurio: bool,
}

/// Options of Confluent's `JsonSchemaConverter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonSchema {
    /// The registry.
    pub registry: Registry,
    /// `object.additional.properties`, default true.
    pub additional_properties: bool,
    /// `decimal.format`, default BASE64.
    pub decimal: DecimalFormat,
    /// `ignore.default.for.nullables`, default false.
    pub ignores_defaults: bool,
}

/// Options of Confluent's `ProtobufConverter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protobuf {
    /// The registry.
    pub registry: Registry,
    /// `scrub.invalid.names`, default false.
    pub scrubs_names: bool,
    /// `optional.for.nullables`, default false.
    pub optional_nullables: bool,
    /// `wrapper.for.nullables`, default false.
    pub wrapped_nullables: bool,
    /// `ignore.default.for.nullables`, default false.
    pub ignores_defaults: bool,
}

impl Converter {
    /// Whether it writes a schema, beside the value or into a registry.
    pub fn writes_schemas(&self) -> bool {
        match self {
            Self::String | Self::StringIn(_) | Self::ByteArray => false,
            Self::Json(json) => json.schemas,
            Self::BinaryData { delegate } => delegate.as_deref().is_some_and(Self::writes_schemas),
            Self::Avro(_) | Self::JsonSchema(_) | Self::Protobuf(_) => true,
        }
    }

    /// Whether it takes bytes alone.
    pub(crate) fn is_of_bytes_alone(&self) -> bool {
        matches!(self, Self::ByteArray | Self::BinaryData { delegate: None })
    }
}

/// A converter with its options under the rules of its class.
enum Found {
    Any(Converter),
    SimpleHeader,
}

pub(crate) fn read(judge: &mut Judge) -> Option<Converters> {
    let key = of(judge, "key.converter").and_then(|found| found.any(judge, "key.converter"));
    let value = of(judge, "value.converter").and_then(|found| found.any(judge, "value.converter"));
    let header = header(judge);
    Some(Converters { key: key?, value: value?, header: header? })
}

impl Found {
    fn any(self, judge: &mut Judge, name: &str) -> Option<Converter> {
        match self {
            Self::Any(converter) => Some(converter),
            Self::SimpleHeader => {
                let note = "it is of headers alone; write \
                            org.apache.kafka.connect.storage.StringConverter";
                judge.plain(origin(judge, name)).refuse(name, note);
                None
            }
        }
    }
}

/// The connector's own where it names one, else the worker's.
pub(crate) fn origin(judge: &Judge, name: &str) -> Origin {
    match !judge.has(Origin::Connector, name) && judge.has(Origin::Worker, name) {
        true => Origin::Worker,
        false => Origin::Connector,
    }
}

fn header(judge: &mut Judge) -> Option<HeaderConverter> {
    const NAME: &str = "header.converter";
    let origin = origin(judge, NAME);
    if !judge.has(origin, NAME) {
        let note = "Kafka Connect reads it only beside header.converter";
        judge.leave(Origin::Connector, "header.converter.", Verdict::Ignored, note);
        judge.leave(Origin::Worker, "header.converter.", Verdict::Ignored, note);
        return Some(HeaderConverter::Simple);
    }
    let note = match of(judge, NAME)? {
        Found::SimpleHeader => return Some(HeaderConverter::Simple),
        Found::Any(Converter::String) => return Some(HeaderConverter::String),
        Found::Any(Converter::StringIn(charset)) => {
            return Some(HeaderConverter::StringIn(charset));
        }
        Found::Any(Converter::Json(json)) => return Some(HeaderConverter::Json(json)),
        Found::Any(Converter::ByteArray | Converter::BinaryData { .. }) => {
            "it takes bytes alone, and the header id is none"
        }
        Found::Any(Converter::Avro(_) | Converter::JsonSchema(_) | Converter::Protobuf(_)) => {
            "it is no converter of headers"
        }
    };
    let write = "write org.apache.kafka.connect.storage.SimpleHeaderConverter, or remove it";
    judge.plain(origin).refuse(NAME, format!("{note}; {write}"));
    None
}

fn of(judge: &mut Judge, name: &str) -> Option<Found> {
    let origin = origin(judge, name);
    let prefix = format!("{name}.");
    let class = judge.plain(origin).require(
        name,
        "org.apache.kafka.connect.storage.StringConverter, or \
         org.apache.kafka.connect.json.JsonConverter as Debezium's image has it, or give the \
         worker's file, which names it otherwise",
    );
    let found = class.and_then(|class| by_class(judge, origin, &prefix, name, &class));
    let note = format!("Kafka Connect reads it only beside {name}");
    judge.leave(Origin::Connector, &prefix, Verdict::Ignored, &note);
    let note = format!("the connector has a {name} of its own, with options of its own");
    judge.leave(Origin::Worker, &prefix, Verdict::Ignored, &note);
    if origin == Origin::Connector && judge.has(Origin::Worker, name) {
        judge.plain(Origin::Worker).ignore(name, note);
    }
    found
}

/// The converter of this class, whose options begin with `prefix` and whose
/// class stands at `name`.
fn by_class(
    judge: &mut Judge,
    origin: Origin,
    prefix: &str,
    name: &str,
    class: &str,
) -> Option<Found> {
    let Some(known) = table::converter(class) else {
        let why = rules::REFUSED.iter().find(|(refused, _)| *refused == class.trim());
        let choices = || {
            let names = table::classes(CONVERTERS);
            format!("Walpost has no such converter; write one of {}", names.join(", "))
        };
        let note = why.map_or_else(choices, |(_, why)| (*why).to_owned());
        judge.plain(origin).refuse(name, note);
        judge.leave(origin, prefix, Verdict::Ignored, "the converter is refused");
        return None;
    };
    let own = table::rules_of(CONVERTERS, class);
    let others = table::rules_with(CONVERTERS);
    judge.pass_over(origin, prefix, &own, &others, "it is an option of another converter");
    if known == ConverterClass::BinaryData {
        return binary_data(judge, origin, prefix, name, own);
    }
    let is_key = name.starts_with("key.");
    let mut scope = judge.scope((CONVERTERS, origin), prefix, own, &[]);
    options(&mut scope, known, is_key)
}

/// A converter of bytes, with that of everything else.
fn binary_data(
    judge: &mut Judge,
    origin: Origin,
    prefix: &str,
    name: &str,
    own: Vec<&'static Rule>,
) -> Option<Found> {
    const DELEGATE: &str = "delegate.converter.type";
    let scope = judge.scope((CONVERTERS, origin), prefix, own, &["delegate.converter.type."]);
    let class = scope.given(DELEGATE);
    if class_name(name, class.as_deref()).is_none() {
        return Some(Found::Any(Converter::BinaryData { delegate: None }));
    }
    let (name, prefix) = (format!("{prefix}{DELEGATE}"), format!("{prefix}{DELEGATE}."));
    let delegate = by_class(judge, origin, &prefix, &name, class.as_deref()?)?;
    let Found::Any(delegate) = delegate else {
        judge.plain(origin).refuse(&name, "it is of headers alone; write another one");
        return None;
    };
    Some(Found::Any(Converter::BinaryData { delegate: Some(Box::new(delegate)) }))
}

/// A delegate's class, unless it would be a delegate of a delegate without end.
fn class_name<'a>(name: &str, class: Option<&'a str>) -> Option<&'a str> {
    class.filter(|_| name.matches("delegate.").count() < 2)
}

/// Text in the encoding that is asked for.
fn text(scope: &mut Scope<'_>) -> Option<Converter> {
    const ENCODING: &str = "converter.encoding";
    let name = scope.text_or_default(ENCODING);
    if Charset::is_utf8(name.trim()) {
        return Some(Converter::String);
    }
    let charset = Charset::named(name.trim());
    if charset.is_none() {
        let all = Charset::ALL.map(|charset| charset.to_string()).join(", ");
        scope.refuse(ENCODING, format!("Walpost has it not; write UTF-8 or one of {all}"));
    }
    charset.map(Converter::StringIn)
}

fn options(scope: &mut Scope<'_>, class: ConverterClass, is_key: bool) -> Option<Found> {
    let converter = match class {
        ConverterClass::String => text(scope)?,
        ConverterClass::Json => Converter::Json(Json {
            schemas: scope.boolean("schemas.enable"),
            decimal: scope.choice("decimal.format"),
            replace_null_with_default: scope.boolean("replace.null.with.default"),
        }),
        ConverterClass::ByteArray => Converter::ByteArray,
        ConverterClass::BinaryData => Converter::BinaryData { delegate: None },
        ConverterClass::SimpleHeader => return Some(Found::SimpleHeader),
        ConverterClass::Avro => Converter::Avro(Avro {
            registry: registry::read(scope, is_key)?,
            meta_data: scope.boolean("connect.meta.data"),
            scrubs_names: scope.boolean("scrub.invalid.names"),
            is_apicurio: false,
        }),
        ConverterClass::JsonSchema => Converter::JsonSchema(JsonSchema {
            registry: registry::read(scope, is_key)?,
            additional_properties: scope.boolean("object.additional.properties"),
            decimal: scope.choice("decimal.format"),
            ignores_defaults: scope.boolean("ignore.default.for.nullables"),
        }),
        ConverterClass::Protobuf => Converter::Protobuf(Protobuf {
            registry: registry::read(scope, is_key)?,
            scrubs_names: scope.boolean("scrub.invalid.names"),
            optional_nullables: scope.boolean("optional.for.nullables"),
            wrapped_nullables: scope.boolean("wrapper.for.nullables"),
            ignores_defaults: scope.boolean("ignore.default.for.nullables"),
        }),
        ConverterClass::ApicurioAvro => Converter::Avro(Avro {
            registry: registry::of_apicurio(scope)?,
            meta_data: true,
            scrubs_names: false,
            is_apicurio: true,
        }),
    };
    Some(Found::Any(converter))
}
