use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, ConfigError, LogFormat};

/// Sends log lines to stderr. `WALPOST_LOG` overrides the level.
pub(crate) fn start(config: &Config) -> Result<(), ConfigError> {
    let variable = std::env::var("WALPOST_LOG").ok().filter(|level| !level.is_empty());
    let level = variable.unwrap_or_else(|| config.settings.log.level.clone());
    let filter = EnvFilter::try_new(&level).map_err(|error| {
        config.wrong("log", "level", &format!("log level {level:?} cannot be used: {error}"))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // A second start, in the same process, keeps the first.
    let _ = match config.log_format()? {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
