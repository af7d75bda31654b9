//! Rules of Debezium's Outbox Event Router, one by one. Vectors are those that
//! its real jars gave.

use std::sync::Arc;

use walpost_event::{Bytes, Operation, RecordValue, Row, RowChange, type_oid};
use walpost_router::{NameAdjustment, RouteErrorKind, Routed, Router, RouterConfig, SkipReason};

use crate::fixture::{
    ID, USER, headers, payload, refusal, refuse, relation, route, router, row, skip, text, user,
};

const PLACEMENT: &str = "table.fields.additional.placement";
const MISSING: &str = "table.field.additional.missing";
const TIMESTAMP: &str = "table.field.event.timestamp";
const TOMBSTONE: &str = "route.tombstone.on.empty.payload";

#[test]
fn defaults_give_topic_key_payload_and_id_header() {
    let record = route(&[], user(&[]));
    assert_eq!(&*record.topic, "outbox.event.User");
    assert_eq!(record.partition, None);
    let key = record.key.as_ref().unwrap();
    assert_eq!((key.type_oid, text(key)), (type_oid::VARCHAR, Some("10711fa5")));
    assert_eq!(payload(&record).type_oid, type_oid::JSONB);
    assert_eq!(text(payload(&record)), Some("{\"a\": 1}"));
    assert_eq!(headers(&record), [("id", Some(ID))]);
    assert_eq!(record.timestamp_ms, None);
    assert_eq!(record.identity.event_id.as_deref(), Some(ID.as_bytes()));
    assert_eq!(record.identity.aggregate_type.as_deref(), Some(&b"User"[..]));
    assert_eq!(record.identity.aggregate_id.as_deref(), Some(&b"10711fa5"[..]));
}

#[test]
fn columns_may_have_other_names() {
    let record = route(
        &[
            ("table.field.event.id", "event_id"),
            ("table.field.event.key", "order_id"),
            ("table.field.event.payload", "body"),
            ("table.field.event.type", "kind"),
            ("route.by.field", "topic"),
        ],
        row(&[
            ("body", type_oid::TEXT, Some("b")),
            ("topic", type_oid::TEXT, Some("orders")),
            ("order_id", type_oid::INT8, Some("42")),
            ("event_id", type_oid::TEXT, Some("e1")),
        ]),
    );
    assert_eq!(&*record.topic, "outbox.event.orders");
    let key = record.key.as_ref().unwrap();
    assert_eq!((key.type_oid, text(key)), (type_oid::INT8, Some("42")));
    assert_eq!(text(payload(&record)), Some("b"));
    assert_eq!(headers(&record), [("id", Some("e1"))]);
}

#[test]
fn a_column_name_is_compared_exactly() {
    let (column, kind) = refusal(&[("table.field.event.id", "ID")], user(&[]));
    assert_eq!(column, "ID");
    assert_eq!(kind, RouteErrorKind::MissingColumn { key: "table.field.event.id" });
}

#[test]
fn the_topic_goes_through_regex_and_replacement() {
    let cases = [
        ("(?<routedByValue>Order.*)", "outbox.event.${routedByValue}", "User"),
        ("(.)(.*)", "x.$2.$1", "x.ser.U"),
        ("(?<n>U)ser", r"${n}\$1", "U$1"),
    ];
    for (regex, replacement, expected) in cases {
        let properties = [("route.topic.regex", regex), ("route.topic.replacement", replacement)];
        assert_eq!(&*route(&properties, user(&[])).topic, expected);
    }
    let empty = user(&[("aggregatetype", type_oid::TEXT, Some(""))]);
    assert_eq!(&*route(&[], empty).topic, "outbox.event.");
}

#[test]
fn a_null_route_value_is_an_error_that_names_table_and_column() {
    let error = refuse(&[], user(&[("aggregatetype", type_oid::VARCHAR, None)]));
    assert_eq!(*error.kind(), RouteErrorKind::NullRouteValue);
    assert_eq!(
        error.to_string(),
        "routing a row of public.outbox failed at column aggregatetype: \
         the value that names the topic is NULL"
    );
}

#[test]
fn every_missing_column_is_named_with_its_key() {
    let cases = [
        ("id", "table.field.event.id"),
        ("aggregateid", "table.field.event.key"),
        ("payload", "table.field.event.payload"),
        ("aggregatetype", "route.by.field"),
    ];
    for (name, key) in cases {
        let cells: Vec<_> = USER.into_iter().filter(|cell| cell.0 != name).collect();
        let expected = (name.to_owned(), RouteErrorKind::MissingColumn { key });
        assert_eq!(refusal(&[], row(&cells)), expected);
    }
    let cells: Vec<_> = USER.into_iter().filter(|cell| cell.0 != "type").collect();
    route(&[], row(&cells));
    let expected = ("at".to_owned(), RouteErrorKind::MissingColumn { key: TIMESTAMP });
    assert_eq!(refusal(&[(TIMESTAMP, "at")], user(&[])), expected);
}

