use std::sync::Arc;

use walpost_event::{
    Field, Identity, NamedField, Operation, Record, RecordValue, Relation, Row, RowChange, type_oid,
};

use crate::{
    config::{InvalidOperation, RouterConfig, key},
    error::{ConfigError, RouteError, RouteErrorKind},
    headers,
    message::MessageRows,
    placement::{self, Placement, Target},
    plan::{Placed, Plan, Plans},
    timestamp,
    topic::Topics,
    value,
};

/// Turns outbox rows into records.
///
/// Columns are looked up once per relation and topics once per route value;
/// what is remembered is bounded. Beyond that a row costs no regex, and no
/// allocation but for an envelope. A clone remembers what the original does.
#[derive(Clone, Debug)]
pub struct Router {
    config: RouterConfig,
    placements: Vec<Placement>,
    plans: Plans,
    topics: Topics,
    messages: MessageRows,
    id_header: Arc<str>,
    payload_member: Arc<str>,
}

/// What became of a row.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "records are nearly all outcomes, and a box would be an allocation for each"
)]
pub enum Routed {
    /// It is an event.
    Record(Record),
    /// It is none.
    Skipped(SkipReason),
}

/// Why a row is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The row was updated; to be logged, as an error if so configured, else
    /// as a warning.
    Updated {
        /// `table.op.invalid.behavior` is `error`.
        log_as_error: bool,
    },
    /// The row was deleted. Nothing to log: outbox rows are.
    Deleted,
}

impl Router {
    /// Checks `config` as a whole.
    ///
    /// # Errors
    /// [`ConfigError`] for an empty column name, a regex that does not compile
    /// or is none in Java, a replacement that is malformed or names
    /// an unknown group, and a malformed placement.
    pub fn new(config: RouterConfig) -> Result<Self, ConfigError> {
        check_names(&config)?;
        let placements = match &config.additional_placement {
            Some(list) => placement::parse(list)?,
            None => Vec::new(),
        };
        Ok(Self {
            placements,
            plans: Plans::default(),
            topics: Topics::new(&config)?,
            messages: MessageRows::new(&config.event_payload),
            id_header: "id".into(),
            payload_member: "payload".into(),
            config,
        })
    }

    /// Judges no payload: a record is then never a
    /// [`Tombstone`](RecordValue::Tombstone), whatever
    /// [`tombstone_on_empty_payload`](RouterConfig::tombstone_on_empty_payload) says.
    /// Of who knows more of a payload than its text.
    #[must_use]
    pub fn without_tombstones(mut self) -> Self {
        self.config.tombstone_on_empty_payload = false;
        self
    }

    /// The configuration.
    pub fn config(&self) -> &RouterConfig {
        &self.config
    }

    /// Whether a topic of this name has the form of `route.topic.replacement`,
    /// so that some route value may lead there. Where the replacement is groups
    /// alone, which every name has the form of, false.
    ///
    /// ```
    /// use walpost_router::{Router, RouterConfig};
    ///
    /// let router = Router::new(RouterConfig::default())?;
    /// assert!(router.has_form_of("outbox.event.dead"));
    /// assert!(!router.has_form_of("dead"));
    /// # Ok::<(), walpost_router::ConfigError>(())
    /// ```
    pub fn has_form_of(&self, topic: &str) -> bool {
        self.topics.has_form_of(topic)
    }

    /// Names of the columns whose NULLs stay, where Debezium reads a default
    /// instead of any other NULL: those that route, date and partition an event.
    ///
    /// ```
    /// use walpost_router::{Router, RouterConfig};
    ///
    /// let router = Router::new(RouterConfig {
    ///     additional_placement: Some("type:header,shard:partition".to_owned()),
    ///     ..RouterConfig::default()
    /// })?;
    /// assert_eq!(router.columns_without_defaults(), ["aggregatetype", "shard"]);
    /// # Ok::<(), walpost_router::ConfigError>(())
    /// ```
    pub fn columns_without_defaults(&self) -> Vec<String> {
        let timestamp = self.config.event_timestamp.as_deref();
        let partitions =
            self.placements.iter().filter(|placement| placement.target == Target::Partition);
        [Some(&*self.config.route_by_field), timestamp]
            .into_iter()
            .flatten()
            .chain(partitions.map(|placement| &*placement.column))
            .map(str::to_owned)
            .collect()
    }

    /// Columns that are members of the envelope beside the payload, in order, each
    /// with the member's name; none for no envelope.
    ///
    /// ```
    /// use walpost_router::{Router, RouterConfig};
    ///
    /// let router = Router::new(RouterConfig {
    ///     additional_placement: Some("type:header,shard:envelope:part".to_owned()),
    ///     ..RouterConfig::default()
    /// })?;
    /// assert_eq!(router.envelope_columns(), [("shard".into(), "part".into())]);
    /// # Ok::<(), walpost_router::ConfigError>(())
    /// ```
    pub fn envelope_columns(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let members = self.placements.iter().filter(|entry| entry.target == Target::Envelope);
        members.map(|entry| (Arc::clone(&entry.column), Arc::clone(&entry.name))).collect()
    }

    /// Routes one row.
    ///
    /// # Errors
    /// [`RouteError`] if the row cannot become a record under this
    /// configuration; it is to be parked under its
    /// [`identity`](Self::identity).
    pub fn route(&mut self, change: &RowChange) -> Result<Routed, RouteError> {
        match change.operation {
            Operation::Insert => self.insert(&change.row).map(Routed::Record),
            Operation::Update => self.update(change.row.relation()).map(Routed::Skipped),
            Operation::Delete => Ok(Routed::Skipped(SkipReason::Deleted)),
        }
    }

