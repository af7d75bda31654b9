use std::fmt;
#[cfg(feature = "contracts")]
use std::sync::Arc;

use postgres_protocol::escape::escape_identifier;

use crate::{Error, names};

/// The table that events are inserted into, with the names of its columns.
///
/// [`OutboxTable::default`] is `walpost.outbox` as `walpost migrate` creates
/// it. Names are as stored, without quotes, and are quoted here.
///
/// The relay has to know a table of your own too: its name in
/// `pipeline.tables`, and in `[router]` the columns with other names than those
/// of the default:
///
/// | column of | key of the relay |
/// |---|---|
/// | [`id`](OutboxTableBuilder::id) | `event_id` |
/// | [`aggregate_type`](OutboxTableBuilder::aggregate_type) | `route_by_field` |
/// | [`aggregate_id`](OutboxTableBuilder::aggregate_id) | `event_key` |
/// | [`event_type`](OutboxTableBuilder::event_type) | `event_type`, `additional_placement` |
/// | [`payload`](OutboxTableBuilder::payload) | `event_payload` |
/// | [`headers`](OutboxTableBuilder::headers) | `headers_column` |
/// | [`traceparent`](OutboxTableBuilder::traceparent), [`tracestate`](OutboxTableBuilder::tracestate), [`NewEvent::column`](crate::NewEvent::column) | `additional_placement` |
///
/// ```
/// use walpost_outbox::{IdColumn, OutboxTable, PayloadColumn};
///
/// // As Debezium's Quarkus extension creates it.
/// let table = OutboxTable::builder("public", "OutboxEvent")
///     .payload("payload", PayloadColumn::Text)
///     .build()?;
/// assert_eq!(table.to_string(), "public.OutboxEvent");
///
/// let own = OutboxTable::builder("shop", "events")
///     .id("event_id", IdColumn::BigInt)
///     .aggregate_type("topic")
///     .aggregate_id("order_id")
///     .idempotency_key("request_id")
///     .build()?;
/// # Ok::<(), walpost_outbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxTable {
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) id_column: IdColumn,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) aggregate_id: Option<String>,
    pub(crate) event_type: String,
    pub(crate) payload: String,
    pub(crate) payload_column: PayloadColumn,
    pub(crate) headers: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) keys: Option<String>,
    #[cfg(feature = "contracts")]
    pub(crate) contracts: Option<Arc<walpost_contracts::Contracts>>,
}

/// Type of the id column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdColumn {
    /// `uuid`; without an id in the event, a new one of version 7.
    #[default]
    Uuid,
    /// `text` or `varchar`; without an id in the event, a new UUID of version 7
    /// as text.
    Text,
    /// `bigint`; without an id in the event, the column's default: identity or
    /// sequence.
    BigInt,
}

/// Type of the payload column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadColumn {
    /// `jsonb`: JSON, and text as a JSON string.
    #[default]
    Jsonb,
    /// `json`: the same.
    Json,
    /// `text` or `varchar`: JSON and text as they are.
    Text,
    /// `bytea`: bytes as they are, JSON and text as UTF-8.
    Bytea,
}

/// Names an [`OutboxTable`] of your own.
#[derive(Clone, Debug)]
#[must_use]
pub struct OutboxTableBuilder {
    table: OutboxTable,
}

impl OutboxTable {
    /// The table that `walpost migrate` creates, in another schema.
    ///
    /// # Errors
    /// [`Error::Name`] when that is no name.
    pub fn shipped(schema: impl Into<String>) -> Result<Self, Error> {
        let table = Self { schema: schema.into(), ..Self::default() };
        names::check("schema", &table.schema)?;
        Ok(table)
    }

    /// The table that `walpost migrate --partitioned` creates, in this schema,
    /// which is `walpost` by default.
    ///
    /// An id is unique there together with the time of the event alone, so an id
    /// that is written twice is no error.
    ///
    /// # Errors
    /// [`Error::Name`] when that is no name.
    pub fn partitioned(schema: impl Into<String>) -> Result<Self, Error> {
        let table = Self::shipped(schema)?;
        Ok(Self { keys: Some("outbox_key".to_owned()), ..table })
    }

