//! The statements that find the rows of a replay.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use walpost_event::{Column, Relation, type_oid};
use walpost_router::RouterConfig;

use super::filter::{ORDER_COLUMN, ReplayFilter, TIME_COLUMN};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::printed,
    id_space,
    sql::Sql,
    wal::{charset::Charset, quote_identifier, quote_literal},
};

/// Event types that are counted one by one.
const TYPES_MAX: usize = 50;

/// What a filter finds among the rows that a snapshot sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySurvey {
    /// Rows that would be published once more.
    pub events: u64,
    /// Rows that the filter finds and that are parked, or were discarded: they
    /// have not been published a first time and are left out.
    pub parked: u64,
    /// When the oldest and the newest of the events were inserted, in UTC.
    pub span: Option<(String, String)>,
    /// Events that are older than the window that consumers deduplicate in.
    pub beyond_window: u64,
    /// Events that another program may have published under another source, with ids
    /// that are not globally unique: consumers apply them again.
    pub of_other_sources: u64,
    /// Of the ids that were asked for, those that no row has.
    pub ids_missing: u64,
    /// By event type, the most frequent first; not all of them where there are
    /// very many.
    pub types: Vec<ReplayType>,
    /// Events of the types that are not listed.
    pub of_other_types: u64,
}

/// Events of one type in a [`ReplaySurvey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayType {
    /// The type; `None` for NULL.
    pub event_type: Option<String>,
    /// How many.
    pub events: u64,
    /// When the oldest and the newest of them were inserted, in UTC.
    pub span: Option<(String, String)>,
}

/// Rows of one table, as far as a snapshot sees them.
pub(super) struct Selection<'a> {
    pub(super) relation: &'a Relation,
    pub(super) table: &'a TableName,
    pub(super) config: &'a RelayConfig,
    pub(super) router: &'a RouterConfig,
    pub(super) filter: &'a ReplayFilter,
    /// The snapshot as text.
    pub(super) boundary: &'a str,
    /// The condition of the pipeline's rows; none where all are.
    pub(super) own: Option<&'a str>,
    pub(super) charset: &'a Charset,
}

/// Whether rows of the table can be told apart and ordered.
pub(super) fn has_what_it_takes(
    relation: &Relation,
    router: &RouterConfig,
    table: &TableName,
) -> Result<(), RelayError> {
    let missing = |column: &str, kind: &str| {
        RelayError::prerequisite(
            format!("table {table} has no column {column:?} of type {kind}, which a replay needs"),
            "only Kafka can replay its events: reset the offsets of the consumer; tables of \
             `walpost migrate` have the column",
        )
    };
    let of_type =
        |name: &str| relation.column_index(name).map(|index| relation.columns[index].type_oid);
    if of_type("xid") != Some(type_oid::XID8) {
        return Err(missing("xid", "xid8"));
    }
    if of_type(ORDER_COLUMN) != Some(type_oid::INT8) {
        return Err(missing(ORDER_COLUMN, "bigint"));
    }
    if of_type(&router.event_id).is_none() {
        return Err(missing(&router.event_id, "any kind"));
    }
    Ok(())
}

