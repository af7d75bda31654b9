//! Connectors that come over HTTP: how they are read, and what each takes of the
//! configuration of the process that runs them.

use walpost_connect::Plugin;
use walpost_connector::{Origin, Properties, Providers, Setting, Unknown};

use super::{
    layer::GIVING_WAY,
    read::{ConnectorArgs, ConnectorFile, unresolved},
};
use crate::config::{Config, error::ConfigError, layers::Layers, origin::Origin as Place};

/// Keys and whole sections that are of one pipeline alone, or of the process:
/// `[postgres]` names the database of the connectors, and none of theirs.
const OF_ONE: [(&str, &str); 8] = [
    ("postgres", "*"),
    ("pipeline", "name"),
    ("pipeline", "slot"),
    ("pipeline", "publication"),
    ("pipeline", "tables"),
    ("pipeline", "row_filter"),
    ("pipeline", "row_filter_messages"),
    ("sink", "transactional_id"),
];

/// What belongs to the brokers that are named beside it, logins too.
const OF_BROKERS: [(&str, &str); 2] = [("kafka", "*"), ("sink", "sasl_password_file")];

/// How connectors that come over HTTP are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    worker: Option<(String, Properties)>,
    providers: Providers,
    unknown: Unknown,
}

impl ConnectorArgs {
    /// How connectors that come over HTTP are read; the worker's file is read now.
    pub(crate) fn reading(&self) -> Result<Reading, ConfigError> {
        let (worker, providers) = self.surroundings()?;
        // What they read is kept by them: connectors get others, which read it anew.
        let mut of_worker = providers.clone();
        let name = self.worker_name().unwrap_or_default();
        let worker = match worker {
            None => None,
            Some(written) => {
                let resolved = written.resolve(|asked| of_worker.lookup(asked));
                let resolved = resolved.map_err(|error| {
                    let problem = format!("{name}: {}: {}", error.property(), unresolved(&error));
                    ConfigError::Value { origin: Place::Flag("--worker"), problem }
                })?;
                Some((name, resolved))
            }
        };
        Ok(Reading { worker, providers, unknown: self.unknown() })
    }
}

impl Reading {
    /// Who judges configurations before anything is made of them.
    pub(crate) fn plugin(&self) -> Plugin {
        Plugin::new(self.providers.clone())
            .with_worker(self.worker.as_ref().map(|(_, properties)| properties.clone()))
            .with_unknown(self.unknown)
    }

    /// A connector of which the placeholders are replaced.
    pub(crate) fn read(&self, connector: &Properties) -> ConnectorFile {
        let name = connector.get("name").unwrap_or_default();
        let worker = self.worker.as_ref();
        ConnectorFile::judged(
            format!("connector {name}"),
            worker.map(|(name, _)| name.clone()),
            (connector, worker.map(|(_, properties)| properties)),
            self.unknown,
        )
    }
}

impl Config {
    /// What holds for a connector: what it says itself, then what this process was
    /// given for all of them, then what a connector has where it says nothing.
    /// Nothing of `[postgres]`, and nothing that is of one pipeline alone.
    ///
    /// A connector with brokers of its own takes nothing of `[kafka]`, so that
    /// nobody has the login there sent to a host of theirs.
    pub(crate) fn of_connector(&self, connector: ConnectorFile) -> Result<Self, ConfigError> {
        connector.check()?;
        let mut layers = Layers { entries: self.layers.entries.clone() };
        let has_brokers = connector.settings().iter().any(is_own_brokers);
        let of_brokers = OF_BROKERS.into_iter().filter(|_| has_brokers);
        layers.forget(OF_ONE.into_iter().chain(of_brokers));
        layers.lay_over(&connector)?;
        let settings = layers.settings()?;
        Ok(Self {
            settings,
            layers,
            connector: Some(connector),
            found_tables: None,
            looked_at: None,
        })
    }
}

fn is_own_brokers(setting: &Setting) -> bool {
    let is_servers = (setting.section, setting.key) == ("kafka", "bootstrap.servers");
    is_servers && setting.origin == Origin::Connector && !setting.is_default
}

impl Layers {
    /// Lays a connector over what holds for all of them.
    fn lay_over(&mut self, connector: &ConnectorFile) -> Result<(), ConfigError> {
        let held = Self { entries: self.entries.clone() };
        self.lay_connector(connector, |setting| {
            !(setting.is_default && held.is_set(setting.section, setting.key))
        })?;
        let is_own = |(section, key)| matches!(self.origin(section, key), Place::Property { .. });
        let rivals = GIVING_WAY.into_iter().filter(|(own, _)| is_own(*own));
        let rivals: Vec<_> = rivals.map(|(_, rival)| rival).collect();
        self.forget(rivals);
        Ok(())
    }

    /// Has the defaults hold for these keys, and with `*` for whole sections.
    fn forget(&mut self, names: impl IntoIterator<Item = (&'static str, &'static str)>) {
        let names: Vec<_> = names.into_iter().collect();
        let is_meant = |(section, key): &(String, String)| {
            names.iter().any(|(of, name)| section == of && (*name == "*" || key == name))
        };
        self.entries.retain(|name, _| !is_meant(name));
        let defaults = Self::defaults().entries.into_iter();
        self.entries.extend(defaults.filter(|(name, _)| is_meant(name)));
    }
}
