use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use toml::{Value, de::DeTable};

use super::{
    connector::{ConnectorArgs, ConnectorFile},
    error::ConfigError,
    nearest::nearest,
    origin::Origin,
    settings::Settings,
    text::read,
};

/// Every key with its default and its meaning.
pub(crate) const DEFAULT_FILE: &str = include_str!("../../config.default.toml");

/// Read when it is there and no other is named.
const USUAL_FILE: &str = "walpost.toml";

/// The section whose keys are librdkafka's and not ours.
const FREE_SECTION: &str = "kafka";

/// The section that tables below it take their keys and defaults from.
const NAMED_SECTION: &str = "destination";
/// Where those tables are in the typed form.
const NAMED: &str = "destinations";

/// Keys that are looked for under the first name, as they once had it or as their
/// neighbours have it.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("retention.deliveries_enabled", "webhook.prune"),
    ("retention.deliveries_archive_days", "webhook.archive_after_days"),
    ("retention.deliveries_delete_days", "webhook.delete_after_days"),
    ("retention.prune", "retention.enabled"),
];

/// Variables that look like settings and are none.
const NO_SETTINGS: [&str; 5] =
    ["WALPOST_LOG", "WALPOST_CACHE", "WALPOST_CONFIG", "WALPOST_PG_BIN", "WALPOST_FAILPOINT"];
const TEST_PREFIX: &str = "WALPOST_TEST_";

/// Of these options in the help, below those of a command.
pub(super) const HEADING: &str = "Configuration";

/// Where the configuration comes from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigArgs {
    /// Configuration file; without it walpost.toml in the working folder, if it is there
    #[arg(long, value_name = "FILE", env = "WALPOST_CONFIG", global = true, help_heading = HEADING)]
    pub(crate) config: Option<PathBuf>,
    /// PostgreSQL, as postgres://user@host:5432/database
    #[arg(long, value_name = "URL", global = true, help_heading = HEADING)]
    pub(crate) postgres: Option<String>,
    /// Kafka brokers, as host:9092
    #[arg(long, value_name = "BROKERS", global = true, help_heading = HEADING)]
    pub(crate) kafka: Option<String>,
    /// Any key of the configuration, as --set pipeline.slot=orders
    #[arg(
        long = "set",
        value_name = "SECTION.KEY=VALUE",
        global = true,
        help_heading = HEADING
    )]
    pub(crate) assignments: Vec<String>,
    #[command(flatten)]
    pub(crate) connector: ConnectorArgs,
}

/// One key with what holds for it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// Line of the default file; keys that it has not come last.
    pub(super) place: usize,
    /// Whether it must not show, whatever its key is.
    pub(super) is_secret: bool,
}

/// All keys, by section and key.
pub(super) struct Layers {
    pub(super) entries: BTreeMap<(String, String), Entry>,
}

/// Without the values, of which some are secrets.
impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Layers")
    }
}

/// Whether an environment variable sets a key of some section.
pub(crate) fn is_setting_variable(name: &str) -> bool {
    let sections = Layers::defaults().sections();
    section_of(name, &sections).is_some()
}

impl Layers {
    /// Lays connector, file, environment and flags over the defaults.
    pub(super) fn read(
        args: &ConfigArgs,
        connector: Option<&ConnectorFile>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Self::defaults();
        if let Some(connector) = connector {
            layers.lay_connector(connector, |_| true)?;
        }
        if let Some((path, text)) = user_file(args.config.as_deref())? {
            layers.lay_file(&path.display().to_string(), &text)?;
        }
        layers.lay_variables(variables)?;
        if let Some(url) = &args.postgres {
            layers.lay_text("postgres", "url", url, Origin::Flag("--postgres"))?;
        }
        if let Some(brokers) = &args.kafka {
            layers.lay_text("kafka", "bootstrap.servers", brokers, Origin::Flag("--kafka"))?;
        }
        for assignment in &args.assignments {
            let parts = assignment.split_once('=').and_then(|(path, value)| {
                path.trim().split_once('.').map(|(section, key)| (section, key, value))
            });
            let Some((section, key, value)) = parts else {
                let name = assignment.split('=').next().unwrap_or_default();
                return Err(ConfigError::Assignment(name.to_owned()));
            };
            let named = key.rsplit_once('.').filter(|_| section == NAMED_SECTION);
            let (section, key) = match named {
                Some((name, key)) => (named_section(name), key),
                None => (section.to_owned(), key),
            };
            layers.lay_text(&section, key, value.trim(), Origin::Flag("--set"))?;
        }
        Ok(layers)
    }

    pub(super) fn defaults() -> Self {
        let mut entries = BTreeMap::new();
        let keys = parse("the default file", DEFAULT_FILE).expect("a test parses it");
        for Key { section, key, value, line } in keys {
            let entry = Entry { value, origin: Origin::Default, place: line, is_secret: false };
            entries.insert((section, key), entry);
        }
        Self { entries }
    }

