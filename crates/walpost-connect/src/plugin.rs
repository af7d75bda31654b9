//! The one plug-in there is: its properties, and whether a configuration is one
//! of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use walpost_connector::{
    Judgement, Kind, Properties, ProviderError, Providers, ResolveError, Rule, SECTIONS, Standing,
    Unknown, Verdict, judge,
};
use walpost_event::error_chain;

use crate::{
    config::{Config, invalid, masked, properties},
    error::ApiError,
    runner::Problem,
};

/// The class that connectors name.
pub const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";
/// What is said of its version, which is that of this crate.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const SHORT: &str = "PostgresConnector";
const SHORTEST: &str = "Postgres";

/// How configurations are read: which placeholders are replaced, what a worker's
/// file adds, and what becomes of properties that nobody knows.
#[derive(Clone, Debug)]
pub struct Plugin {
    providers: Providers,
    worker: Option<Properties>,
    unknown: Unknown,
}

/// Which slot of which database, that two connectors cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotOf([String; 4]);

impl SlotOf {
    fn named(properties: &Properties) -> Self {
        let value = |name, default: &str| properties.get(name).unwrap_or(default).trim().to_owned();
        Self([
            value("database.hostname", ""),
            value("database.port", "5432"),
            value("database.dbname", ""),
            value("slot.name", "debezium"),
        ])
    }
}

impl Plugin {
    /// Placeholders lead where `providers` may read, and nowhere else:
    /// [`Allowed::nothing`](walpost_connector::Allowed::nothing) is what a
    /// configuration from the network should get. Unknown properties are refused.
    pub fn new(providers: Providers) -> Self {
        Self { providers, worker: None, unknown: Unknown::Refuse }
    }

    /// The same with the properties of a worker's file.
    #[must_use]
    pub fn with_worker(self, worker: Option<Properties>) -> Self {
        Self { worker, ..self }
    }

    /// The same with what becomes of unknown properties.
    #[must_use]
    pub fn with_unknown(self, unknown: Unknown) -> Self {
        Self { unknown, ..self }
    }

    /// The properties with their placeholders replaced. Blocks: it reads their files.
    ///
    /// # Errors
    /// That of the first placeholder that leads nowhere; names no value.
    pub fn resolve(&self, config: &Config) -> Result<Properties, ApiError> {
        let resolved = self.resolved(config);
        resolved
            .map_err(|error| invalid(&[format!("{}: {}", error.property(), unresolved(&error))]))
    }

    fn resolved(&self, config: &Config) -> Result<Properties, ResolveError<ProviderError>> {
        let mut providers = self.providers.clone();
        properties(config).resolve(|asked| providers.lookup(asked))
    }

    /// The slot of a connector; none where a placeholder leads nowhere now. One that
    /// runs all the same keeps its slot from others by itself. Blocks, as
    /// [`resolve`](Self::resolve).
    pub(crate) fn slot(&self, config: &Config) -> Option<SlotOf> {
        self.resolved(config).ok().as_ref().map(SlotOf::named)
    }

    /// Whether a connector can be made of a configuration, where `check` looks at
    /// what has no error otherwise; its slot. Blocks: it reads the files of
    /// placeholders, and compiles patterns.
    pub(crate) fn check(
        &self,
        config: &Config,
        check: impl FnOnce(&Properties) -> Vec<Problem>,
    ) -> Result<SlotOf, ApiError> {
        check_class(config)?;
        let properties = self.resolve(config)?;
        let judgement = judge(&properties, self.worker.as_ref(), self.unknown);
        let errors = errors(&judgement);
        if !errors.is_empty() {
            let lines: Vec<String> =
                errors.iter().map(|(name, text)| format!("{name}: {text}")).collect();
            return Err(invalid(&lines));
        }
        let problems = check(&properties);
        if !problems.is_empty() {
            let line = |problem: &Problem| format!("{}: {}", problem.property, problem.text);
            return Err(invalid(&problems.iter().map(line).collect::<Vec<_>>()));
        }
        Ok(SlotOf::named(&properties))
    }

