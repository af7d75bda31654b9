//! `hstore`: its text to its entries.

use super::{
    array::quoted,
    java_map::{JavaMap, hash_of_text},
    value::Value,
};
use crate::json::write_plain_string;

/// The entries in the order in which Debezium writes them.
pub(crate) fn entries(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut map = JavaMap::with_capacity(16);
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, behind) = quoted(rest.strip_prefix('"')?)?;
        let behind = behind.strip_prefix("=>")?;
        let (value, behind) = match behind.strip_prefix("NULL") {
            Some(behind) => (None, behind),
            None => {
                quoted(behind.strip_prefix('"')?).map(|(value, behind)| (Some(value), behind))?
            }
        };
        map.insert(hash_of_text(&key), key, value);
        rest = match behind.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if behind.is_empty() => "",
            None => return None,
        };
    }
    Some(map.into_entries().collect())
}

/// A JSON object of text.
pub(crate) fn json(entries: &[(String, Option<String>)]) -> String {
    let mut out = vec![b'{'];
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_plain_string(key, &mut out);
        out.push(b':');
        match value {
            Some(value) => write_plain_string(value, &mut out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    String::from_utf8(out).expect("JSON of text is UTF-8")
}

/// A map of text.
pub(crate) fn map(entries: Vec<(String, Option<String>)>) -> Value {
    let entry = |(key, value): (String, Option<String>)| {
        (Value::String(key.into()), value.map_or(Value::Null, |text| Value::String(text.into())))
    };
    Value::Map(entries.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_with_their_escapes() {
        let found = entries(r#""a"=>"1", "b\"\\"=>NULL, "c"=>"x, y""#).unwrap();
        assert_eq!(json(&found), r#"{"a":"1","c":"x, y","b\"\\":null}"#);
        assert_eq!(json(&entries("").unwrap()), "{}");
    }

    #[test]
    fn what_is_no_hstore_is_told() {
        for text in ["a", "\"a\"", "\"a\"=>", "\"a\"=>1", "\"a\"=>\"1\" x", "\"a"] {
            assert_eq!(entries(text), None, "{text}");
        }
    }
}
