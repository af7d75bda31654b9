use walpost_event::Relation;

use crate::{
    names::NameAdjustment,
    placement::{self, Placement},
    timestamp,
};

/// How rows become records: one field for each key of Debezium's Outbox Event
/// Router that Walpost honours, with the same defaults.
///
/// Checked as a whole by [`Router::new`](crate::Router::new);
/// [`from_properties`](Self::from_properties) reads Debezium's own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// `table.field.event.id`, default `id`: the column copied to the header
    /// `id`.
    pub event_id: String,
    /// `table.field.event.key`, default `aggregateid`: the column that becomes
    /// the record key.
    pub event_key: String,
    /// `table.field.event.type`, default `type`. Debezium declares it and reads
    /// it nowhere; so does Walpost. The event type reaches a record by
    /// [`additional_placement`](Self::additional_placement).
    pub event_type: String,
    /// `table.field.event.payload`, default `payload`: the column that becomes
    /// the value.
    pub event_payload: String,
    /// `table.field.event.timestamp`, default none: the column that becomes the
    /// record timestamp; `timestamp` as UTC, or `timestamptz`. Without it, and
    /// where it is NULL, the time of handling. (Debezium fails on
    /// `timestamptz`.)
    pub event_timestamp: Option<String>,
    /// `table.fields.additional.placement`, default none: a comma list of
    /// `column:placement[:alias]`, placement one of `header`, `envelope`,
    /// `partition` in any case.
    pub additional_placement: Option<String>,
    /// `table.field.additional.missing`, default `error`: what to do when the
    /// row has no column of that name.
    pub additional_missing: MissingColumn,
    /// `table.op.invalid.behavior`, default `warn`: what to do on UPDATE.
    pub invalid_operation: InvalidOperation,
    /// `route.by.field`, default `aggregatetype`: the column that names the
    /// topic.
    pub route_by_field: String,
    /// `route.topic.regex`, default `(?<routedByValue>.*)`: matched against the
    /// whole value of [`route_by_field`](Self::route_by_field). A value that
    /// does not match is the topic as it is.
    pub topic_regex: String,
    /// `route.topic.replacement`, default `outbox.event.${routedByValue}`: the
    /// topic for a value that matches, in Java's syntax: `${name}`, `$1`, `\`
    /// before a literal.
    pub topic_replacement: String,
    /// `route.tombstone.on.empty.payload`, default `false`: whether a payload
    /// that is NULL or blank gives a record without a value, a tombstone, under
    /// every encoding. If not, it stays a payload, and the encoding of a NULL
    /// decides: raw has none but a record without a value too, as with
    /// `StringConverter`; JSON writes `null`.
    pub tombstone_on_empty_payload: bool,
    /// No key of Debezium's, default none: the column with further headers, a
    /// JSON object. Strings become their text, other values their JSON text.
    /// NULL, JSON's `null`, a table without the column, and `null` members give
    /// none.
    pub headers_column: Option<String>,
    /// No key of Debezium's, default [`NullHeader::Send`]: what to do with a
    /// header placement whose column is NULL.
    pub null_header: NullHeader,
    /// The connector's `field.name.adjustment.mode`, default
    /// [`NameAdjustment::None`]: entries of
    /// [`additional_placement`](Self::additional_placement) name columns as it
    /// makes them. All other names here are those of the table.
    pub field_names: NameAdjustment,
}

impl RouterConfig {
    /// The defaults for Walpost's own outbox table: its event type as header
    /// `eventType`, its `traceparent` and `tracestate` where they are set, and
    /// the members of its column `headers`.
    pub fn walpost() -> Self {
        let placement = "type:header:eventType,traceparent:header,tracestate:header";
        Self {
            additional_placement: Some(placement.into()),
            additional_missing: MissingColumn::Ignore,
            headers_column: Some("headers".into()),
            null_header: NullHeader::Omit,
            ..Self::default()
        }
    }
}

impl RouterConfig {
    /// Columns without which no row of a table can be routed, each with
    /// Debezium's key that names it. Entries of
    /// [`additional_placement`](Self::additional_placement) that cannot be read,
    /// which [`Router::new`](crate::Router::new) refuses, are left out.
    ///
    /// ```
    /// use walpost_router::RouterConfig;
    ///
    /// let columns = RouterConfig::default().needed_columns();
    /// assert!(columns.contains(&("aggregatetype".to_owned(), "route.by.field")));
    /// ```
    pub fn needed_columns(&self) -> Vec<(String, &'static str)> {
        let named = [
            (Some(&self.event_id), key::EVENT_ID),
            (Some(&self.event_key), key::EVENT_KEY),
            (Some(&self.event_payload), key::EVENT_PAYLOAD),
            (Some(&self.route_by_field), key::ROUTE_BY),
            (self.event_timestamp.as_ref(), key::EVENT_TIMESTAMP),
        ];
        let placed = match self.additional_missing {
            MissingColumn::Error => self.placed_columns(),
            MissingColumn::Ignore => Vec::new(),
        };
        let placed = placed.into_iter().map(|column| (column, key::PLACEMENT));
        let named = named.into_iter().filter_map(|(name, key)| Some((name?.clone(), key)));
        named.chain(placed).collect()
    }

    /// The columns that [`additional_placement`](Self::additional_placement) names, as it
    /// names them; none if it cannot be read.
    ///
    /// ```
    /// let config = walpost_router::RouterConfig {
    ///     additional_placement: Some("type:header,shard:partition".to_owned()),
    ///     ..walpost_router::RouterConfig::default()
    /// };
    /// assert_eq!(config.placed_columns(), ["type", "shard"]);
    /// ```
    pub fn placed_columns(&self) -> Vec<String> {
        self.placements().iter().map(|entry| entry.column.to_string()).collect()
    }

