//! Settings against each other, where each by itself is legal.

use walpost_encode::connect::{BinaryHandling, TimePrecision};

use crate::{
    choices::{AutoCreate, Choice, Tolerance},
    judge::{Judge, Scope},
    settings::{Converter, Converters, Handling, Heartbeat, Tables, Transforms, converters},
    table::{self, Of},
    verdicts::Origin,
};

/// Without a filter every table is an outbox, also those in which Walpost notes
/// what it could not publish.
pub(crate) fn check_filters(scope: &mut Scope<'_>, tables: &Tables, autocreate: AutoCreate) {
    let reads_all = matches!(autocreate, AutoCreate::AllTables | AutoCreate::Filtered);
    if reads_all && tables.has_no_filter() {
        let note = "it is missing, and every table of the database would be an outbox; write the \
                    outbox there, as public.outbox";
        scope.refuse("table.include.list", note);
    }
}

/// Logical messages are events only where a transform makes rows of them.
pub(crate) fn check_messages(judge: &mut Judge, transforms: &Transforms, autocreate: AutoCreate) {
    const WRITE: &str = "write the transform io.debezium.connector.postgresql.transforms.\
                         DecodeLogicalDecodingMessageContent before the router";
    if transforms.decodes_messages() {
        return;
    }
    let rules = table::connector().filter(|rule| rule.name.starts_with("message.prefix."));
    let mut scope = judge.scope((Of::Connector, Origin::Connector), "", rules, &[""]);
    scope.lay("message.prefix.include.list", Vec::new());
    for name in ["message.prefix.include.list", "message.prefix.exclude.list"] {
        if scope.has(name) {
            let note = "no transform decodes messages, and Walpost publishes none as they are";
            scope.ignore(name, format!("{note}; {WRITE}"));
        }
    }
    if autocreate == AutoCreate::NoTables {
        let note = format!("it has no table, and no transform decodes messages; {WRITE}");
        scope.refuse("publication.autocreate.mode", note);
    }
}

/// Whether the converters can carry what comes to them.
pub(crate) struct Check<'a> {
    pub(crate) transforms: &'a Transforms,
    pub(crate) converters: &'a Converters,
    pub(crate) handling: &'a Handling,
    pub(crate) heartbeat: &'a Heartbeat,
}

const KEY: &str = "key.converter";
const VALUE: &str = "value.converter";
const STRING_DELEGATE: &str = "write io.debezium.converters.BinaryDataConverter with \
                               delegate.converter.type = \
                               org.apache.kafka.connect.storage.StringConverter, which takes both";

