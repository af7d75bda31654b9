use crate::{
    check::{Check, check_filters, check_messages},
    judge::{Judge, Scope, Unknown},
    layer::Setting,
    properties::{InitialState, Properties},
    settings::{
        ContextHeaders, Converters, Database, Handling, Heartbeat, Messages, Offsets, Progress,
        Publication, SkippedOperations, Slot, Snapshot, Tables, TopicCreation, Transforms,
        converters, database, filters, handling, kafka, operations, slot, snapshot, topics,
        transforms,
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
    /// `topic.delimiter`, default a dot: stands between the parts of the names of
    /// a table's own topic and schemas.
    pub topic_delimiter: String,
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

    /// Refuses a property for a reason that its reader alone knows: a placeholder
    /// that leads nowhere, something that the program has not. That takes the place
    /// of what the verdict was, also of another reason.
    ///
    /// ```
    /// use walpost_connector::{Origin, Properties, Unknown, judge};
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/orders.json");
    /// # let file = std::fs::read(path)?;
    /// let mut judgement = judge(&Properties::read(&file)?, None, Unknown::Refuse);
    /// judgement.refuse(Origin::Connector, "slot.name", "that slot is somebody else's");
    /// let refused = judgement.into_connector().unwrap_err();
    /// assert_eq!(refused.first().property, "slot.name");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse(&mut self, origin: Origin, property: &str, note: impl Into<String>) {
        self.connector = None;
        self.verdicts.refuse(origin, property, note.into());
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
    let topic_delimiter = scope.text_or_default("topic.delimiter");
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
        let check = Check { transforms, converters, handling: &handling, heartbeat: &heartbeat };
        check.all(judge);
    }
    Some(Connector {
        settings: judge.take_settings(),
        initial_state,
        topic_prefix: topic_prefix?,
        topic_delimiter,
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