    fn placements(&self) -> Vec<Placement> {
        let list = self.additional_placement.as_deref();
        list.map(placement::parse).and_then(Result::ok).unwrap_or_default()
    }

    /// The [needed columns](Self::needed_columns) that `present`, the names of a table's columns, lack.
    ///
    /// ```
    /// use walpost_router::{NameAdjustment, RouterConfig};
    ///
    /// let config = RouterConfig {
    ///     additional_placement: Some("event_type:header".to_owned()),
    ///     field_names: NameAdjustment::Avro,
    ///     ..RouterConfig::default()
    /// };
    /// let present = ["id", "aggregateid", "payload", "event-type"];
    /// let missing = config.missing_columns(&present);
    /// assert_eq!(missing, [("aggregatetype".to_owned(), "route.by.field")]);
    /// ```
    pub fn missing_columns(&self, present: &[&str]) -> Vec<(String, &'static str)> {
        let is_present = |name: &str, key| match key {
            key::PLACEMENT => present.iter().any(|known| self.field_names.field(known) == name),
            _ => present.contains(&name),
        };
        let mut needed = self.needed_columns();
        needed.retain(|(name, key)| !is_present(name, key));
        needed
    }

    /// Columns whose type their use does not allow, each with Debezium's key that
    /// names it and the types that it may have. `present` are a table's columns
    /// with the OIDs of their types.
    ///
    /// ```
    /// use walpost_router::RouterConfig;
    ///
    /// let config =
    ///     RouterConfig { event_timestamp: Some("at".to_owned()), ..RouterConfig::default() };
    /// let of_text = config.mistyped_columns(&[("id", 2950), ("at", 25)]);
    /// let expected = ("at".to_owned(), "table.field.event.timestamp", "timestamp or timestamptz");
    /// assert_eq!(of_text, [expected]);
    /// ```
    pub fn mistyped_columns(
        &self,
        present: &[(&str, u32)],
    ) -> Vec<(String, &'static str, &'static str)> {
        let placed = self.placements();
        let is_mistyped = |(name, type_oid): &(&str, u32)| {
            let is_time = self.event_timestamp.as_deref() == Some(*name)
                && timestamp::zone_of_type(*type_oid).is_none();
            let is_partition = placed.iter().any(|entry| {
                !entry.target.takes(*type_oid) && *entry.column == *self.field_names.field(name)
            });
            let told = |key, types| ((*name).to_owned(), key, types);
            match (is_time, is_partition) {
                (true, _) => Some(told(key::EVENT_TIMESTAMP, "timestamp or timestamptz")),
                (_, true) => Some(told(key::PLACEMENT, "integer")),
                _ => None,
            }
        };
        present.iter().filter_map(is_mistyped).collect()
    }

    /// Index of the column of `relation` that a placement names.
    pub(crate) fn placed_column(&self, relation: &Relation, name: &str) -> Option<usize> {
        match self.field_names {
            // Members of a message keep their names.
            _ if relation.oid == 0 => relation.column_index(name),
            NameAdjustment::None => relation.column_index(name),
            adjusted => {
                relation.columns.iter().position(|column| adjusted.field(&column.name) == name)
            }
        }
    }
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            event_id: "id".into(),
            event_key: "aggregateid".into(),
            event_type: "type".into(),
            event_payload: "payload".into(),
            event_timestamp: None,
            additional_placement: None,
            additional_missing: MissingColumn::Error,
            invalid_operation: InvalidOperation::Warn,
            route_by_field: "aggregatetype".into(),
            topic_regex: "(?<routedByValue>.*)".into(),
            topic_replacement: "outbox.event.${routedByValue}".into(),
            tombstone_on_empty_payload: false,
            headers_column: None,
            null_header: NullHeader::Send,
            field_names: NameAdjustment::None,
        }
    }
}

/// `table.field.additional.missing`: what to do when a placed column is not in
/// the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingColumn {
    /// The row cannot be routed.
    #[default]
    Error,
    /// The placement is left out.
    Ignore,
}

/// What to do with a header placement whose column is NULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NullHeader {
    /// Send a header without a value, as Debezium does.
    #[default]
    Send,
    /// Send no such header.
    Omit,
}

/// `table.op.invalid.behavior`: what to do on UPDATE of an outbox row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidOperation {
    /// Skip the row and log a warning.
    #[default]
    Warn,
    /// Skip the row and log an error.
    Error,
    /// The row cannot be routed.
    Fatal,
}

/// Debezium's names of the keys, as errors show them.
pub(crate) mod key {
    pub(crate) const EVENT_ID: &str = "table.field.event.id";
    pub(crate) const EVENT_KEY: &str = "table.field.event.key";
    pub(crate) const EVENT_TYPE: &str = "table.field.event.type";
    pub(crate) const EVENT_PAYLOAD: &str = "table.field.event.payload";
    pub(crate) const EVENT_TIMESTAMP: &str = "table.field.event.timestamp";
    pub(crate) const PLACEMENT: &str = "table.fields.additional.placement";
    pub(crate) const MISSING: &str = "table.field.additional.missing";
    pub(crate) const MISSING_BEFORE_3_6: &str = "table.fields.additional.error.on.missing";
    pub(crate) const INVALID_OPERATION: &str = "table.op.invalid.behavior";
    pub(crate) const ROUTE_BY: &str = "route.by.field";
    pub(crate) const TOPIC_REGEX: &str = "route.topic.regex";
    pub(crate) const TOPIC_REPLACEMENT: &str = "route.topic.replacement";
    pub(crate) const TOMBSTONE: &str = "route.tombstone.on.empty.payload";
}
