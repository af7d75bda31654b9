//! JSON whose objects in arrays have their members in another order.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};

/// JSON with the order of its members, and those that are there twice.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Scalar(Value),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Whether both are JSON and differ in nothing but the order of the members of
/// objects that are elements of arrays, or within those. Numbers, escapes and
/// blanks are written alike.
pub(crate) fn differ_in_arrays_alone(one: &[u8], other: &[u8]) -> bool {
    if sorted(one) != sorted(other) {
        return false;
    }
    let parse = |bytes: &[u8]| serde_json::from_slice::<Json>(bytes).ok();
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one != other && one.sorted(false) == other.sorted(false),
        _ => false,
    }
}

/// The bytes in their own order, which that of members does not change.
fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.sort_unstable();
    bytes
}

impl Json {
    fn sorted(self, in_array: bool) -> Self {
        match self {
            Self::Scalar(_) => self,
            Self::Array(elements) => {
                Self::Array(elements.into_iter().map(|element| element.sorted(true)).collect())
            }
            Self::Object(members) => {
                let members = members.into_iter();
                let mut members: Vec<_> =
                    members.map(|(name, value)| (name, value.sorted(in_array))).collect();
                if in_array {
                    members.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                Self::Object(members)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Scalar(Value::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Scalar(Value::Number(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Scalar(Value::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Json::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_objects_in_arrays_may_come_in_another_order() {
        let alone =
            |one: &str, other: &str| differ_in_arrays_alone(one.as_bytes(), other.as_bytes());
        assert!(alone(r#"{"x":[{"a":1,"b":2}]}"#, r#"{"x":[{"b":2,"a":1}]}"#));
        assert!(alone(r#"[{"o":{"a":1,"b":2}}]"#, r#"[{"o":{"b":2,"a":1}}]"#));
        assert!(!alone(r#"{"a":1,"b":[{}]}"#, r#"{"b":[{}],"a":1}"#), "outside of arrays");
        assert!(!alone(r#"[{"a":1},{"b":2}]"#, r#"[{"b":2},{"a":1}]"#), "elements have an order");
        assert!(!alone(r#"[{"a":1,"b":2}]"#, r#"[{"b":2,"a":3}]"#));
        assert!(!alone(r#"[{"a":1}]"#, r#"[{"a":1}]"#), "the same");
        assert!(!alone(r#"[{"a":1}]"#, r#"[{"a": 1}]"#), "spaces are something else");
        for other in [r#"[{"b":2.0,"a":1}]"#, r#"[{"b": 2,"a":1}]"#, r#"[{"\u0062":2,"a":1}]"#] {
            assert!(!alone(r#"[{"a":1,"b":2}]"#, other), "{other} is written otherwise");
        }
        assert!(!alone(r#"[{"a":1.0,"b":1e0}]"#, r#"[{"b":1e1,"a":0.0}]"#));
        assert!(!alone("x", "y"));
    }
}
