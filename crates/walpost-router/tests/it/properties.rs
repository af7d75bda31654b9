//! For all rows, messages and configurations.

use proptest::{collection::vec, prelude::*};
use walpost_event::{Bytes, Row, RowChange};
use walpost_router::{Routed, Router, RouterConfig};

use crate::fixture::{USER, relation, router};

const KEYS: [&str; 12] = [
    "table.field.event.id",
    "table.field.event.key",
    "table.field.event.payload",
    "table.field.event.timestamp",
    "table.fields.additional.placement",
    "table.field.additional.missing",
    "table.op.invalid.behavior",
    "route.by.field",
    "route.topic.regex",
    "route.topic.replacement",
    "route.tombstone.on.empty.payload",
    "table.expand.json.payload",
];

proptest! {
    #[test]
    fn any_bytes_of_any_type_are_routed_or_refused(
        cells in vec((0_u8..4, vec(any::<u8>(), 0..20)), 6),
        oids in vec(proptest::sample::select(vec![16, 17, 20, 23, 25, 114, 1114, 1184, 2950, 3802]), 6),
    ) {
        let names = USER.iter().map(|cell| cell.0).chain(["extra"]);
        let buffer: Vec<u8> = cells.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let mut row = Row::builder(relation(names.zip(oids)), Bytes::from(buffer));
        let mut start = 0;
        for (kind, bytes) in &cells {
            match kind {
                0 => row.push_null(),
                1 => row.push_unchanged(),
                2 => row.push_text(start, bytes.len()),
                _ => row.push_binary(start, bytes.len()),
            }
            start += bytes.len();
        }
        let change = RowChange::insert(row.finish());
        for placement in ["extra:header", "extra:envelope", "extra:partition"] {
            let mut router = router(&[
                ("table.fields.additional.placement", placement),
                ("table.field.event.timestamp", "extra"),
            ]);
            let _ = router.route(&change);
            let _ = router.identity(&change.row);
        }
        let _ = router(&[]).route(&change);
    }

    #[test]
    fn any_content_of_a_message_is_a_row_or_refused(
        raw in vec(any::<u8>(), 0..60), json in "[{}\\[\\]\":,a-c0-9 .\\\\u]{0,60}",
    ) {
        let _ = router(&[]).row_from_message(&raw);
        let _ = router(&[]).row_from_message(json.as_bytes());
    }

    #[test]
    fn any_configuration_is_taken_or_refused(
        properties in vec((proptest::sample::select(KEYS.to_vec()), any::<String>()), 0..4),
        value in any::<String>(),
    ) {
        if let Ok(mut router) =
            RouterConfig::from_properties(properties).and_then(Router::new)
        {
            let row = Row::from_text(
                relation(USER.iter().map(|cell| (cell.0, 25))),
                USER.iter().map(|_| Some(&value)),
            );
            let _ = router.route(&RowChange::insert(row));
        }
    }

    #[test]
    fn any_pattern_and_replacement_route_any_value_or_are_refused(
        regex in "[a-c.*+?(){}<>|\\[\\]^$\\\\\\-&0-9,:=!iU]{0,16}",
        replacement in "[a-c${}\\\\0-9]{0,12}",
        value in "[a-cA-C\n]{0,12}",
    ) {
        let properties = [("route.topic.regex", regex), ("route.topic.replacement", replacement)];
        if let Ok(mut router) =
            RouterConfig::from_properties(properties).and_then(Router::new)
        {
            let row = Row::from_text(
                relation(USER.iter().map(|cell| (cell.0, 25))),
                USER.iter().map(|_| Some(&value)),
            );
            let routed = router.route(&RowChange::insert(row));
            prop_assert!(matches!(routed, Ok(Routed::Record(_))));
        }
    }
}
