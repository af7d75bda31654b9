use walpost_encode::connect::{ColumnOptions, NameAdjustment};

use crate::{judge::Scope, lists};

/// What columns become in keys, headers and envelopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handling {
    /// Their types and values.
    pub columns: ColumnOptions,
    /// `schema.name.adjustment.mode`, default none.
    pub schema_names: NameAdjustment,
    /// `field.name.adjustment.mode`, default none.
    pub field_names: NameAdjustment,
}

/// `skipped.operations`: what is no event even if the router would take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedOperations {
    /// `c`: nothing is published.
    pub insert: bool,
    /// `u`.
    pub update: bool,
    /// `d`.
    pub delete: bool,
    /// `t`, the default.
    pub truncate: bool,
}

/// The headers `__debezium.context.*`, by the version of Debezium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextHeaders {
    /// None: up to 3.1, or `extended.headers.enabled` is false.
    None,
    /// `connectorLogicalName`, `taskId` and `connectorName`: 3.2 and 3.3.
    Three,
    /// The same and `runId`: from 3.4 on.
    Four,
}

pub(crate) fn read(scope: &Scope<'_>) -> Handling {
    let money_digits = scope.number("money.fraction.digits");
    Handling {
        columns: ColumnOptions {
            time: scope.choice("time.precision.mode"),
            decimal: scope.choice("decimal.handling.mode"),
            binary: scope.choice("binary.handling.mode"),
            interval: scope.choice("interval.handling.mode"),
            hstore: scope.choice("hstore.handling.mode"),
            money_fraction_digits: money_digits.try_into().unwrap_or_default(),
            unknown_types: scope.boolean("include.unknown.datatypes"),
        },
        schema_names: scope.choice("schema.name.adjustment.mode"),
        field_names: scope.choice("field.name.adjustment.mode"),
    }
}

pub(crate) fn skipped(scope: &mut Scope<'_>) -> SkippedOperations {
    const NAME: &str = "skipped.operations";
    let list = lists::split(&scope.text_or_default(NAME));
    let has = |operation: &str| list.iter().any(|given| given == operation);
    if list.iter().any(|given| !matches!(given.as_str(), "c" | "r" | "u" | "d" | "t" | "none")) {
        scope.refuse(
            NAME,
            "it names an operation that there is not; write some of c, u, d and t, or none",
        );
    }
    if has("none") && list.len() > 1 {
        scope.refuse(NAME, "none stands beside others; write none alone, or the others");
    }
    if has("c") {
        scope.tell(NAME, "and with c no event is published");
    }
    if has("r") {
        scope.tell(NAME, "but for r, by which Debezium skips nothing");
    }
    SkippedOperations { insert: has("c"), update: has("u"), delete: has("d"), truncate: has("t") }
}

pub(crate) fn context_headers(scope: &mut Scope<'_>) -> ContextHeaders {
    const VERSION: &str = "walpost.debezium.version";
    let text = scope.text_or_default(VERSION);
    let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
    let version = parts.next().flatten().zip(parts.next().flatten());
    if version.is_none() {
        scope.refuse(VERSION, "it is no version; write one such as 3.4");
    }
    match version.filter(|_| scope.boolean("extended.headers.enabled")) {
        None => ContextHeaders::None,
        Some(version) if version < (3, 2) => ContextHeaders::None,
        Some(version) if version < (3, 4) => ContextHeaders::Three,
        Some(_) => ContextHeaders::Four,
    }
}
