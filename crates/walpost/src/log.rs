use std::{
    io::{self, IsTerminal},
    sync::atomic::{AtomicBool, Ordering},
};

use tracing_subscriber::{
    EnvFilter,
    fmt::{
        format::Writer,
        time::{FormatTime, SystemTime},
    },
};

use crate::config::{Config, ConfigError, LogFormat, Origin};

const VARIABLE: &str = "WALPOST_LOG";
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Whether lines on stderr are JSON objects.
static WRITES_JSON: AtomicBool = AtomicBool::new(false);

/// Whether the reader of stderr expects one JSON object a line.
pub(crate) fn writes_json() -> bool {
    WRITES_JSON.load(Ordering::Relaxed)
}

/// The time now, as log lines have it.
pub(crate) fn timestamp() -> String {
    let mut text = String::new();
    // A String takes everything.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Checks the settings that [`start`] uses.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    filter(config)?;
    config.log_format().map(drop)
}

/// Sends log lines to stderr. `WALPOST_LOG` overrides the level.
pub(crate) fn start(config: &Config) -> Result<(), ConfigError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config)?)
        .with_writer(io::stderr)
        // It would be printed on stderr, and panic where that is closed.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    // A second start, in the same process, keeps the first.
    let _ = match config.log_format()? {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => {
            WRITES_JSON.store(true, Ordering::Relaxed);
            builder.json().flatten_event(true).try_init()
        }
    };
    Ok(())
}

fn filter(config: &Config) -> Result<EnvFilter, ConfigError> {
    let variable = std::env::var(VARIABLE).ok().filter(|level| !level.is_empty());
    let level = variable.as_ref().unwrap_or(&config.settings.log.level);
    let wrong = |problem: &str| {
        let problem = format!("log level {level:?} cannot be used: {problem}");
        match &variable {
            Some(_) => ConfigError::Value { origin: Origin::Variable(VARIABLE.into()), problem },
            None => config.wrong("log", "level", &problem),
        }
    };
    if let Some(word) = misspelt_level(level) {
        return Err(wrong(&format!("{word:?} is none of {}", LEVELS.join(", "))));
    }
    // It logs what functions raise as a notice, and values of parameters at the level debug.
    let level = format!("tokio_postgres=warn,{level}");
    EnvFilter::try_new(level).map_err(|error| wrong(&error.to_string()))
}

/// A word alone would be a target, and nothing else be logged.
fn misspelt_level(level: &str) -> Option<&str> {
    let mut words = level.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    words.find(|word| !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_found() {
        for level in ["info", "WARN", "info,walpost_relay=debug", "warn, walpost[span]=trace"] {
            assert_eq!(misspelt_level(level), None, "{level}");
        }
        assert_eq!(misspelt_level("inof"), Some("inof"));
        assert_eq!(misspelt_level("walpost=debug,chatty"), Some("chatty"));
    }
}
