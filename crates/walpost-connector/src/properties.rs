use std::{collections::HashMap, fmt};

use crate::{
    error::{Position, ReadError, ReadProblem},
    java_properties, json,
    secret::{HIDDEN, has_hidden_user, is_secret_name, without_user},
};

/// Bytes that a configuration may have.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Properties that a configuration may have.
pub const MAX_PROPERTIES: usize = 2_000;

/// The properties of a connector or of a worker, in the order of the file.
///
/// `Debug` shows names alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    pub(crate) list: Vec<Property>,
    pub(crate) initial_state: InitialState,
}

/// One property.
#[derive(Clone, PartialEq, Eq)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// What the file has, placeholders such as `${env:PASSWORD}` included.
    pub written: String,
    /// The value, with placeholders replaced once
    /// [`Properties::resolve`] has been called.
    pub value: String,
    /// Where it is; `None` if it comes from no file.
    pub at: Option<Position>,
}

/// In which state a new connector begins: `initial_state` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialState {
    /// It publishes.
    #[default]
    Running,
    /// It is there and reads nothing; its slot keeps its place.
    Paused,
    /// It is there alone.
    Stopped,
}

/// What to do with YAML, in which Strimzi has its connectors.
const YAML: &str = "JSON or properties, not YAML; copy what is under `spec.config`, as lines \
    `name=value`";

/// The line, from 1, at which a text is YAML: a start of a document, or a key without
/// dot and value above an indented one.
fn yaml_at(text: &str) -> Option<u32> {
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let mut lines = text.lines().zip(1_u32..).filter(|(line, _)| !is_comment(line)).peekable();
    if let Some((line, at)) = lines.peek()
        && line.trim_end() == "---"
    {
        return Some(*at);
    }
    while let Some((line, at)) = lines.next() {
        let is_key =
            !line.starts_with([' ', '\t']) && line.trim_end().ends_with(':') && !line.contains('.');
        let is_above = |next: &&str| next.starts_with("  ") && next.contains(':');
        if is_key && lines.peek().map(|(next, _)| next).is_some_and(is_above) {
            return Some(at);
        }
    }
    None
}

impl Properties {
    /// Reads a file in any of the three forms that Kafka Connect has: an object
    /// with `name` and `config`, a flat object, or a Java properties file. What
    /// begins with `{` is JSON. A byte order mark is passed over. Numbers and
    /// booleans of JSON are the text that they are written as.
    ///
    /// What `GET /connectors/{name}` answers is of the first form too: `tasks`
    /// and `type` are passed over.
    ///
    /// ```
    /// use walpost_connector::Properties;
    ///
    /// let json = br#"{"name": "orders", "config": {"tasks.max": 1}}"#;
    /// let java = b"name=orders\ntasks.max : 1\n";
    /// assert_eq!(
    ///     Properties::read(json)?.get("tasks.max"),
    ///     Properties::read(java)?.get("tasks.max"),
    /// );
    /// # Ok::<(), walpost_connector::ReadError>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError`] with line and column: for what is none of these forms, a
    /// property that is there twice, one that is null, an object or an array, a
    /// value with the character with the number 0, more than
    /// [`MAX_BYTES`] and more than [`MAX_PROPERTIES`].
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let start = Position { line: 1, column: 1 };
        let fail = |at, problem| Err(ReadError { at, problem });
        if bytes.len() > MAX_BYTES {
            let problem = ReadProblem::TooLarge { bytes: bytes.len(), max_bytes: MAX_BYTES };
            return fail(start, problem);
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                return fail(end_of(&before), ReadProblem::NotUtf8);
            }
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // No property begins so, and some write them above JSON.
        if ["//", "/*"].iter().any(|comment| text.trim_start().starts_with(comment)) {
            return fail(start, ReadProblem::Expected("{, as JSON has no comments; remove it"));
        }
        let is_json = text.trim_start().starts_with(['{', '[']);
        if let Some(line) = yaml_at(text).filter(|_| !is_json) {
            let at = Position { line, column: 1 };
            return fail(at, ReadProblem::Expected(YAML));
        }
        let properties: Self = match is_json {
            true => json::read(text)?,
            false => Self { list: java_properties::read(text)?, ..Self::default() },
        };
        let has_nul =
            |property: &&Property| property.name.contains('\0') || property.value.contains('\0');
        if let Some(property) = properties.list.iter().find(has_nul) {
            let name = property.name.clone();
            return fail(property.at.unwrap_or(start), ReadProblem::Nul { name });
        }
        match properties.list.len() {
            0 => fail(start, ReadProblem::Empty),
            1..=MAX_PROPERTIES => Ok(properties),
            count => fail(start, ReadProblem::TooMany { count, max_count: MAX_PROPERTIES }),
        }
    }

    /// Properties that come from no file; of several of one name the last.
    ///
    /// ```
    /// use walpost_connector::Properties;
    ///
    /// let properties = Properties::from_pairs([("tasks.max", "1")]);
    /// assert_eq!(properties.get("tasks.max"), Some("1"));
    /// ```
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut list: Vec<Property> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (name, value) in pairs {
            let property = Property::new(name.into(), value.into(), None);
            match places.get(&property.name) {
                Some(place) => list[*place] = property,
                None => {
                    places.insert(property.name.clone(), list.len());
                    list.push(property);
                }
            }
        }
        Self { list, ..Self::default() }
    }

    /// The properties in order.
    pub fn iter(&self) -> impl Iterator<Item = &Property> {
        self.list.iter()
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|property| property.name == name).map(|found| found.value.as_str())
    }

    /// The same, called by its `topic.prefix` if it has no name, as the body of `PUT
    /// /connectors/{name}/config` has none.
    ///
    /// ```
    /// use walpost_connector::Properties;
    ///
    /// let unnamed = Properties::read(br#"{"topic.prefix": "shop"}"#)?.named();
    /// assert_eq!(unnamed.get("name"), Some("shop"));
    /// let named = Properties::read(br#"{"name": "orders", "topic.prefix": "shop"}"#)?.named();
    /// assert_eq!(named.get("name"), Some("orders"));
    /// # Ok::<(), walpost_connector::ReadError>(())
    /// ```
    #[must_use]
    pub fn named(mut self) -> Self {
        let find = |name| self.list.iter().find(|property| property.name == name);
        let prefix = find("topic.prefix").filter(|_| find("name").is_none()).cloned();
        let name = prefix.map(|prefix| Property { name: "name".to_owned(), ..prefix });
        self.list.splice(..0, name);
        self
    }

    /// `initial_state` beside `config`.
    pub fn initial_state(&self) -> InitialState {
        self.initial_state
    }
}

