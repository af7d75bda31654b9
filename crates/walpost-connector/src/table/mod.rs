//! Every property that there is, with what becomes of it: the one table behind
//! the verdicts, the checks of values, and the page for those who come from
//! Debezium.

mod connector;
pub(crate) mod converters;
mod database;
mod framework;
mod handling;
mod kind;
mod operations;
mod producer;
mod removed;
mod router;
mod snapshot;
pub(crate) mod transforms;
mod worker;

pub use self::kind::Kind;

/// One property, or all whose names begin alike.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The name; with a `*` at its end the beginning of names.
    pub name: &'static str,
    /// What a value may be.
    pub kind: Kind,
    /// What holds where it is not given, as Debezium and Kafka Connect have it.
    pub default: Option<&'static str>,
    /// What becomes of it.
    pub standing: Standing,
}

/// What becomes of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does what it does in Debezium; and what that is.
    Honoured(&'static str),
    /// Walpost has something for it; and what.
    Mapped(&'static str),
    /// It is taken and does nothing; and why that is right.
    Ignored(&'static str),
    /// It is refused but for values at which it does nothing; and why.
    Only(&'static [&'static str], &'static str),
    /// It is refused; why, and what to write.
    Refused(&'static str),
    /// The former name of another property, which does the same.
    Alias(&'static str),
    /// Debezium had it and has another one now.
    Removed(&'static str),
}

/// Properties that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// What they are about.
    pub title: &'static str,
    /// What stands before each name in the file.
    pub prefix: &'static str,
    /// Classes under whose names they have a meaning; empty for all.
    pub classes: &'static [&'static str],
    /// The properties.
    pub rules: &'static [Rule],
}

/// The table.
pub const SECTIONS: &[Section] = &[
    plain("Connector", "", framework::RULES),
    plain("Database", "", database::RULES),
    plain("Slot, publication and position", "", connector::RULES),
    plain("Tables, columns and snapshot", "", snapshot::RULES),
    plain("Types and names", "", handling::RULES),
    plain("Heartbeats, queues, errors and the rest", "", operations::RULES),
    plain("Former names", "", removed::RULES),
    transforms::ROUTER,
    transforms::COMMON,
    transforms::DECODE,
    transforms::REGEX_ROUTER,
    transforms::INSERT_HEADER,
    transforms::DROP_HEADERS,
    transforms::HEADER_FROM,
    transforms::FILTER,
    transforms::PREDICATE_COMMON,
    transforms::TOPIC_NAME_MATCHES,
    transforms::HAS_HEADER_KEY,
    transforms::RECORD_IS_TOMBSTONE,
    converters::COMMON,
    converters::STRING,
    converters::JSON,
    converters::BYTE_ARRAY,
    converters::BINARY_DATA,
    converters::SIMPLE_HEADER,
    converters::AVRO,
    converters::JSON_SCHEMA,
    converters::PROTOBUF,
    converters::REGISTRY,
    converters::APICURIO,
    plain("Topics that are created", "topic.creation.<group>.", TOPIC_GROUP),
    plain("Producer", "producer.override.", producer::RULES),
    plain("Worker", "", worker::RULES),
];

const fn plain(title: &'static str, prefix: &'static str, rules: &'static [Rule]) -> Section {
    Section { title, prefix, classes: &[], rules }
}

/// The sections of the connector's own properties.
pub(crate) fn connector() -> impl Iterator<Item = &'static Rule> {
    const OWN: usize = 7;
    SECTIONS[..OWN].iter().flat_map(|section| section.rules)
}

pub(crate) use self::{
    framework::TOPIC_GROUP, producer::RULES as PRODUCER, worker::RULES as WORKER,
};

/// The section of a transform, a predicate or a converter by its class.
pub(crate) fn of_class(prefix: &str, class: &str) -> Option<&'static Section> {
    let class = class.trim();
    SECTIONS.iter().find(|section| section.prefix == prefix && section.classes.contains(&class))
}

/// The rules of a class: its own, and those of several or of all.
pub(crate) fn rules_of(prefix: &str, class: &str) -> Vec<&'static Rule> {
    let class = class.trim();
    let is_of = |section: &&Section| {
        section.prefix == prefix && (section.classes.is_empty() || section.classes.contains(&class))
    };
    SECTIONS.iter().filter(is_of).flat_map(|section| section.rules).collect()
}

/// All rules of names with this prefix, whatever their class.
pub(crate) fn rules_with(prefix: &str) -> Vec<&'static Rule> {
    let of_prefix = |section: &&Section| section.prefix == prefix;
    SECTIONS.iter().filter(of_prefix).flat_map(|section| section.rules).collect()
}

/// The classes that sections with this prefix are of, each once.
pub(crate) fn classes(prefix: &str) -> Vec<&'static str> {
    let mut classes: Vec<&'static str> = Vec::new();
    for section in SECTIONS.iter().filter(|section| section.prefix == prefix) {
        for class in section.classes {
            if !classes.contains(class) {
                classes.push(class);
            }
        }
    }
    classes
}

impl Rule {
    /// Whether the rule is about a property of this name.
    pub fn is_about(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.len() > beginning.len() && name.starts_with(beginning),
            None => name == self.name,
        }
    }
}

/// The rule for a name: that of the very name, else that of the longest
/// beginning.
pub(crate) fn find(
    rules: impl IntoIterator<Item = &'static Rule>,
    name: &str,
) -> Option<&'static Rule> {
    let about = rules.into_iter().filter(|rule| rule.is_about(name));
    about.max_by_key(|rule| (rule.name == name, rule.name.len()))
}

const fn rule(name: &'static str, kind: Kind, default: &'static str, standing: Standing) -> Rule {
    let default = if default.is_empty() { None } else { Some(default) };
    Rule { name, kind, default, standing }
}

/// A property that does what it does in Debezium.
const fn honoured(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
) -> Rule {
    rule(name, kind, default, Standing::Honoured(what))
}

/// A property that Walpost has something for.
const fn mapped(name: &'static str, kind: Kind, default: &'static str, to: &'static str) -> Rule {
    rule(name, kind, default, Standing::Mapped(to))
}

/// A property that does nothing.
const fn ignored(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    because: &'static str,
) -> Rule {
    rule(name, kind, default, Standing::Ignored(because))
}

/// A property that is refused but for these values.
const fn only(
    name: &'static str,
    default: &'static str,
    values: &'static [&'static str],
    because: &'static str,
) -> Rule {
    rule(name, Kind::Text, default, Standing::Only(values, because))
}

/// A property that is refused.
const fn refused(name: &'static str, because: &'static str) -> Rule {
    rule(name, Kind::Text, "", Standing::Refused(because))
}

/// A former name that is still read.
const fn alias(name: &'static str, kind: Kind, of: &'static str) -> Rule {
    rule(name, kind, "", Standing::Alias(of))
}

/// A name that Debezium dropped for another.
const fn removed(name: &'static str, now: &'static str) -> Rule {
    rule(name, Kind::Text, "", Standing::Removed(now))
}
