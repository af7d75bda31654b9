//! Logical messages as rows.

use std::sync::Arc;

use walpost_event::{RecordValue, Row, RowChange, Value, type_oid};
use walpost_router::{
    MESSAGE_RELATION, MESSAGE_SCHEMA, RouteError, RouteErrorKind, Routed, Router, RouterConfig,
};

use crate::fixture::{headers, payload, router, text};

fn read(content: &str) -> Result<Row, RouteError> {
    router(&[]).row_from_message(content.as_bytes())
}

fn refused(content: &str) -> (Option<String>, RouteErrorKind) {
    let error = read(content).expect_err("content that is no row");
    (error.column().map(str::to_owned), error.kind().clone())
}

fn cell(row: &Row, name: &str) -> (u32, Option<String>) {
    let index = row.relation().column_index(name).expect("a member of that name");
    let text = row.text(index).map(str::to_owned);
    assert!(text.is_some() || row.value(index) == Value::Null, "{name} is text or NULL");
    (row.relation().columns[index].type_oid, text)
}

#[test]
fn members_become_columns_with_the_text_of_their_json() {
    let row = read(
        r#" {"s": "a\"\u00e4\n", "i": -7, "b": 3000000000, "n": 1.10, "e": 1e400, "t": true,
            "o": {"b":  1, "a": [1.0, null]}, "l": [ ], "z": null, "": ""} "#,
    )
    .unwrap();
    let cases = [
        ("s", type_oid::TEXT, Some("a\"ä\n")),
        ("i", type_oid::INT4, Some("-7")),
        ("b", type_oid::INT8, Some("3000000000")),
        ("n", type_oid::NUMERIC, Some("1.10")),
        ("e", type_oid::NUMERIC, Some("1e400")),
        ("t", type_oid::BOOL, Some("true")),
        ("o", type_oid::JSON, Some("{\"b\":  1, \"a\": [1.0, null]}")),
        ("l", type_oid::JSON, Some("[ ]")),
        ("z", type_oid::TEXT, None),
        ("", type_oid::TEXT, Some("")),
    ];
    for (name, oid, expected) in cases {
        assert_eq!(cell(&row, name), (oid, expected.map(str::to_owned)), "{name}");
    }
    let relation = row.relation();
    let found = (relation.oid, &*relation.schema, &*relation.name);
    assert_eq!(found, (0, MESSAGE_SCHEMA, MESSAGE_RELATION));
}

#[test]
fn a_message_is_routed_like_a_row() {
    let mut router = router(&[
        ("table.fields.additional.placement", "type:header,p:partition"),
        ("table.field.event.timestamp", "at"),
    ]);
    let content = br#"{"id":"e1","aggregatetype":"order","aggregateid":"42","type":"Placed",
        "payload":{"total": 1.50},"p":3,"at":"2019-03-24T20:46:19.777Z"}"#;
    let row = router.row_from_message(content).unwrap();
    let Routed::Record(record) = router.route(&RowChange::insert(row)).unwrap() else {
        panic!("a record")
    };
    assert_eq!(&*record.topic, "outbox.event.order");
    assert_eq!(text(record.key.as_ref().unwrap()), Some("42"));
    assert_eq!(headers(&record), [("id", Some("e1")), ("type", Some("Placed"))]);
    assert_eq!(payload(&record).type_oid, type_oid::JSON);
    assert_eq!(text(payload(&record)), Some("{\"total\": 1.50}"));
    assert_eq!(record.partition, Some(3));
    assert_eq!(record.timestamp_ms, Some(1_553_460_379_777));
}

#[test]
fn a_message_without_a_needed_member_names_it() {
    let mut router = router(&[]);
    let row = router.row_from_message(br#"{"id":"e1","aggregatetype":"order"}"#).unwrap();
    let error = router.route(&RowChange::insert(row)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "routing a row of pg_catalog.pg_logical_emit_message failed at column aggregateid: \
         there is no such column, name the right one in table.field.event.key"
    );
}

#[test]
fn a_base64_payload_becomes_its_bytes_and_the_encoding_no_column() {
    let mut router = router(&[("table.fields.additional.placement", "other:header")]);
    let content = br#"{"id":"e1","aggregatetype":"o","aggregateid":"1","payload":"AP8h",
        "payload_encoding":"base64","other":"AP8h"}"#;
    let row = router.row_from_message(content).unwrap();
    assert_eq!(row.relation().column_index("payload_encoding"), None);
    let Routed::Record(record) = router.route(&RowChange::insert(row)).unwrap() else {
        panic!("a record")
    };
    assert_eq!(payload(&record).type_oid, type_oid::BYTEA);
    assert_eq!(payload(&record).bytes.as_deref(), Some(&b"\x00\xff!"[..]));
    assert_eq!(headers(&record)[1], ("other", Some("AP8h")));
}

