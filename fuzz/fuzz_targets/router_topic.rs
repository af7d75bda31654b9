//! Lines `key=value` of the router's configuration, an empty line, then a
//! route value. A configuration that is taken routes every value that is UTF-8,
//! unless its regex tries too often to match it.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use walpost_event::{Column, Relation, ReplicaIdentity, Row, RowChange, type_oid};
use walpost_router::{RouteError, RouteErrorKind, Router, RouterConfig};

fuzz_target!(|input: &str| {
    let (properties, value) = input.split_once("\n\n").unwrap_or((input, ""));
    let properties = properties.lines().filter_map(|line| line.split_once('='));
    let Ok(mut router) = RouterConfig::from_properties(properties).and_then(Router::new) else {
        return;
    };
    let names = ["id", "aggregatetype", "aggregateid", "type", "payload"];
    let columns = names.map(|name| Column {
        name: name.into(),
        type_oid: type_oid::TEXT,
        type_modifier: -1,
        is_key: false,
    });
    let relation = Relation {
        oid: 1,
        schema: "public".into(),
        name: "outbox".into(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.into(),
    };
    let row = Row::from_text(Arc::new(relation), names.map(|_| Some(value)));
    let change = RowChange::insert(row);
    let first = router.route(&change);
    let again = router.route(&change);
    assert_eq!(first.is_ok(), again.is_ok());
    let config = router.config();
    let needs_default_columns_only = names.contains(&&*config.event_id)
        && names.contains(&&*config.event_key)
        && names.contains(&&*config.event_payload)
        && names.contains(&&*config.route_by_field)
        && config.event_timestamp.is_none()
        && config.additional_placement.is_none();
    let gave_up = |error: &RouteError| matches!(error.kind(), RouteErrorKind::TopicRegex(_));
    let is_routed = first.as_ref().map_or_else(gave_up, |_| true);
    assert!(is_routed || !needs_default_columns_only);
});
