//! Configuration: the default file, a connector's file, a file of the user's, the
//! environment and flags, in this order.

mod build;
pub(crate) mod connector;
mod destination;
mod duration;
mod error;
mod layers;
mod names;
pub(crate) mod nearest;
mod origin;
mod polling;
mod print;
mod retention;
mod secret;
mod serving;
mod settings;
mod text;
mod webhooks;

use std::time::Duration;

use walpost_connector::Connector;
use walpost_relay::TableName;

use self::{connector::ConnectorFile, layers::Layers};
pub(crate) use self::{
    duration::duration,
    error::ConfigError,
    layers::{ConfigArgs, DEFAULT_FILE, is_setting_variable},
    origin::Origin,
    retention::{Placed, Pruners},
    settings::{LogFormat, Settings},
    webhooks::{Sink, SinkKind, Webhooks},
};

/// What holds, and where each value comes from.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    layers: Layers,
    /// Nothing of it is refused.
    connector: Option<ConnectorFile>,
    /// What the connector's filters mean in the database, once it was asked.
    found_tables: Option<Vec<TableName>>,
    /// The first transaction that the look at them did not see.
    looked_at: Option<u64>,
}

impl Config {
    /// Reads all layers.
    pub(crate) fn load(args: &ConfigArgs) -> Result<Self, ConfigError> {
        Self::load_over(args, args.connector.read()?)
    }

    /// Reads all layers but the connector's, which was read.
    pub(crate) fn load_over(
        args: &ConfigArgs,
        connector: Option<ConnectorFile>,
    ) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::load_with(args, connector, variables)
    }

    fn load_with(
        args: &ConfigArgs,
        connector: Option<ConnectorFile>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        if let Some(connector) = &connector {
            connector.check()?;
        }
        let layers = Layers::read(args, connector.as_ref(), variables)?;
        let settings = layers.settings()?;
        Ok(Self { settings, layers, connector, found_tables: None, looked_at: None })
    }

    /// The connector's file, where there is one.
    pub(crate) fn connector_file(&self) -> Option<&ConnectorFile> {
        self.connector.as_ref()
    }

    /// What no key of ours says, where there is a connector.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.connector.as_ref()?.connector()
    }

    /// The connector whose filters say which tables are outboxes: without
    /// [`found_tables`](Self::found_tables) there is no pipeline.
    pub(crate) fn filters(&self) -> Option<&Connector> {
        self.connector().filter(|_| !self.layers.is_set("pipeline", "tables"))
    }

    /// Sets what the filters mean.
    pub(crate) fn set_found_tables(&mut self, tables: Vec<TableName>, looked_at: u64) {
        (self.found_tables, self.looked_at) = (Some(tables), Some(looked_at));
    }

    /// The database was waited for already: what is left of the time for a start is
    /// the pipeline's.
    pub(crate) fn has_waited(&mut self, waited: Duration) {
        let limit = &mut self.settings.pipeline.start_timeout_ms;
        if *limit > 0 {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            *limit = limit.saturating_sub(waited_ms).max(1);
        }
    }

    /// Has the connector's filters, if there are any, mean a table, for a look at
    /// everything else before any server is asked.
    pub(crate) fn suppose_tables(&mut self) {
        if self.filters().is_some() {
            self.found_tables = Some(vec![any_table()]);
        }
    }
}

/// Stands for the tables of filters before these are looked for.
fn any_table() -> TableName {
    TableName { schema: "public".to_owned(), name: "outbox".to_owned() }
}

#[cfg(test)]
mod tests;
