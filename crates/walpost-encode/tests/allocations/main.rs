//! What a record costs the allocator once its table and its schemas are known:
//! limits that hold, not figures that were measured once.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use walpost_encode::connect::{
    ConnectEncoding, Converter, Converters, ExpandOptions, HeaderConverter, JsonConverter,
    JsonConverterOptions, RowShape, ShapeOptions, Typing, TypingOptions,
};
use walpost_event::{Column, Message, Record, Relation, ReplicaIdentity, Row, RowChange, type_oid};
use walpost_router::{Routed, Router, RouterConfig};

const PAYLOAD: &str = r#"{"id": 1, "customer": "c-1", "lines": [{"sku": "s", "count": 2}]}"#;

struct Rig {
    record: Record,
    row: Row,
    shape: RowShape,
    encoding: ConnectEncoding,
}

impl Rig {
    fn new(placement: Option<&str>, value: Converter, expand: bool) -> Self {
        let text = type_oid::TEXT;
        let columns = [
            ("id", type_oid::UUID),
            ("aggregatetype", text),
            ("aggregateid", text),
            ("type", text),
            ("payload", type_oid::JSONB),
        ];
        let column = |(name, type_oid): (&str, u32)| Column {
            name: name.into(),
            type_oid,
            type_modifier: -1,
            is_key: false,
        };
        let relation = Arc::new(Relation {
            oid: 1,
            schema: "public".into(),
            name: "outbox".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: columns.into_iter().map(column).collect(),
        });
        let values = ["59a42efd-b015-44a9-9dde-cb36d9002425", "order", "o-1", "Placed", PAYLOAD];
        let row = Row::from_text(Arc::clone(&relation), values.map(Some));
        let config = RouterConfig {
            additional_placement: placement.map(str::to_owned),
            ..RouterConfig::default()
        };
        let routed = Router::new(config).unwrap().route(&RowChange::insert(row.clone())).unwrap();
        let Routed::Record(record) = routed else { panic!("an insert is an event") };
        let options = TypingOptions {
            expand: expand.then(ExpandOptions::default),
            ..TypingOptions::default()
        };
        let (key, header) = (Converter::String, HeaderConverter::Simple);
        let encoding = ConnectEncoding {
            typing: Typing::new(options),
            converters: Converters { key, value, header },
        };
        let shape = RowShape::new(&relation, &[], |_| None, &ShapeOptions::default());
        Self { record, row, shape, encoding }
    }

    fn encode(&mut self) -> Message {
        self.encoding.encode(&self.record, &self.row, &self.shape).unwrap()
    }

    /// Of one record after others.
    fn cost(&mut self) -> AllocationInfo {
        for _ in 0..3 {
            self.encode();
        }
        let mut size_bytes = 0;
        let cost = measure(|| size_bytes = self.encode().size_bytes());
        assert!(size_bytes > 40, "a message of {size_bytes} bytes");
        cost
    }
}

fn json(schemas: bool) -> Converter {
    let options = JsonConverterOptions { schemas, ..JsonConverterOptions::default() };
    Converter::Json(JsonConverter::new(options))
}

#[test]
fn a_record_allocates_its_message_and_no_more() {
    let placed = Some("type:envelope,id:header");
    let cases = [
        ("text", Rig::new(None, Converter::String, false), 0),
        ("json", Rig::new(None, json(false), false), 2),
        ("json with schemas", Rig::new(None, json(true), false), 2),
        // Fields and values of the envelope.
        ("envelope", Rig::new(placed, json(true), false), 4),
    ];
    for (name, mut rig, limit) in cases {
        let cost = rig.cost();
        assert!(cost.count_total <= limit, "{name}: {} allocations", cost.count_total);
        assert_eq!(cost.count_current, 0, "{name}: a record leaves nothing behind");
    }
}

/// The tree, the inferred schema, the values.
#[test]
fn an_expanded_payload_allocates_in_proportion_to_its_members() {
    let cost = Rig::new(None, json(true), true).cost();
    assert!(cost.count_total <= 40, "{} allocations", cost.count_total);
    assert_eq!(cost.count_current, 0, "a record leaves nothing behind");
}

#[cfg(feature = "avro")]
#[test]
fn avro_allocates_its_message_and_no_more() {
    use walpost_encode::{
        Unencoded,
        avro::{AvroConverter, AvroOptions},
    };
    for (placement, limit) in [(None, 2), (Some("type:envelope"), 4)] {
        let avro = Converter::Avro(AvroConverter::new(AvroOptions::default(), false));
        let mut rig = Rig::new(placement, avro, false);
        let asked = rig.encoding.encode(&rig.record, &rig.row, &rig.shape);
        let Err(Unencoded::Ask { part, schema }) = asked else { panic!("{asked:?}") };
        rig.encoding.converters.learn(&part, &schema, 7);
        let cost = rig.cost();
        assert!(cost.count_total <= limit, "{} allocations", cost.count_total);
        assert_eq!(cost.count_current, 0, "a record leaves nothing behind");
    }
}
