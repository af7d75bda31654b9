//! Every property that there is, with what becomes of it: the one table behind
//! the verdicts, the checks of values, and the page for those who come from
//! Debezium.

mod class;
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

pub use self::{
    class::{ConverterClass, PredicateClass, TransformClass},
    kind::Kind,
};
use crate::secret::is_secret_name;

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
    /// The key of Walpost's own configuration that it sets; `None` where none
    /// can say it, or none is needed.
    pub native: Option<Native>,
}

/// A key of Walpost's own configuration, which is in its default file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    /// As `pipeline`.
    pub section: &'static str,
    /// As `slot`.
    pub key: &'static str,
    /// When it is set, and to what.
    pub when: When,
}

/// When a property sets its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Where it is given, to its value. Its default is the key's as well.
    Given,
    /// Always, its default too: where that is not the key's, or messages are to name
    /// the property.
    Always,
    /// As the settings say, which look at other properties as well.
    Judged,
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
    /// Whose they are.
    pub of: Of,
    /// The properties.
    pub rules: &'static [Rule],
}

/// What properties are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The connector itself.
    Connector,
    /// A transform of one of these classes; of each where there is none.
    Transform(&'static [(&'static str, TransformClass)]),
    /// A predicate, likewise.
    Predicate(&'static [(&'static str, PredicateClass)]),
    /// A converter, likewise.
    Converter(&'static [(&'static str, ConverterClass)]),
    /// A group of topics.
    TopicGroup,
    /// The producer.
    Producer,
    /// A worker.
    Worker,
}

/// The table.
pub const SECTIONS: &[Section] = &[
    section("Connector", Of::Connector, framework::RULES),
    section("Database", Of::Connector, database::RULES),
    section("Slot, publication and position", Of::Connector, connector::RULES),
    section("Tables, columns and snapshot", Of::Connector, snapshot::RULES),
    section("Types and names", Of::Connector, handling::RULES),
    section("Heartbeats, queues, errors and the rest", Of::Connector, operations::RULES),
    section("Former names", Of::Connector, removed::RULES),
    transforms::ROUTER,
    transforms::COMMON,
    transforms::DECODE,
    transforms::REGEX_ROUTER,
    transforms::INSERT_HEADER,
    transforms::DROP_HEADERS,
    transforms::HEADER_FROM,
    transforms::INSERT_FIELD,
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
    section("Topics that are created", Of::TopicGroup, TOPIC_GROUP),
    section("Producer", Of::Producer, producer::RULES),
    section("Worker", Of::Worker, worker::RULES),
];

const fn section(title: &'static str, of: Of, rules: &'static [Rule]) -> Section {
    Section { title, of, rules }
}

impl Section {
    /// What stands before each name in the file.
    pub fn prefix(&self) -> &'static str {
        match self.of {
            Of::Connector | Of::Worker => "",
            Of::Transform(_) => "transforms.<name>.",
            Of::Predicate(_) => "predicates.<name>.",
            Of::Converter(_) => "<converter>.",
            Of::TopicGroup => "topic.creation.<group>.",
            Of::Producer => "producer.override.",
        }
    }

    /// Classes under whose names the properties have a meaning; none for all.
    pub fn classes(&self) -> Vec<&'static str> {
        fn names<T>(classes: &[(&'static str, T)]) -> Vec<&'static str> {
            classes.iter().map(|(name, _)| *name).collect()
        }
        match self.of {
            Of::Transform(classes) => names(classes),
            Of::Predicate(classes) => names(classes),
            Of::Converter(classes) => names(classes),
            Of::Connector | Of::TopicGroup | Of::Producer | Of::Worker => Vec::new(),
        }
    }

    /// Whether two sections are of things of one sort, whatever their classes.
    fn is_beside(&self, of: Of) -> bool {
        std::mem::discriminant(&self.of) == std::mem::discriminant(&of)
    }
}

/// The connector's own properties.
pub(crate) fn connector() -> impl Iterator<Item = &'static Rule> {
    SECTIONS.iter().filter(|section| section.of == Of::Connector).flat_map(|section| section.rules)
}

pub(crate) use self::{
    framework::TOPIC_GROUP, producer::RULES as PRODUCER, worker::RULES as WORKER,
};

/// Of transforms of any class.
pub(crate) const TRANSFORMS: Of = Of::Transform(&[]);
/// Of predicates of any class.
pub(crate) const PREDICATES: Of = Of::Predicate(&[]);
/// Of converters of any class.
pub(crate) const CONVERTERS: Of = Of::Converter(&[]);

/// A transform's class by its name.
pub(crate) fn transform(class: &str) -> Option<TransformClass> {
    by_name(class, |of| if let Of::Transform(classes) = of { classes } else { &[] })
}

/// A predicate's class by its name.
pub(crate) fn predicate(class: &str) -> Option<PredicateClass> {
    by_name(class, |of| if let Of::Predicate(classes) = of { classes } else { &[] })
}

/// A converter's class by its name.
pub(crate) fn converter(class: &str) -> Option<ConverterClass> {
    by_name(class, |of| if let Of::Converter(classes) = of { classes } else { &[] })
}

fn by_name<T: Copy + 'static>(
    class: &str,
    classes: fn(Of) -> &'static [(&'static str, T)],
) -> Option<T> {
    let mut known = SECTIONS.iter().flat_map(|section| classes(section.of));
    known.find(|(name, _)| *name == class.trim()).map(|(_, class)| *class)
}

/// The rules of a class: its own, and those of several or of all.
pub(crate) fn rules_of(of: Of, class: &str) -> Vec<&'static Rule> {
    let is_of = |section: &&Section| {
        let classes = section.classes();
        section.is_beside(of) && (classes.is_empty() || classes.contains(&class.trim()))
    };
    SECTIONS.iter().filter(is_of).flat_map(|section| section.rules).collect()
}

/// All rules of things of this sort, whatever their class.
pub(crate) fn rules_with(of: Of) -> Vec<&'static Rule> {
    SECTIONS.iter().filter(|section| section.is_beside(of)).flat_map(|s| s.rules).collect()
}

/// The classes of things of this sort, each once.
pub(crate) fn classes(of: Of) -> Vec<&'static str> {
    let mut classes: Vec<&'static str> = Vec::new();
    for class in SECTIONS.iter().filter(|section| section.is_beside(of)).flat_map(Section::classes)
    {
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    classes
}

impl Rule {
    /// The same rule, with the key that the property sets where it is given.
    const fn sets(self, section: &'static str, key: &'static str) -> Self {
        Self { native: Some(Native { section, key, when: When::Given }), ..self }
    }

    /// The same rule, with the key that its default sets as well.
    const fn always_sets(self, section: &'static str, key: &'static str) -> Self {
        Self { native: Some(Native { section, key, when: When::Always }), ..self }
    }

    /// The same rule, with the key that the settings make of it.
    const fn makes(self, section: &'static str, key: &'static str) -> Self {
        Self { native: Some(Native { section, key, when: When::Judged }), ..self }
    }

    /// Whether the value of such a property never shows.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Password | Kind::Sql) || is_secret_name(self.name)
    }

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
    Rule { name, kind, default, standing, native: None }
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