impl Selection<'_> {
    /// Counts, without reading a payload.
    pub(super) async fn survey(
        &self,
        sql: &Sql,
        window_hours: Option<u64>,
    ) -> Result<ReplaySurvey, RelayError> {
        let has_time = self.relation.column_index(TIME_COLUMN).is_some();
        let at = if has_time { TIME_COLUMN } else { "null::text" };
        let old = match window_hours {
            None => "false".to_owned(),
            // Nobody can say how old they are.
            Some(_) if !has_time => "true".to_owned(),
            Some(hours) => format!("{TIME_COLUMN} < now() - make_interval(hours => {hours})"),
        };
        let text = format!(
            "select count(*) filter (where not is_parked), count(*) filter (where is_parked), \
                 (min(at) filter (where not is_parked))::text, \
                 (max(at) filter (where not is_parked))::text, \
                 count(*) filter (where not is_parked and is_old), count(distinct id), \
                 coalesce(bool_or(is_foreign), false), \
                 count(*) filter (where not is_parked and is_shared and not is_unique) \
             from (select {} as is_parked, {old} as is_old, {}::text as id, {at} as at, \
                 {} as is_seen, xid >= pg_snapshot_xmax(pg_current_snapshot()) as is_foreign, \
                 {} as is_shared, {} as is_unique \
                 from {} where {} and {}) as found where is_seen or is_foreign",
            self.parked(),
            quote_identifier(&self.router.event_id),
            self.seen(),
            id_space::is_shared_in_sql(self.config, self.table),
            id_space::is_unique_in_sql(&self.router.event_id),
            self.table.quoted(),
            self.filter.condition(self.relation, self.router)?,
            self.own.unwrap_or("true"),
        );
        let row = sql.one("counting the rows", &text, &[]).await.map_err(of_the_filter)?;
        if row.get(6) {
            return Err(RelayError::prerequisite(
                format!("table {} holds transaction ids of another cluster", self.table),
                "replay from Kafka: whether these rows were published cannot be told",
            ));
        }
        let ids: BTreeSet<&String> = self.filter.ids.iter().collect();
        let mut survey = ReplaySurvey {
            events: count(&row, 0),
            parked: count(&row, 1),
            span: span(&row, 2),
            beyond_window: count(&row, 4),
            of_other_sources: count(&row, 7),
            ids_missing: (ids.len() as u64).saturating_sub(count(&row, 5)),
            ..ReplaySurvey::default()
        };
        if survey.events > 0 {
            survey.types = self.types(sql, at).await?;
            let listed: u64 = survey.types.iter().map(|one| one.events).sum();
            survey.of_other_types = survey.events.saturating_sub(listed);
        }
        Ok(survey)
    }

    async fn types(&self, sql: &Sql, at: &str) -> Result<Vec<ReplayType>, RelayError> {
        let event_type = match self.relation.column_index(&self.router.event_type) {
            Some(_) => format!("{}::text", quote_identifier(&self.router.event_type)),
            None => "null::text".to_owned(),
        };
        let text = format!(
            "select count(*), {}, min({at})::text, max({at})::text from {} and not {} \
             group by {event_type} order by 1 desc, {event_type} limit {TYPES_MAX}",
            self.charset.bytes_of(&event_type),
            self.rows()?,
            self.parked()
        );
        let rows = sql.query("counting the rows by type", &text, &[]).await;
        let rows = rows.map_err(of_the_filter)?;
        let mut charset = self.charset.anew();
        charset.learn(rows.iter().filter_map(|row| row.get(1))).await?;
        let read = |bytes: &[u8]| match charset.decode(bytes) {
            Ok(text) => text.into_owned(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        };
        Ok(rows
            .iter()
            .map(|row| ReplayType {
                event_type: row.get::<_, Option<&[u8]>>(1).map(read),
                events: count(row, 0),
                span: span(row, 2),
            })
            .collect())
    }

    /// The cursor over the rows in insert order, behind `after`. The server
    /// keeps them for it, so that no transaction stays open meanwhile.
    pub(super) fn cursor(&self, name: &str, after: Option<i64>) -> Result<String, RelayError> {
        let selected = |column: &Column| self.charset.selected(&quote_identifier(&column.name));
        let columns: Vec<String> = self.relation.columns.iter().map(selected).collect();
        let behind = after.map_or(String::new(), |seq| format!(" and {ORDER_COLUMN} > {seq}"));
        Ok(format!(
            "declare {name} no scroll cursor with hold for select {} from {} and not {}{behind} \
             order by {ORDER_COLUMN}",
            columns.join(", "),
            self.rows()?,
            self.parked(),
        ))
    }

    /// The rows that the filter finds, parked ones too.
    fn rows(&self) -> Result<String, RelayError> {
        let condition = self.filter.condition(self.relation, self.router)?;
        let own = self.own.unwrap_or("true");
        Ok(format!("{} where {condition} and {own} and {}", self.table.quoted(), self.seen()))
    }

    fn seen(&self) -> String {
        format!("pg_visible_in_snapshot(xid, {}::pg_snapshot)", quote_literal(self.boundary))
    }

    /// Whether a row has not been published a first time, although the position
    /// has passed it.
    fn parked(&self) -> String {
        let table = TableName { schema: self.config.schema.clone(), name: "parked".to_owned() };
        format!(
            "coalesce({} in (select event_id from {} where pipeline = {} and state <> 'done' \
             and event_id is not null and (id_space is null or id_space = {})), false)",
            printed(&quote_identifier(&self.router.event_id)),
            table.quoted(),
            quote_literal(&self.config.pipeline),
            id_space::of_table(self.config, self.table)
        )
    }
}

/// A value that its column does not take is the user's mistake.
pub(super) fn of_the_filter(error: RelayError) -> RelayError {
    let RelayError::Sql { source, .. } = &error else { return error };
    match source.code().map(|code| code.code()) {
        Some(code) if code.starts_with("22") => RelayError::Config(format!(
            "a value of the filter is none that its column takes (SQLSTATE {code})"
        )),
        _ => error,
    }
}

fn count(row: &Row, index: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(index)).unwrap_or_default()
}

fn span(row: &Row, index: usize) -> Option<(String, String)> {
    let at = |index: usize| row.get::<_, Option<String>>(index);
    at(index).zip(at(index + 1))
}
