use walpost_encode::connect::{EmptyArray, NameAdjustment, NullField};
use walpost_router::{ConfigError, MissingColumn, Router, RouterConfig};

use super::transforms::Condition;
use crate::judge::Scope;

/// What of the Outbox Event Router no key of Walpost's own says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRouter {
    /// Its alias among the transforms.
    pub alias: String,
    /// Under what condition a row is routed. One that is not is no event.
    pub condition: Option<Condition>,
    /// Whether a placement makes the value an envelope.
    pub has_envelope: bool,
    /// `table.expand.json.payload`: a payload of JSON becomes a structure;
    /// `None`, the default, for not.
    pub expansion: Option<JsonExpansion>,
    /// `table.field.event.schema.version`: column of the version of the value's
    /// schema; only where there is an envelope.
    pub schema_version: Option<String>,
}

/// How JSON becomes a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonExpansion {
    /// `table.json.payload.null.behavior`, default `ignore`.
    pub null: NullField,
    /// `table.json.payload.empty.array.behavior`, default `ignore`.
    pub empty_array: EmptyArray,
    /// `field.name.adjustment.mode` of the router, default none.
    pub names: NameAdjustment,
}

impl OutboxRouter {
    /// Whether the value is, or may be, a structure: an envelope or expanded
    /// JSON.
    pub fn makes_structure(&self) -> bool {
        self.has_envelope || self.expansion.is_some()
    }
}

/// The options that `RouterConfig` reads by itself.
const OPTIONS: [&str; 13] = [
    "table.field.event.id",
    "table.field.event.key",
    "table.field.event.type",
    "table.field.event.payload",
    "table.field.event.timestamp",
    PLACEMENT,
    MISSING,
    MISSING_BEFORE_3_6,
    "table.op.invalid.behavior",
    "route.by.field",
    "route.topic.regex",
    "route.topic.replacement",
    "route.tombstone.on.empty.payload",
];
const PLACEMENT: &str = "table.fields.additional.placement";
const MISSING: &str = "table.field.additional.missing";
const MISSING_BEFORE_3_6: &str = "table.fields.additional.error.on.missing";
const SCHEMA_VERSION: &str = "table.field.event.schema.version";
const NULL: &str = "table.json.payload.null.behavior";
const EMPTY_ARRAY: &str = "table.json.payload.empty.array.behavior";
const FIELD_NAMES: &str = "field.name.adjustment.mode";

pub(crate) fn read(
    scope: &mut Scope<'_>,
    alias: String,
    condition: Option<Condition>,
) -> Option<OutboxRouter> {
    check_missing(scope);
    if condition.is_some() {
        scope.tell(
            "predicate",
            "but a row that is not routed is published by nobody, where Debezium publishes it as \
             a change event",
        );
    }
    let config = config(scope)?;
    let members = members(&config);
    check_members(scope, &members);
    lay(scope, &config);
    let mut router = OutboxRouter {
        alias,
        condition,
        has_envelope: !members.is_empty(),
        expansion: expansion(scope),
        schema_version: scope.given(SCHEMA_VERSION),
    };
    if router.schema_version.is_some() && !router.has_envelope {
        scope.ignore(
            SCHEMA_VERSION,
            "no placement makes an envelope, and a bare payload has no version",
        );
        router.schema_version = None;
    }
    tell(scope);
    Some(router)
}

/// The names of the envelope's members beside the payload; none for no envelope.
fn members(config: &RouterConfig) -> Vec<&str> {
    let list = config.additional_placement.as_deref().unwrap_or_default();
    list.split(',')
        .filter_map(|entry| {
            let mut parts = entry.split(':').map(str::trim);
            let (column, placement) = (parts.next()?, parts.next()?);
            let is_member = placement.eq_ignore_ascii_case("envelope");
            is_member.then(|| parts.next().unwrap_or(column))
        })
        .collect()
}

