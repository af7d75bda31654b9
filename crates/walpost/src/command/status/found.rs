//! Events of one id, each with what is known of it. Only an id that is globally unique
//! is that of one event; others count together with their source.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;
use tokio_postgres::Client;
use walpost_webhook::DeliveryEntry;

use super::deliveries;
use crate::{
    command::{cells::as_json, parked::for_terminal, sql, webhook},
    failure::Failure,
    output,
    table::Table,
};

/// What is known of an event.
#[derive(Default)]
pub(super) struct Found {
    pub(super) state: &'static str,
    pub(super) detail: String,
    /// Where it was found.
    pub(super) place: Option<String>,
    /// The id space of its table, or its topic; none if its id is globally unique.
    pub(super) source: Option<String>,
    pub(super) table: Option<String>,
    pub(super) deliveries: Vec<DeliveryEntry>,
}

/// The id spaces of a schema.
pub(super) struct IdSpaces(HashMap<String, IdSpace>);

struct IdSpace {
    /// None for logical messages, and for a table that was dropped.
    table: Option<String>,
    /// Not if the topic is the source of its events.
    is_source: bool,
}

impl IdSpaces {
    pub(super) async fn read(client: &Client, schema: &str) -> Result<Self, tokio_postgres::Error> {
        let query = format!(
            "select s.id::text, n.nspname || '.' || c.relname, s.scope = 'table' \
             from {}.id_space s left join pg_class c on c.oid = s.outbox \
             left join pg_namespace n on n.oid = c.relnamespace",
            sql::quoted(schema)
        );
        let rows = client.query(&query, &[]).await?;
        let space = |row: &tokio_postgres::Row| {
            (row.get(0), IdSpace { table: row.get(1), is_source: row.get(2) })
        };
        Ok(Self(rows.iter().map(space).collect()))
    }

    /// The id space, if it is the source of its events.
    pub(super) fn source(&self, id: Option<&str>) -> Option<String> {
        let is_source = |id: &&str| self.0.get(*id).is_some_and(|space| space.is_source);
        id.filter(is_source).map(str::to_owned)
    }

    pub(super) fn table(&self, id: &str) -> Option<String> {
        self.0.get(id).and_then(|space| space.table.clone())
    }

    /// Gives each event its deliveries, and adds events of which only deliveries are
    /// known. Deliveries of no known table are those of the only event.
    pub(super) fn add_deliveries(
        &self,
        found: &mut Vec<Found>,
        entries: Vec<DeliveryEntry>,
        schema: &str,
    ) {
        let mut by_source = BTreeMap::<String, Vec<DeliveryEntry>>::new();
        for entry in entries {
            by_source.entry(entry.source.clone()).or_default().push(entry);
        }
        for one in &mut *found {
            let own = one.source.as_ref().and_then(|source| by_source.remove(source));
            one.deliveries = own.unwrap_or_default();
        }
        let is_only = found.len() == 1;
        for (source, entries) in by_source {
            if is_only && !self.0.contains_key(&source) {
                found[0].deliveries.extend(entries);
                continue;
            }
            let table = self.table(&source);
            let source = Some(source).filter(|source| !source.is_empty());
            found.push(Found { source, table, deliveries: entries, ..Found::default() });
        }
        for one in found {
            one.regard_deliveries(schema);
        }
    }
}

impl Found {
    pub(super) fn new(state: &'static str, detail: &str, place: &impl ToString) -> Self {
        let (detail, place) = (detail.to_owned(), Some(place.to_string()));
        Self { state, detail, place, ..Self::default() }
    }

    /// The states of its deliveries say more than whether they were made, but for an
    /// event that is parked again or not the pipeline's.
    fn regard_deliveries(&mut self, schema: &str) {
        if self.deliveries.is_empty() || matches!(self.state, "parked" | "discarded" | "other") {
            return;
        }
        (self.state, self.detail) = deliveries::told(&self.deliveries);
        self.place.get_or_insert_with(|| format!("{schema}.webhook_delivery"));
    }
}

/// `(id, pipeline)`; deliveries are absent where events go to topics.
pub(super) fn print(
    found: &[Found],
    to_webhooks: bool,
    (id, pipeline): (&str, &str),
    json: bool,
) -> Result<(), Failure> {
    for (index, one) in found.iter().enumerate() {
        if json {
            let mut line = json!({
                "event": id,
                "pipeline": pipeline,
                "state": one.state,
                "detail": one.detail,
                "place": one.place,
                "source": one.source,
                "table": one.table,
            });
            if to_webhooks {
                let entries = one.deliveries.iter().map(|entry| as_json(webhook::fields(entry)));
                line["deliveries"] = entries.collect();
            }
            output::print(format_args!("{line}\n"))?;
            continue;
        }
        let mut table = Table::default();
        table.row(["event".to_owned(), for_terminal(id)]);
        table.row(["state", one.state]);
        table.row(["detail", &one.detail]);
        for (name, text) in
            [("found in", &one.place), ("table", &one.table), ("source", &one.source)]
        {
            if let Some(text) = text {
                table.row([name.to_owned(), for_terminal(text)]);
            }
        }
        let space = if index > 0 { "\n" } else { "" };
        output::print(format_args!("{space}{table}"))?;
        if !one.deliveries.is_empty() {
            output::print(format_args!("\n{}", webhook::table(&one.deliveries)))?;
        }
    }
    Ok(())
}
