//! Configuration: the default file, a file of the user's, the environment and
//! flags, in this order.

mod build;
mod destination;
mod duration;
mod error;
mod layers;
mod nearest;
mod polling;
mod print;
mod retention;
mod secret;
mod settings;
mod webhooks;

use self::layers::Layers;
pub(crate) use self::{
    error::ConfigError,
    layers::{ConfigArgs, DEFAULT_FILE, Origin, is_setting_variable},
    retention::{Placed, Pruners},
    settings::{LogFormat, Settings},
    webhooks::{Sink, SinkKind, Webhooks},
};

/// What holds, and where each value comes from.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    layers: Layers,
}

impl Config {
    /// Reads all layers.
    pub(crate) fn load(args: &ConfigArgs) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::load_with(args, variables)
    }

    fn load_with(
        args: &ConfigArgs,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let layers = Layers::read(args, variables)?;
        let settings = layers.settings()?;
        Ok(Self { settings, layers })
    }
}

#[cfg(test)]
mod tests;
