//! The SQL of a polled table, made once for each session. Pure.

use std::collections::HashMap;

use walpost_event::{Column, Relation};

use super::config::PollingConfig;
use crate::{
    config::{ParkMode, RelayConfig, TableName},
    wal::{charset::Charset, quote_identifier, quote_literal},
};

/// Rows that are counted.
pub(super) const SIGHT_MAX_ROWS: usize = 100_000;
/// Pending rows that one claim looks at. Where all of these wait for others, it
/// goes on with the next as many, so that no statement reads a whole backlog.
const WINDOW_ROWS: usize = 5_000;
/// Columns that follow those of the table in [`Statements::rows`].
pub(super) const EXTRA_COLUMNS: usize = 8;

/// What the statements are made of.
pub(super) struct Shape<'a> {
    pub(super) table: &'a TableName,
    pub(super) relation: &'a Relation,
    /// By column its type, as `format_type` gives it.
    pub(super) types: &'a HashMap<String, String>,
    /// Only rows that this snapshot sees; none: all.
    pub(super) seen_by: Option<&'a str>,
    /// Of the texts of rows that are read.
    pub(super) charset: Option<&'a Charset>,
}

/// Statements on one outbox table and Walpost's own beside it.
pub(super) struct Statements {
    /// Locks the first pending rows of aggregates that nobody has, the oldest
    /// first, of a window of pending rows: `$1` pipeline, `$2` how many.
    pub(super) claim: String,
    /// The same in the window behind the row at `$3`.
    pub(super) claim_after: String,
    /// Where the last row of a full window stands, `$1` as above.
    pub(super) window_end: String,
    pub(super) window_end_after: String,
    /// `$1` pipeline, `$2` ids.
    pub(super) forget: String,
    /// `$1` ids; returns how many rows it has marked.
    pub(super) publish: String,
    /// `$1` pipeline, then arrays: `$2` ids, `$3` attempts, `$4` refusals, `$5`
    /// waits in seconds, `$6` whether it has failed, `$7` why.
    pub(super) note: String,
    /// The same parameters. None if the table has no column for it.
    pub(super) fail: Option<String>,
    /// Of a bounded number of rows, how many are pending and how many have failed;
    /// and seconds since the oldest pending one.
    pub(super) sight: String,
    rows: String,
    id_type: String,
}

impl Statements {
    pub(super) fn new(config: &RelayConfig, polling: &PollingConfig, shape: &Shape<'_>) -> Self {
        let text = Text { config, polling, shape };
        Self {
            claim: text.claim(""),
            claim_after: text.claim(&text.behind("$3")),
            window_end: text.window_end(""),
            window_end_after: text.window_end(&text.behind("$1")),
            forget: format!(
                "delete from {} where pipeline = $1 and row_id = any($2)",
                text.attempts()
            ),
            publish: text.publish(),
            note: text.note(),
            fail: text.fail(),
            sight: text.sight(),
            rows: text.rows(),
            id_type: text.type_of(&polling.id_column),
        }
    }

    /// The claimed rows, and those of their aggregates behind them, in order.
    /// Sent without parameters, so that values come as the stream has them.
    pub(super) fn rows(&self, heads: &[String]) -> String {
        let ids = format!("{}::{}[]", quote_literal(&array(heads)), self.id_type);
        self.rows.replacen("{ids}", &ids, 1)
    }
}

/// What the texts of statements are made of.
pub(super) struct Text<'a> {
    pub(super) config: &'a RelayConfig,
    pub(super) polling: &'a PollingConfig,
    pub(super) shape: &'a Shape<'a>,
}

/// An array's text form.
fn array(values: &[String]) -> String {
    let quoted =
        |value: &String| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", values.iter().map(quoted).collect::<Vec<_>>().join(","))
}

/// A column of one of the tables of a statement.
pub(super) fn of(alias: &str, column: &str) -> String {
    format!("{alias}.{}", quote_identifier(column))
}

/// Assignments to the columns that the table has.
pub(super) fn set(columns: &[(&String, String)]) -> String {
    let named = columns.iter().filter(|(column, _)| !column.is_empty());
    let set = named.map(|(column, value)| format!("{} = {value}", quote_identifier(column)));
    set.collect::<Vec<_>>().join(", ")
}