#[test]
fn a_null_key_is_no_key_and_a_null_id_is_a_null_header() {
    let record = route(&[], user(&[("aggregateid", type_oid::TEXT, None), ("id", 25, None)]));
    assert!(record.key.is_none());
    assert_eq!(record.identity.aggregate_id, None);
    assert_eq!(headers(&record), [("id", None)]);
}

#[test]
fn placed_headers_follow_the_id_in_the_order_of_the_configuration() {
    let record = route(
        &[(PLACEMENT, "type:header:eventType, n:header, id:header, x:HEADER")],
        user(&[("n", type_oid::INT4, None), ("x", type_oid::BOOL, Some("t"))]),
    );
    let expected = [
        ("id", Some(ID)),
        ("eventType", Some("UserCreated")),
        ("n", None),
        ("id", Some(ID)),
        ("x", Some("t")),
    ];
    assert_eq!(headers(&record), expected);
    assert_eq!(record.headers[4].field.type_oid, type_oid::BOOL);
    assert_eq!(text(payload(&record)), Some("{\"a\": 1}"));
}

#[test]
fn an_envelope_starts_with_the_payload() {
    let record = route(
        &[
            (PLACEMENT, "type:envelope:eventType,body:envelope"),
            ("table.field.event.payload", "body"),
        ],
        user(&[("body", type_oid::TEXT, None)]),
    );
    let RecordValue::Envelope(members) = &record.value else { panic!("an envelope") };
    let members: Vec<_> = members.iter().map(|m| (&*m.name, text(&m.field))).collect();
    assert_eq!(members, [("payload", None), ("eventType", Some("UserCreated")), ("body", None)]);
}

#[test]
fn a_missing_placed_column_is_an_error_or_left_out() {
    for target in ["header", "envelope", "partition"] {
        let entry = format!("nope:{target}");
        let expected = ("nope".to_owned(), RouteErrorKind::MissingColumn { key: PLACEMENT });
        assert_eq!(refusal(&[(PLACEMENT, &entry)], user(&[])), expected);
        for ignore in [(MISSING, "IGNORE"), ("table.fields.additional.error.on.missing", "false")] {
            let record = route(&[(PLACEMENT, &entry), ignore], user(&[]));
            assert_eq!(headers(&record).len(), 1);
            assert_eq!(record.partition, None);
            let is_envelope = matches!(&record.value, RecordValue::Envelope(m) if m.len() == 1);
            assert_eq!(is_envelope, target == "envelope");
        }
    }
}

#[test]
fn a_partition_comes_from_an_integer_column() {
    let place = |list: &'static str, value| {
        let others = [("p", type_oid::INT4, value), ("q", type_oid::INT4, Some("9"))];
        (route(&[(PLACEMENT, list)], user(&others))).partition
    };
    assert_eq!(place("p:partition", Some("7")), Some(7));
    assert_eq!(place("p:partition:alias", None), None);
    assert_eq!(place("q:partition,p:partition", Some("7")), Some(7));
    assert_eq!(place("p:partition,q:partition", Some("7")), Some(9));
}

#[test]
fn a_partition_of_another_type_or_below_zero_is_an_error() {
    let refused = |oid, value| {
        let (column, kind) =
            refusal(&[(PLACEMENT, "p:partition")], user(&[("p", oid, Some(value))]));
        assert_eq!(column, "p");
        kind
    };
    for type_oid in [type_oid::INT2, type_oid::INT8, type_oid::TEXT] {
        assert_eq!(refused(type_oid, "1"), RouteErrorKind::PartitionType { type_oid });
    }
    for value in ["-1", "x", "2147483648"] {
        assert_eq!(refused(type_oid::INT4, value), RouteErrorKind::InvalidPartition);
    }
}

#[test]
fn a_timestamp_column_gives_milliseconds_truncated_toward_zero() {
    let timestamp =
        |oid, value| route(&[(TIMESTAMP, "at")], user(&[("at", oid, value)])).timestamp_ms;
    let micros = Some("2019-03-24 20:46:19.000999");
    assert_eq!(timestamp(type_oid::TIMESTAMP, micros), Some(1_553_460_379_000));
    let millis = Some("2019-03-24 20:46:19.777");
    assert_eq!(timestamp(type_oid::TIMESTAMP, millis), Some(1_553_460_379_777));
    let zoned = Some("2019-03-24 21:46:19.777+01");
    assert_eq!(timestamp(type_oid::TIMESTAMPTZ, zoned), Some(1_553_460_379_777));
    assert_eq!(timestamp(type_oid::TIMESTAMP, None), None);
    assert_eq!(timestamp(type_oid::TIMESTAMP, Some("1969-12-31 23:59:59.999001")), Some(0));
    assert_eq!(timestamp(type_oid::TIMESTAMP, Some("1969-12-31 23:59:59.999")), None);
}

