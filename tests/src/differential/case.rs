//! A case: an outbox table, a connector's properties, rows, and what Debezium is
//! expected to do with them.

use std::fmt;

use serde_json::{Map, Value};

use super::difference::Difference;

/// In all texts of a case what is its own: the name of its database, and part of
/// its slots and topics.
pub(super) const TOKEN: &str = "{n}";
/// In properties: the address of the schema registry.
pub(super) const REGISTRY: &str = "{registry}";

/// Which part of Debezium's behaviour a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Topics by `route.*`.
    Routes,
    /// `table.fields.additional.placement`.
    Placements,
    /// Event id, key, timestamp and schema version.
    Columns,
    /// NULL, and defaults in its place.
    Nulls,
    /// `table.expand.json.payload`.
    Expansion,
    /// Converters of keys, values and headers.
    Converters,
    /// Avro by a schema registry.
    Avro,
    /// Each type of column as key, value and header.
    Types,
    /// Handling modes of the connector.
    Handling,
    /// Updates, deletes, truncates.
    Operations,
    /// `pg_logical_emit_message`.
    Messages,
    /// Several tables, partitioned ones, filters.
    Tables,
    /// `snapshot.mode`.
    Snapshots,
    /// Transforms behind the router, and predicates.
    Transforms,
    /// Topic creation, heartbeats, error handling.
    Framework,
    /// The files of `connectors/`.
    Examples,
    /// Made from a seed.
    Random,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}").to_lowercase();
        f.pad(&name)
    }
}

/// A converter of Kafka Connect or Debezium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Converter {
    Text,
    Json,
    JsonWithSchema,
    /// Avro, with ids of one registry for both engines.
    Avro,
    Bytes,
    /// Bytes as they are, and the rest as JSON without schemas.
    BinaryOrJson,
    /// Bytes as they are, and the rest as text.
    BinaryOrText,
    /// The same without another converter for the rest.
    Binary,
    Simple,
}

impl Converter {
    /// What the property is set to, and its options without the prefix.
    fn properties(self) -> (&'static str, &'static [(&'static str, &'static str)]) {
        const TEXT: &str = "org.apache.kafka.connect.storage.StringConverter";
        const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
        const BINARY: &str = "io.debezium.converters.BinaryDataConverter";
        match self {
            Self::Text => (TEXT, &[]),
            Self::Json => (JSON, &[("schemas.enable", "false")]),
            Self::JsonWithSchema => (JSON, &[("schemas.enable", "true")]),
            Self::Avro => (
                "io.apicurio.registry.utils.converter.AvroConverter",
                &[
                    ("apicurio.registry.url", REGISTRY),
                    ("apicurio.registry.auto-register", "true"),
                    ("apicurio.registry.as-confluent", "true"),
                    ("apicurio.registry.use-id", "contentId"),
                    ("apicurio.registry.headers.enabled", "false"),
                ],
            ),
            Self::Bytes => ("org.apache.kafka.connect.converters.ByteArrayConverter", &[]),
            Self::BinaryOrJson => (
                BINARY,
                &[
                    ("delegate.converter.type", JSON),
                    ("delegate.converter.type.schemas.enable", "false"),
                ],
            ),
            Self::BinaryOrText => (BINARY, &[("delegate.converter.type", TEXT)]),
            Self::Binary => (BINARY, &[]),
            Self::Simple => ("org.apache.kafka.connect.storage.SimpleHeaderConverter", &[]),
        }
    }
}

/// What is expected of Debezium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It reads all rows.
    Runs,
    /// Its task fails, with this in its trace.
    Dies(String),
    /// It takes no such configuration, and says this.
    Refuses(String),
}

/// A case. `{n}` in its texts stands for what is its own.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub group: Group,
    /// What it shows.
    pub name: String,
    /// Of the table `outbox`, with their definitions; none, and it has no table.
    columns: Vec<(String, String)>,
    setup: Vec<String>,
    pub(super) properties: Vec<(String, Option<String>)>,
    /// Whether these are a whole connector, of which places alone are others.
    pub(super) is_whole: bool,
    /// Transactions before the connectors start.
    pub(super) stored: Vec<String>,
    /// Transactions while they run.
    pub(super) rows: Vec<String>,
    /// How many records Debezium publishes.
    pub(super) expected: usize,
    pub(super) end: End,
    /// How Walpost may differ beyond going on where Debezium's task fails.
    pub(super) differs: Option<Difference>,
    /// Whether Walpost publishes what Debezium's task fails with; else it parks it.
    pub(super) goes_out: bool,
    /// What Walpost says against the configuration, where it alone refuses it.
    pub(super) refusal: Option<String>,
    /// Whether the connectors stream at all.
    pub(super) streams: bool,
    /// Properties of the other engine alone.
    pub(super) sabotage: Vec<(String, String)>,
    inserts: usize,
}

const COLUMNS: [(&str, &str); 5] = [
    ("id", "uuid primary key"),
    ("aggregatetype", "text not null"),
    ("aggregateid", "text not null"),
    ("type", "text not null"),
    ("payload", "jsonb"),
];