impl Text<'_> {
    pub(super) fn attempts(&self) -> String {
        let name = "polling_attempts".to_owned();
        TableName { schema: self.config.schema.clone(), name }.quoted()
    }

    fn type_of(&self, column: &str) -> String {
        self.shape.types.get(column).cloned().unwrap_or_else(|| "text".to_owned())
    }

    /// The columns of the insert order, ties by id.
    fn order_columns(&self) -> impl Iterator<Item = &String> {
        let columns = &self.polling.order_columns;
        let id = &self.polling.id_column;
        columns.iter().chain((!columns.contains(id)).then_some(id))
    }

    pub(super) fn order(&self, alias: &str) -> String {
        self.order_columns().map(|name| of(alias, name)).collect::<Vec<_>>().join(", ")
    }

    /// Of a window: rows behind the place in a parameter.
    fn behind(&self, parameter: &str) -> String {
        let columns = self.order_columns().enumerate();
        let place = columns.map(|(index, column)| {
            format!("({parameter}::text[])[{}]::{}", index + 1, self.type_of(column))
        });
        let place = place.collect::<Vec<_>>().join(", ");
        format!(" and ({}) > ({place})", self.order("g"))
    }

    /// `behind` bounds it from below.
    fn window_end(&self, behind: &str) -> String {
        let place = self.order_columns().map(|name| format!("{}::text", of("g", name)));
        format!(
            "select array[{}] from {} g where {}{}{behind} order by {} offset {} limit 1",
            place.collect::<Vec<_>>().join(", "),
            self.shape.table.quoted(),
            self.is_pending("g"),
            self.within("g"),
            self.order("g"),
            WINDOW_ROWS - 1
        )
    }

    /// Only rows that belong to it.
    pub(super) fn within(&self, alias: &str) -> String {
        let Some(snapshot) = self.shape.seen_by else { return String::new() };
        let (xid, snapshot) = (of(alias, "xid"), quote_literal(snapshot));
        format!(" and pg_visible_in_snapshot({xid}, {}::pg_snapshot)", snapshot.trim())
    }

    fn same_aggregate(&self, one: &str, other: &str) -> String {
        let columns = self.polling.aggregate_columns.iter();
        let equal = columns.map(|name| format!("{} = {}", of(one, name), of(other, name)));
        equal.collect::<Vec<_>>().join(" and ")
    }

    /// The column of states has the value of rows that are to be published.
    pub(super) fn has_pending_value(&self, alias: &str) -> String {
        has_pending_value(&of(alias, &self.polling.status_column), self.polling)
    }

    /// The row is to be published.
    pub(super) fn is_pending(&self, alias: &str) -> String {
        let pending = self.has_pending_value(alias);
        match self.polling.failed_value.as_str() {
            "" => format!("({pending} and not {})", self.is_given_up(alias)),
            _ => pending,
        }
    }

    /// The row was given up.
    pub(super) fn is_failed(&self, alias: &str) -> String {
        match self.polling.failed_value.as_str() {
            "" => format!("({} and {})", self.has_pending_value(alias), self.is_given_up(alias)),
            value => {
                let status = of(alias, &self.polling.status_column);
                format!("{status} = {}", quote_literal(value).trim())
            }
        }
    }

    /// Walpost's own table says so.
    fn is_given_up(&self, alias: &str) -> String {
        format!(
            "exists (select from {} x where x.pipeline = {} and x.row_id = {}::text and x.failed)",
            self.attempts(),
            quote_literal(&self.config.pipeline).trim(),
            of(alias, &self.polling.id_column)
        )
    }

    /// Rows that later ones of their aggregate wait for.
    fn blocks(&self, alias: &str) -> String {
        match self.config.park {
            ParkMode::Aggregate => self.is_unpublished(alias),
            ParkMode::Event => self.is_pending(alias),
        }
    }

    fn is_unpublished(&self, alias: &str) -> String {
        is_unpublished(&of(alias, &self.polling.status_column), self.polling)
    }

    /// What the column of states holds of a pending row.
    pub(super) fn pending(&self) -> String {
        match self.polling.pending_value.as_str() {
            "" => "null".to_owned(),
            value => quote_literal(value).trim().to_owned(),
        }
    }

    fn published(&self) -> String {
        match self.polling.published_value.as_str() {
            "" => "clock_timestamp()".to_owned(),
            value => quote_literal(value).trim().to_owned(),
        }
    }

    /// `pipeline` is a parameter or a literal.
    fn is_due(&self, alias: &str, pipeline: &str) -> String {
        let column = &self.polling.next_attempt_at_column;
        if column.is_empty() {
            return format!(
                "not exists (select from {} n where n.pipeline = {pipeline} and \
                 n.row_id = {}::text and n.next_attempt_at > statement_timestamp())",
                self.attempts(),
                of(alias, &self.polling.id_column)
            );
        }
        let column = of(alias, column);
        format!("({column} is null or {column} <= statement_timestamp())")
    }

    fn claim(&self, behind: &str) -> String {
        let (table, id) = (self.shape.table.quoted(), &self.polling.id_column);
        let mut conditions = vec![self.is_pending("t"), self.is_due("t", "$1")];
        if !self.polling.aggregate_columns.is_empty() {
            conditions.push(format!(
                "not exists (select from {table} e where {} and {}{} and ({}) < ({}))",
                self.same_aggregate("e", "t"),
                self.blocks("e"),
                self.within("e"),
                self.order("e"),
                self.order("t")
            ));
        }
        format!(
            "select {}::text from (select {} from {table} g where {}{}{behind} order by {} \
             limit {WINDOW_ROWS}) w join {table} t on {} = {} where {} order by {} limit $2 \
             for no key update of t skip locked",
            of("t", id),
            self.order("g"),
            self.is_pending("g"),
            self.within("g"),
            self.order("g"),
            of("t", id),
            of("w", id),
            conditions.join(" and "),
            self.order("w")
        )
    }

    fn rows(&self) -> String {
        let table = self.shape.table.quoted();
        let (polling, order) = (self.polling, self.order("r"));
        let selected = |column: &Column| {
            let name = of("r", &column.name);
            self.shape.charset.map_or(name.clone(), |charset| charset.selected(&name))
        };
        let columns = self.shape.relation.columns.iter().map(selected);
        let columns = columns.collect::<Vec<_>>().join(", ");
        let id = of("r", &polling.id_column);
        let pipeline = quote_literal(&self.config.pipeline);
        let optional = |column: &String, cast: &str| match column.as_str() {
            "" => "null".to_owned(),
            column => format!("{}::{cast}", of("r", column)),
        };
        let behind = match polling.aggregate_columns.is_empty() {
            true => String::new(),
            false => format!(
                " union all (select g.* from {table} g where {} and {}{} and ({}) > ({}) \
                 order by {} limit {})",
                self.same_aggregate("g", "f"),
                self.blocks("g"),
                self.within("g"),
                self.order("g"),
                self.order("f"),
                self.order("g"),
                polling.aggregate_max_events - 1
            ),
        };
        format!(
            "select {columns}, {id}::text, h.n, ({})::int, ({})::int, \
             coalesce({}, s.attempts, 0), coalesce(s.refused, 0), {}, {} \
             from unnest({{ids}}) with ordinality h(id, n) join {table} f on {} = h.id \
             cross join lateral (select f.*{behind}) r \
             left join {} s on s.pipeline = {pipeline} and s.row_id = {id}::text \
             order by {order} limit {}",
            self.is_pending("r"),
            self.is_due("r", &pipeline),
            optional(&polling.attempts_column, "int"),
            optional(&polling.retry_limit_column, "bigint"),
            optional(&polling.retry_wait_ms_column, "bigint"),
            of("f", &polling.id_column),
            self.attempts(),
            polling.claim_max_events
        )
    }

    fn publish(&self) -> String {
        let polling = self.polling;
        let at = match polling.published_at_column == polling.status_column {
            true => String::new(),
            false => polling.published_at_column.clone(),
        };
        format!(
            "with marked as (update {} t set {} where {} = any($1::text[]::{}[]) and {} \
             returning 1) select count(*) from marked",
            self.shape.table.quoted(),
            set(&[
                (&polling.status_column, self.published()),
                (&at, "clock_timestamp()".to_owned()),
                (&polling.last_attempt_at_column, "clock_timestamp()".to_owned()),
                (&polling.last_error_column, "null".to_owned()),
            ]),
            of("t", &polling.id_column),
            self.type_of(&polling.id_column),
            self.has_pending_value("t")
        )
    }

    fn note(&self) -> String {
        let failed = if self.polling.failed_value.is_empty() { "v.failed" } else { "false" };
        format!(
            "insert into {} (pipeline, row_id, attempts, refused, next_attempt_at, last_error, \
             failed) select $1, v.id, v.attempts, v.refused, \
             clock_timestamp() + make_interval(secs => v.wait_s), v.error, {failed} from {VALUES} \
             on conflict (pipeline, row_id) do update set attempts = excluded.attempts, \
             refused = excluded.refused, next_attempt_at = excluded.next_attempt_at, \
             last_error = excluded.last_error, failed = excluded.failed, \
             updated_at = clock_timestamp()",
            self.attempts()
        )
    }

    fn fail(&self) -> Option<String> {
        let polling = self.polling;
        let most = match self.type_of(&polling.attempts_column).as_str() {
            "smallint" => i32::from(i16::MAX),
            _ => i32::MAX,
        };
        let later = "clock_timestamp() + make_interval(secs => v.wait_s)";
        let (no_column, failed) = (String::new(), quote_literal(&polling.failed_value));
        let state = match polling.failed_value.as_str() {
            "" => (&no_column, String::new()),
            _ => {
                let (pending, kind) = (self.pending(), self.type_of(&polling.status_column));
                let state =
                    format!("(case when v.failed then {failed} else {pending} end)::{kind}");
                (&polling.status_column, state)
            }
        };
        let set = set(&[
            state,
            (&polling.attempts_column, format!("least(v.attempts, {most})")),
            (&polling.next_attempt_at_column, later.to_owned()),
            (&polling.last_attempt_at_column, "clock_timestamp()".to_owned()),
            (
                &polling.last_error_column,
                format!("v.error::{}", self.type_of(&polling.last_error_column)),
            ),
        ]);
        let update = || {
            format!(
                "update {} t set {set} from {VALUES} where {} = v.id::{} and {}",
                self.shape.table.quoted(),
                of("t", &polling.id_column),
                self.type_of(&polling.id_column),
                self.has_pending_value("t")
            )
        };
        (!set.is_empty()).then(update)
    }

    fn sight(&self) -> String {
        let pending = self.is_pending("t");
        let table = self.shape.table.quoted();
        let oldest = match self.polling.created_at_column.as_str() {
            "" => "null::float8".to_owned(),
            column => format!(
                "(select extract(epoch from clock_timestamp() - {})::float8 from {table} t \
                 where {pending} order by {} limit 1)",
                of("t", column),
                self.order("t")
            ),
        };
        format!(
            "select count(*) filter (where s.pending), count(*) filter (where not s.pending), \
             {oldest} from (select {pending} as pending from {table} t where {}{} \
             limit {SIGHT_MAX_ROWS}) s",
            self.is_unpublished("t"),
            self.within("t")
        )
    }
}

