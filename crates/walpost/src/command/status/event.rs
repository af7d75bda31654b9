//! Where the events of an id are.

use tokio_postgres::{Client, Row};
use walpost_event::is_globally_unique;
use walpost_relay::{RelayConfig, TableName, row_condition};
use walpost_router::RouterConfig;
use walpost_webhook::Deliveries;

use super::{
    deliveries,
    found::{self, Found, IdSpaces},
};
use crate::{
    command::{grants::Grants, sql},
    config::{Config, SinkKind},
    failure::{Exit, Failure},
};

pub(super) async fn run(config: &Config, id: &str, json: bool) -> Result<(), Failure> {
    let (relay, router, database) = (config.relay()?, config.router()?, config.database()?);
    let client = sql::connect_to_look(&database).await?;
    let grants = grants(&client, &relay, &router).await.map_err(Failure::postgres)?;
    let mut own = Vec::new();
    for table in &relay.tables {
        let condition = row_condition(&database, &relay, table).await;
        let condition = condition.map_err(|error| Failure::of_look(error, &grants))?;
        own.push((table, condition.map(|condition| format!("{condition} is true"))));
    }
    let failed = sql::failed(&relay.schema, Some(grants));
    let to_webhooks = config.sink_kind()? == SinkKind::Webhook;
    let id_column = &router.event_id;
    let spaces = IdSpaces::read(&client, &relay.schema).await.map_err(&failed)?;
    let look =
        Look { client: &client, relay: &relay, id_column, id, own, to_webhooks, spaces: &spaces };
    let ids = look.ids().await.map_err(&failed)?;
    let mut found = look.find(&ids).await.map_err(&failed)?;
    if to_webhooks {
        let deliveries = Deliveries::in_schema(&relay.schema);
        let entries = deliveries::of_event(&client, &database, &deliveries, &ids).await?;
        spaces.add_deliveries(&mut found, entries, &relay.schema);
    }
    let is_unknown = found.is_empty();
    if is_unknown {
        found.push(look.nothing().await.map_err(&failed)?);
    }
    found::print(&found, to_webhooks, (id, &relay.pipeline), json)?;
    if is_unknown {
        let failure = Failure::found(Exit::Running, "nothing is known of this event");
        return Err(if json { failure.told_in_json() } else { failure });
    }
    Ok(())
}

/// What the role needs for it: of the rows no more than says whose they are.
async fn grants(
    client: &Client,
    relay: &RelayConfig,
    router: &RouterConfig,
) -> Result<Grants, tokio_postgres::Error> {
    let mut grants = Grants::new(client, &relay.schema).await?.status(&relay.schema);
    for table in ["move", "id_space"] {
        grants.select_all(&format!("{}.{table}", sql::quoted(&relay.schema)));
    }
    let filter = relay.row_filter.as_deref().unwrap_or_default();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = filter.split(|c| !is_word(c)).collect();
    let has_contents =
        |name: &str| name == router.event_payload || router.headers_column.as_deref() == Some(name);
    for table in &relay.tables {
        let is_id = |name: &str| name == router.event_id;
        let is_read = |name: &str| {
            let is_proof = matches!(name, "xid" | "tableoid");
            is_id(name) || is_proof || (words.contains(&name) && !has_contents(name))
        };
        grants.outbox(client, table, is_read).await?;
        grants.outbox(client, &archive_of(table), is_id).await?;
    }
    Ok(grants)
}

fn archive_of(table: &TableName) -> TableName {
    TableName { schema: table.schema.clone(), name: format!("{}_archive", table.name) }
}

struct Look<'a> {
    client: &'a Client,
    relay: &'a RelayConfig,
    id_column: &'a str,
    id: &'a str,
    /// Whether a row is the pipeline's, by table; none where all are.
    own: Vec<(&'a TableName, Option<String>)>,
    /// Events become deliveries, not records of topics.
    to_webhooks: bool,
    spaces: &'a IdSpaces,
}

/// An event that is or was parked.
struct Parked {
    /// None for those of an earlier version.
    space: Option<String>,
    /// The table, or the prefix of a message.
    written_to: String,
    found: Found,
}

