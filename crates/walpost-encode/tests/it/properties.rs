use proptest::{collection::vec, prelude::*};
use walpost_encode::Encoder;
use walpost_event::{Field, NamedField, RecordValue, type_oid};

use crate::fixture::{DEBEZIUM, WALPOST, value};

fn any_field() -> impl Strategy<Value = Field> {
    let oids = vec![16, 17, 20, 21, 23, 25, 26, 700, 701, 1700, 2950, 5069, 90_001];
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Some),
        "-?[0-9]{0,5}(\\.[0-9]{0,5})?(e[+-]?[0-9]{0,4})?".prop_map(|text| Some(text.into_bytes())),
        Just(None),
    ];
    (proptest::sample::select(oids), bytes).prop_map(|(type_oid, bytes)| Field {
        column: None,
        type_oid,
        type_modifier: -1,
        bytes: bytes.map(Into::into),
    })
}

proptest! {
    #[test]
    fn any_text_reads_back_from_json_as_it_was(text in any::<String>()) {
        let field = Field {
            column: None,
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            bytes: Some(text.clone().into()),
        };
        let written = value(DEBEZIUM, RecordValue::Payload(field)).unwrap().unwrap();
        prop_assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), text);
    }

    #[test]
    fn any_envelope_is_valid_json_or_refused(
        members in vec((any::<String>(), any_field()), 0..5),
    ) {
        for encoder in [DEBEZIUM, WALPOST] {
            let members = members
                .iter()
                .map(|(name, field)| NamedField { name: name.as_str().into(), field: field.clone() });
            if let Ok(Some(json)) = value(encoder, RecordValue::Envelope(members.collect())) {
                let parsed: Result<Box<serde_json::value::RawValue>, _> =
                    serde_json::from_slice(&json);
                prop_assert!(parsed.is_ok(), "{:?}", json);
            }
        }
    }

    #[test]
    fn any_payload_is_written_or_refused(field in any_field()) {
        for encoder in [Encoder::Raw, DEBEZIUM, WALPOST] {
            let _ = value(encoder, RecordValue::Payload(field.clone()));
        }
    }

    #[test]
    fn a_floating_point_number_in_json_is_the_same_number(number in any::<f64>()) {
        prop_assume!(number.is_finite());
        let field = Field {
            column: None,
            type_oid: type_oid::FLOAT8,
            type_modifier: -1,
            bytes: Some(format!("{number:e}").into()),
        };
        let written = value(DEBEZIUM, RecordValue::Payload(field)).unwrap().unwrap();
        let text = std::str::from_utf8(&written).unwrap();
        prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits());
        prop_assert!(serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok());
    }
}