    /// The answer to `PUT /connector-plugins/{name}/config/validate`; `check` as in
    /// [`check`](Self::check), and blocks as that.
    pub(crate) fn validate(
        &self,
        config: &Config,
        check: impl FnOnce(&Properties) -> Vec<Problem>,
    ) -> Result<Value, ApiError> {
        check_class(config)?;
        let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
        match self.resolved(config) {
            Ok(properties) => {
                let judgement = judge(&properties, self.worker.as_ref(), self.unknown);
                for (name, text) in self::errors(&judgement) {
                    errors.entry(name).or_default().push(text);
                }
                let found = if errors.is_empty() { check(&properties) } else { Vec::new() };
                for Problem { property, text } in found {
                    errors.entry(property).or_default().push(text);
                }
            }
            Err(error) => {
                let (name, text) = (error.property().to_owned(), unresolved(&error));
                errors.entry(name).or_default().push(text);
            }
        }
        let count: usize = errors.values().map(Vec::len).sum();
        let shown = masked(config);
        let mut configs: Vec<Value> = Vec::new();
        for (group, order, rule) in rules() {
            let value = shown.get(rule.name).map(String::as_str).or(rule.default);
            let errors = errors.remove(rule.name).unwrap_or_default();
            configs.push(entry(definition(rule.name, rule, group, order), value, &errors));
        }
        // Those of converters, transforms and the like, and those that nobody knows.
        let others = shown.keys().chain(errors.keys()).filter(|name| rule(name).is_none());
        let others: std::collections::BTreeSet<&String> = others.collect();
        for (order, name) in others.into_iter().enumerate() {
            let definition = given(name, order + 1);
            let errors = errors.get(name).map(Vec::as_slice).unwrap_or_default();
            configs.push(entry(definition, shown.get(name).map(String::as_str), errors));
        }
        let mut groups: Vec<&str> = sections().map(|section| section.title).collect();
        groups.push(OTHERS);
        Ok(json!({ "name": CLASS, "error_count": count, "groups": groups, "configs": configs }))
    }
}

/// The group of properties that are no connector's own.
const OTHERS: &str = "Transforms, converters, producer and topics";

/// The answer to `GET /connector-plugins`.
pub(crate) fn plugins() -> Value {
    json!([{ "class": CLASS, "type": "source", "version": VERSION }])
}

/// The answer to `GET /connector-plugins/{name}/config`.
pub(crate) fn definitions() -> Value {
    rules().map(|(group, order, rule)| definition(rule.name, rule, group, order)).collect()
}

/// Whether a path names the plug-in, by its class or in short.
pub(crate) fn is_known(name: &str) -> bool {
    [CLASS, SHORT, SHORTEST].contains(&name)
}

/// Whether the class that a configuration names is the one that the path does.
pub(crate) fn check_path(name: &str, config: &Config) -> Result<(), ApiError> {
    let Some(class) = config.get("connector.class").map(|class| class.trim()) else {
        return Ok(());
    };
    let short = |name: &str| match name.strip_suffix("Connector") {
        Some("") | None => name.to_owned(),
        Some(rest) => rest.to_owned(),
    };
    match short(class).ends_with(&short(name)) {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!(
            "Included connector type {class} does not match request type {name}"
        ))),
    }
}

/// Why a placeholder leads nowhere, of a property that is named beside it, and who
/// can do something about it. Nothing of what the process may read shows.
fn unresolved(error: &ResolveError<ProviderError>) -> String {
    let ResolveError::Lookup { source, .. } = error else { return error_chain(error) };
    let advice = match source {
        ProviderError::Nothing { .. } => {
            ", or have whoever starts walpost serve allow it, by --allow-env or \
             --allow-placeholders"
        }
        ProviderError::Forbidden { .. } => {
            "; whoever starts walpost serve can do that, by --allow-placeholders"
        }
        ProviderError::ForbiddenVariable { .. } => {
            "; whoever starts walpost serve can do that, by --allow-env"
        }
        _ => "",
    };
    format!("{}{advice}", error_chain(source))
}

fn check_class(config: &Config) -> Result<(), ApiError> {
    let Some(class) = config.get("connector.class") else {
        let names = config.keys().cloned().collect::<Vec<_>>().join(", ");
        let text = format!("Connector config {{{names}}} contains no connector type");
        return Err(ApiError::bad_request(text));
    };
    match is_known(class.trim()) {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!(
            "Failed to find any class that implements Connector and which name matches {class}, \
             available connectors are: {CLASS}"
        ))),
    }
}

