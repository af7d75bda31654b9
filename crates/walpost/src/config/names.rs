//! What a configuration names in the database beside the pipeline itself: the
//! publication that `walpost migrate` creates, and columns that rows may lack.

use walpost_relay::{NamedColumn, RelayConfig, TableName};
use walpost_router::RouterConfig;

use super::{Config, ConfigError, polling::POLLING, webhooks::SinkKind};

impl Config {
    /// The publication that `walpost migrate` creates with Walpost's own outbox
    /// table: the pipeline's, if it is of all rows of that table.
    pub(crate) fn migrated_publication(&self) -> &str {
        let section = &self.settings.pipeline;
        let own = TableName { schema: section.schema.clone(), name: "outbox".to_owned() };
        let has_own = self.named_tables().is_ok_and(|tables| tables.contains(&own));
        let is_own = has_own && self.connector.is_none() && section.row_filter.is_empty();
        match is_own && !section.publication.is_empty() {
            true => &section.publication,
            false => "walpost",
        }
    }

    /// The pipeline, if its tables belong in the publication that `walpost migrate`
    /// creates: it reads the WAL without a row filter, and names no other one.
    pub(crate) fn migrated_pipeline(&self) -> Option<RelayConfig> {
        if self.connector.is_some() || self.settings.pipeline.source == POLLING {
            return None;
        }
        // What is wrong with it is for those who run it.
        let relay = self.relay_of(self.named_tables().ok()?).ok()?;
        let is_migrated =
            relay.row_filter.is_none() && relay.publication == self.migrated_publication();
        is_migrated.then_some(relay)
    }

    /// Columns that are named otherwise than by default, although rows may lack them.
    pub(super) fn named_columns(&self) -> Result<Vec<NamedColumn>, ConfigError> {
        if self.sink_kind()? == SinkKind::Webhook {
            // What it places it needs.
            return Ok(Vec::new());
        }
        let section = &self.settings.router;
        let is_named = |key| self.layers.differs("router", key);
        let named =
            |name: &str, key, is_required| NamedColumn { name: name.to_owned(), key, is_required };
        let mut columns = Vec::new();
        if is_named("additional_placement") {
            // What is wrong with it the router says.
            let router = RouterConfig {
                additional_placement: Some(section.additional_placement.clone()),
                ..RouterConfig::default()
            };
            // If the user says what becomes of rows that lack them, some do.
            let is_required = !self.layers.is_set("router", "additional_missing");
            let placed = router.placed_columns().into_iter();
            columns.extend(
                placed.map(|name| named(&name, "router.additional_placement", is_required)),
            );
        }
        let others = [
            ("headers_column", "router.headers_column", &section.headers_column),
            ("event_type", "router.event_type", &section.event_type),
        ];
        // Debezium's router does not look at the column of the type.
        let others = others.into_iter().filter(|_| self.connector.is_none());
        let others = others.filter(|(key, _, name)| is_named(key) && !name.is_empty());
        columns.extend(others.map(|(_, key, name)| named(name, key, true)));
        Ok(columns)
    }
}
