//! What differs from run to run, and by which rule it is compared: everything
//! that is not named here has to be equal.

use std::ops::RangeInclusive;

use walpost_testkit::ReadRecord;

/// One for each start of a task: any UUID.
const RUN_ID: &str = "__debezium.context.runId";
const OF_A_RUN: &[u8] = b"(a UUID)";
/// Members that say when the connector handled a change, with how many of their
/// units a millisecond has.
const CLOCKS: [(&str, i64); 3] = [("ts_ms", 1), ("ts_us", 1_000), ("ts_ns", 1_000_000)];
const NOW: &str = "(now)";
/// Of Debezium's own records, which pass the router by: heartbeats, logical
/// messages, and boundaries of transactions.
const OWN_TOPICS: [&str; 3] = ["__debezium-heartbeat.", ".message", ".transaction"];

/// The record with a fixed text for everything that is as it should be and
/// differs from run to run, in `window` (milliseconds since 1970).
///
/// - The header `runId`, if it is a UUID.
/// - The timestamp, if it is a time of this run: columns of cases name others.
/// - `ts_ms`, `ts_us` and `ts_ns` of Debezium's own records, likewise.
///
/// The offset is none of a record's own.
pub(super) fn steady(
    topic: &str,
    record: &ReadRecord,
    window: &RangeInclusive<i64>,
) -> ReadRecord {
    let mut record = ReadRecord { offset: 0, ..record.clone() };
    for (name, value) in &mut record.headers {
        if name == RUN_ID && value.as_deref().is_some_and(is_uuid) {
            *value = Some(OF_A_RUN.to_vec());
        }
    }
    if record.timestamp_ms.is_some_and(|at| window.contains(&at)) {
        record.timestamp_ms = None;
    }
    if OWN_TOPICS.iter().any(|own| topic.starts_with(own) || topic.ends_with(own)) {
        let text = record.value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        record.value = match text {
            Some(text) => Some(without_clocks(text, window).into()),
            None => record.value,
        };
    }
    record
}

/// In lower case, as Java prints it.
fn is_uuid(value: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    value.len() == 36
        && value.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => is_hex(byte),
        })
}

/// In JSON (`"ts_ms":1`) and in Java's text of a structure (`ts_ms=1`).
fn without_clocks(text: &str, window: &RangeInclusive<i64>) -> String {
    let mut text = text.to_owned();
    for (name, units) in CLOCKS {
        for start in [format!("\"{name}\":"), format!("{name}=")] {
            let mut done = 0;
            while let Some(found) = text[done..].find(&start) {
                let from = done + found + start.len();
                let digits = text[from..].bytes().take_while(u8::is_ascii_digit).count();
                let number = text[from..from + digits].parse::<i64>().ok();
                if number.is_some_and(|number| window.contains(&(number / units))) {
                    text.replace_range(from..from + digits, NOW);
                }
                done = from;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: RangeInclusive<i64> = 1_000..=2_000;

    fn record(value: &str, timestamp_ms: i64) -> ReadRecord {
        ReadRecord {
            partition: 0,
            offset: 9,
            key: None,
            value: Some(value.into()),
            headers: vec![("id".to_owned(), Some(b"7".to_vec()))],
            timestamp_ms: Some(timestamp_ms),
        }
    }

    #[test]
    fn a_time_of_the_run_is_as_good_as_another_and_no_other_is() {
        let [one, other, past] =
            [1_000, 2_000, 999].map(|at| steady("t", &record("v", at), &WINDOW));
        assert_eq!(one, other);
        assert_ne!(one, past);
    }

    #[test]
    fn only_a_uuid_is_a_run_id() {
        let with = |value: &str| {
            let mut record = record("v", 1_500);
            record.headers.push((RUN_ID.to_owned(), Some(value.into())));
            steady("t", &record, &WINDOW)
        };
        let one = with("59a42efd-b015-44a9-9dde-cb36d9002425");
        assert_eq!(one, with("00000000-0000-4000-8000-000000000001"));
        assert_ne!(one, with("59a42efd-b015-44a9-9dde"));
        assert_ne!(one, with(""));
    }

    #[test]
    fn clocks_are_looked_for_in_debeziums_own_records_alone() {
        let value = |topic: &str, text: &str| {
            String::from_utf8(steady(topic, &record(text, 0), &WINDOW).value.unwrap()).unwrap()
        };
        let text = r#"{"ts_ms":1500,"ts_us":1500000,"ts_ns":3,"a_ts_ms":1}"#;
        let steady = r#"{"ts_ms":(now),"ts_us":(now),"ts_ns":3,"a_ts_ms":1}"#;
        assert_eq!(value("p.message", text), steady);
        assert_eq!(value("outbox.event.message", text), steady);
        assert_eq!(value("outbox.event.Order", text), text);
        assert_eq!(value("__debezium-heartbeat.p", "Struct{ts_ms=1500}"), "Struct{ts_ms=(now)}");
    }
}
