//! Records and what is different in them, for who looks for the cause.

use std::fmt::Write as _;

use walpost_testkit::ReadRecord;

/// Of a long value so much stands before the first difference, and behind it.
const BEFORE: usize = 40;
const BEHIND: usize = 80;

/// What is different, a pair of lines for each.
pub(super) fn records(debezium: &ReadRecord, other: &ReadRecord) -> String {
    let mut text = String::new();
    let mut part = |name: &str, one: Option<&[u8]>, other: Option<&[u8]>| {
        if one != other {
            text.push_str(&part_of(name, one, other));
        }
    };
    part("key", debezium.key.as_deref(), other.key.as_deref());
    part("value", debezium.value.as_deref(), other.value.as_deref());
    let time = |record: &ReadRecord| record.timestamp_ms.map(|at| at.to_string());
    let [one, two] = [time(debezium), time(other)].map(|at| at.unwrap_or("of the run".to_owned()));
    part("timestamp", Some(one.as_bytes()), Some(two.as_bytes()));
    let most = debezium.headers.len().max(other.headers.len());
    for index in 0..most {
        let header = |record: &ReadRecord| match record.headers.get(index) {
            Some((name, Some(value))) => Some([name.as_bytes(), b": ", value].concat()),
            Some((name, None)) => Some([name.as_bytes(), b": NULL"].concat()),
            None => None,
        };
        let (one, two) = (header(debezium), header(other));
        part(&format!("header {index}"), one.as_deref(), two.as_deref());
    }
    text
}

/// All of a record.
pub(super) fn record(record: &ReadRecord) -> String {
    let mut text = String::new();
    let mut line = |name: &str, bytes: Option<&[u8]>| {
        writeln!(text, "    {name}: {}", shown(bytes)).expect("a string takes all");
    };
    line("key", record.key.as_deref());
    line("value", record.value.as_deref());
    for (name, value) in &record.headers {
        line(&format!("header {name}"), value.as_deref());
    }
    if let Some(at) = record.timestamp_ms {
        line("timestamp", Some(at.to_string().as_bytes()));
    }
    text
}

fn part_of(name: &str, one: Option<&[u8]>, other: Option<&[u8]>) -> String {
    let [one, other] = [one, other].map(shown);
    let first = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let from = first.saturating_sub(BEFORE);
    let cut = |text: &str| -> String {
        let start = if from > 0 { "…" } else { "" };
        let length = text.chars().count();
        let end = if length > first + BEHIND { "…" } else { "" };
        let middle: String = text.chars().skip(from).take(first - from + BEHIND).collect();
        format!("{start}{middle}{end}")
    };
    let indent = first - from + usize::from(from > 0);
    format!(
        "    {name} of Debezium: {}\n    {name} of other:    {}\n    {:width$}^\n",
        cut(&one),
        cut(&other),
        "",
        width = name.len() + " of Debezium: ".len() + indent
    )
}

/// Text where it is text, else hex; a line each.
fn shown(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "NULL".to_owned() };
    let is_plain = |text: &&str| !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    match std::str::from_utf8(bytes).ok().filter(is_plain) {
        Some(text) => text.replace('\n', "⏎"),
        None => bytes.iter().fold("0x".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes all");
            text
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_the_rest_is_hex() {
        assert_eq!(shown(Some("ä\nb".as_bytes())), "ä⏎b");
        assert_eq!(shown(Some(&[0, 255])), "0x00ff");
        assert_eq!(shown(Some(b"\0")), "0x00");
        assert_eq!(shown(Some(b"")), "");
        assert_eq!(shown(None), "NULL");
    }

    #[test]
    fn the_first_difference_is_marked() {
        let text = part_of("key", Some(b"abcd"), Some(b"abXd"));
        let lines: Vec<&str> = text.lines().collect();
        let column = lines[2].find('^').unwrap();
        assert_eq!(lines[0].find("cd"), Some(column));
        assert_eq!(lines[1].find("Xd"), Some(column));
    }

    #[test]
    fn a_long_value_is_cut_around_it() {
        let long = |middle: &str| format!("{}{middle}{}", "a".repeat(500), "b".repeat(500));
        let text = part_of("value", Some(long("1").as_bytes()), Some(long("2").as_bytes()));
        let lines: Vec<&str> = text.lines().collect();
        let place = |line: &str, c: char| line.chars().position(|found| found == c);
        assert!(lines.iter().all(|line| line.chars().count() < 200), "{text}");
        assert_eq!(place(lines[0], '1'), place(lines[2], '^'));
        assert_eq!(place(lines[1], '2'), place(lines[2], '^'));
    }

    #[test]
    fn what_is_equal_is_not_told() {
        let one = ReadRecord {
            partition: 0,
            offset: 0,
            key: Some(b"k".to_vec()),
            value: None,
            headers: vec![("id".to_owned(), Some(b"1".to_vec())), ("h".to_owned(), None)],
            timestamp_ms: None,
        };
        let mut other = one.clone();
        other.headers[1].1 = Some(Vec::new());
        let text = records(&one, &other);
        assert!(text.contains("header 1 of Debezium: h: NULL"), "{text}");
        assert!(!text.contains("key") && !text.contains("header 0"), "{text}");
    }
}
