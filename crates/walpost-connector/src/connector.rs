use walpost_encode::connect::{BinaryHandling, TimePrecision};

use crate::{
    choices::AutoCreate,
    judge::{Judge, Scope, Unknown},
    layer::Setting,
    properties::{InitialState, Properties},
    settings::{
        Action, ContextHeaders, Converter, Converters, Database, Handling, HeaderConverter,
        Heartbeat, Messages, Offsets, Progress, Publication, SkippedOperations, Slot, Snapshot,
        Tables, TopicCreation, Transforms, converters, database, filters, handling, kafka,
        operations, slot, snapshot, topics, transforms,
    },
    table::{self, Of},
    verdicts::{Origin, Refused, Row, Verdict, Verdicts},
};

/// A connector, all of its parts legal and none against another.
///
/// What a key of Walpost's own can say is in [`settings`](Self::settings), and
/// nowhere else; the rest is here. Secrets do not show in `Debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct Connector {
    /// Keys of Walpost's own configuration, each at most once.
    pub settings: Vec<Setting>,
    /// In which state it begins.
    pub initial_state: InitialState,
    /// `topic.prefix`: names the source.
    pub topic_prefix: String,
    /// Statements of its SQL sessions.
    pub database: Database,
    /// The slot.
    pub slot: Slot,
    /// The publication.
    pub publication: Publication,
    /// How the slot is told of progress.
    pub progress: Progress,
    /// Which tables and columns are read.
    pub tables: Tables,
    /// Which logical messages are events.
    pub messages: Messages,
    /// Rows that are there before the stream.
    pub snapshot: Snapshot,
    /// What is no event.
    pub skipped: SkippedOperations,
    /// What columns become.
    pub handling: Handling,
    /// What happens to a record; the router is among it.
    pub transforms: Transforms,
    /// The bytes of keys, values and headers.
    pub converters: Converters,
    /// The headers that Debezium adds.
    pub context_headers: ContextHeaders,
    /// Records that say that it lives.
    pub heartbeat: Heartbeat,
    /// How missing topics are made; `None` where the brokers do it or nobody.
    pub topic_creation: Option<TopicCreation>,
    /// Where Kafka Connect keeps its position.
    pub offsets: Offsets,
}

/// What was found out of a connector's files.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Every property with its verdict.
    pub verdicts: Verdicts,
    /// The settings, if nothing is refused.
    pub connector: Option<Connector>,
}

impl Judgement {
    /// The keys of Walpost's own configuration that the connector sets, with the
    /// property behind each and its place; none if something is refused.
    ///
    /// ```
    /// use walpost_connector::{Properties, Unknown, judge};
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/quarkus.json");
    /// # let file = std::fs::read(path)?;
    /// let judgement = judge(&Properties::read(&file)?, None, Unknown::Refuse);
    /// let shown: Vec<String> =
    ///     judgement.settings().iter().map(|setting| format!("{setting:?}")).collect();
    /// assert!(shown.contains(&"pipeline.initial = \"skip\" by snapshot.mode".to_owned()));
    /// assert!(shown.contains(&"postgres.url = *** by database.hostname".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> &[Setting] {
        self.connector.as_ref().map(|connector| &*connector.settings).unwrap_or_default()
    }

    /// The settings, with every property's verdict.
    ///
    /// # Errors
    /// [`Refused`] with the first property that is.
    pub fn into_connector(self) -> Result<(Connector, Verdicts), Refused> {
        match self.connector {
            Some(connector) => Ok((connector, self.verdicts)),
            None => {
                let count = self.verdicts.refused().count();
                let first = self.verdicts.refused().next().cloned();
                let first = first.expect("without a connector something is refused");
                Err(Refused { count, first: Box::new(first) })
            }
        }
    }
}

