//! Which configurations are taken.

use walpost_router::{ConfigError, Router, RouterConfig};

const PLACEMENT: &str = "table.fields.additional.placement";
const MISSING: &str = "table.field.additional.missing";
const TOMBSTONE: &str = "route.tombstone.on.empty.payload";

#[test]
fn an_empty_column_name_is_refused() {
    let config = RouterConfig { event_payload: " ".into(), ..RouterConfig::default() };
    let expected = ConfigError::Empty { key: "table.field.event.payload" };
    assert_eq!(Router::new(config).unwrap_err(), expected);
    let config =
        RouterConfig { additional_placement: Some(String::new()), ..RouterConfig::default() };
    assert_eq!(Router::new(config).unwrap_err(), ConfigError::Empty { key: PLACEMENT });
}

#[test]
fn a_misspelt_placement_is_refused_before_the_first_row() {
    let config = RouterConfig::from_properties([(PLACEMENT, "type:headr")]).unwrap();
    let error = Router::new(config).unwrap_err();
    assert!(matches!(&error, ConfigError::Placement { entry, .. } if entry == "type:headr"));
}

#[test]
fn a_key_that_cannot_be_honoured_is_refused_by_name() {
    let refuse =
        |key: &str, value: &str| RouterConfig::from_properties([(key, value)]).unwrap_err();
    assert!(matches!(refuse("route.by.feild", "x"), ConfigError::UnknownKey { .. }));
    let removed = refuse("table.field.payload", "x");
    assert_eq!(
        removed.to_string(),
        "configuring the router failed: table.field.payload was removed from debezium, \
         use table.field.event.payload"
    );
    for (key, value) in [
        ("table.expand.json.payload", "true"),
        ("table.field.event.schema.version", "v"),
        ("tracing.span.context.field", "ctx"),
        ("field.name.adjustment.mode", "avro"),
    ] {
        assert!(matches!(refuse(key, value), ConfigError::Unsupported { .. }), "{key}");
    }
    for (key, value) in [
        ("table.op.invalid.behavior", "skip"),
        (MISSING, "true"),
        (TOMBSTONE, "yes"),
        ("table.json.payload.null.behavior", "keep"),
    ] {
        assert!(matches!(refuse(key, value), ConfigError::InvalidValue { .. }), "{key}");
    }
}

#[test]
fn every_key_at_its_default_gives_the_default_configuration() {
    let defaults = [
        ("table.field.event.id", "id"),
        ("table.field.event.key", "aggregateid"),
        ("table.field.event.type", "type"),
        ("table.field.event.payload", "payload"),
        (MISSING, "error"),
        ("table.fields.additional.error.on.missing", "true"),
        ("table.op.invalid.behavior", "warn"),
        ("table.expand.json.payload", "false"),
        ("table.json.payload.null.behavior", "ignore"),
        ("table.json.payload.empty.array.behavior", "ignore"),
        ("route.by.field", "aggregatetype"),
        ("route.topic.regex", "(?<routedByValue>.*)"),
        ("route.topic.replacement", "outbox.event.${routedByValue}"),
        (TOMBSTONE, "false"),
        ("tracing.span.context.field", "tracingspancontext"),
        ("tracing.operation.name", "debezium-read"),
        ("tracing.with.context.field.only", "false"),
        ("field.name.adjustment.mode", "none"),
    ];
    assert_eq!(RouterConfig::from_properties(defaults), Ok(RouterConfig::default()));
}