impl Case {
    /// With the table that Debezium's documentation has, and a connector of
    /// nothing but defaults and two `StringConverter`s.
    pub(super) fn new(group: Group, name: impl Into<String>) -> Self {
        let owned = |(name, kind): (&str, &str)| (name.to_owned(), kind.to_owned());
        Self {
            group,
            name: name.into(),
            columns: COLUMNS.map(owned).into(),
            setup: Vec::new(),
            properties: Vec::new(),
            is_whole: false,
            goes_out: false,
            stored: Vec::new(),
            rows: Vec::new(),
            expected: 0,
            end: End::Runs,
            differs: None,
            refusal: None,
            streams: true,
            sabotage: Vec::new(),
            inserts: 0,
        }
    }

    /// With the connector of a file, wrapped or flat, and the table of the start;
    /// the connector has its name of who runs it.
    pub(super) fn of_file(group: Group, name: impl Into<String>, text: &str) -> Self {
        let mut all: Map<String, Value> = serde_json::from_str(text).expect("JSON of a connector");
        if let Some(Value::Object(config)) = all.remove("config") {
            all = config;
        }
        all.remove("name");
        let properties = all.into_iter().map(|(name, value)| match value {
            Value::String(text) => (name, Some(text)),
            other => (name, Some(other.to_string())),
        });
        let case = Self::new(group, name);
        Self { properties: properties.collect(), is_whole: true, ..case }
    }

    /// A column of the outbox, added or in place of the one of this name.
    pub(super) fn column(mut self, name: &str, definition: &str) -> Self {
        match self.columns.iter_mut().find(|(known, _)| known == name) {
            Some((_, before)) => definition.clone_into(before),
            None => self.columns.push((name.to_owned(), definition.to_owned())),
        }
        self
    }

    /// SQL before the outbox is created, once: types, extensions, further tables.
    pub(super) fn setup(mut self, sql: &str) -> Self {
        if !self.setup.iter().any(|known| known == sql) {
            self.setup.push(sql.to_owned());
        }
        self
    }

    /// Without the outbox; the case sets up what it has.
    pub(super) fn without_outbox(mut self) -> Self {
        self.columns.clear();
        self
    }