#[test]
fn a_binary_timestamp_is_read_too() {
    let record = |micros: i64| {
        let shape = USER.iter().map(|(name, oid, _)| (*name, *oid));
        let relation = relation(shape.chain([("at", type_oid::TIMESTAMPTZ)]));
        let mut buffer: Vec<u8> = b"User".to_vec();
        buffer.extend_from_slice(&micros.to_be_bytes());
        let mut row = Row::builder(relation, buffer.into());
        row.push_null();
        row.push_text(0, 4);
        row.push_null();
        row.push_null();
        row.push_null();
        row.push_binary(4, 8);
        router(&[(TIMESTAMP, "at")]).route(&RowChange::insert(row.finish()))
    };
    let Routed::Record(routed) = record(1_999).unwrap() else { panic!("a record") };
    assert_eq!(routed.timestamp_ms, Some(946_684_800_001));
    // PostgreSQL's last day.
    let Routed::Record(routed) = record(9_223_371_331_199_999_999).unwrap() else {
        panic!("a record")
    };
    assert_eq!(routed.timestamp_ms, Some(9_224_318_015_999_999));
    for infinite in [i64::MIN, i64::MAX] {
        assert_eq!(*record(infinite).unwrap_err().kind(), RouteErrorKind::TimestampOutOfRange);
    }
}

#[test]
fn a_timestamp_that_no_record_can_carry_is_an_error() {
    let refused = |oid, value| refusal(&[(TIMESTAMP, "at")], user(&[("at", oid, Some(value))])).1;
    for type_oid in [type_oid::INT8, type_oid::DATE, type_oid::TIME, type_oid::TEXT] {
        assert_eq!(refused(type_oid, "1"), RouteErrorKind::TimestampType { type_oid });
    }
    for text in ["infinity", "-infinity", "1969-12-31 23:59:58", "0044-03-15 12:00:00 BC"] {
        assert_eq!(refused(type_oid::TIMESTAMP, text), RouteErrorKind::TimestampOutOfRange);
    }
    let last = Some("294276-12-31 23:59:59.999999");
    let routed = route(&[(TIMESTAMP, "at")], user(&[("at", type_oid::TIMESTAMP, last)]));
    assert_eq!(routed.timestamp_ms, Some(9_224_318_015_999_999));
    let german = "24.03.2019 20:46:19";
    assert_eq!(refused(type_oid::TIMESTAMP, german), RouteErrorKind::MalformedTimestamp);
}

#[test]
fn a_blank_payload_gives_a_tombstone_only_if_so_configured() {
    for (oid, value, is_blank) in [
        (type_oid::TEXT, None, true),
        (type_oid::TEXT, Some(""), true),
        (type_oid::TEXT, Some(" \t\r\n\x01"), true),
        (type_oid::TEXT, Some("\u{a0}"), false),
        (type_oid::JSONB, Some("\"\""), false),
        (type_oid::BYTEA, Some("\\x"), false),
        (type_oid::BYTEA, None, true),
    ] {
        let row = || user(&[("payload", oid, value)]);
        for placement in ["type:header", "type:envelope"] {
            let record = route(&[(TOMBSTONE, "true"), (PLACEMENT, placement)], row());
            let is_tombstone = matches!(record.value, RecordValue::Tombstone);
            assert_eq!(is_tombstone, is_blank, "{value:?} with {placement}");
        }
        assert_eq!(payload(&route(&[], row())).bytes.is_none(), value.is_none());
    }
}

#[test]
fn an_update_is_skipped_or_refused_as_configured() {
    let update = |behavior| {
        let properties = [("table.op.invalid.behavior", behavior)];
        skip(&properties, Operation::Update).map_err(|error| error.kind().clone())
    };
    assert_eq!(update("warn"), Ok(SkipReason::Updated { log_as_error: false }));
    assert_eq!(update("Error"), Ok(SkipReason::Updated { log_as_error: true }));
    assert_eq!(update("fatal"), Err(RouteErrorKind::UpdatedRow));
    let unset = skip(&[], Operation::Update);
    assert_eq!(unset, Ok(SkipReason::Updated { log_as_error: false }));
}

#[test]
fn a_delete_is_skipped_even_if_updates_are_fatal() {
    let skipped = skip(&[("table.op.invalid.behavior", "fatal")], Operation::Delete);
    assert_eq!(skipped, Ok(SkipReason::Deleted));
}