/// Judges a connector's properties one by one, and against each other. Those of
/// a worker are what Kafka Connect takes of its file for a connector that does
/// not say otherwise. Placeholders should be resolved before.
///
/// ```
/// use walpost_connector::{Properties, Unknown, Verdict, judge};
///
/// let file = br#"{"name": "orders", "config": {
///     "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
///     "database.hostname": "localhost", "database.user": "app", "database.dbname": "shop",
///     "topic.prefix": "orders", "slot.nmae": "orders"
/// }}"#;
/// let judgement = judge(&Properties::read(file)?, None, Unknown::Refuse);
/// let row = judgement.verdicts.row("slot.nmae").unwrap();
/// assert_eq!(row.verdict, Verdict::Refused);
/// assert!(row.note.contains("did you mean slot.name?"));
/// assert!(judgement.into_connector().is_err());
/// # Ok::<(), walpost_connector::ReadError>(())
/// ```
pub fn judge(connector: &Properties, worker: Option<&Properties>, unknown: Unknown) -> Judgement {
    let mut judge = Judge::new(connector, worker, unknown);
    let settings = read(&mut judge, connector.initial_state());
    leave(&mut judge);
    let is_usable = judge.is_usable();
    let mut verdicts = judge.verdicts();
    if is_usable && settings.is_none() {
        verdicts.rows.push(Row {
            property: "name".to_owned(),
            value: None,
            origin: Origin::Connector,
            at: None,
            verdict: Verdict::Refused,
            note: "its properties make no connector; correct them".to_owned(),
        });
    }
    Judgement { verdicts, connector: settings.filter(|_| is_usable) }
}

/// What stands before names that other scopes are about.
const ELSEWHERE: [&str; 7] = [
    "transforms.",
    "predicates.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "producer.override.",
    "topic.creation.",
];
const ELSEWHERE_OF_WORKER: [&str; 4] =
    ["key.converter.", "value.converter.", "header.converter.", "producer."];

