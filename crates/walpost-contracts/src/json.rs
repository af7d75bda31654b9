//! JSON Schema, draft 2020-12 unless `$schema` names another.

use jsonschema::{
    Validator,
    canonical::{self, CanonicalSchema, Containment},
    error::ValidationErrorKind,
};
use serde_json::{Map, Value};

use crate::{
    DocumentError,
    schema::{Unfit, Unreadable},
};

/// Longest text of a difference, in characters.
const MAX_SHOWN: usize = 300;
/// Keywords by which an object is described in more than one place: it cannot be
/// closed from within one of them.
const COMPOSED: [&str; 8] =
    ["allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "dependentSchemas"];
/// Keywords that say what becomes of a property that is not named.
const OPEN: [&str; 3] = ["additionalProperties", "patternProperties", "unevaluatedProperties"];

#[derive(Clone, Debug)]
pub(crate) struct JsonSchema {
    value: Value,
    validator: Validator,
    /// As one who reads it takes it: properties that it does not name are taken.
    reader: CanonicalSchema,
    /// As one who writes by it: properties that it does not name are not
    /// written.
    writer: CanonicalSchema,
}

impl PartialEq for JsonSchema {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for JsonSchema {}

impl JsonSchema {
    pub(crate) fn parse(text: &str) -> Result<Self, DocumentError> {
        let none = |language, problem| DocumentError::Schema { language, problem };
        let value: Value =
            serde_json::from_str(text).map_err(|error| none("JSON", error.to_string()))?;
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&value)
            .map_err(|error| none("JSON Schema", error.to_string()))?;
        let mut closed = value.clone();
        close(&mut closed);
        let canonical = |value| {
            let options = canonical::options().offline().should_validate_formats(true);
            options.canonicalize(value).map_err(|error| none("JSON Schema", error.to_string()))
        };
        let (reader, writer) = (canonical(&value)?, canonical(&closed)?);
        Ok(Self { value, validator, reader, writer })
    }

    pub(crate) fn check(&self, payload: &[u8]) -> Result<(), Unfit> {
        let value: Value =
            serde_json::from_slice(payload).map_err(|_| Unfit::Unreadable("JSON"))?;
        self.validator.validate(&value).map_err(|error| Unfit::Refused {
            path: match error.instance_path().as_str() {
                "" => "/".to_owned(),
                path => path.to_owned(),
            },
            problem: match error.kind() {
                // Names of properties are contents too.
                ValidationErrorKind::AdditionalProperties { .. }
                | ValidationErrorKind::UnevaluatedProperties { .. }
                | ValidationErrorKind::PropertyNames { .. } => {
                    "a property has a name that is not allowed".to_owned()
                }
                _ => error.masked().to_string(),
            },
        })
    }

    pub(crate) fn cannot_read(&self, writer: &Self) -> Option<Unreadable> {
        // Also where nobody could prove it.
        if self == writer {
            return None;
        }
        let answer = match self.reader.covers(&writer.writer) {
            Ok(Containment::Yes) => return None,
            Ok(answer) => answer,
            Err(error) => return Some(Unreadable::Unknown(error.to_string())),
        };
        let mut at = Vec::new();
        blame(&self.value, &writer.value, "", &mut at);
        let is_proven = answer == Containment::No || !at.is_empty();
        let mut told = Vec::new();
        if !at.is_empty() {
            told.push(format!("by {}", at.join(", ")));
        }
        told.extend(self.refused_of(writer).map(|schema| format!("such as {schema} describes")));
        let told = told.join(", ");
        Some(if is_proven { Unreadable::Refused(told) } else { Unreadable::Unknown(told) })
    }

    /// What the writer allows and this refuses, as a schema, where that can be
    /// said.
    fn refused_of(&self, writer: &Self) -> Option<String> {
        let mut refused = writer.writer.subtract(&self.reader).ok()?.to_json_schema();
        refused.as_object_mut()?.remove("$schema");
        let mut text = refused.to_string();
        if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN) {
            text.truncate(end);
            text.push_str(" ...");
        }
        Some(text)
    }
}

