//! What two answers have in common: the code, the keys of objects and the types
//! of what is in them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Keys of which the text itself counts.
const SAID: [&str; 5] = ["connector", "name", "state", "task", "type"];

/// What may be at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Types, and texts that count.
    leaves: BTreeSet<String>,
    /// Of an object, by key.
    keys: Option<BTreeMap<String, Shape>>,
    /// Of a list, all that is in it.
    items: Option<Box<Shape>>,
}

impl Shape {
    pub(crate) fn of(value: &Value) -> Self {
        Self::at("", value)
    }

    fn at(key: &str, value: &Value) -> Self {
        let leaf = |text: String| Self { leaves: BTreeSet::from([text]), ..Self::default() };
        match value {
            Value::Null => leaf("null".to_owned()),
            Value::Bool(_) => leaf("a boolean".to_owned()),
            Value::Number(number) if SAID.contains(&key) => leaf(number.to_string()),
            Value::Number(_) => leaf("a number".to_owned()),
            Value::String(text) if SAID.contains(&key) => leaf(format!("{text:?}")),
            Value::String(_) => leaf("a text".to_owned()),
            Value::Array(items) => {
                let all = items.iter().map(|item| Self::at(key, item));
                let all = all.fold(Self::default(), Self::merged);
                Self { items: Some(Box::new(all)), ..Self::default() }
            }
            Value::Object(fields) => {
                let field = |(key, value): (&String, &Value)| (key.clone(), Self::at(key, value));
                Self { keys: Some(fields.iter().map(field).collect()), ..Self::default() }
            }
        }
    }

    fn merged(mut self, other: Self) -> Self {
        self.leaves.extend(other.leaves);
        self.keys = match (self.keys, other.keys) {
            (Some(mut keys), Some(others)) => {
                for (key, shape) in others {
                    let merged = keys.remove(&key).unwrap_or_default().merged(shape);
                    keys.insert(key, merged);
                }
                Some(keys)
            }
            (keys, others) => keys.or(others),
        };
        self.items = match (self.items, other.items) {
            (Some(items), Some(others)) => Some(Box::new(items.merged(*others))),
            (items, others) => items.or(others),
        };
        self
    }

    /// How this differs from `model`, place by place: a key too many or too few, or
    /// something that is not there in the model. An empty list is any list.
    pub(crate) fn differences(&self, model: &Self) -> Vec<String> {
        let mut found = Vec::new();
        self.compare(model, "body", &mut found);
        found
    }

    fn compare(&self, model: &Self, place: &str, found: &mut Vec<String>) {
        for leaf in self.leaves.difference(&model.leaves) {
            let others = model.leaves.iter().cloned().collect::<Vec<_>>().join(" or ");
            found.push(format!("{place} is {leaf}, and not {others}"));
        }
        match (&self.keys, &model.keys) {
            (Some(keys), Some(models)) => {
                for key in models.keys().filter(|key| !keys.contains_key(*key)) {
                    found.push(format!("{place} has no {key}"));
                }
                for (key, shape) in keys {
                    match models.get(key) {
                        Some(model) => shape.compare(model, &format!("{place}.{key}"), found),
                        None => found.push(format!("{place} has {key}")),
                    }
                }
            }
            (None, None) => {}
            (Some(_), None) => found.push(format!("{place} is an object")),
            (None, Some(_)) => found.push(format!("{place} is no object")),
        }
        match (&self.items, &model.items) {
            (Some(items), Some(models)) => {
                let is_empty = |shape: &Self| *shape == Self::default();
                if is_empty(items) != is_empty(models) {
                    let what = if is_empty(items) { "empty" } else { "not empty" };
                    found.push(format!("{place} is {what}"));
                } else {
                    items.compare(models, &format!("{place}[]"), found);
                }
            }
            (None, None) => {}
            (Some(_), None) => found.push(format!("{place} is a list")),
            (None, Some(_)) => found.push(format!("{place} is no list")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    #[ignore = "deep: needs Kafka Connect"]
    fn what_differs_is_named_by_its_place() {
        let differences =
            |one: Value, model: Value| Shape::of(&one).differences(&Shape::of(&model));
        assert_eq!(differences(json!({ "a": 1, "b": [] }), json!({ "a": 2, "b": [] })), [""; 0]);
        for (one, model, said) in [
            (json!({ "a": 1 }), json!({ "a": "x" }), "body.a is a number, and not a text"),
            (json!({}), json!({ "a": 1 }), "body has no a"),
            (json!({ "a": 1 }), json!({}), "body has a"),
            (json!([]), json!({}), "body is no object"),
            (json!([1]), json!([]), "body is not empty"),
            (json!([]), json!([1]), "body is empty"),
            (json!([{ "a": 1 }]), json!([{ "a": null }]), "body[].a is a number, and not null"),
            (
                json!({ "state": "RUNNING" }),
                json!({ "state": "FAILED" }),
                "body.state is \"RUNNING\", and not \"FAILED\"",
            ),
        ] {
            let found = differences(one, model);
            assert!(found.contains(&said.to_owned()), "{found:?}");
        }
        // What is in some items is in none that lacks it.
        assert_eq!(differences(json!([{ "a": 1 }]), json!([{ "a": 1 }, { "a": null }])), [""; 0]);
    }
}
