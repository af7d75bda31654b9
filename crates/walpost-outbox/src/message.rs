use std::fmt::Write as _;

use crate::{
    Error, EventId, NewEvent,
    payload::{Payload, json_string},
};

/// Members that no further column may be called.
const RESERVED: [&str; 11] = [
    "id",
    "aggregatetype",
    "aggregateid",
    "type",
    "payload",
    "payload_encoding",
    "headers",
    "traceparent",
    "tracestate",
    "idempotency_key",
    "created_at",
];

/// The JSON object of an emitted event, in two parts: what is before the time
/// of `created_at`, which the server puts in, and what is behind it.
pub(crate) fn message(event: &NewEvent, id: &EventId) -> Result<(String, String), Error> {
    event.check()?;
    if event.idempotency_key.is_some() {
        return Err(Error::KeyWithoutTable);
    }
    let mut head = match id {
        EventId::BigInt(id) => format!("{{\"id\":{id}"),
        EventId::Uuid(_) | EventId::Text(_) => {
            format!("{{\"id\":{}", json_string(&id.to_string()))
        }
    };
    member(&mut head, "aggregatetype", &event.aggregate_type);
    member(&mut head, "aggregateid", &event.aggregate_id);
    member(&mut head, "type", &event.event_type);
    if !event.headers.is_empty() {
        write!(head, ",\"headers\":{}", headers(&event.headers)).expect("a string takes all");
    }
    for (name, value) in [("traceparent", &event.traceparent), ("tracestate", &event.tracestate)] {
        if let Some(value) = value {
            member(&mut head, name, value);
        }
    }
    for (name, value) in &event.columns {
        if RESERVED.contains(&name.as_str()) {
            return Err(Error::ColumnTwice { column: name.clone() });
        }
        member(&mut head, name, value);
    }
    head.push_str(",\"created_at\":\"");
    Ok((head, tail(&event.payload)))
}

/// Headers as a JSON object of strings.
pub(crate) fn headers(headers: &[(String, String)]) -> String {
    let members: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{}:{}", json_string(name), json_string(value)))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn tail(payload: &Payload) -> String {
    match payload {
        Payload::None => "\",\"payload\":null}".to_owned(),
        Payload::Json(json) => format!("\",\"payload\":{json}}}"),
        Payload::Text(text) => format!("\",\"payload\":{}}}", json_string(text)),
        Payload::Bytes(bytes) => {
            format!("\",\"payload_encoding\":\"base64\",\"payload\":\"{}\"}}", base64(bytes))
        }
    }
}

fn member(object: &mut String, name: &str, value: &str) {
    write!(object, ",{}:{}", json_string(name), json_string(value)).expect("a string takes all");
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { ALPHABET[index as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event() -> NewEvent {
        NewEvent::new("order", "a\"1", "placed")
    }

    fn whole(event: &NewEvent, id: impl Into<EventId>) -> String {
        let (head, tail) = message(event, &id.into()).unwrap();
        format!("{head}T{tail}")
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn a_message_is_one_object_with_the_names_of_the_columns() {
        let event = event()
            .raw_json(r#"{"b": 1.0, "a": 2}"#)
            .unwrap()
            .header("x\"", "y\n")
            .traceparent("00-1")
            .tracestate("v=1")
            .column("tenant", "acme");
        let text = whole(&event, 42);
        assert!(text.ends_with(r#""payload":{"b": 1.0, "a": 2}}"#), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            json!({
                "id": 42, "aggregatetype": "order", "aggregateid": "a\"1", "type": "placed",
                "headers": {"x\"": "y\n"}, "traceparent": "00-1", "tracestate": "v=1",
                "tenant": "acme", "created_at": "T", "payload": {"b": 1.0, "a": 2},
            })
        );
    }

    #[test]
    fn each_kind_of_payload_has_its_form() {
        let payload = |event: NewEvent| -> Value {
            let mut value: Value = serde_json::from_str(&whole(&event, "x")).unwrap();
            json!([value["payload"].take(), value["payload_encoding"].take()])
        };
        assert_eq!(payload(event()), json!([null, null]));
        assert_eq!(payload(event().text("a\"}")), json!(["a\"}", null]));
        assert_eq!(payload(event().bytes([0, 255])), json!(["AP8=", "base64"]));
        assert_eq!(payload(event().json("a").unwrap()), json!(["a", null]));
    }

    #[test]
    fn a_key_and_a_reserved_member_are_refused() {
        let error = message(&event().idempotency_key("k"), &EventId::new()).unwrap_err();
        assert!(matches!(error, Error::KeyWithoutTable), "{error:?}");
        for name in RESERVED {
            let error = message(&event().column(name, "x"), &EventId::new()).unwrap_err();
            assert!(matches!(error, Error::ColumnTwice { .. }), "{error:?}");
        }
    }
}