/// Names the properties that a reader asks for or narrows.
fn blame(reader: &Value, writer: &Value, path: &str, at: &mut Vec<String>) {
    let names = |schema: &Value| -> Vec<String> {
        let required = schema["required"].as_array().into_iter().flatten();
        required.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let given = names(writer);
    for name in names(reader).into_iter().filter(|name| !given.contains(name)) {
        at.push(format!("{path}/{name}, which it requires"));
    }
    let empty = Map::new();
    let properties = |schema: &'_ Value| schema["properties"].as_object().cloned();
    let writes = properties(writer).unwrap_or_else(|| empty.clone());
    for (name, reads) in properties(reader).unwrap_or_default() {
        let Some(writes) = writes.get(&name) else { continue };
        let path = format!("{path}/{name}");
        let before = at.len();
        blame(&reads, writes, &path, at);
        if at.len() == before && narrows(&reads, writes) {
            at.push(path);
        }
    }
    if reader["additionalProperties"] == false {
        let named = properties(reader).unwrap_or_default();
        let unknown = writes.keys().filter(|name| !named.contains_key(*name));
        at.extend(unknown.map(|name| format!("{path}/{name}, which it does not know")));
    }
}

/// Whether the one alone refuses something that the other allows, for certain.
/// Those that refer to the whole document are not judged alone.
fn narrows(reader: &Value, writer: &Value) -> bool {
    let canonical = |value| {
        let options = canonical::options().offline().should_validate_formats(true);
        options.canonicalize(value).ok()
    };
    let (Some(reader), Some(writer)) = (canonical(reader), canonical(writer)) else {
        return false;
    };
    matches!(reader.covers(&writer), Ok(Containment::No))
}

/// Has each object that names its properties allow no others, where it does not
/// say what becomes of others itself. Nothing within a composition is closed: what
/// one part does not name, another may.
fn close(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    let has = |keywords: &Map<String, Value>, names: &[&str]| {
        names.iter().any(|name| keywords.contains_key(*name))
    };
    if has(keywords, &COMPOSED) {
        return;
    }
    if keywords.contains_key("properties") && !has(keywords, &OPEN) {
        keywords.insert("additionalProperties".to_owned(), false.into());
    }
    for (keyword, value) in keywords.iter_mut() {
        match keyword.as_str() {
            "properties" | "patternProperties" => {
                value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(close);
            }
            "prefixItems" => {
                value.as_array_mut().into_iter().flatten().for_each(close);
            }
            "items" | "additionalProperties" => close(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: &Value) -> JsonSchema {
        JsonSchema::parse(&value.to_string()).unwrap()
    }

    fn object(properties: &Value, required: &[&str]) -> Value {
        json!({"type": "object", "properties": properties, "required": required})
    }

    #[track_caller]
    fn judged(old: &Value, new: &Value) -> Option<Unreadable> {
        schema(new).cannot_read(&schema(old))
    }

    #[test]
    fn what_keeps_readers_of_old_events_alive() {
        let int = json!({"type": "integer"});
        let old = object(&json!({"id": int, "note": {"type": "string", "maxLength": 9}}), &["id"]);
        for (what, new) in [
            ("nothing", old.clone()),
            ("a title", {
                let mut new = old.clone();
                new["title"] = "x".into();
                new
            }),
            (
                "a new optional property",
                object(
                    &json!({"id": int, "note": {"type": "string", "maxLength": 9}, "by": int}),
                    &["id"],
                ),
            ),
            (
                "a wider type",
                object(&json!({"id": {"type": "number"}, "note": {"type": "string"}}), &["id"]),
            ),
            ("less required", object(&json!({"id": int, "note": {"type": "string"}}), &[])),
            ("a property no longer named", object(&json!({"id": int}), &["id"])),
        ] {
            let judged = judged(&old, &new);
            assert!(judged.is_none(), "{what}: {judged:?}");
        }
    }

    #[test]
    fn what_breaks_them_is_named() {
        let int = json!({"type": "integer"});
        let old = object(
            &json!({"id": int, "state": {"enum": ["a", "b"]}, "to": object(
            &json!({"zip": {"type": "string"}}), &[])}),
            &["id"],
        );
        let change = |pointer: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            new
        };
        for (new, expected) in [
            (change("/properties/id", json!({"type": "string"})), "by /id"),
            (change("/properties/id", json!({"type": "integer", "minimum": 0})), "by /id"),
            (change("/required", json!(["id", "state"])), "by /state, which it requires"),
            (change("/properties/state", json!({"enum": ["a"]})), "by /state"),
            (
                change("/properties/to/properties/zip", json!({"type": "string", "maxLength": 5})),
                "by /to/zip",
            ),
            (
                json!({"type": "object", "additionalProperties": false,
                "properties": {"id": int}}),
                "by /state, which it does not know",
            ),
        ] {
            match judged(&old, &new) {
                Some(Unreadable::Refused(what)) => {
                    assert!(what.contains(expected), "{expected:?} is not in {what:?}");
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_open_writer_may_have_written_anything() {
        let mut old = object(&json!({}), &[]);
        old["additionalProperties"] = true.into();
        let new = object(&json!({"by": {"type": "integer"}}), &[]);
        assert!(judged(&old, &new).is_some());
        old["additionalProperties"] = false.into();
        assert!(judged(&old, &new).is_none());
    }

    #[test]
    fn a_union_hides_no_change() {
        let with = |id: &str| {
            json!({"type": "object", "required": ["id"], "properties": {"id": {"type": id}},
            "oneOf": [
                {"required": ["kind"], "properties": {"kind": {"const": "card"}}},
                {"required": ["kind"], "properties": {"kind": {"const": "cash"}}},
            ]})
        };
        assert!(judged(&with("integer"), &with("string")).is_some());
        assert!(judged(&with("integer"), &with("integer")).is_none());
    }

    #[test]
    fn what_is_the_same_takes_the_same() {
        let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(judged(&list, &list).is_none());
    }

    #[test]
    fn definitions_are_followed() {
        let with = |zip: &Value| {
            json!({
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/address"}},
                "$defs": {"address": {"type": "object", "properties": {"zip": zip}}},
            })
        };
        let (text, short) = (json!({"type": "string"}), json!({"type": "string", "maxLength": 5}));
        assert!(judged(&with(&short), &with(&text)).is_none());
        assert!(judged(&with(&text), &with(&short)).is_some());
    }

    #[test]
    fn a_payload_is_refused_by_its_place_and_without_its_values() {
        let schema = schema(&object(&json!({"id": {"type": "integer"}}), &["id"]));
        assert!(schema.check(br#"{"id": 1, "more": true}"#).is_ok());
        for (payload, at) in [(&br#"{"id": "s3cret"}"#[..], "/id"), (br#"{"s3cret": 1}"#, "/")] {
            match schema.check(payload) {
                Err(Unfit::Refused { path, problem }) => {
                    assert_eq!(path, at);
                    assert!(!problem.contains("s3cret"), "{problem}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(schema.check(b"{"), Err(Unfit::Unreadable("JSON"))));
        let closed = json!({"type": "object", "additionalProperties": false});
        let named = json!({"type": "object", "propertyNames": {"pattern": "^[0-9]+$"}});
        for strict in [closed, named] {
            match self::schema(&strict).check(br#"{"s3cret": 1}"#) {
                Err(Unfit::Refused { problem, .. }) => assert!(!problem.contains("s3cret")),
                other => panic!("{other:?}"),
            }
        }
    }
}