    /// A table of your own. It starts with the five columns and names that
    /// Debezium expects, `id uuid`, `aggregatetype`, `aggregateid`, `type` and
    /// `payload jsonb`, and no others.
    pub fn builder(schema: impl Into<String>, name: impl Into<String>) -> OutboxTableBuilder {
        OutboxTableBuilder {
            table: Self {
                schema: schema.into(),
                name: name.into(),
                headers: None,
                traceparent: None,
                tracestate: None,
                idempotency_key: None,
                keys: None,
                ..Self::default()
            },
        }
    }

    /// Has each event held to the contract of its type before it is written; an
    /// event without one is refused too. [`emit`](crate::emit()) knows no table:
    /// [`NewEvent::check_contract`](crate::NewEvent::check_contract) is for it.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use walpost_outbox::{OutboxTable, walpost_contracts::Contracts};
    ///
    /// let contracts = Arc::new(Contracts::load("docs/events")?);
    /// let table = OutboxTable::default().with_contracts(contracts);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "contracts")]
    #[must_use]
    pub fn with_contracts(self, contracts: Arc<walpost_contracts::Contracts>) -> Self {
        Self { contracts: Some(contracts), ..self }
    }

    /// `"schema"."table"`.
    pub(crate) fn quoted(&self) -> String {
        format!("{}.{}", escape_identifier(&self.schema), escape_identifier(&self.name))
    }

    /// The same of the table of its keys.
    pub(crate) fn quoted_keys(&self) -> Option<String> {
        let keys = escape_identifier(self.keys.as_ref()?);
        Some(format!("{}.{keys}", escape_identifier(&self.schema)))
    }

    /// What each name is for, and the name.
    fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fixed = [
            ("schema", &self.schema),
            ("table", &self.name),
            ("id column", &self.id),
            ("event type column", &self.event_type),
            ("payload column", &self.payload),
        ];
        let optional = [
            ("aggregate type column", &self.aggregate_type),
            ("aggregate id column", &self.aggregate_id),
            ("headers column", &self.headers),
            ("traceparent column", &self.traceparent),
            ("tracestate column", &self.tracestate),
            ("idempotency key column", &self.idempotency_key),
        ];
        let fixed = fixed.into_iter().map(|(what, name)| (what, name.as_str()));
        let optional = optional
            .into_iter()
            .filter_map(|(what, name)| name.as_deref().map(|name| (what, name)));
        fixed.chain(optional)
    }

    /// Whether one of the table's own columns has this name.
    pub(crate) fn has_column(&self, name: &str) -> bool {
        self.names().skip(2).any(|(_, known)| known == name)
    }
}

impl Default for OutboxTable {
    fn default() -> Self {
        Self {
            schema: "walpost".to_owned(),
            name: "outbox".to_owned(),
            id: "id".to_owned(),
            id_column: IdColumn::Uuid,
            aggregate_type: Some("aggregatetype".to_owned()),
            aggregate_id: Some("aggregateid".to_owned()),
            event_type: "type".to_owned(),
            payload: "payload".to_owned(),
            payload_column: PayloadColumn::Jsonb,
            headers: Some("headers".to_owned()),
            traceparent: Some("traceparent".to_owned()),
            tracestate: Some("tracestate".to_owned()),
            idempotency_key: Some("idempotency_key".to_owned()),
            keys: None,
            #[cfg(feature = "contracts")]
            contracts: None,
        }
    }
}

impl fmt::Display for OutboxTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl OutboxTableBuilder {
    /// The id's column and its type. Default `id`, [`IdColumn::Uuid`].
    pub fn id(mut self, column: impl Into<String>, kind: IdColumn) -> Self {
        self.table.id = column.into();
        self.table.id_column = kind;
        self
    }

    /// Default `aggregatetype`.
    pub fn aggregate_type(mut self, column: impl Into<String>) -> Self {
        self.table.aggregate_type = Some(column.into());
        self
    }

    /// Default `aggregateid`.
    pub fn aggregate_id(mut self, column: impl Into<String>) -> Self {
        self.table.aggregate_id = Some(column.into());
        self
    }

    /// A table in which nothing names what an event is about: what an event says of
    /// its aggregate is not stored. The relay then needs another column for
    /// `route_by_field`, such as the event's type, and one for `event_key`.
    ///
    /// ```
    /// use walpost_outbox::{IdColumn, OutboxTable};
    ///
    /// let finance = OutboxTable::builder("public", "finance_outbox")
    ///     .id("id", IdColumn::Uuid)
    ///     .without_aggregate()
    ///     .event_type("event_type")
    ///     .idempotency_key("idempotency_key")
    ///     .build()?;
    /// # Ok::<(), walpost_outbox::Error>(())
    /// ```
    pub fn without_aggregate(mut self) -> Self {
        (self.table.aggregate_type, self.table.aggregate_id) = (None, None);
        self
    }

