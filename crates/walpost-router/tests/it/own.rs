//! Rules of Walpost's own, which no key of Debezium's turns on.

use walpost_event::{RowChange, type_oid};
use walpost_router::{RouteErrorKind, Routed, Router, RouterConfig};

use crate::fixture::{Cell, ID, headers, user};

fn route(others: &[Cell<'_>]) -> Result<Vec<(String, Option<String>)>, RouteErrorKind> {
    let mut router = Router::new(RouterConfig::walpost()).expect("a legal configuration");
    match router.route(&RowChange::insert(user(others))) {
        Ok(Routed::Record(record)) => Ok(headers(&record)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
            .collect()),
        Ok(Routed::Skipped(reason)) => panic!("skipped: {reason:?}"),
        Err(error) => Err(error.kind().clone()),
    }
}

fn expected(headers: &[(&str, &str)]) -> Result<Vec<(String, Option<String>)>, RouteErrorKind> {
    Ok(headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
        .collect())
}

#[test]
fn the_event_type_is_a_header_and_what_is_null_is_none() {
    let others = [("traceparent", type_oid::TEXT, None), ("headers", type_oid::JSONB, None)];
    assert_eq!(route(&others), expected(&[("id", ID), ("eventType", "UserCreated")]));
    assert_eq!(route(&[]), expected(&[("id", ID), ("eventType", "UserCreated")]));
    // What SQLAlchemy writes for None.
    for null in ["null", " null "] {
        let others = [("headers", type_oid::JSONB, Some(null))];
        assert_eq!(route(&others), expected(&[("id", ID), ("eventType", "UserCreated")]));
    }
}

#[test]
fn trace_context_and_the_members_of_headers_follow_in_order() {
    let object = r#"{"tenant": "7", "n": 1.50, "none": null, "o": {"a":  1}, "tenant": "ä"}"#;
    let others = [
        ("headers", type_oid::JSON, Some(object)),
        ("traceparent", type_oid::TEXT, Some("00-ab-cd-01")),
        ("tracestate", type_oid::TEXT, Some("v=1")),
    ];
    let all = [
        ("id", ID),
        ("eventType", "UserCreated"),
        ("traceparent", "00-ab-cd-01"),
        ("tracestate", "v=1"),
        ("tenant", "7"),
        ("n", "1.50"),
        ("o", r#"{"a":  1}"#),
        ("tenant", "ä"),
    ];
    assert_eq!(route(&others), expected(&all));
}

#[test]
fn headers_that_are_no_object_cannot_be_routed() {
    for value in ["[1]", "\"x\"", "", "{\"a\"}"] {
        let refused = route(&[("headers", type_oid::JSONB, Some(value))]).unwrap_err();
        assert_eq!(refused, RouteErrorKind::MalformedHeaders { len: value.len() }, "{value:?}");
    }
}
