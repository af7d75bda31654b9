//! The payload that Standard Webhooks recommends ("Payload structure"): type, time and
//! data in one object, so that what a receiver goes by is signed with the rest. Pure.

use serde_json::{json, value::RawValue};

const DAY_MS: i64 = 86_400_000;

/// `{"type": …, "timestamp": …, "data": …}`, with the payload as it is, byte for byte; no
/// `timestamp` where the event has none.
///
/// # Errors
/// Why the payload cannot stand in it, without contents.
pub(super) fn standard(
    event_type: Option<&str>,
    timestamp_ms: Option<i64>,
    payload: &[u8],
) -> Result<Vec<u8>, String> {
    let event_type = event_type
        .ok_or("it has no type, and its destination's body is \"standard\", which names one")?;
    let text = std::str::from_utf8(payload).ok();
    let data = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    let data = data.ok_or(
        "its payload is no JSON, and its destination's body is \"standard\", which has it as data",
    )?;
    let timestamp = timestamp_ms.map(|ms| format!(",\"timestamp\":\"{}\"", iso_8601(ms)));
    let timestamp = timestamp.unwrap_or_default();
    Ok(format!("{{\"type\":{}{timestamp},\"data\":{}}}", json!(event_type), data.get())
        .into_bytes())
}

/// A moment in UTC, to the millisecond.
fn iso_8601(since_1970_ms: i64) -> String {
    let (days, of_day_ms) = (since_1970_ms.div_euclid(DAY_MS), since_1970_ms.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (of_day_s, ms) = (of_day_ms / 1_000, of_day_ms % 1_000);
    let (hour, minute, second) = (of_day_s / 3_600, of_day_s / 60 % 60, of_day_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The date of a day since 1970. A year begins in March here, so that the day that only
/// some years have is its last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let era_year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * era_year + era_year / 4 - era_year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era_year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_stands_in_it_byte_for_byte() {
        let of = |kind: &str, at, payload: &str| {
            String::from_utf8(standard(Some(kind), at, payload.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!(
            of("invoice.paid", Some(951_782_400_007), r#" {"b": 1.50, "a":[ ]} "#),
            r#"{"type":"invoice.paid","timestamp":"2000-02-29T00:00:00.007Z","data":{"b": 1.50, "a":[ ]}}"#
        );
        assert_eq!(of("a\"b", None, "7"), r#"{"type":"a\"b","data":7}"#);
        assert_eq!(iso_8601(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(iso_8601(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn what_cannot_stand_in_it_says_why_without_contents() {
        let refused = |kind, payload: &[u8]| standard(kind, None, payload).unwrap_err();
        assert!(refused(None, b"{}").contains("no type"));
        for payload in [&b"s3cr3t"[..], b"", b"{} {}", b"\"\xff\""] {
            let refused = refused(Some("a"), payload);
            assert!(refused.contains("no JSON") && !refused.contains("s3cr3t"), "{refused}");
        }
    }
}
