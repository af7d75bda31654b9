use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, ConfigError, LogFormat, Origin};

const VARIABLE: &str = "WALPOST_LOG";
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Sends log lines to stderr. `WALPOST_LOG` overrides the level.
pub(crate) fn start(config: &Config) -> Result<(), ConfigError> {
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
    let filter = EnvFilter::try_new(level).map_err(|error| wrong(&error.to_string()))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would be told on stderr, and panic where that is gone.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    // A second start, in the same process, keeps the first.
    let _ = match config.log_format()? {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
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