impl Look<'_> {
    /// Each event that has one of these texts as its id, in the order of the tables.
    async fn find(&self, ids: &[String]) -> Result<Vec<Found>, tokio_postgres::Error> {
        let mut found = Vec::new();
        let mut parked = self.parked(ids).await?;
        for table in &self.relay.tables {
            let space = self.space_of(table).await?;
            let is_of_it = |one: &mut Parked| match &one.space {
                Some(_) => one.space == space,
                None => one.written_to == table.to_string() || self.relay.tables.len() == 1,
            };
            let own: Vec<Parked> = parked.extract_if(.., is_of_it).collect();
            let one = match own.into_iter().next() {
                Some(one) => Some(one.found),
                None => self.in_table(table).await?,
            };
            let (source, table) = (self.spaces.source(space.as_deref()), Some(table.to_string()));
            found.extend(one.map(|one| Found { source, table, ..one }));
        }
        found.extend(parked.into_iter().map(|one| one.found));
        if ids.iter().any(|id| is_globally_unique(id)) {
            found.sort_by_key(|one| !matches!(one.state, "parked" | "discarded"));
            found.truncate(1);
            for one in &mut found {
                one.source = None;
            }
        }
        Ok(found)
    }

    async fn in_table(&self, table: &TableName) -> Result<Option<Found>, tokio_postgres::Error> {
        if let Some(found) = self.row(table).await? {
            return Ok(Some(found));
        }
        let archive = archive_of(table);
        let is_there = self.row_of(&archive, "true").await?.is_some();
        Ok(is_there.then(|| {
            let detail = "its row was proven to be published or parked before it left the outbox";
            Found::new("published", detail, &archive)
        }))
    }

    /// What can be said if there is no event.
    async fn nothing(&self) -> Result<Found, tokio_postgres::Error> {
        let messages = match self.relay.event_prefixes().is_empty() {
            true => "",
            false => "; or it is a message of pg_logical_emit_message, which no table has",
        };
        let hidden = match self.hides_rows().await? {
            true => "; or its row is one that row level security hides from this role",
            false => "",
        };
        let topic = match self.to_webhooks {
            true => "; nor has it a delivery",
            false => "; the topic tells, by the header id",
        };
        let detail = format!(
            "no row has this id: it was not committed, or its row was deleted or has left the \
             outbox{messages}{hidden}{topic}"
        );
        Ok(Found { state: "unknown", detail, ..Found::default() })
    }

    async fn hides_rows(&self) -> Result<bool, tokio_postgres::Error> {
        let tables: Vec<String> = self.relay.tables.iter().map(TableName::quoted).collect();
        let query = "select coalesce(bool_or(row_security_active(to_regclass(name)::oid)), false) \
                     from unnest($1::text[]) t (name) where to_regclass(name) is not null";
        Ok(self.client.query_one(query, &[&tables]).await?.get(0))
    }

    /// One of each id space, the first one that is open if there is one.
    async fn parked(&self, ids: &[String]) -> Result<Vec<Parked>, tokio_postgres::Error> {
        let query = format!(
            "select id, state, reason, id_space::text, source from \
             (select distinct on (id_space) id, state, reason, id_space, source, \
             state in ('open', 'sending') as is_open from {}.parked \
             where pipeline = $1 and event_id = any ($2) \
             order by id_space, is_open desc, id desc) each order by is_open desc, id desc",
            sql::quoted(&self.relay.schema)
        );
        let rows = self.client.query(&query, &[&self.relay.pipeline, &ids]).await?;
        let place = format!("{}.parked", self.relay.schema);
        let parked = |row: &Row| {
            let (id, state, reason): (i64, &str, &str) = (row.get(0), row.get(1), row.get(2));
            let (state, detail) = match state {
                "done" => ("published", "it was parked, and sent on later".to_owned()),
                "discarded" => {
                    ("discarded", "it was parked, and somebody had it discarded".to_owned())
                }
                "sending" => ("parked", "it is being sent on".to_owned()),
                _ => ("parked", format!("{reason}; see `walpost parked show {id}`")),
            };
            let space: Option<String> = row.get(3);
            let source = self.spaces.source(space.as_deref());
            let table = space.as_deref().and_then(|space| self.spaces.table(space));
            let found = Found { source, table, ..Found::new(state, &detail, &place) };
            Parked { space, written_to: row.get(4), found }
        };
        Ok(rows.iter().map(parked).collect())
    }

    /// The id space of a table.
    async fn space_of(&self, table: &TableName) -> Result<Option<String>, tokio_postgres::Error> {
        let query = format!(
            "select id::text from {}.id_space where outbox = \
             coalesce(pg_partition_root(to_regclass($1)), to_regclass($1))",
            sql::quoted(&self.relay.schema)
        );
        let row = self.client.query_opt(&query, &[&table.quoted()]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// The id as it was asked for, and as the columns of the tables print it.
    async fn ids(&self) -> Result<Vec<String>, tokio_postgres::Error> {
        let mut ids = vec![self.id.to_owned()];
        for table in &self.relay.tables {
            ids.extend(self.printed(table).await?);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    async fn row(&self, table: &TableName) -> Result<Option<Found>, tokio_postgres::Error> {
        let schema = sql::quoted(&self.relay.schema);
        let has_xid = "select exists (select from pg_attribute where attrelid = to_regclass($1) \
                       and attname = 'xid' and atttypid = 'xid8'::regtype and not attisdropped)";
        let has_xid: bool = self.client.query_one(has_xid, &[&table.quoted()]).await?.get(0);
        let is_proven = match has_xid {
            true => format!(
                "(select case when c.proven is not null then \
                 pg_visible_in_snapshot(o.xid, (c.proven ->> 'snapshot')::pg_snapshot) \
                 and coalesce(jsonb_exists(c.relations -> 'parts', o.tableoid::text) and o.xid >= \
                 coalesce(c.relations -> 'parts' -> o.tableoid::text ->> 'since', '0')::xid8, \
                 false) end from {schema}.checkpoint c where c.pipeline = {})",
                literal(&self.relay.pipeline)
            ),
            false => "null::bool".to_owned(),
        };
        let Some(is_proven) = self.row_of(table, &is_proven).await? else { return Ok(None) };
        if self.row_of(table, self.own(table)).await? != Some(Some(true)) {
            let detail = format!(
                "its row is not taken by the row filter of pipeline {:?}; ask under the name of \
                 the one that takes it",
                self.relay.pipeline
            );
            return Ok(Some(Found::new("other", &detail, table)));
        }
        let (state, detail) = match is_proven {
            Some(true) if self.to_webhooks => (
                "published",
                "its row is proven, and it has no delivery: no destination takes it, its \
                 deliveries have left the archive, or it is a row from before the slot where \
                 initial was \"skip\"",
            ),
            Some(false) if self.to_webhooks => {
                ("pending", "its row is committed, and it has no delivery yet")
            }
            None if self.to_webhooks && !has_xid => (
                "pending",
                "its row is committed, and it has no delivery: it was not read yet, no \
                 destination takes it, or its deliveries have left the archive",
            ),
            Some(true) => (
                "published",
                "its row is proven; a row from before the slot counts as published where initial \
                 was \"skip\"",
            ),
            Some(false) => (
                "pending",
                "its row is committed and not proven to be published yet; it may be in the topic \
                 for seconds already",
            ),
            None if has_xid => ("pending", "the pipeline has proven nothing yet"),
            None => (
                "pending",
                "its row is committed; the table has no column xid, so that nothing tells whether \
                 it is published; the topic does, by the header id",
            ),
        };
        Ok(Some(Found::new(state, detail, table)))
    }

    fn own(&self, table: &TableName) -> &str {
        let own = self.own.iter().find(|(name, _)| *name == table);
        own.and_then(|(_, own)| own.as_deref()).unwrap_or("true")
    }

    /// Whether the row of this id is so; none where there is no row. An id that
    /// the column cannot have has none.
    async fn row_of(
        &self,
        table: &TableName,
        is_so: &str,
    ) -> Result<Option<Option<bool>>, tokio_postgres::Error> {
        let Some((kind, _)) = self.kind(table).await? else { return Ok(None) };
        let query = format!(
            "select {is_so} from {} o where o.{} = $1::text::{kind} limit 1",
            table.quoted(),
            sql::quoted(self.id_column)
        );
        let row = self.of_the_column(&query).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// The id as the column prints it, which is what `parked` has: with the
    /// blanks of a `char(n)`, and a uuid in small letters. None where it is none
    /// of the column's.
    async fn printed(&self, table: &TableName) -> Result<Option<String>, tokio_postgres::Error> {
        let Some((kind, bounded)) = self.kind(table).await? else { return Ok(None) };
        let query = format!(
            "select format('%s', $1::text::{bounded}) where $1::text::{bounded} = $1::text::{kind}"
        );
        let row = self.of_the_column(&query).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Type of the column of the ids, without its length and with it.
    async fn kind(
        &self,
        table: &TableName,
    ) -> Result<Option<(String, String)>, tokio_postgres::Error> {
        // Of no length a `character` would have one letter.
        let kind = "select format_type(atttypid, -1), format_type(atttypid, atttypmod) \
                    from pg_attribute \
                    where attrelid = to_regclass($1) and attname = $2 and not attisdropped";
        let row = self.client.query_opt(kind, &[&table.quoted(), &self.id_column]).await?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }

    /// A row of a statement about the id; none for an id that its type does not
    /// take.
    async fn of_the_column(&self, query: &str) -> Result<Option<Row>, tokio_postgres::Error> {
        match self.client.query_opt(query, &[&self.id]).await {
            // Invalid text for the type, or a number out of its range.
            Err(error)
                if matches!(error.code().map(|code| code.code()), Some("22P02" | "22003")) =>
            {
                Ok(None)
            }
            row => row,
        }
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