impl Property {
    pub(crate) fn new(name: String, value: String, at: Option<Position>) -> Self {
        Self { name, written: value.clone(), value, at }
    }

    /// Whether a placeholder was replaced: the value is then from elsewhere, and
    /// does not show.
    pub fn is_resolved(&self) -> bool {
        self.written != self.value
    }

    /// What a person may see of what is written: [`HIDDEN`](crate::HIDDEN) for a
    /// secret, by its name, and for user and password of a URL; all of a
    /// placeholder.
    ///
    /// ```
    /// use walpost_connector::Properties;
    ///
    /// let given = Properties::from_pairs([
    ///     ("database.password", "s3cr3t"),
    ///     ("driver.sslpassword", "${env:KEY}"),
    ///     ("topic.prefix", "orders"),
    /// ]);
    /// let shown: Vec<String> = given.iter().map(|property| property.shown()).collect();
    /// assert_eq!(shown, ["***", "${env:KEY}", "orders"]);
    /// ```
    pub fn shown(&self) -> String {
        if self.is_placeholder() {
            return self.written.clone();
        }
        match is_secret_name(&self.name) {
            true => HIDDEN.to_owned(),
            false if self.may_have_user() => without_user(&self.written),
            false => self.written.clone(),
        }
    }

    /// Whether it has [`HIDDEN`](crate::HIDDEN) where [`shown`](Self::shown) puts it:
    /// then it was read somewhere, and is no value.
    ///
    /// ```
    /// use walpost_connector::Properties;
    ///
    /// let given = Properties::from_pairs([
    ///     ("database.password", "***"),
    ///     ("value.converter.schema.registry.url", "http://***@registry:8081"),
    ///     ("transforms.mask.replacement", "***"),
    /// ]);
    /// let hidden: Vec<bool> = given.iter().map(|property| property.is_hidden()).collect();
    /// assert_eq!(hidden, [true, true, false]);
    /// ```
    pub fn is_hidden(&self) -> bool {
        match is_secret_name(&self.name) {
            _ if self.is_placeholder() => false,
            true => self.written == HIDDEN,
            false => {
                (self.may_have_user() || self.is_named_url()) && has_hidden_user(&self.written)
            }
        }
    }
}

impl Property {
    /// Whether it is a URL, if perhaps without its scheme, that names who logs in.
    fn may_have_user(&self) -> bool {
        let is_url = self.written.contains("://") || self.is_named_url();
        is_url && self.written.contains('@')
    }

    fn is_named_url(&self) -> bool {
        self.name.ends_with(".url")
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, HIDDEN)
    }
}

/// Refuses what is there twice.
pub(crate) fn without_duplicates(list: Vec<Property>) -> Result<Vec<Property>, ReadError> {
    let mut lines: HashMap<&str, u32> = HashMap::new();
    for property in &list {
        let Some(at) = property.at else { continue };
        if let Some(first_line) = lines.insert(&property.name, at.line) {
            let name = property.name.clone();
            return Err(ReadError { at, problem: ReadProblem::Duplicate { name, first_line } });
        }
    }
    Ok(list)
}

/// The place behind a text.
fn end_of(text: &str) -> Position {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let last = text.rsplit('\n').next().unwrap_or_default();
    Position {
        line: count(text.matches('\n').count() + 1),
        column: count(last.chars().count() + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_refused_with_the_way_out_and_properties_are_not_taken_for_it() {
        let strimzi = "# orders\napiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\n\
                       metadata:\n  name: orders\nspec:\n  config:\n    tasks.max: 1\n";
        for (yaml, line) in [(strimzi, 4), ("---\ntasks.max: 1\n", 1)] {
            let error = Properties::read(yaml.as_bytes()).unwrap_err();
            assert_eq!(error.at.line, line, "{error}");
            assert!(error.to_string().contains("spec.config"), "{error}");
        }
        for java in ["tasks.max: 1\n  name: x\n", "database.password:\n  name: x\n", "a:\nb:\n"] {
            assert!(Properties::read(java.as_bytes()).is_ok(), "{java}");
        }
    }
}