    /// Who the event of `row` is: whatever of it there is, even if the row
    /// cannot be routed.
    pub fn identity(&self, row: &Row) -> Identity {
        let text = |name: &str| value::display_text(row, row.relation().column_index(name)?);
        Identity {
            event_id: text(&self.config.event_id),
            aggregate_type: text(&self.config.route_by_field),
            aggregate_id: text(&self.config.event_key),
        }
    }

    /// The row that the content of a logical message stands for: a JSON object
    /// whose members are the columns.
    ///
    /// Strings give their text, `null` gives NULL, and everything else its JSON
    /// text exactly as written. Types follow: `text`, `integer`, `bigint` or
    /// `numeric`, `boolean`, `json`. With the member
    /// `"payload_encoding": "base64"` the payload is the `bytea` that it
    /// encodes. The row's relation is [`MESSAGE_SCHEMA`](crate::MESSAGE_SCHEMA)
    /// and [`MESSAGE_RELATION`](crate::MESSAGE_RELATION), OID 0.
    ///
    /// # Errors
    /// [`RouteError`] if the content is no JSON object, a member occurs twice,
    /// or the payload is not what its encoding says.
    pub fn row_from_message(&mut self, content: &[u8]) -> Result<Row, RouteError> {
        self.messages.row(content)
    }

    fn update(&self, relation: &Relation) -> Result<SkipReason, RouteError> {
        match self.config.invalid_operation {
            InvalidOperation::Warn => Ok(SkipReason::Updated { log_as_error: false }),
            InvalidOperation::Error => Ok(SkipReason::Updated { log_as_error: true }),
            InvalidOperation::Fatal => {
                Err(RouteError::new(RouteErrorKind::UpdatedRow, relation, None))
            }
        }
    }

    fn insert(&mut self, row: &Row) -> Result<Record, RouteError> {
        let plan = self.plans.get(&self.config, &self.placements, row.relation())?;
        let Some(route) = plan.field(row, plan.route)?.bytes else {
            return Err(plan.error(RouteErrorKind::NullRouteValue, plan.route));
        };
        let topic = self.topics.topic(&route).map_err(|kind| plan.error(kind, plan.route))?;
        let key = plan.field(row, plan.key)?;
        let payload = plan.field(row, plan.payload)?;
        let value = if self.config.tombstone_on_empty_payload && is_empty(&payload) {
            RecordValue::Tombstone
        } else if plan.has_envelope {
            let payload = NamedField { name: Arc::clone(&self.payload_member), field: payload };
            RecordValue::Envelope(envelope(plan, row, payload)?)
        } else {
            RecordValue::Payload(payload)
        };
        Ok(Record {
            identity: Identity {
                event_id: value::display_text(row, plan.id),
                aggregate_type: value::display_text(row, plan.route),
                aggregate_id: value::display_text(row, plan.key),
            },
            topic,
            partition: partition(plan, row)?,
            key: key.bytes.is_some().then_some(key),
            value,
            headers: headers::of(plan, row, &self.id_header, self.config.null_header)?,
            timestamp_ms: timestamp_ms(plan, row)?,
        })
    }
}

fn check_names(config: &RouterConfig) -> Result<(), ConfigError> {
    let names = [
        (key::EVENT_ID, Some(&config.event_id)),
        (key::EVENT_KEY, Some(&config.event_key)),
        (key::EVENT_TYPE, Some(&config.event_type)),
        (key::EVENT_PAYLOAD, Some(&config.event_payload)),
        (key::EVENT_TIMESTAMP, config.event_timestamp.as_ref()),
        (key::ROUTE_BY, Some(&config.route_by_field)),
    ];
    for (key, name) in names {
        if name.is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::Empty { key });
        }
    }
    Ok(())
}

/// NULL, or blank as Java's `trim` sees it. An empty `bytea` is not: Debezium
/// looks at its Java text.
fn is_empty(payload: &Field) -> bool {
    match &payload.bytes {
        None => true,
        Some(_) if payload.type_oid == type_oid::BYTEA => false,
        Some(text) => text.iter().all(|byte| *byte <= b' '),
    }
}

fn envelope(plan: &Plan, row: &Row, payload: NamedField) -> Result<Vec<NamedField>, RouteError> {
    let mut members = Vec::with_capacity(1 + plan.envelope.len());
    members.push(payload);
    for placed in &plan.envelope {
        members.push(named(plan, row, placed)?);
    }
    Ok(members)
}

pub(crate) fn named(plan: &Plan, row: &Row, placed: &Placed) -> Result<NamedField, RouteError> {
    Ok(NamedField { name: Arc::clone(&placed.name), field: plan.field(row, placed.index)? })
}

/// The last placement wins, but each must be legal.
fn partition(plan: &Plan, row: &Row) -> Result<Option<i32>, RouteError> {
    let mut partition = None;
    for index in &plan.partitions {
        partition = match plan.field(row, *index)?.bytes {
            Some(text) => Some(
                parse_partition(&text)
                    .ok_or_else(|| plan.error(RouteErrorKind::InvalidPartition, *index))?,
            ),
            None => None,
        };
    }
    Ok(partition)
}

fn parse_partition(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|partition| *partition >= 0)
}

fn timestamp_ms(plan: &Plan, row: &Row) -> Result<Option<i64>, RouteError> {
    let Some((index, zone)) = plan.timestamp else {
        return Ok(None);
    };
    timestamp::timestamp_ms(row, index, zone).map_err(|kind| plan.error(kind, index))
}