#[test]
fn bytea_comes_as_its_bytes() {
    let record = route(
        &[(PLACEMENT, "raw:header")],
        user(&[
            ("payload", type_oid::BYTEA, Some("\\x62696e21")),
            ("raw", type_oid::BYTEA, Some("\\x00ff")),
        ]),
    );
    assert_eq!(payload(&record).bytes, Some(Bytes::from_static(b"bin!")));
    assert_eq!(record.headers[1].field.bytes, Some(Bytes::from_static(b"\x00\xff")));
    let escaped = user(&[("payload", type_oid::BYTEA, Some("bin!"))]);
    let expected = ("payload".to_owned(), RouteErrorKind::MalformedBytea { len: 4 });
    assert_eq!(refusal(&[], escaped), expected);
}

#[test]
fn an_unchanged_toasted_value_is_an_error_in_a_needed_column_only() {
    let change = |unchanged: &str| {
        let relation = relation(USER.iter().map(|(name, oid, _)| (*name, *oid)));
        let mut row = Row::builder(relation, Bytes::from_static(b"x"));
        for (name, ..) in USER {
            if name == unchanged { row.push_unchanged() } else { row.push_text(0, 1) }
        }
        RowChange::insert(row.finish())
    };
    for column in ["id", "aggregatetype", "aggregateid", "payload"] {
        let error = router(&[]).route(&change(column)).unwrap_err();
        assert_eq!(*error.kind(), RouteErrorKind::UnchangedValue);
        assert_eq!(error.column(), Some(column));
    }
    assert!(router(&[]).route(&change("type")).is_ok());
}

#[test]
fn values_share_the_row() {
    let row = user(&[]);
    let shared = row.bytes(4).unwrap().as_ptr();
    let record = route(&[], row);
    assert_eq!(payload(&record).bytes.as_ref().unwrap().as_ptr(), shared);
}

#[test]
fn a_table_that_changes_its_shape_is_routed_by_the_new_one() {
    let mut router = router(&[]);
    let mut cells = USER.to_vec();
    for _ in 0..3 {
        let routed = router.route(&RowChange::insert(row(&cells))).unwrap();
        let Routed::Record(record) = routed else { panic!("a record") };
        assert_eq!(headers(&record), [("id", Some(ID))]);
        assert_eq!(&*record.topic, "outbox.event.User");
        cells.rotate_left(1);
    }
}

#[test]
fn a_placement_names_a_column_as_its_name_is_adjusted() {
    let row = || user(&[("event-type", type_oid::TEXT, Some("x")), ("_2", type_oid::TEXT, None)]);
    for (names, placement, missing) in [
        (NameAdjustment::Avro, "event_type:header,_2:header", false),
        (NameAdjustment::Avro, "event-type:header", true),
        (NameAdjustment::AvroUnicode, "event_u002dtype:header,_u005f2:header", false),
        (NameAdjustment::AvroUnicode, "_2:header", true),
        (NameAdjustment::None, "event-type:header,_2:header", false),
        (NameAdjustment::None, "event_type:header", true),
    ] {
        let config = RouterConfig {
            additional_placement: Some(placement.to_owned()),
            field_names: names,
            ..RouterConfig::default()
        };
        let columns: Vec<String> =
            row().relation().columns.iter().map(|column| column.name.to_string()).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        assert_eq!(!config.missing_columns(&columns).is_empty(), missing, "{placement}");
        let routed = Router::new(config).unwrap().route(&RowChange::insert(row()));
        match routed {
            Ok(Routed::Record(record)) if !missing => {
                assert_eq!(record.headers.len(), 1 + placement.split(',').count());
            }
            Err(error) if missing => {
                let kind =
                    RouteErrorKind::MissingColumn { key: "table.fields.additional.placement" };
                assert_eq!(*error.kind(), kind);
            }
            other => panic!("{placement}: {other:?}"),
        }
    }
}

#[test]
fn a_row_that_cannot_be_routed_still_has_an_identity() {
    let router = router(&[]);
    let cells = [("id", type_oid::UUID, Some(ID)), ("aggregateid", type_oid::TEXT, None)];
    let identity = router.identity(&row(&cells));
    assert_eq!(identity.event_id.as_deref(), Some(ID.as_bytes()));
    assert_eq!(identity.aggregate_type, None);
    assert_eq!(identity.aggregate_id, None);

    let cells = [("aggregateid", type_oid::BYTEA, Some("\\x00ff"))];
    let identity = router.identity(&row(&cells));
    assert_eq!(identity.aggregate_id.as_deref(), Some(&b"\\x00ff"[..]));
}

#[test]
fn topics_of_routers_are_shared_between_records() {
    let mut router = router(&[]);
    let mut topic = || match router.route(&RowChange::insert(user(&[]))) {
        Ok(Routed::Record(record)) => record.topic,
        other => panic!("expected a record, found {other:?}"),
    };
    assert!(Arc::ptr_eq(&topic(), &topic()));
}