fn errors(judgement: &Judgement) -> Vec<(String, String)> {
    let rows = judgement.verdicts.rows().iter();
    let refused = rows.filter(|row| row.verdict == Verdict::Refused);
    refused.map(|row| (row.property.clone(), row.note.clone())).collect()
}

fn sections() -> impl Iterator<Item = &'static walpost_connector::Section> {
    let is_own = |section: &&walpost_connector::Section| {
        section.of == walpost_connector::Of::Connector && section.rules.iter().any(is_listed)
    };
    SECTIONS.iter().filter(is_own)
}

/// The connector's own properties, each with its group and its place in it.
fn rules() -> impl Iterator<Item = (&'static str, usize, &'static Rule)> {
    sections().flat_map(|section| {
        let listed = section.rules.iter().filter(|rule| is_listed(rule));
        listed.enumerate().map(|(index, rule)| (section.title, index + 1, rule))
    })
}

/// One name, which means something.
fn is_listed(rule: &Rule) -> bool {
    !rule.name.ends_with('*') && !matches!(rule.standing, Standing::Removed(_))
}

fn rule(name: &str) -> Option<&'static Rule> {
    rules().map(|(_, _, rule)| rule).find(|rule| rule.name == name)
}

/// Properties without which there is no connector.
const REQUIRED: [&str; 6] = [
    "name",
    "connector.class",
    "topic.prefix",
    "database.hostname",
    "database.user",
    "database.dbname",
];

fn definition(name: &str, rule: &Rule, group: &str, order: usize) -> Value {
    let is_required = REQUIRED.contains(&name);
    let (importance, documentation) = match rule.standing {
        _ if is_required => ("HIGH", documentation(rule)),
        Standing::Honoured(_) | Standing::Mapped(_) => ("MEDIUM", documentation(rule)),
        _ => ("LOW", documentation(rule)),
    };
    let (kind, width) = kind(rule.kind);
    json!({
        "name": name,
        "type": kind,
        "required": is_required && rule.default.is_none(),
        "default_value": rule.default,
        "importance": importance,
        "documentation": documentation,
        "group": group,
        "order_in_group": order,
        "width": width,
        "display_name": name,
        "dependents": [],
    })
}

fn documentation(rule: &Rule) -> String {
    match rule.standing {
        Standing::Honoured(what) => what.to_owned(),
        Standing::Mapped(to) => format!("mapped to {to}"),
        Standing::Ignored(why) => format!("taken and ignored because {why}"),
        Standing::Only(values, why) => {
            format!("refused but for {} because {why}", values.join(", "))
        }
        Standing::Refused(why) => format!("refused because {why}"),
        Standing::Alias(of) => format!("former name of {of}"),
        Standing::Removed(now) => format!("removed; {now} takes its place"),
    }
}

/// The type and the width of an input, as Kafka's `ConfigDef` has them.
fn kind(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Password => ("PASSWORD", "MEDIUM"),
        Kind::Boolean => ("BOOLEAN", "SHORT"),
        Kind::Number(_, high) if high > i64::from(i32::MAX) => ("LONG", "SHORT"),
        Kind::Number(..) => ("INT", "SHORT"),
        Kind::List | Kind::Regexes | Kind::Patterns => ("LIST", "LONG"),
        Kind::Class => ("CLASS", "LONG"),
        Kind::Sql | Kind::Url | Kind::File | Kind::Regex | Kind::Replaced => ("STRING", "LONG"),
        Kind::Text | Kind::OneOf(_) | Kind::Name | Kind::SlotName => ("STRING", "MEDIUM"),
    }
}

/// A property that is given and that no rule of the connector's own is about.
fn given(name: &str, order: usize) -> Value {
    json!({
        "name": name,
        "type": "STRING",
        "required": false,
        "default_value": null,
        "importance": "MEDIUM",
        "documentation": "",
        "group": OTHERS,
        "order_in_group": order,
        "width": "MEDIUM",
        "display_name": name,
        "dependents": [],
    })
}

fn entry(definition: Value, value: Option<&str>, errors: &[String]) -> Value {
    let value = json!({
        "name": definition["name"],
        "value": value,
        "recommended_values": [],
        "errors": errors,
        "visible": true,
    });
    json!({ "definition": definition, "value": value })
}

#[cfg(test)]
pub(crate) mod tests {
    use walpost_connector::Allowed;

    use super::*;

    fn plugin() -> Plugin {
        Plugin::new(Providers::new(Allowed::nothing()))
    }