fn read(judge: &mut Judge, initial_state: InitialState) -> Option<Connector> {
    judge.scope((Of::Worker, Origin::Worker), "", table::WORKER, &ELSEWHERE_OF_WORKER);
    let offsets = offsets(judge);
    let of = (Of::Connector, Origin::Connector);
    let mut scope = judge.scope(of, "", table::connector(), &ELSEWHERE);
    name(&mut scope);
    scope.require("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
    let topic_prefix = scope.require("topic.prefix", "a name for the source");
    let database = database::read(&mut scope);
    let slot = slot::slot(&mut scope);
    let publication = slot::publication(&mut scope);
    let progress = slot::progress(&mut scope);
    let tables = filters::tables(&mut scope);
    check_filters(&mut scope, &tables, publication.autocreate);
    let messages = operations::messages(&mut scope);
    let snapshot = snapshot::read(&mut scope);
    let skipped = handling::skipped(&mut scope);
    let handling = handling::read(&scope);
    let context_headers = handling::context_headers(&mut scope);
    let heartbeat = operations::heartbeat(&mut scope, progress.flush);
    operations::queue(&mut scope);
    operations::transactions(&mut scope);
    scope.lay_plain();
    let transforms = transforms::read(judge);
    let converters = converters::read(judge);
    let topic_creation = topics::read(judge);
    kafka::read(judge);
    if let Some(transforms) = &transforms {
        check_messages(judge, transforms, publication.autocreate);
    }
    if let Some((transforms, converters)) = transforms.as_ref().zip(converters.as_ref()) {
        let check = Check { transforms, converters, handling, heartbeat: &heartbeat };
        check.all(judge);
    }
    Some(Connector {
        settings: judge.take_settings(),
        initial_state,
        topic_prefix: topic_prefix?,
        database,
        slot,
        publication,
        progress,
        tables,
        messages,
        snapshot,
        skipped,
        handling,
        transforms: transforms?,
        converters: converters?,
        context_headers,
        heartbeat,
        topic_creation,
        offsets,
    })
}

/// Bytes of the name of a pipeline.
const MAX_NAME_BYTES: usize = 63;

fn name(scope: &mut Scope<'_>) {
    const NAME: &str = "name";
    let Some(name) = scope.require(NAME, "a name for the connector") else { return };
    if name.chars().any(char::is_control) {
        scope.refuse(NAME, "it has control characters; write it without");
    }
    if name.len() > MAX_NAME_BYTES {
        let note = format!(
            "it has {} bytes, and is the name of the pipeline; write at most {MAX_NAME_BYTES}",
            name.len()
        );
        scope.refuse(NAME, note);
    }
}

/// Without a filter every table is an outbox, also those in which Walpost notes
/// what it could not publish.
fn check_filters(scope: &mut Scope<'_>, tables: &Tables, autocreate: AutoCreate) {
    let reads_all = matches!(autocreate, AutoCreate::AllTables | AutoCreate::Filtered);
    if reads_all && tables.has_no_filter() {
        let note = "it is missing, and every table of the database would be an outbox; write the \
                    outbox there, as public.outbox";
        scope.refuse("table.include.list", note);
    }
}

fn offsets(judge: &mut Judge) -> Offsets {
    let worker = judge.plain(Origin::Worker);
    let topic = worker.given("offset.storage.topic");
    let file = worker.given("offset.storage.file.filename").map(Into::into);
    let own = judge.plain(Origin::Connector).given("offsets.storage.topic");
    Offsets { topic: own.or(topic), file }
}

/// What no other scope was about.
fn leave(judge: &mut Judge) {
    kafka::leave_worker(judge);
    for prefix in ELSEWHERE {
        judge.leave(Origin::Connector, prefix, Verdict::Ignored, "nothing that is used reads it");
    }
}

/// Logical messages are events only where a transform makes rows of them.
fn check_messages(judge: &mut Judge, transforms: &Transforms, autocreate: AutoCreate) {
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
struct Check<'a> {
    transforms: &'a Transforms,
    converters: &'a Converters,
    handling: Handling,
    heartbeat: &'a Heartbeat,
}

const KEY: &str = "key.converter";
const VALUE: &str = "value.converter";
const STRING_DELEGATE: &str = "write io.debezium.converters.BinaryDataConverter with \
                               delegate.converter.type = \
                               org.apache.kafka.connect.storage.StringConverter, which takes both";

impl Check<'_> {
    fn all(&self, judge: &mut Judge) {
        if self.converters.key.is_of_bytes_alone() {
            let note = format!("it takes bytes alone, and a key is mostly none; {STRING_DELEGATE}");
            refuse(judge, KEY, &note);
        }
        match self.converters.value.is_of_bytes_alone() {
            true => self.bytes(judge),
            false => self.text(judge),
        }
        self.messages(judge);
        self.nulls(judge);
        self.timestamp(judge);
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

    /// Where the value's converter takes bytes alone.
    fn bytes(&self, judge: &mut Judge) {
        if self.transforms.router.makes_structure() {
            let note = "it takes bytes alone, and an envelope or expanded JSON is a structure; \
                        write org.apache.kafka.connect.json.JsonConverter";
            refuse(judge, VALUE, note);
        }
        if self.handling.columns.binary != BinaryHandling::Bytes {
            let note = "it takes bytes alone, and binary.handling.mode makes bytea a text; \
                        write bytes there";
            refuse(judge, VALUE, note);
        }
        if self.heartbeat.interval_ms.is_some() {
            let note = "it takes bytes alone, and Debezium's task fails at the first heartbeat; \
                        write io.debezium.converters.BinaryDataConverter with \
                        delegate.converter.type = org.apache.kafka.connect.json.JsonConverter, or \
                        remove heartbeat.interval.ms";
            refuse(judge, VALUE, note);
        }
        let origin = converters::origin(judge, VALUE);
        judge.plain(origin).tell(VALUE, "for a payload column of the type bytea alone");
    }

    fn text(&self, judge: &mut Judge) {
        let is_text = self.converters.value == Converter::String;
        if is_text && self.transforms.router.makes_structure() {
            let note = "but a structure becomes Java's text of it, Struct{…}, as in Debezium; \
                        org.apache.kafka.connect.json.JsonConverter writes JSON";
            let origin = converters::origin(judge, VALUE);
            judge.plain(origin).tell(VALUE, note);
        }
    }

    /// What is decoded has types of its own in Debezium, all of them optional and
    /// all numbers floating point, which no column here has.
    fn messages(&self, judge: &mut Judge) {
        if !self.transforms.decodes_messages() {
            return;
        }
        let Converters { key, value, header } = self.converters;
        let with_types = [
            (KEY, key.writes_types()),
            (VALUE, value.writes_types()),
            ("header.converter", matches!(header, HeaderConverter::Json(_))),
        ];
        for (name, _) in with_types.into_iter().filter(|(_, writes)| *writes) {
            let note = "what a message decodes to is written as text alone; write \
                        org.apache.kafka.connect.storage.StringConverter";
            refuse(judge, name, note);
        }
        for step in self.transforms.before.iter().filter(|s| s.action == Action::DecodeMessages) {
            let note = "where a member that is no text, such as a number or an object, is written \
                        as the message has it: Debezium writes what Java makes of it";
            judge.plain(Origin::Connector).tell(&format!("transforms.{}.type", step.alias), note);
        }
        if self.transforms.router.makes_structure() {
            let note = "an envelope or expanded JSON of a decoded message is not built; write \
                        placements as headers, and table.expand.json.payload = false";
            let name = format!("transforms.{}.type", self.transforms.router.alias);
            judge.plain(Origin::Connector).refuse(&name, note);
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
