use serde_json::{Map, Value, json};

use crate::error::OffsetError;

/// Whose offset it is: `["orders",{"server":"shop"}]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetKey {
    /// Name of the connector; of Debezium's engine and server, their `name`.
    pub connector: String,
    /// The source partition, as the connector calls it.
    pub partition: Map<String, Value>,
}

impl OffsetKey {
    /// Reads a key of the offsets topic or file.
    ///
    /// # Errors
    /// [`OffsetError::Key`] for anything else, such as a key of another format.
    pub fn parse(bytes: &[u8]) -> Result<Self, OffsetError> {
        let Ok(Value::Array(parts)) = serde_json::from_slice(bytes) else {
            return Err(OffsetError::Key);
        };
        match <[Value; 2]>::try_from(parts) {
            Ok([Value::String(connector), Value::Object(partition)]) => {
                Ok(Self { connector, partition })
            }
            _ => Err(OffsetError::Key),
        }
    }

    /// The key under which Debezium's PostgreSQL connector looks for its offset.
    pub fn of(connector: &str, topic_prefix: &str) -> Vec<u8> {
        json!([connector, { "server": topic_prefix }]).to_string().into_bytes()
    }

    /// `topic.prefix`, where it is a partition of Debezium's PostgreSQL connector.
    pub fn topic_prefix(&self) -> Option<&str> {
        match self.partition.len() {
            1 => self.partition.get("server")?.as_str(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = OffsetKey::of("orders", "a \"b\"");
        assert_eq!(key, br#"["orders",{"server":"a \"b\""}]"#);
        let key = OffsetKey::parse(&key).unwrap();
        assert_eq!((&*key.connector, key.topic_prefix()), ("orders", Some("a \"b\"")));
    }

    #[test]
    fn other_keys_are_refused_or_have_no_prefix() {
        for text in ["", "null", "{}", "[]", r#"["a"]"#, r#"["a",{},1]"#, r#"[1,{}]"#, r#"["a",1]"#]
        {
            assert_eq!(OffsetKey::parse(text.as_bytes()), Err(OffsetError::Key), "{text}");
        }
        let another = OffsetKey::parse(br#"["a",{"server":"s","database":"d"}]"#).unwrap();
        assert_eq!(another.topic_prefix(), None);
    }
}
