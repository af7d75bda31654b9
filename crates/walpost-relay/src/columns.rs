//! Columns of the outbox that the configuration names, and by which key.

use walpost_event::error_chain;
use walpost_router::{
    MESSAGE_RELATION, MESSAGE_SCHEMA, MissingColumn, RouteError, RouteErrorKind, RouterConfig,
};

use crate::config::{NamedColumn, RelayConfig};

/// Debezium's keys that name columns, and those of Walpost's section `[router]`.
const KEYS: [(&str, &str); 6] = [
    ("table.field.event.id", "router.event_id"),
    ("table.field.event.key", "router.event_key"),
    ("table.field.event.payload", "router.event_payload"),
    ("table.field.event.timestamp", "router.event_timestamp"),
    ("table.fields.additional.placement", PLACEMENT),
    ("route.by.field", "router.route_by_field"),
];
const PLACEMENT: &str = "router.additional_placement";

/// The type below all domains of the column of a row of `pg_attribute`.
const BASE_TYPE: &str = "(with recursive below (oid, kind, base) as \
    (select oid, typtype, typbasetype from pg_type where oid = atttypid \
    union all select t.oid, t.typtype, t.typbasetype from below b join pg_type t \
    on t.oid = b.base where b.kind = 'd') select oid from below where kind <> 'd')";

/// The type of a column as the stream of the pipeline has it, of a row of
/// `pg_attribute`.
pub(crate) fn sql_type(config: &RelayConfig) -> &'static str {
    if config.base_types { BASE_TYPE } else { "atttypid" }
}

/// The key that names a column, where Debezium has another one for it.
fn key_of<'a>(placed: &'a [(String, String)], theirs: &'a str, column: &str) -> &'a str {
    let key = KEYS.iter().find(|(known, _)| *known == theirs).map_or(theirs, |(_, ours)| *ours);
    if key != PLACEMENT {
        return key;
    }
    let other = placed.iter().find(|(name, _)| name == column);
    other.map_or(key, |(_, key)| key)
}

/// Columns that a table lacks, each with the key that names it.
pub(crate) fn missing<'a>(
    config: &'a RelayConfig,
    router: &RouterConfig,
    present: &[&str],
) -> Vec<(String, &'a str)> {
    let missing = router.missing_columns(present).into_iter();
    missing
        .map(|(column, theirs)| {
            let key = key_of(&config.placed_columns, theirs, &column);
            (column, key)
        })
        .collect()
}

/// Columns of [`RelayConfig::named_columns`] that no table has, of all whose columns
/// are `present`.
pub(crate) fn unknown<'a>(
    config: &'a RelayConfig,
    router: &RouterConfig,
    present: &[&str],
) -> Vec<&'a NamedColumn> {
    // Placements go by adjusted names.
    let strict = RouterConfig { additional_missing: MissingColumn::Error, ..router.clone() };
    let missing = strict.missing_columns(present);
    let is_unknown = |column: &&NamedColumn| match column.key {
        PLACEMENT => missing.iter().any(|(name, _)| *name == column.name),
        _ => !present.contains(&&*column.name),
    };
    config.named_columns.iter().filter(is_unknown).collect()
}

/// Columns whose type their use does not allow, each with the key that names it
/// and the types that it may have.
pub(crate) fn mistyped<'a>(
    config: &'a RelayConfig,
    router: &RouterConfig,
    present: &[(&str, u32)],
) -> Vec<(String, &'a str, &'static str)> {
    let mistyped = router.mistyped_columns(present).into_iter();
    mistyped
        .map(|(column, theirs, types)| {
            let key = key_of(&config.placed_columns, theirs, &column);
            (column, key, types)
        })
        .collect()
}

/// Why a row cannot be routed, with the key of the configuration that is to be
/// mended; `placed` are the [`RelayConfig::placed_columns`].
pub(crate) fn told(placed: &[(String, String)], error: &RouteError) -> String {
    let text = error_chain(error);
    match (error.kind(), error.column()) {
        (RouteErrorKind::MissingColumn { key }, Some(column)) => {
            let text = text.replace(key, key_of(placed, key, column));
            if error.table() == format!("{MESSAGE_SCHEMA}.{MESSAGE_RELATION}") {
                return text;
            }
            format!("{text}; if the table has it, see `walpost check`, then retry from the table")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_that_is_missing_has_its_key() {
        let mut config = RelayConfig::new("main");
        config.placed_columns = vec![("kind".to_owned(), "router.event_type".to_owned())];
        let mut router = RouterConfig {
            event_timestamp: Some("at".to_owned()),
            additional_placement: Some("kind:header:webhook-type, lane:partition".to_owned()),
            ..RouterConfig::default()
        };
        let found = missing(&config, &router, &["id", "payload"]);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, key)| (&**name, *key)).collect();
        let expected = [
            ("aggregateid", "router.event_key"),
            ("aggregatetype", "router.route_by_field"),
            ("at", "router.event_timestamp"),
            ("kind", "router.event_type"),
            ("lane", "router.additional_placement"),
        ];
        assert_eq!(found, expected);
        router.additional_missing = MissingColumn::Ignore;
        assert_eq!(missing(&config, &router, &["id", "payload"]).len(), 3);
    }

    #[test]
    fn a_named_column_that_no_table_has_is_unknown() {
        let named = |name: &str, key| NamedColumn { name: name.to_owned(), key, is_required: true };
        let mut config = RelayConfig::new("main");
        config.named_columns = vec![
            named("kind", PLACEMENT),
            named("tracparent", PLACEMENT),
            named("headrs", "router.headers_column"),
        ];
        let router = RouterConfig {
            additional_placement: Some("kind:header,tracparent:header".to_owned()),
            additional_missing: MissingColumn::Ignore,
            ..RouterConfig::default()
        };
        let found = unknown(&config, &router, &["id", "kind", "traceparent", "headers"]);
        let found: Vec<&str> = found.iter().map(|column| &*column.name).collect();
        assert_eq!(found, ["tracparent", "headrs"]);
    }

    /// A key that the router gets later has to be told by ours as well.
    #[test]
    fn every_key_of_a_column_is_known() {
        let router = RouterConfig {
            event_timestamp: Some("at".to_owned()),
            additional_placement: Some("a:header".to_owned()),
            ..RouterConfig::default()
        };
        let config = RelayConfig::new("main");
        for (_, key) in missing(&config, &router, &[]) {
            assert!(key.starts_with("router."), "{key}");
        }
    }
}