    /// The typed form.
    pub(super) fn settings(&self) -> Result<Settings, ConfigError> {
        let mut sections = toml::Table::new();
        let mut named = toml::Table::new();
        // What holds for all comes before what is named.
        for ((section, key), entry) in &self.entries {
            let (place, section) = match name_of(section) {
                None => (&mut sections, section.as_str()),
                Some(name) => {
                    let all = sections.get(NAMED_SECTION).cloned();
                    named.entry(name).or_insert_with(|| all.unwrap_or_else(empty));
                    (&mut named, name)
                }
            };
            if let Value::Table(section) = place.entry(section).or_insert_with(empty) {
                section.insert(key.clone(), entry.value.clone());
            }
        }
        sections.remove(NAMED_SECTION);
        sections.insert(NAMED.to_owned(), Value::Table(named));
        sections.try_into().map_err(|error: toml::de::Error| ConfigError::Value {
            origin: Origin::Default,
            problem: error.message().to_owned(),
        })
    }

    /// Where the value of a key comes from.
    pub(super) fn origin(&self, section: &str, key: &str) -> Origin {
        let entry = self.entries.get(&(section.to_owned(), key.to_owned()));
        entry.map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Whether anything but a default says what a key is.
    pub(super) fn is_set(&self, section: &str, key: &str) -> bool {
        self.origin(section, key) != Origin::Default
    }

    /// Whether a key has another value than its default.
    pub(super) fn differs(&self, section: &str, key: &str) -> bool {
        let place = (section.to_owned(), key.to_owned());
        let value = |layers: &Self| layers.entries.get(&place).map(|entry| entry.value.clone());
        value(self) != value(&Self::defaults())
    }

    fn lay_file(&mut self, file: &str, text: &str) -> Result<(), ConfigError> {
        for Key { section, key, value, line } in parse(file, text)? {
            let origin = Origin::File { file: file.to_owned(), line };
            self.lay(&section, &key, value, origin)?;
        }
        Ok(())
    }

    fn lay_variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        let sections = self.sections();
        for (name, text) in variables {
            let Some((section, key)) = section_of(&name, &sections) else { continue };
            let origin = Origin::Variable(name.clone());
            self.lay_text(section, &key, &text, origin)?;
        }
        Ok(())
    }

    /// Lays a value over, which is text and becomes what the default is.
    fn lay_text(
        &mut self,
        section: &str,
        key: &str,
        text: &str,
        origin: Origin,
    ) -> Result<(), ConfigError> {
        let default = self.entries.get(&(known_as(section).to_owned(), key.to_owned()));
        let value = match read(text, default.map(|entry| &entry.value)) {
            Ok(value) => value,
            Err(problem) => return Err(ConfigError::Value { origin, problem }),
        };
        self.lay(section, key, value, origin)
    }

    pub(super) fn lay(
        &mut self,
        section: &str,
        key: &str,
        mut value: Value,
        origin: Origin,
    ) -> Result<(), ConfigError> {
        let place = (section.to_owned(), key.to_owned());
        self.give_way(section, key);
        if section == FREE_SECTION {
            value = Value::String(match value {
                Value::String(text) => text,
                other => other.to_string(),
            });
            let line = self.entries.get(&place).map_or(usize::MAX, |entry| entry.place);
            self.entries.insert(place, Entry { value, origin, place: line, is_secret: false });
            return Ok(());
        }
        let known = (known_as(section).to_owned(), key.to_owned());
        let Some(default) = self.entries.get(&known) else {
            return Err(self.unknown(section, key, origin));
        };
        if let Some(name) = name_of(section).filter(|name| !is_name(name)) {
            let problem =
                format!("{name:?} is no name of a destination: 1 to 100 letters, digits, - and _");
            return Err(ConfigError::Value { origin, problem });
        }
        let (expected, line) = (kind(&default.value), default.place);
        if kind(&value) != expected {
            let found = match &value {
                Value::Integer(number) => number.to_string(),
                other => kind(other).to_owned(),
            };
            let key = format!("{section}.{key}");
            return Err(ConfigError::Type { key, origin, found, expected });
        }
        self.entries.insert(place, Entry { value, origin, place: line, is_secret: false });
        Ok(())
    }

    fn unknown(&self, section: &str, key: &str, origin: Origin) -> ConfigError {
        let sections = self.sections();
        let known_section = known_as(section);
        if !sections.iter().any(|known| known == known_section) {
            let nearest = nearest(section, sections.iter().map(String::as_str));
            let nearest = nearest.map(str::to_owned);
            return ConfigError::UnknownSection { section: section.to_owned(), origin, nearest };
        }
        let full = format!("{section}.{key}");
        let other_name = OTHER_NAMES.iter().find(|(name, _)| *name == full);
        let keys = self.entries.keys().filter(|(name, _)| name == known_section);
        let nearest = other_name
            .map(|(_, key)| (*key).to_owned())
            .or_else(|| {
                let near = nearest(key, keys.map(|(_, key)| key.as_str()));
                near.map(|key| format!("{section}.{key}"))
            })
            .or_else(|| {
                let elsewhere = self.entries.keys().find(|(_, other)| other == key);
                elsewhere.map(|(section, key)| format!("{section}.{key}"))
            });
        ConfigError::UnknownKey { key: full, origin, nearest }
    }