impl Check<'_> {
    pub(crate) fn all(&self, judge: &mut Judge) {
        if self.converters.key.is_of_bytes_alone() {
            self.key_of_bytes(judge);
        }
        match self.converters.value.is_of_bytes_alone() {
            true => self.bytes(judge),
            false => self.text(judge),
        }
        self.nulls(judge);
        self.timestamp(judge);
        self.tolerated(judge);
        self.propagated_types(judge);
    }

    /// Debezium's router fails on times that are no numbers.
    fn timestamp(&self, judge: &mut Judge) {
        let alias = &self.transforms.router.alias;
        let name = format!("transforms.{alias}.table.field.event.timestamp");
        let mode = self.handling.columns.time;
        let fails = matches!(mode, TimePrecision::Connect | TimePrecision::IsoString);
        let mut scope = judge.plain(Origin::Connector);
        if fails && scope.given(&name).is_some() {
            let note = "and Debezium fails on it under this time.precision.mode, which changes \
                        nothing here";
            scope.tell(&name, note);
        }
    }

    /// What is tolerated is dropped, also by the router.
    fn tolerated(&self, judge: &mut Judge) {
        let tolerance = judge.plain(Origin::Connector).given("errors.tolerance");
        let tolerates = tolerance.as_deref().and_then(Tolerance::parse) == Some(Tolerance::All);
        let alias = &self.transforms.router.alias;
        let name = format!("transforms.{alias}.table.op.invalid.behavior");
        if tolerates && judge.replace(&name, "fatal", "error") {
            let note = "but errors.tolerance = all, so that such an update is an error in the log";
            judge.plain(Origin::Connector).tell(&name, note);
        }
    }

    /// Only members of a structure have defaults that JSON writes.
    fn nulls(&self, judge: &mut Judge) {
        let Converter::Json(json) = self.converters.value else { return };
        if !json.replace_null_with_default && !self.transforms.router.makes_structure() {
            let origin = converters::origin(judge, VALUE);
            let name = format!("{VALUE}.replace.null.with.default");
            let note = "but a bare payload that is NULL is its column's default all the same, as \
                        in Debezium";
            judge.plain(origin).tell(&name, note);
        }
    }

    /// Where the key's converter takes bytes alone.
    fn key_of_bytes(&self, judge: &mut Judge) {
        if self.handling.columns.binary != BinaryHandling::Bytes {
            let note = format!(
                "it takes bytes alone, and binary.handling.mode makes bytea a text; \
                 {STRING_DELEGATE}"
            );
            refuse(judge, KEY, &note);
        }
        self.no_heartbeats(judge, KEY);
        let origin = converters::origin(judge, KEY);
        judge.plain(origin).tell(KEY, "for a key column of the type bytea alone");
    }

    /// Where the value's converter takes bytes alone.
    fn bytes(&self, judge: &mut Judge) {
        // Of a payload of bytes nothing is expanded.
        if self.transforms.router.has_envelope {
            let note = "it takes bytes alone, and an envelope is a structure; write \
                        org.apache.kafka.connect.json.JsonConverter";
            refuse(judge, VALUE, note);
        }
        if self.handling.columns.binary != BinaryHandling::Bytes {
            let note = "it takes bytes alone, and binary.handling.mode makes bytea a text; \
                        write bytes there";
            refuse(judge, VALUE, note);
        }
        self.no_heartbeats(judge, VALUE);
        let origin = converters::origin(judge, VALUE);
        let note = match self.transforms.decodes_messages() {
            true => {
                "for a payload column of the type bytea alone; what a message decodes to is none, \
                 and is parked where Debezium's task fails"
            }
            false => "for a payload column of the type bytea alone",
        };
        judge.plain(origin).tell(VALUE, note);
    }

    /// No converter of bytes alone takes those, which are structures.
    fn no_heartbeats(&self, judge: &mut Judge, converter: &str) {
        if self.heartbeat.interval_ms.is_some() {
            let note = "it takes bytes alone, and Debezium's task fails at the first heartbeat; \
                        write io.debezium.converters.BinaryDataConverter with \
                        delegate.converter.type = org.apache.kafka.connect.json.JsonConverter, or \
                        remove heartbeat.interval.ms";
            refuse(judge, converter, note);
        }
    }

    fn text(&self, judge: &mut Judge) {
        let is_text = matches!(self.converters.value, Converter::String | Converter::StringIn(_));
        if is_text && self.transforms.router.makes_structure() {
            let note = "but a structure becomes Java's text of it, Struct{…}, as in Debezium; \
                        org.apache.kafka.connect.json.JsonConverter writes JSON";
            let origin = converters::origin(judge, VALUE);
            judge.plain(origin).tell(VALUE, note);
        }
    }

    /// Parameters of schemas: nobody sees them where no schema is written.
    fn propagated_types(&self, judge: &mut Judge) {
        let Converters { key, value, .. } = self.converters;
        let writes = key.writes_schemas() || value.writes_schemas();
        let mut scope = judge.plain(Origin::Connector);
        for name in ["column.propagate.source.type", "datatype.propagate.source.type"] {
            match scope.has(name) {
                true if writes => {
                    let note = "Walpost writes no parameters of schemas, and a converter writes \
                                schemas; remove it, or write schemas.enable = false";
                    scope.refuse(name, note);
                }
                true => scope.ignore(name, "no converter writes schemas"),
                false => {}
            }
        }
    }
}

/// Refuses a converter where it is named.
fn refuse(judge: &mut Judge, name: &str, note: &str) {
    let origin = converters::origin(judge, name);
    judge.plain(origin).refuse(name, note);
}
