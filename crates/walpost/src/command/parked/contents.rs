//! What a parked row keeps of its event: how much, and on request itself.

use serde_json::{Value, json};
use tokio_postgres::Row;

/// Says how much there is, without any of it.
pub(super) const SIZES: &str = "record_partition, record_timestamp_ms, octet_length(record_key),
    octet_length(record_value), octet_length(message_content),
    (select array_agg(header ->> 'name' order by number)
        from jsonb_array_elements(record_headers) with ordinality as each (header, number)),
    (select array_agg(col ->> 'name' order by number)
        from jsonb_array_elements(row_columns) with ordinality as each (col, number))";

/// The parts themselves, `$2` bytes of each that is one value.
pub(super) const PARTS: &str = "octet_length(record_key), substring(record_key for $2),
    octet_length(record_value), substring(record_value for $2),
    octet_length(message_content), substring(message_content for $2),
    record_headers, row_columns";

/// What [`SIZES`] gives from column `first` on.
pub(super) fn sizes(row: &Row, first: usize) -> Vec<(&'static str, Value)> {
    let bytes = |index: usize| json!(row.get::<_, Option<i32>>(first + index));
    let names = |index: usize| json!(row.get::<_, Option<Vec<Option<String>>>>(first + index));
    vec![
        ("partition", json!(row.get::<_, Option<i32>>(first))),
        ("timestamp_ms", json!(row.get::<_, Option<i64>>(first + 1))),
        ("key_bytes", bytes(2)),
        ("value_bytes", bytes(3)),
        ("headers", names(5)),
        ("columns", names(6)),
        ("message_bytes", bytes(4)),
    ]
}

/// A value of the event: as much of it as was asked for.
pub(crate) struct Part {
    kind: &'static str,
    /// Of a header or a column.
    name: Option<String>,
    bytes: Option<Vec<u8>>,
    total_bytes: usize,
}

/// What [`PARTS`] gives: key and value, headers and columns, content.
pub(super) fn parts(row: &Row, max_bytes: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    for (kind, index) in [("key", 0), ("value", 2), ("message", 4)] {
        if let Some(total) = row.get::<_, Option<i32>>(index) {
            let bytes = row.get::<_, Option<Vec<u8>>>(index + 1);
            let total_bytes = usize::try_from(total).unwrap_or_default();
            parts.push(Part { kind, name: None, bytes, total_bytes });
        }
    }
    for (kind, index) in [("header", 6), ("column", 7)] {
        let members = row.get::<_, Option<Value>>(index);
        for member in members.iter().filter_map(Value::as_array).flatten() {
            let name = member.get("name").and_then(Value::as_str).map(str::to_owned);
            let mut bytes = member_bytes(member);
            let total_bytes = bytes.as_ref().map_or(0, Vec::len);
            if let Some(bytes) = &mut bytes {
                bytes.truncate(max_bytes);
            }
            parts.push(Part { kind, name, bytes, total_bytes });
        }
    }
    parts
}

fn member_bytes(member: &Value) -> Option<Vec<u8>> {
    if let Some(text) = member.get("text").and_then(Value::as_str) {
        return Some(text.as_bytes().to_vec());
    }
    let digits = member.get("hex")?.as_str()?.as_bytes();
    let nibble = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
    let byte = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | nibble(*digit));
    Some(digits.chunks(2).map(byte).collect())
}

impl Part {
    /// The first `bytes` of `total_bytes`; no bytes for a null.
    pub(crate) fn new(
        kind: &'static str,
        name: Option<String>,
        bytes: Option<Vec<u8>>,
        total_bytes: usize,
    ) -> Self {
        Self { kind, name, bytes, total_bytes }
    }

    /// What it is.
    pub(crate) fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name}", self.kind),
            None => self.kind.to_owned(),
        }
    }

    /// For people, in one line.
    pub(crate) fn shown(&self) -> String {
        let Some(bytes) = &self.bytes else { return "-".to_owned() };
        let shown = self.text(bytes).unwrap_or_else(|| hex(bytes));
        match self.total_bytes - bytes.len() {
            0 => shown,
            left => format!("{shown} … {left} more"),
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let mut part = json!({ "part": self.kind });
        if let Some(name) = &self.name {
            part["name"] = json!(name);
        }
        if let Some(bytes) = &self.bytes {
            match self.text(bytes) {
                Some(text) => part["text"] = json!(text),
                None => part["hex"] = json!(hex(bytes)),
            }
            part["bytes"] = json!(self.total_bytes);
        }
        part
    }

    /// The text, as far as it goes, where it is text.
    fn text(&self, bytes: &[u8]) -> Option<String> {
        let is_cut = bytes.len() < self.total_bytes;
        let whole = match std::str::from_utf8(bytes) {
            Ok(_) => bytes,
            // Cut within a character.
            Err(error) if is_cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
            Err(_) => return None,
        };
        std::str::from_utf8(whole).ok().map(str::to_owned)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Text that a terminal takes for text: what would move it, colour it or turn
/// its direction comes as `\u{…}`, a line break as `\n`.
pub(crate) fn for_terminal(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// The same for JSON, which stays the same value.
pub(crate) fn json_for_terminal(value: &Value) -> String {
    let mut safe = String::new();
    for c in value.to_string().chars() {
        if steers(c) { safe += &format!("\\u{:04x}", u32::from(c)) } else { safe.push(c) }
    }
    safe
}

fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: &[u8], max_bytes: usize) -> Part {
        let shown = bytes[..bytes.len().min(max_bytes)].to_vec();
        Part { kind: "value", name: None, bytes: Some(shown), total_bytes: bytes.len() }
    }

    #[test]
    fn text_is_shown_as_text_and_bytes_in_hex() {
        assert_eq!(part(b"{}", 9).shown(), "{}");
        assert_eq!(part(b"\xff\x01", 9).shown(), "ff01");
        let json = json!({ "part": "value", "hex": "ff01", "bytes": 2 });
        assert_eq!(part(b"\xff\x01", 9).json(), json);
        let none = Part { kind: "header", name: Some("a".into()), bytes: None, total_bytes: 0 };
        assert_eq!((none.title(), none.shown()), ("header a".to_owned(), "-".to_owned()));
        assert_eq!(none.json(), json!({ "part": "header", "name": "a" }));
    }

    #[test]
    fn what_is_cut_says_so_also_within_a_character() {
        assert_eq!(part(b"abcdef", 4).shown(), "abcd … 2 more");
        assert_eq!(part("aé".as_bytes(), 2).shown(), "a … 1 more");
        let json = json!({ "part": "value", "text": "a", "bytes": 3 });
        assert_eq!(part("aé".as_bytes(), 2).json(), json);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let text = "a\u{1b}[31m\n\u{9b}2J\u{202e}é";
        assert_eq!(for_terminal(text), r"a\u{1b}[31m\n\u{9b}2J\u{202e}é");
        let json = json_for_terminal(&json!({ "text": text }));
        assert!(!json.chars().any(steers), "{json}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["text"], text);
    }

    #[test]
    fn members_are_read_in_both_forms() {
        assert_eq!(member_bytes(&json!({ "name": "a", "text": "é" })).unwrap(), "é".as_bytes());
        assert_eq!(member_bytes(&json!({ "name": "a", "hex": "ff00" })).unwrap(), b"\xff\0");
        assert_eq!(member_bytes(&json!({ "name": "a" })), None);
    }
}