    /// Default `type`.
    pub fn event_type(mut self, column: impl Into<String>) -> Self {
        self.table.event_type = column.into();
        self
    }

    /// The payload's column and its type. Default `payload`,
    /// [`PayloadColumn::Jsonb`].
    pub fn payload(mut self, column: impl Into<String>, kind: PayloadColumn) -> Self {
        self.table.payload = column.into();
        self.table.payload_column = kind;
        self
    }

    /// A column of type `jsonb`, `json` or `text` for headers. Default none.
    pub fn headers(mut self, column: impl Into<String>) -> Self {
        self.table.headers = Some(column.into());
        self
    }

    /// A text column. Default none.
    pub fn traceparent(mut self, column: impl Into<String>) -> Self {
        self.table.traceparent = Some(column.into());
        self
    }

    /// A text column. Default none.
    pub fn tracestate(mut self, column: impl Into<String>) -> Self {
        self.table.tracestate = Some(column.into());
        self
    }

    /// A text column with a unique index on it alone, whole or `where … is not
    /// null`; without that index nothing stops a second event. Default none.
    pub fn idempotency_key(mut self, column: impl Into<String>) -> Self {
        self.table.idempotency_key = Some(column.into());
        self
    }

    /// The table in the same schema that has the keys of a partitioned table, on
    /// which no index can be unique over all partitions: with the columns
    /// `idempotency_key`, unique, and `id`, and the trigger that fills it, as
    /// `walpost migrate --partitioned` creates both. Default none.
    pub fn keys(mut self, table: impl Into<String>) -> Self {
        self.table.keys = Some(table.into());
        self
    }

    /// Checks the names.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that PostgreSQL would cut or refuse,
    /// [`Error::ColumnTwice`] for a column that is to hold two things.
    pub fn build(self) -> Result<OutboxTable, Error> {
        let table = self.table;
        let keys = table.keys.as_deref().map(|name| ("table of keys", name));
        for (what, name) in table.names().chain(keys) {
            names::check(what, name)?;
        }
        let mut columns: Vec<&str> = table.names().skip(2).map(|(_, name)| name).collect();
        columns.sort_unstable();
        match columns.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::ColumnTwice { column: pair[0].to_owned() }),
            None => Ok(table),
        }
    }
}

impl IdColumn {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::Text => "text",
            Self::BigInt => "bigint",
        }
    }
}

impl PayloadColumn {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Jsonb => "jsonb",
            Self::Json => "json",
            Self::Text => "text",
            Self::Bytea => "bytea",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_checked() {
        let builder = || OutboxTable::builder("s", "t");
        for bad in [
            OutboxTable::builder("", "t"),
            OutboxTable::builder("s", "a\0"),
            builder().id("", IdColumn::Uuid),
            builder().aggregate_type(""),
            builder().aggregate_id(""),
            builder().event_type(""),
            builder().payload("", PayloadColumn::Json),
            builder().headers(""),
            builder().traceparent(""),
            builder().tracestate(""),
            builder().idempotency_key("x".repeat(64)),
            builder().idempotency_key("k").keys(""),
        ] {
            assert!(matches!(bad.clone().build(), Err(Error::Name { .. })), "{bad:?}");
        }
        assert!(OutboxTable::shipped("").is_err());
        assert_eq!(OutboxTable::shipped("walpost").unwrap(), OutboxTable::default());
        assert!(OutboxTable::partitioned("").is_err());
        let keys = OutboxTable::partitioned("a").unwrap().quoted_keys();
        assert_eq!(keys.as_deref(), Some(r#""a"."outbox_key""#));
    }

    #[test]
    fn a_name_stays_one_identifier() {
        let odd = OutboxTable::builder("My.Schema", "a\"; drop table b; --").build().unwrap();
        assert_eq!(odd.quoted(), r#""My.Schema"."a""; drop table b; --""#);
    }

    #[test]
    fn a_column_holds_one_thing() {
        let twice = OutboxTable::builder("s", "t").headers("payload").build();
        assert!(matches!(twice, Err(Error::ColumnTwice { column }) if column == "payload"));
    }
}