/// A column of states has the value of rows that are to be published.
pub(super) fn has_pending_value(column: &str, polling: &PollingConfig) -> String {
    match polling.pending_value.as_str() {
        "" => format!("{column} is null"),
        value => format!("{column} = {}", quote_literal(value).trim()),
    }
}

/// A column of states has a value of rows that are not published: what partial
/// indexes are on.
pub(super) fn is_unpublished(column: &str, polling: &PollingConfig) -> String {
    let failed = quote_literal(&polling.failed_value);
    match (polling.pending_value.as_str(), polling.failed_value.as_str()) {
        (_, "") => has_pending_value(column, polling),
        ("", _) => format!("({column} is null or {column} = {})", failed.trim()),
        (pending, _) => {
            format!("{column} in ({}, {})", quote_literal(pending).trim(), failed.trim())
        }
    }
}

const VALUES: &str = "unnest($2::text[], $3::int4[], $4::int4[], $5::float8[], $6::bool[], \
                      $7::text[]) v(id, attempts, refused, wait_s, failed, error)";

#[cfg(test)]
mod tests {
    use walpost_event::ReplicaIdentity;

    use super::*;

    fn statements(park: ParkMode, change: impl FnOnce(&mut PollingConfig)) -> Statements {
        statements_within(None, park, change)
    }

