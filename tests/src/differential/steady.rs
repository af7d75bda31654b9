//! What differs from run to run, and by which rule it is compared: everything
//! that is not named here has to be equal.

use std::ops::RangeInclusive;

use walpost_testkit::ReadRecord;

/// One for each start of a task: any UUID.
const RUN_ID: &str = "__debezium.context.runId";
const OF_A_RUN: &str = "(a UUID)";
const UUID_BYTES: usize = 36;
/// Behind all others: where a pipeline that was killed goes on, and whose events
/// they are.
const OWN_HEADERS: [&str; 2] = ["walpost-position", "walpost-source"];
/// What Java prints of an array of bytes, before a number that is drawn.
const ARRAY: &str = "[B@";
const BUFFER: &str = "java.nio.HeapByteBuffer[";
/// Members that say when the connector handled a change, with how many of their
/// units a millisecond has.
const CLOCKS: [(&str, i64); 3] = [("ts_ms", 1), ("ts_us", 1_000), ("ts_ns", 1_000_000)];
const NOW: &str = "(now)";

/// The record with a fixed text for everything that is as it should be and
/// differs from run to run, in `window` (milliseconds since 1970).
///
/// - The UUID in the header `runId`, whatever its converter writes around it.
/// - The number that Java prints of an array of bytes (`[B@7fa1bc67`).
/// - The timestamp, if it is a time of this run: columns of cases name others.
/// - `ts_ms`, `ts_us` and `ts_ns`, likewise, if it is one of Debezium's own records,
///   which pass the router by: heartbeats, messages, boundaries of transactions.
///
/// The last headers may be Walpost's own, which are documented: they are left out.
///
/// The offset is none of a record's own.
pub(super) fn steady(
    record: &ReadRecord,
    is_own: bool,
    window: &RangeInclusive<i64>,
) -> ReadRecord {
    let mut record = ReadRecord { offset: 0, ..record.clone() };
    while record.headers.last().is_some_and(|(name, _)| OWN_HEADERS.contains(&name.as_str())) {
        record.headers.pop();
    }
    for (name, value) in &mut record.headers {
        if name == RUN_ID {
            *value = value.as_deref().map(without_uuid);
        }
    }
    for part in [&mut record.key, &mut record.value] {
        if let Some(text) = part.as_deref().and_then(text) {
            *part = Some(without_identities(text).into());
        }
    }
    if record.timestamp_ms.is_some_and(|at| window.contains(&at)) {
        record.timestamp_ms = None;
    }
    if is_own && let Some(text) = record.value.as_deref().and_then(text) {
        record.value = Some(without_clocks(text, window).into());
    }
    record
}

/// Whether a part of it is what Java prints of an object that holds bytes.
pub(super) fn names_java_object(record: &ReadRecord) -> bool {
    let names = |part: &Option<Vec<u8>>| {
        let text = part.as_deref().and_then(text);
        text.is_some_and(|text| text.contains(ARRAY) || text.contains(BUFFER))
    };
    names(&record.key)
        || names(&record.value)
        || record.headers.iter().any(|(_, value)| names(value))
}

/// Whether there is no key, or one with a number that Java draws.
pub(super) fn key_is_drawn(record: &ReadRecord) -> bool {
    record.key.as_deref().is_none_or(|key| text(key).is_some_and(|text| text.contains(ARRAY)))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn without_identities(text: &str) -> String {
    let mut parts = text.split(ARRAY);
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    rest.fold(first, |text, part| text + ARRAY + part)
}

/// In lower case, as Java prints it.
fn without_uuid(value: &[u8]) -> Vec<u8> {
    let mut uuids = value.windows(UUID_BYTES).enumerate().filter(|(_, window)| is_uuid(window));
    match uuids.next() {
        Some((from, _)) => {
            [&value[..from], OF_A_RUN.as_bytes(), &value[from + UUID_BYTES..]].concat()
        }
        None => value.to_vec(),
    }
}

fn is_uuid(value: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    value.iter().enumerate().all(|(index, byte)| match index {
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
            [1_000, 2_000, 999].map(|at| steady(&record("v", at), false, &WINDOW));
        assert_eq!(one, other);
        assert_ne!(one, past);
    }

    #[test]
    fn headers_of_our_own_count_nowhere_but_at_the_end() {
        let with = |names: &[&str]| {
            let mut record = record("v", 1_500);
            let own = names.iter().map(|name| ((*name).to_owned(), Some(b"1".to_vec())));
            record.headers.extend(own);
            steady(&record, false, &WINDOW)
        };
        assert_eq!(with(&[]), with(&OWN_HEADERS));
        assert_ne!(with(&["other"]), with(&["walpost-source", "other"]));
        assert_ne!(with(&[]), with(&["walpost-replay"]));
    }

    #[test]
    fn only_a_uuid_is_a_run_id() {
        let with = |value: &str| {
            let mut record = record("v", 1_500);
            record.headers.push((RUN_ID.to_owned(), Some(value.into())));
            steady(&record, false, &WINDOW)
        };
        let one = with("59a42efd-b015-44a9-9dde-cb36d9002425");
        assert_eq!(one, with("00000000-0000-4000-8000-000000000001"));
        assert_ne!(one, with("59a42efd-b015-44a9-9dde"));
        assert_ne!(one, with(""));
        let quoted = with("{\"payload\":\"59a42efd-b015-44a9-9dde-cb36d9002425\"}");
        assert_eq!(quoted, with("{\"payload\":\"00000000-0000-4000-8000-000000000001\"}"));
        assert_ne!(quoted, one);
    }

    #[test]
    fn numbers_of_arrays_differ_and_what_is_around_them_does_not() {
        let of = |text: &str| steady(&record(text, 1_500), false, &WINDOW);
        let one = of("Struct{scale=1,value=[B@7fa1bc67}[B@0");
        assert_eq!(one, of("Struct{scale=1,value=[B@276e3918}[B@1"));
        assert_ne!(one, of("Struct{scale=2,value=[B@276e3918}[B@1"));
        assert!(names_java_object(&one) && !names_java_object(&of("[b@1")));
        let keyed = |key: &str| ReadRecord { key: Some(key.into()), ..one.clone() };
        assert!(key_is_drawn(&one) && key_is_drawn(&keyed("Struct{a=[B@1}")));
        assert!(!key_is_drawn(&keyed("java.nio.HeapByteBuffer[pos=0 lim=0 cap=0]")));
    }

    #[test]
    fn clocks_are_looked_for_in_debeziums_own_records_alone() {
        let value = |is_own: bool, text: &str| {
            String::from_utf8(steady(&record(text, 0), is_own, &WINDOW).value.unwrap()).unwrap()
        };
        let text = r#"{"ts_ms":1500,"ts_us":1500000,"ts_ns":3,"a_ts_ms":1}"#;
        let steady = r#"{"ts_ms":(now),"ts_us":(now),"ts_ns":3,"a_ts_ms":1}"#;
        assert_eq!(value(true, text), steady);
        assert_eq!(value(false, text), text);
        assert_eq!(value(true, "Struct{ts_ms=1500}"), "Struct{ts_ms=(now)}");
    }
}