    /// A property of the connector.
    pub(super) fn set(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// Without a property that the connector has from the start.
    pub(super) fn unset(mut self, name: &str) -> Self {
        self.properties.push((name.to_owned(), None));
        self
    }

    /// An option of the router.
    pub(super) fn router(self, name: &str, value: &str) -> Self {
        self.set(&format!("transforms.outbox.{name}"), value)
    }

    /// `table.fields.additional.placement`.
    pub(super) fn place(self, placement: &str) -> Self {
        self.router("table.fields.additional.placement", placement)
    }

    pub(super) fn key(self, converter: Converter) -> Self {
        self.converter("key", converter)
    }

    pub(super) fn value(self, converter: Converter) -> Self {
        self.converter("value", converter)
    }

    pub(super) fn header(self, converter: Converter) -> Self {
        self.converter("header", converter)
    }

    fn converter(self, of: &str, converter: Converter) -> Self {
        let (class, options) = converter.properties();
        let prefix = format!("{of}.converter");
        let case = self.set(&prefix, class);
        options
            .iter()
            .fold(case, |case, (name, value)| case.set(&format!("{prefix}.{name}"), value))
    }

    /// Inserts a row, whose record is expected unless Debezium has failed: the
    /// values given, as SQL, and of other columns of the start what is usual.
    pub(super) fn insert<const N: usize>(mut self, values: [(&str, &str); N]) -> Self {
        self.inserts += 1;
        let sql = self.insert_sql(&values);
        self.publishes(1, &sql)
    }

    /// Inserts a row before the connectors start, whose record is not expected.
    pub(super) fn stored<const N: usize>(mut self, values: [(&str, &str); N]) -> Self {
        self.inserts += 1;
        let sql = self.insert_sql(&values);
        self.stored.push(sql);
        self
    }

    /// A transaction with so many records.
    pub(super) fn publishes(mut self, records: usize, sql: &str) -> Self {
        if self.end == End::Runs {
            self.expected += records;
        }
        self.rows.push(sql.to_owned());
        self
    }

    /// A transaction without a record.
    pub(super) fn silent(self, sql: &str) -> Self {
        self.publishes(0, sql)
    }

    /// So many more records than the rows say.
    pub(super) fn and(mut self, records: usize) -> Self {
        self.expected += records;
        self
    }

    /// The next row makes Debezium's task fail, with `text` in its trace.
    pub(super) fn dies(mut self, text: &str) -> Self {
        self.end = End::Dies(text.to_owned());
        self
    }

    /// Walpost publishes what Debezium's task fails with, or passes over it as no event
    /// is lost, and parks none.
    pub(super) fn goes_out(mut self) -> Self {
        self.goes_out = true;
        self
    }

    /// Debezium refuses the configuration and says `text`.
    pub(super) fn refused(mut self, text: &str) -> Self {
        self.end = End::Refuses(text.to_owned());
        self
    }

    /// Walpost may differ in this way.
    pub(super) fn differs(mut self, difference: Difference) -> Self {
        self.differs = Some(difference);
        self
    }

    /// Walpost alone refuses the configuration and says `text`.
    pub(super) fn refused_by_walpost(mut self, text: &str) -> Self {
        self.refusal = Some(text.to_owned());
        self
    }

    /// The other one, if it is Debezium, gets this property and Debezium does not, so
    /// that a test can see whether it is noticed.
    #[must_use]
    pub fn sabotaged(mut self, name: &str, value: &str) -> Self {
        self.sabotage.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The connectors read what is there and end.
    pub(super) fn never_streams(mut self) -> Self {
        self.streams = false;
        self
    }

    /// Whether a column names the partition of records.
    pub(super) fn places_by_column(&self) -> bool {
        let placement = self.property("transforms.outbox.table.fields.additional.placement");
        placement.is_some_and(|placement| placement.contains(":partition"))
    }

    /// `topic.prefix` of the connector.
    pub(super) fn topic_prefix<'a>(&'a self, token: &'a str) -> &'a str {
        match self.is_whole {
            true => token,
            false => self.property("topic.prefix").unwrap_or(token),
        }
    }

    /// The topic of the connector's heartbeats.
    pub(super) fn heartbeats(&self, token: &str) -> String {
        let prefix = self.property("topic.heartbeat.prefix").unwrap_or("__debezium-heartbeat");
        format!("{prefix}.{}", self.topic_prefix(token))
    }

    /// What the case sets a property to.
    pub(super) fn property(&self, name: &str) -> Option<&str> {
        let own = self.properties.iter().rev().find(|(known, _)| known == name);
        own.and_then(|(_, value)| value.as_deref())
    }

    /// Whether a converter asks the schema registry.
    pub(super) fn has_registry(&self) -> bool {
        let mut values = self.properties.iter().filter_map(|(_, value)| value.as_deref());
        values.any(|value| value.contains(REGISTRY))
    }

    /// What is to be run before anything else, in order.
    pub(super) fn setup_sql(&self) -> Vec<String> {
        let mut all = self.setup.clone();
        if !self.columns.is_empty() {
            let columns = self.columns.iter().map(|(name, kind)| format!("{name} {kind}"));
            all.push(format!("create table outbox ({})", joined(columns)));
        }
        all
    }

    /// The same case with its own token in every text.
    pub(super) fn with_token(&self, token: &str) -> Self {
        let own = |text: &String| text.replace(TOKEN, token);
        let owned = |texts: &[String]| texts.iter().map(own).collect();
        let properties = self.properties.iter();
        Self {
            setup: owned(&self.setup),
            columns: self.columns.iter().map(|(name, kind)| (own(name), own(kind))).collect(),
            properties: properties
                .map(|(name, value)| (own(name), value.as_ref().map(own)))
                .collect(),
            stored: owned(&self.stored),
            rows: owned(&self.rows),
            ..self.clone()
        }
    }

    fn insert_sql(&self, values: &[(&str, &str)]) -> String {
        let id = format!("'00000000-0000-4000-8000-{:012}'", self.inserts);
        let usual = [
            ("id", id.as_str()),
            ("aggregatetype", "'{n}Order'"),
            ("aggregateid", "'a1'"),
            ("type", "'OrderPlaced'"),
            ("payload", r#"'{"a": 1}'"#),
        ];
        let is_given = |name: &str| values.iter().any(|(given, _)| *given == name);
        let has = |name: &str| self.columns.iter().any(|(known, _)| known == name);
        let usual = usual.iter().filter(|(name, _)| has(name) && !is_given(name));
        let all: Vec<&(&str, &str)> = usual.chain(values).collect();
        let names = joined(all.iter().map(|(name, _)| (*name).to_owned()));
        let values = joined(all.iter().map(|(_, value)| (*value).to_owned()));
        format!("insert into outbox ({names}) values ({values})")
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_is_given_and_what_is_usual_of_the_rest() {
        let case = Case::new(Group::Routes, "x")
            .column("extra", "int")
            .insert([("extra", "7"), ("type", "null")])
            .with_token("t1");
        assert_eq!(
            case.rows,
            ["insert into outbox (id, aggregatetype, aggregateid, payload, extra, type) values \
              ('00000000-0000-4000-8000-000000000001', 't1Order', 'a1', '{\"a\": 1}', 7, null)"]
        );
        assert_eq!(
            case.setup_sql(),
            ["create table outbox (id uuid primary key, aggregatetype text not null, \
              aggregateid text not null, type text not null, payload jsonb, extra int)"]
        );
    }

    #[test]
    fn rows_behind_a_failure_are_not_expected() {
        let case = Case::new(Group::Routes, "x").insert([]).dies("Null").insert([]).insert([]);
        assert_eq!((case.expected, case.rows.len()), (1, 3));
    }

    #[test]
    fn options_of_converters_have_their_prefix() {
        let case = Case::new(Group::Converters, "x").value(Converter::BinaryOrJson);
        let names: Vec<&str> = case.properties.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "value.converter",
                "value.converter.delegate.converter.type",
                "value.converter.delegate.converter.type.schemas.enable"
            ]
        );
    }
}