#[test]
fn the_encoding_is_of_the_payload_whatever_its_column_is_called() {
    let config = RouterConfig { event_payload: "body".into(), ..RouterConfig::default() };
    let mut router = Router::new(config).unwrap();
    let content = br#"{"body":"AP8h","payload":"AP8h","payload_encoding":"base64"}"#;
    let row = router.row_from_message(content).unwrap();
    assert_eq!(row.value(0), Value::Binary(b"\x00\xff!"));
    assert_eq!(row.value(1), Value::Text(b"AP8h"));
}

#[test]
fn a_null_encoding_is_none_and_a_null_payload_stays_null() {
    let row = read(r#"{"payload":"AP8h","payload_encoding":null}"#).unwrap();
    assert_eq!(cell(&row, "payload"), (type_oid::TEXT, Some("AP8h".into())));
    let row = read(r#"{"payload":null,"payload_encoding":"base64"}"#).unwrap();
    assert_eq!(cell(&row, "payload"), (type_oid::BYTEA, None));
}

#[test]
fn a_payload_that_is_not_what_its_encoding_says_is_an_error() {
    for payload in ["\"AP8\"", "\"AP8h\\n\"", "\"-_-_\"", "{}", "7"] {
        let content = format!(r#"{{"payload":{payload},"payload_encoding":"base64"}}"#);
        let expected = (Some("payload".to_owned()), RouteErrorKind::MalformedBase64);
        assert_eq!(refused(&content), expected, "{payload}");
    }
    for encoding in ["\"hex\"", "\"BASE64\"", "1", "true"] {
        let content = format!(r#"{{"payload":"AP8h","payload_encoding":{encoding}}}"#);
        let column = Some("payload_encoding".to_owned());
        assert_eq!(refused(&content), (column, RouteErrorKind::UnknownPayloadEncoding));
    }
}

#[test]
fn content_that_is_no_json_object_is_an_error_that_shows_none_of_it() {
    for content in ["", "null", "[]", "\"secret\"", "{\"a\":}", "{\"a\":1}x", "{'a':1}", "{"] {
        let expected = (None, RouteErrorKind::NotAnObject { len: content.len() });
        assert_eq!(refused(content), expected, "{content}");
        assert!(!read(content).unwrap_err().to_string().contains("secret"));
    }
    let not_utf8 = router(&[]).row_from_message(b"{\"a\":\"\xff\"}").unwrap_err();
    assert_eq!(*not_utf8.kind(), RouteErrorKind::NotAnObject { len: 9 });
}

#[test]
fn a_member_that_occurs_twice_is_an_error() {
    let expected = (Some("a".to_owned()), RouteErrorKind::DuplicateMember);
    assert_eq!(refused(r#"{"a":1,"b":2,"\u0061":1}"#), expected);
}

#[test]
fn half_a_surrogate_pair_is_an_error() {
    let (column, kind) = refused(r#"{"a":"\ud800"}"#);
    assert_eq!((column.as_deref(), kind), (Some("a"), RouteErrorKind::MalformedString));
}

#[test]
fn depth_and_number_of_members_are_no_way_to_exhaust_the_process() {
    let deep = format!("{{\"payload\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(cell(&read(&deep).unwrap(), "payload").1.unwrap().len(), 200_000);
    let members: Vec<String> = (0..1601).map(|index| format!("\"{index}\":0")).collect();
    let (_, kind) = refused(&format!("{{{}}}", members.join(",")));
    assert_eq!(kind, RouteErrorKind::TooManyMembers { max_members: 1600 });
}

#[test]
fn messages_of_one_shape_share_their_relation() {
    let mut router = router(&[]);
    let mut relation =
        |content: &str| Arc::clone(router.row_from_message(content.as_bytes()).unwrap().relation());
    let first = relation(r#"{"a":1,"b":"x"}"#);
    assert!(Arc::ptr_eq(&first, &relation(r#"{"a":2,"b":"y"}"#)));
    assert!(!Arc::ptr_eq(&first, &relation(r#"{"a":"2","b":"y"}"#)));
    assert!(!Arc::ptr_eq(&first, &relation(r#"{"a":1}"#)));
    assert!(!Arc::ptr_eq(&first, &relation(r#"{"a":1,"b":"x","c":1}"#)));
    for index in 0..100 {
        relation(&format!("{{\"m{index}\":1}}"));
    }
    assert!(!Arc::ptr_eq(&first, &relation(r#"{"a":1,"b":"x"}"#)), "the cache is bounded");
}

#[test]
fn a_number_may_be_a_key() {
    let mut router = router(&[("table.fields.additional.placement", "n:envelope")]);
    let content = br#"{"id":1,"aggregatetype":"o","aggregateid":42,"payload":null,"n":1.5}"#;
    let row = router.row_from_message(content).unwrap();
    let Routed::Record(record) = router.route(&RowChange::insert(row)).unwrap() else {
        panic!("a record")
    };
    let key = record.key.as_ref().unwrap();
    assert_eq!((key.type_oid, text(key)), (type_oid::INT4, Some("42")));
    let RecordValue::Envelope(members) = &record.value else { panic!("an envelope") };
    assert_eq!(text(&members[1].field), Some("1.5"));
}
