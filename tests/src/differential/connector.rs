//! The properties of a case's connector.

use serde_json::{Map, Value};

use super::case::{Case, REGISTRY, TOKEN};

/// Of every connector, unless its case says otherwise. What is not here has its
/// default.
const BASE: [(&str, &str); 16] = [
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("tasks.max", "1"),
    ("plugin.name", "pgoutput"),
    ("database.user", "postgres"),
    ("database.password", "postgres"),
    ("database.dbname", TOKEN),
    ("topic.prefix", TOKEN),
    ("publication.name", TOKEN),
    ("publication.autocreate.mode", "disabled"),
    ("snapshot.mode", "no_data"),
    ("table.include.list", "public.outbox"),
    ("transforms", "outbox"),
    ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    // Half a second otherwise, which many cases would add up.
    ("poll.interval.ms", "20"),
];

/// Of an example's connector, which has its own of the rest.
const OF_EXAMPLES: [(&str, &str); 4] = [
    ("database.user", "postgres"),
    ("database.password", "postgres"),
    ("database.dbname", TOKEN),
    ("topic.prefix", TOKEN),
];

/// Where an engine finds what it needs.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) host: &'static str,
    pub(super) port: u16,
    pub(super) slot: String,
    /// Of the schema registry, where there is one.
    pub(super) registry: Option<String>,
}

/// The flat map, as a file for `connect-standalone` and the REST interface have it.
pub(super) fn properties(case: &Case, token: &str, places: &Places) -> Map<String, Value> {
    let mut all = Map::new();
    let owned = |(name, value): &(&str, &str)| {
        ((*name).to_owned(), Value::from(value.replace(TOKEN, token)))
    };
    if !case.is_whole {
        all.extend(BASE.iter().map(owned));
    }
    let own = [
        ("database.hostname", places.host.to_owned()),
        ("database.port", places.port.to_string()),
        ("slot.name", places.slot.clone()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), Value::from(value)));
    all.extend(own.clone());
    for (name, value) in &case.properties {
        match value {
            Some(value) => {
                let registry = places.registry.as_deref().unwrap_or(REGISTRY);
                all.insert(name.clone(), value.replace(REGISTRY, registry).into());
            }
            None => drop(all.remove(name)),
        }
    }
    if case.is_whole {
        all.extend(OF_EXAMPLES.iter().map(owned).chain(own));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{super::case::Group, *};

    #[test]
    fn a_case_comes_before_the_base_and_may_take_from_it() {
        let case = Case::new(Group::Routes, "x")
            .set("topic.prefix", "{n}-other")
            .unset("key.converter")
            .router("route.by.field", "kind");
        let places = Places { host: "127.0.0.1", port: 7, slot: "s".to_owned(), registry: None };
        let all = properties(&case.with_token("t1"), "t1", &places);
        assert!(all.values().all(Value::is_string));
        assert_eq!(all["topic.prefix"], "t1-other");
        assert_eq!(all["publication.name"], "t1");
        assert_eq!(all["transforms.outbox.route.by.field"], "kind");
        assert_eq!(all["database.port"], "7");
        assert!(!all.contains_key("key.converter"));
    }
}