    fn statements_within(
        seen_by: Option<&str>,
        park: ParkMode,
        change: impl FnOnce(&mut PollingConfig),
    ) -> Statements {
        let mut config = RelayConfig::new("shop");
        config.park = park;
        let mut polling = PollingConfig::default();
        change(&mut polling);
        let table: TableName = r#"app."Outbox""#.parse().unwrap();
        let relation = Relation {
            oid: 1,
            schema: table.schema.clone(),
            name: table.name.clone(),
            replica_identity: ReplicaIdentity::Default,
            columns: Vec::new(),
        };
        let types = [("id", "uuid"), ("status", "app.state"), ("attempts", "smallint")];
        let types = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).into();
        let shape =
            Shape { table: &table, relation: &relation, types: &types, seen_by, charset: None };
        Statements::new(&config, &polling, &shape)
    }

    #[test]
    fn a_failed_row_blocks_its_aggregate_unless_events_stand_alone() {
        let both = "e.\"status\" in ('NEW', 'FAILED')";
        assert!(statements(ParkMode::Aggregate, |_| {}).claim.contains(both));
        let event = statements(ParkMode::Event, |_| {}).claim;
        assert!(!event.contains(both) && event.contains("e.\"status\" = 'NEW'"), "{event}");
    }

    #[test]
    fn a_row_without_an_aggregate_waits_for_no_other() {
        let alone = statements(ParkMode::Aggregate, |polling| polling.aggregate_columns.clear());
        assert_eq!(alone.claim.matches("not exists").count(), 0, "{}", alone.claim);
        assert!(!alone.rows(&["1".into()]).contains("union all"));
    }

    #[test]
    fn where_a_snapshot_bounds_them_no_statement_finds_other_rows() {
        let bounded = statements_within(Some("5:9:7"), ParkMode::Aggregate, |_| {});
        let count = |text: &str| text.matches(".\"xid\", '5:9:7'::pg_snapshot)").count();
        // The window, and the rows that those of it wait for.
        assert_eq!(count(&bounded.claim), 2, "{}", bounded.claim);
        assert_eq!(count(&bounded.claim_after), 2);
        for text in [&bounded.rows(&[]), &bounded.window_end, &bounded.sight] {
            assert_eq!(count(text), 1, "{text}");
        }
        assert!(!statements(ParkMode::Aggregate, |_| {}).claim.contains("xid"));
    }

    #[test]
    fn order_ties_go_by_id_once() {
        let by_id = statements(ParkMode::Aggregate, |polling| {
            polling.order_columns = vec!["id".to_owned()];
        });
        assert!(by_id.claim.contains("order by w.\"id\" limit"), "{}", by_id.claim);
        let claim = statements(ParkMode::Aggregate, |_| {}).claim;
        assert!(claim.contains("order by w.\"seq\", w.\"id\" limit"), "{claim}");
    }

    #[test]
    fn ids_are_quoted_as_elements_and_as_a_literal() {
        let rows = statements(ParkMode::Aggregate, |_| {}).rows(&[r#"a'b"c\d"#.to_owned()]);
        assert!(rows.contains(r#"unnest( E'{"a''b\\"c\\\\d"}'::uuid[])"#) || rows.contains("E'"));
        assert!(rows.contains("a''b"), "{rows}");
    }

    #[test]
    fn counts_fit_their_column_and_states_their_type() {
        let fail = statements(ParkMode::Aggregate, |_| {}).fail.unwrap();
        assert!(fail.contains("least(v.attempts, 32767)"), "{fail}");
        assert!(fail.contains("end)::app.state"), "{fail}");
    }

    #[test]
    fn a_state_of_null_and_a_time_is_compared_and_written_as_such() {
        let statements = statements(ParkMode::Aggregate, |polling| {
            polling.status_column = "published_at".to_owned();
            polling.pending_value.clear();
            polling.published_value.clear();
            polling.failed_value.clear();
        });
        assert!(statements.claim.contains("g.\"published_at\" is null and not exists"));
        let set = "set \"published_at\" = clock_timestamp(), \"last_error\" = null where";
        assert!(statements.publish.contains(set), "{}", statements.publish);
        assert!(statements.note.contains("v.error, v.failed from"), "{}", statements.note);
        let fail = statements.fail.unwrap();
        assert!(!fail.contains("set \"published_at\""), "the row stays pending: {fail}");
    }

    #[test]
    fn a_table_without_a_column_for_it_is_not_updated_when_an_attempt_fails() {
        let statements = statements(ParkMode::Aggregate, |polling| {
            polling.failed_value.clear();
            polling.attempts_column.clear();
            polling.next_attempt_at_column.clear();
            polling.last_error_column.clear();
        });
        assert_eq!(statements.fail, None);
    }

    #[test]
    fn columns_that_are_not_there_are_neither_read_nor_written() {
        let statements = statements(ParkMode::Aggregate, |polling| {
            polling.attempts_column.clear();
            polling.next_attempt_at_column.clear();
            polling.published_at_column.clear();
            polling.last_error_column.clear();
            polling.created_at_column.clear();
        });
        let fail = statements.fail.as_ref().unwrap();
        let all = [&statements.claim, &statements.publish, fail, &statements.sight];
        for name in
            ["\"attempts\"", "\"next_attempt_at\"", "\"published_at\"", "\"last_error\"", "\"\""]
        {
            assert!(all.iter().all(|text| !text.contains(name)), "{name}");
        }
        assert!(statements.claim.contains("\"polling_attempts\" n"), "{}", statements.claim);
    }
}