    fn nothing(_: &Properties) -> Vec<Problem> {
        Vec::new()
    }

    pub(crate) fn usable() -> Config {
        let pairs = [
            ("name", "orders"),
            ("connector.class", CLASS),
            ("database.hostname", "db"),
            ("database.user", "app"),
            ("database.password", "s3cr3t"),
            ("database.dbname", "shop"),
            ("topic.prefix", "shop"),
            ("slot.name", "orders"),
            ("table.include.list", "public.outbox"),
            ("snapshot.mode", "no_data"),
            ("publication.autocreate.mode", "filtered"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn with(name: &str, value: &str) -> Config {
        let mut config = usable();
        config.insert(name.to_owned(), value.to_owned());
        config
    }

    #[test]
    fn a_usable_configuration_is_a_connector_of_one_slot() {
        let slot = plugin().check(&usable(), nothing).unwrap();
        assert_eq!(slot, SlotOf(["db", "5432", "shop", "orders"].map(str::to_owned)));
        assert_eq!(plugin().slot(&usable()), Some(slot));
        let answer = plugin().validate(&usable(), nothing).unwrap();
        assert_eq!(answer["error_count"], 0);
        assert!(!answer.to_string().contains("s3cr3t"));
    }

    #[test]
    fn errors_are_counted_and_stand_with_their_properties() {
        let config = with("slot.name", "No Slot");
        let error = plugin().check(&config, nothing).unwrap_err();
        let first = "Connector configuration is invalid and contains the following 1 error(s):\n\
                     slot.name: ";
        assert!(error.message.starts_with(first), "{}", error.message);
        let answer = plugin().validate(&config, nothing).unwrap();
        assert_eq!(answer["error_count"], 1);
        let configs = answer["configs"].as_array().unwrap();
        let wrong: Vec<&Value> =
            configs.iter().filter(|one| one["value"]["errors"] != json!([])).collect();
        assert_eq!(wrong.len(), 1);
        assert_eq!(wrong[0]["definition"]["name"], "slot.name");
        assert_eq!(wrong[0]["value"]["value"], "No Slot");
    }

    #[test]
    fn what_nobody_knows_is_an_error_of_its_own() {
        let answer = plugin().validate(&with("slot.nmae", "x"), nothing).unwrap();
        assert_eq!(answer["error_count"], 1);
        let configs = answer["configs"].as_array().unwrap();
        let found = configs.iter().find(|one| one["value"]["name"] == "slot.nmae").unwrap();
        assert!(found["value"]["errors"][0].as_str().unwrap().contains("did you mean slot.name?"));
    }

    #[test]
    fn placeholders_from_the_network_lead_nowhere() {
        let config = with("database.password", "${file:/etc/shadow:root}");
        let error = plugin().check(&config, nothing).unwrap_err();
        assert!(error.message.contains("database.password: "), "{}", error.message);
        assert_eq!(plugin().validate(&config, nothing).unwrap()["error_count"], 1);
    }

    #[test]
    fn another_class_is_no_plugin() {
        for (class, said) in [(Some("no.Such"), "matches no.Such"), (None, "no connector type")] {
            let mut config = usable();
            config.remove("connector.class");
            config.extend(class.map(|class| ("connector.class".to_owned(), class.to_owned())));
            let error = plugin().check(&config, nothing).unwrap_err();
            assert_eq!(error.code, 400);
            assert!(error.message.contains(said), "{}", error.message);
            assert!(!error.message.contains("s3cr3t"));
        }
    }

    #[test]
    fn a_path_names_the_class_as_kafka_connect_lets_it() {
        for name in [CLASS, SHORT, SHORTEST] {
            check_path(name, &usable()).unwrap();
            assert!(is_known(name));
        }
        let error = check_path("none", &usable()).unwrap_err();
        assert!(error.message.ends_with("does not match request type none"));
        check_path("none", &Config::new()).unwrap();
    }

    #[test]
    fn every_definition_is_of_a_type_that_kafka_has() {
        let all = definitions();
        let all = all.as_array().unwrap();
        assert!(all.len() > 120, "{}", all.len());
        for one in all {
            let kind = one["type"].as_str().unwrap();
            assert!(
                ["BOOLEAN", "INT", "CLASS", "STRING", "LIST", "LONG", "PASSWORD"].contains(&kind)
            );
        }
    }
}
