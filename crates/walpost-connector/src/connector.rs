use crate::{
    choices::AutoCreate,
    judge::{Judge, Unknown},
    properties::{InitialState, Properties},
    settings::{
        ContextHeaders, Converter, Converters, Database, Errors, Handling, Heartbeat, Kafka,
        Messages, Offsets, OutboxRouter, Progress, Publication, Queue, SkippedOperations, Slot,
        Snapshot, Tables, TopicCreation, Transactions, Transforms, converters, database, filters,
        handling, kafka, operations, slot, snapshot, topics, transforms,
    },
    table,
    verdicts::{Origin, Refused, Verdict, Verdicts},
};

/// A connector's settings, all of them legal and none against another.
///
/// Secrets do not show in `Debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct Connector {
    /// `name`.
    pub name: String,
    /// In which state it begins.
    pub initial_state: InitialState,
    /// `topic.prefix`: names the source.
    pub topic_prefix: String,
    /// How the database is reached.
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
    /// What becomes of an event that fails.
    pub errors: Errors,
    /// Bounds on what waits.
    pub queue: Queue,
    /// Transactions of Kafka.
    pub transactions: Transactions,
    /// The producer.
    pub kafka: Kafka,
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
        verdicts.rows.push(crate::verdicts::Row {
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
const ELSEWHERE_OF_WORKER: [&str; 9] = [
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "producer.",
    "sasl.",
    "ssl.",
    "security.protocol",
    "bootstrap.servers",
    "client.dns.lookup",
];

fn read(judge: &mut Judge, initial_state: InitialState) -> Option<Connector> {
    judge.scope(Origin::Worker, "", table::WORKER, &ELSEWHERE_OF_WORKER);
    let offsets = offsets(judge);
    let mut scope = judge.scope(Origin::Connector, "", table::connector(), &ELSEWHERE);
    let name = scope.require("name", "a name for the connector");
    if name.as_ref().is_some_and(|name| name.chars().any(char::is_control)) {
        scope.refuse("name", "it has control characters; write it without");
    }
    scope.require("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
    let topic_prefix = scope.require("topic.prefix", "a name for the source");
    let database = database::read(&mut scope);
    let slot = slot::slot(&mut scope);
    let publication = slot::publication(&mut scope);
    let progress = slot::progress(&mut scope);
    let tables = filters::tables(&mut scope);
    let messages = operations::messages(&mut scope);
    let snapshot = snapshot::read(&mut scope);
    let skipped = handling::skipped(&mut scope);
    let handling = handling::read(&scope);
    let context_headers = handling::context_headers(&mut scope);
    let heartbeat = operations::heartbeat(&mut scope, progress.flush);
    let errors = operations::errors(&mut scope);
    let queue = operations::queue(&mut scope);
    let transactions = operations::transactions(&mut scope);
    let transforms = transforms::read(judge);
    let converters = converters::read(judge);
    let topic_creation = topics::read(judge);
    let kafka = kafka::read(judge);
    if let Some(transforms) = &transforms {
        check_messages(judge, transforms, publication.autocreate);
    }
    if let Some((transforms, converters)) = transforms.as_ref().zip(converters.as_ref()) {
        check_converters(judge, &transforms.router, converters, handling);
    }
    Some(Connector {
        name: name?,
        initial_state,
        topic_prefix: topic_prefix?,
        database: database?,
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
        errors,
        queue,
        transactions,
        kafka,
        topic_creation,
        offsets,
    })
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
    let mut scope = judge.plain(Origin::Connector);
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

/// Whether the converters can carry what the router makes.
fn check_converters(
    judge: &mut Judge,
    router: &OutboxRouter,
    converters: &Converters,
    handling: Handling,
) {
    const DELEGATE: &str = "write io.debezium.converters.BinaryDataConverter with delegate.converter.type = \
         org.apache.kafka.connect.storage.StringConverter, which takes both";
    let is_bare = |converter: &Converter| {
        matches!(converter, Converter::ByteArray | Converter::BinaryData { delegate: None })
    };
    let at = |judge: &Judge, name: &str| converters::origin(judge, name);
    if is_bare(&converters.key) {
        let origin = at(judge, "key.converter");
        let note = format!("it takes bytes alone, and a key is mostly none; {DELEGATE}");
        judge.plain(origin).refuse("key.converter", note);
    }
    let origin = at(judge, "value.converter");
    let mut scope = judge.plain(origin);
    let value = "value.converter";
    match &converters.value {
        bare if is_bare(bare) && router.makes_structure() => {
            let note = "it takes bytes alone, and an envelope or expanded JSON is a structure; \
                        write org.apache.kafka.connect.json.JsonConverter";
            scope.refuse(value, note);
        }
        bare if is_bare(bare) && handling.binary != crate::choices::BinaryHandling::Bytes => {
            let note = "it takes bytes alone, and binary.handling.mode makes bytea a text; \
                        write bytes there";
            scope.refuse(value, note);
        }
        bare if is_bare(bare) => scope.tell(value, "for a payload column of the type bytea alone"),
        Converter::String if router.makes_structure() => {
            let note = "but a structure becomes Java's text of it, Struct{…}, as in Debezium; \
                        org.apache.kafka.connect.json.JsonConverter writes JSON";
            scope.tell(value, note);
        }
        _ => {}
    }
    propagated_types(judge, converters);
}

/// Parameters of schemas: nobody sees them where no schema is written.
fn propagated_types(judge: &mut Judge, converters: &Converters) {
    let writes = converters.key.writes_schemas() || converters.value.writes_schemas();
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
