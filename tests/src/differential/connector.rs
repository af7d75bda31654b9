//! The properties of a case's connector and of the worker that runs it.

use serde_json::{Map, Value};

use super::case::{Case, TOKEN};

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

/// Where an engine finds what it needs.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) host: &'static str,
    pub(super) port: u16,
    pub(super) slot: String,
}

/// The flat map, as a file for `connect-standalone` and the REST interface have it.
pub(super) fn properties(case: &Case, token: &str, places: &Places) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in BASE {
        all.insert(name.to_owned(), value.replace(TOKEN, token).into());
    }
    let own = [
        ("database.hostname", places.host.to_owned()),
        ("database.port", places.port.to_string()),
        ("slot.name", places.slot.clone()),
    ];
    all.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
    for (name, value) in &case.properties {
        match value {
            Some(value) => drop(all.insert(name.clone(), value.clone().into())),
            None => drop(all.remove(name)),
        }
    }
    all
}

/// The properties of a worker, which has the converters that Debezium's image has.
pub(super) fn worker_properties(bootstrap: &str, folder: &str, rest_port: u16) -> String {
    format!(
        "bootstrap.servers={bootstrap}\n\
         key.converter=org.apache.kafka.connect.json.JsonConverter\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\n\
         offset.storage.file.filename={folder}/offsets\n\
         offset.flush.interval.ms=5000\n\
         plugin.path={folder}/plugins\n\
         listeners=http://127.0.0.1:{rest_port}\n"
    )
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
        let places = Places { host: "127.0.0.1", port: 7, slot: "s".to_owned() };
        let all = properties(&case.with_token("t1"), "t1", &places);
        assert!(all.values().all(Value::is_string));
        assert_eq!(all["topic.prefix"], "t1-other");
        assert_eq!(all["publication.name"], "t1");
        assert_eq!(all["transforms.outbox.route.by.field"], "kind");
        assert_eq!(all["database.port"], "7");
        assert!(!all.contains_key("key.converter"));
    }
}