/// Debezium's task fails at the first event where two have one name.
fn check_members(scope: &mut Scope<'_>, members: &[&str]) {
    let is_twice =
        |(index, name): &(usize, &&str)| **name == "payload" || members[..*index].contains(*name);
    if let Some((_, name)) = members.iter().enumerate().find(is_twice) {
        let note = format!("two members of the envelope are named {name}; write another alias");
        scope.refuse(PLACEMENT, note);
    }
}

fn tell(scope: &mut Scope<'_>) {
    if scope.boolean("table.expand.json.payload")
        && scope.choice::<NameAdjustment>(FIELD_NAMES) != NameAdjustment::None
    {
        let note = "but an event with a member whose name has to change is parked: Debezium \
                    writes null for it";
        scope.tell(FIELD_NAMES, note);
    }
    if scope.given(MISSING_BEFORE_3_6).is_some() && !scope.has(MISSING) {
        let note = format!(
            "{MISSING}, for which Debezium took it up to 3.5; since then it takes it for nothing, \
             and fails on a missing column"
        );
        scope.map(MISSING_BEFORE_3_6, note);
    }
}

/// The keys of `[router]`, with what holds in Debezium without an option.
fn lay(scope: &mut Scope<'_>, config: &RouterConfig) {
    scope.lay_plain();
    let missing = match config.additional_missing {
        MissingColumn::Error => "error",
        MissingColumn::Ignore => "ignore",
    };
    let is_former = !scope.has(MISSING) && scope.has(MISSING_BEFORE_3_6);
    scope.lay(if is_former { MISSING_BEFORE_3_6 } else { MISSING }, missing);
    // Debezium has no other way.
    scope.lay_at("type", ("router", "null_header"), "send");
    scope.lay_at("type", ("router", "headers_column"), "");
}

/// Both spellings, saying two things.
fn check_missing(scope: &mut Scope<'_>) {
    let (now, before) = (scope.given(MISSING), scope.given(MISSING_BEFORE_3_6));
    let Some((now, before)) = now.zip(before) else { return };
    if now.eq_ignore_ascii_case("error") != before.eq_ignore_ascii_case("true") {
        scope.refuse(MISSING_BEFORE_3_6, format!("{MISSING} says otherwise; remove one of them"));
    }
}

fn expansion(scope: &mut Scope<'_>) -> Option<JsonExpansion> {
    if scope.boolean("table.expand.json.payload") {
        return Some(JsonExpansion {
            null: scope.choice(NULL),
            empty_array: scope.choice(EMPTY_ARRAY),
            names: scope.choice(FIELD_NAMES),
        });
    }
    for name in [NULL, EMPTY_ARRAY, FIELD_NAMES] {
        if scope.has(name) {
            scope.ignore(name, "the payload is not expanded");
        }
    }
    None
}

fn config(scope: &mut Scope<'_>) -> Option<RouterConfig> {
    // Kafka Connect takes blanks away, also around a regex and a replacement.
    let value = |name: &'static str| Some((name, scope.trimmed(name)?));
    let given: Vec<(&str, String)> = OPTIONS.iter().copied().filter_map(value).collect();
    let checked = RouterConfig::from_properties(given)
        .and_then(|config| Router::new(config.clone()).map(|_| config));
    match checked {
        Ok(config) => Some(config),
        Err(error) => {
            scope.refuse_for(key(&error), &error, "another value");
            None
        }
    }
}

/// Which option is to blame.
fn key(error: &ConfigError) -> &str {
    match error {
        ConfigError::Empty { key }
        | ConfigError::InvalidValue { key, .. }
        | ConfigError::RemovedKey { key, .. }
        | ConfigError::Unsupported { key, .. }
        | ConfigError::Regex { key, .. }
        | ConfigError::Replacement { key, .. }
        | ConfigError::Placement { key, .. } => key,
        ConfigError::UnknownKey { key } => key,
        _ => "type",
    }
}
