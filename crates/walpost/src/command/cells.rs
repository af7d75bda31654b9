//! Fields and cells of what is listed and shown.

use serde_json::{Value, json};

use super::parked::for_terminal;

/// Characters of one cell of a list.
const CELL_MAX_CHARS: usize = 80;

/// As text where it is text, up to a character that is cut, and else in hex, under
/// the second name.
pub(in crate::command) fn shown(
    name: &'static str,
    name_hex: &'static str,
    bytes: Option<Vec<u8>>,
) -> (&'static str, Value) {
    let Some(bytes) = bytes else { return (name, Value::Null) };
    let whole = match std::str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => &bytes,
    };
    match std::str::from_utf8(whole) {
        Ok(text) => (name, json!(text)),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (name_hex, json!(hex))
        }
    }
}

/// One of a table, for a terminal.
pub(in crate::command) fn cell(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { line(text, CELL_MAX_CHARS) }
}

/// The first characters of a text, for a terminal.
pub(in crate::command) fn line(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => for_terminal(&text[..end]) + "…",
        None => for_terminal(text),
    }
}

/// A value without quotes.
pub(in crate::command) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => for_terminal(text),
        other => other.to_string(),
    }
}

/// Fields as one object.
pub(in crate::command) fn as_json(fields: Vec<(&'static str, Value)>) -> Value {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
