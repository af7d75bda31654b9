//! Records as Kafka Connect makes them under Debezium.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use uuid::Uuid;
use walpost_encode::{
    EncodeError, Part, Unencoded, UnknownSchema,
    connect::{
        Condition, Converters, RowShape, ShapeOptions, Text, TransformChain, Transformed,
        TypedHeader, TypedRecord, TypedValue, Typing, Value,
    },
};
use walpost_event::{Message, Record, Relation, Row, RowChange, error_chain};
use walpost_router::Router;

use super::Unmade;
use crate::{
    asking::{Answer, Question},
    catalog::TableDescription,
    config::legal_topic,
    encoding::{ConnectOptions, ContextHeaders},
    parked::{ParkReason, Parking},
};

/// Tables whose rows are events.
const MAX_SHAPES: usize = 100;
/// Schemas that the registry has refused, until they are told.
const MAX_REFUSED: usize = 100;

/// What makes messages of rows as a connector does.
pub(super) struct Connect {
    typing: Typing,
    before: TransformChain,
    router: Option<Condition>,
    after: TransformChain,
    converters: Converters,
    shape: ShapeOptions,
    /// The one used last at the end.
    shapes: Vec<(Arc<Relation>, RowShape)>,
    context: Vec<TypedHeader>,
    /// Of the records of logical messages.
    message_topic: Arc<str>,
    /// Schemas that have no id, and why: told once each, so that the registry is
    /// asked again about the next event.
    refused: HashMap<UnknownSchema, String>,
}

impl Connect {
    pub(super) fn new(options: ConnectOptions, router: &Router) -> Self {
        let ConnectOptions {
            mut shape,
            mut typing,
            transforms,
            converters,
            registries: _,
            context_headers,
        } = options;
        let version = typing.version_column.iter().map(|column| column.to_string());
        for column in router.columns_without_defaults().into_iter().chain(version) {
            if !shape.without_defaults.contains(&column) {
                shape.without_defaults.push(column);
            }
        }
        typing.payload_column = router.config().event_payload.as_str().into();
        typing.envelope = router.envelope_columns();
        typing.tombstone_on_empty_payload = router.config().tombstone_on_empty_payload;
        Self {
            context: context(context_headers, &shape.topic_prefix),
            message_topic: format!("{}.message", shape.topic_prefix).into(),
            typing: Typing::new(typing),
            before: TransformChain::new(transforms.before),
            router: transforms.router,
            after: TransformChain::new(transforms.after),
            converters,
            shape,
            shapes: Vec::new(),
            refused: HashMap::new(),
        }
    }

    /// The message of a row, or of a logical message of this content.
    pub(super) fn message(
        &mut self,
        change: &RowChange,
        content: Option<&Bytes>,
        mut route: impl FnMut(&RowChange) -> Result<Record, Parking>,
        judge_topic: impl Fn(&str) -> Result<(), Parking>,
    ) -> Result<Message, Unmade> {
        let relation = change.row.relation();
        let (topic, with_defaults) = match content {
            Some(_) => (Arc::clone(&self.message_topic), None),
            None => {
                let shape = self.shape_of(relation)?;
                (Arc::clone(shape.topic()), shape.with_defaults(&change.row))
            }
        };
        let old_key = self.old_key(change)?;
        let mut before = self.before_router(topic, old_key, content.is_some())?;
        let replaced = with_defaults.map(RowChange::insert);
        let change = replaced.as_ref().unwrap_or(change);
        let record = route(change)?;
        let mut typed = self.typed(&record, &change.row, content)?;
        before.headers.append(&mut typed.headers);
        typed.headers = before.headers;
        match self.after.apply(&mut typed).map_err(undecodable)? {
            Transformed::Dropped => return Err(Unmade::Dropped),
            Transformed::Kept | Transformed::Decoded => {}
        }
        judge_topic(&typed.topic)?;
        self.converters.convert(&typed).map_err(|unencoded| match unencoded {
            Unencoded::Park(error) => undecodable(error).into(),
            Unencoded::Ask { part, schema } => match legal_topic("its topic", &typed.topic) {
                Ok(()) => self.unknown(part, schema),
                // Subjects have it in their names, and these are parts of a URL.
                Err(detail) => Parking { reason: ParkReason::Unroutable, detail }.into(),
            },
        })
    }

    /// Of a row whose primary key has changed, the header that says what it was.
    fn old_key(&self, change: &RowChange) -> Result<Option<TypedHeader>, Parking> {
        let known = change.old.as_ref().zip(self.shapes.last());
        let Some((old, (_, shape))) = known else { return Ok(None) };
        let key = shape.key(old).map_err(|error| Parking {
            reason: ParkReason::Undecodable,
            detail: format!("the primary key of before: {}", error_chain(&error)),
        })?;
        Ok(key.map(|value| TypedHeader { name: "__debezium.oldkey".into(), value }))
    }