    fn sections(&self) -> Vec<String> {
        let mut sections: Vec<String> =
            self.entries.keys().map(|(section, _)| section.clone()).collect();
        sections.dedup();
        sections
    }
}

/// Section and key of a variable such as `WALPOST_POSTGRES_URL`.
fn section_of<'a>(name: &str, sections: &'a [String]) -> Option<(&'a str, String)> {
    if NO_SETTINGS.contains(&name) || name.starts_with(TEST_PREFIX) {
        return None;
    }
    let (section, key) = name.strip_prefix("WALPOST_")?.split_once('_')?;
    let section = sections.iter().find(|known| known.eq_ignore_ascii_case(section))?;
    let key = key.to_ascii_lowercase();
    let key = if section == FREE_SECTION { key.replace('_', ".") } else { key };
    Some((section, key))
}

/// One key of a file.
struct Key {
    section: String,
    key: String,
    value: Value,
    line: usize,
}

fn parse(file: &str, text: &str) -> Result<Vec<Key>, ConfigError> {
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        file: file.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        problem: error.message().to_owned(),
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    let place = |error: &toml::de::Error| error.span().map_or(usize::MAX, |span| span.start);
    if let Some(first) = errors.into_iter().min_by_key(place) {
        return Err(syntax(first));
    }
    let values: toml::Table = toml::from_str(text).map_err(syntax)?;
    let mut keys = Vec::new();
    for (section, content) in table.get_ref() {
        let line = line_of(text, section.span().start);
        let name = section.get_ref().to_string();
        let Some(content) = content.get_ref().as_table() else {
            let origin = Origin::File { file: file.to_owned(), line };
            let problem = format!("{name} stands before the first [section]");
            return Err(ConfigError::Value { origin, problem });
        };
        let Some(Value::Table(section)) = values.get(&name) else { continue };
        for (key, content) in content {
            let line = line_of(text, key.span().start);
            let key = key.get_ref().to_string();
            let Some(value) = section.get(&key) else { continue };
            if let (NAMED_SECTION, Value::Table(values)) = (&*name, value) {
                let lines = |key: &str| {
                    let span = content.get_ref().as_table()?.get_key_value(key)?.0.span();
                    Some(line_of(text, span.start))
                };
                keys.extend(named_keys(file, (&key, line), values, lines)?);
                continue;
            }
            for (key, value) in flatten(&name, key, value) {
                keys.push(Key { section: name.clone(), key, value, line });
            }
        }
        if content.is_empty() && name != FREE_SECTION {
            let value = Value::Table(toml::Table::new());
            keys.extend(known_section(&name).err().map(|()| Key {
                section: name,
                key: String::new(),
                value,
                line,
            }));
        }
    }
    Ok(keys)
}

/// The keys of one table below the section of all.
fn named_keys(
    file: &str,
    (name, line): (&str, usize),
    values: &toml::Table,
    lines: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<Key>, ConfigError> {
    if values.is_empty() {
        let origin = Origin::File { file: file.to_owned(), line };
        let problem = format!("[{}] is empty; it needs its url", named_section(name));
        return Err(ConfigError::Value { origin, problem });
    }
    let key = |(key, value): (&String, &Value)| Key {
        section: named_section(name),
        key: key.clone(),
        value: value.clone(),
        line: lines(key).unwrap_or(line),
    };
    Ok(values.iter().map(key).collect())
}

fn named_section(name: &str) -> String {
    format!("{NAMED_SECTION}.{name}")
}

/// The name of a table below the section of all.
fn name_of(section: &str) -> Option<&str> {
    section.strip_prefix(NAMED_SECTION)?.strip_prefix('.')
}

/// The section whose keys and defaults this one has.
fn known_as(section: &str) -> &str {
    if name_of(section).is_some() { NAMED_SECTION } else { section }
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=100).contains(&name.len()) && name.chars().all(is_part)
}

fn empty() -> Value {
    Value::Table(toml::Table::new())
}

/// An empty section is checked for its name alone.
fn known_section(name: &str) -> Result<(), ()> {
    let header = format!("\n[{name}]\n");
    if DEFAULT_FILE.contains(&header) { Ok(()) } else { Err(()) }
}

/// librdkafka's keys have dots; without quotes TOML makes tables of them.
fn flatten(section: &str, key: String, value: &Value) -> Vec<(String, Value)> {
    match value {
        Value::Table(inner) if section == FREE_SECTION => {
            let nested =
                |(name, value): (&String, &Value)| flatten(section, format!("{key}.{name}"), value);
            inner.iter().flat_map(nested).collect()
        }
        value => vec![(key, value.clone())],
    }
}

fn user_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = named.unwrap_or(Path::new(USUAL_FILE));
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Unreadable { path: path.to_owned(), source }),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(number) if *number < 0 => "a negative number",
        Value::Integer(_) => "a whole number that is not negative",
        Value::Float(_) => "a number with a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(parts) if parts.iter().all(Value::is_str) => "a list of strings",
        Value::Array(_) => "a list of other things",
        Value::Table(_) => "a table",
    }
}