    fn unknown(&mut self, part: Part, schema: Box<UnknownSchema>) -> Unmade {
        match self.refused.remove(&*schema) {
            Some(detail) => Parking { reason: ParkReason::Undecodable, detail }.into(),
            None => Unmade::Ask(Question::Id { part, schema }),
        }
    }

    /// The record as it comes to the router: topic and headers.
    fn before_router(
        &mut self,
        topic: Arc<str>,
        old_key: Option<TypedHeader>,
        is_message: bool,
    ) -> Result<TypedRecord, Unmade> {
        // What is inserted is no tombstone; nobody looks at the value itself.
        let value = TypedValue { schema: None, value: Value::Struct(Vec::new()) };
        let mut record = TypedRecord { value, ..TypedRecord::new(topic) };
        // Debezium gives them to changes of rows alone.
        if !is_message {
            record.headers.extend(old_key.into_iter().chain(self.context.iter().cloned()));
        }
        match self.before.apply(&mut record).map_err(undecodable)? {
            Transformed::Decoded => {}
            // A message that nobody decodes is no change event, which the router
            // lets pass.
            Transformed::Kept if !is_message => {}
            Transformed::Kept | Transformed::Dropped => return Err(Unmade::Dropped),
        }
        let is_routed = self.router.as_ref().is_none_or(|condition| condition.holds(&record));
        if is_routed { Ok(record) } else { Err(Unmade::Dropped) }
    }

    fn typed(
        &mut self,
        record: &Record,
        row: &Row,
        content: Option<&Bytes>,
    ) -> Result<TypedRecord, Unmade> {
        let typed = match content {
            None => {
                let Some((_, shape)) = self.shapes.last() else {
                    return Err(Unmade::Ask(Question::Describe(Arc::clone(row.relation()))));
                };
                self.typing.typed(record, row, shape)
            }
            Some(content) => {
                let text = Text::try_from(content.clone()).map_err(|error| Parking {
                    reason: ParkReason::Undecodable,
                    detail: format!("the content of the message is no text: {error}"),
                })?;
                self.typing.typed_message(record, row, &text)
            }
        };
        Ok(typed.map_err(undecodable)?)
    }

    /// The shape of a relation, which then is the last one.
    fn shape_of(&mut self, relation: &Arc<Relation>) -> Result<&RowShape, Unmade> {
        let is_same = |(known, _): &(Arc<Relation>, RowShape)| Arc::ptr_eq(known, relation);
        // Parked rows each have a relation of their own.
        let is_alike = |(known, _): &(Arc<Relation>, RowShape)| *known == *relation;
        let place = self.shapes.iter().rposition(is_same);
        let place = place.or_else(|| self.shapes.iter().rposition(is_alike));
        let Some(place) = place else {
            return Err(Unmade::Ask(Question::Describe(Arc::clone(relation))));
        };
        let last = self.shapes.len() - 1;
        self.shapes[place..].rotate_left(1);
        Ok(&self.shapes[last].1)
    }

    fn describe(&mut self, relation: Arc<Relation>, description: &TableDescription) {
        let shape = description.shape(&relation, &self.shape);
        self.shapes.retain(|(known, _)| *known != relation);
        if self.shapes.len() >= MAX_SHAPES {
            self.shapes.remove(0);
        }
        self.shapes.push((relation, shape));
    }

    /// The table was described anew in the stream: its columns may have other
    /// defaults.
    pub(super) fn forget(&mut self, relation: &Relation) {
        self.shapes.retain(|(known, _)| known.oid != relation.oid);
    }

    pub(super) fn learn(&mut self, answer: Answer) {
        match answer {
            Answer::IdSpace(..) => {}
            Answer::Described(relation, description) => self.describe(relation, &description),
            Answer::Id { part, schema, id } => self.converters.learn(&part, &schema, id),
            Answer::Refused { schema, detail, .. } => {
                if self.refused.len() >= MAX_REFUSED {
                    self.refused.clear();
                }
                self.refused.insert(*schema, detail);
            }
        }
    }
}

fn undecodable(error: EncodeError) -> Parking {
    Parking { reason: ParkReason::Undecodable, detail: error_chain(&error) }
}

/// The headers of a start, in Debezium's order.
fn context(headers: ContextHeaders, topic_prefix: &str) -> Vec<TypedHeader> {
    let mut run_id = None;
    let names = match headers {
        ContextHeaders::None => 0,
        ContextHeaders::Three => 3,
        ContextHeaders::Four => {
            run_id = Some(Uuid::new_v4().to_string());
            4
        }
    };
    let run_id = run_id.unwrap_or_default();
    let all = [
        ("connectorLogicalName", topic_prefix),
        ("taskId", "0"),
        ("connectorName", "postgresql"),
        ("runId", &run_id),
    ];
    let header = |(name, value): (&str, &str)| TypedHeader {
        name: format!("__debezium.context.{name}").into(),
        value: TypedValue::text(value.into()),
    };
    all.into_iter().take(names).map(header).collect()
}
