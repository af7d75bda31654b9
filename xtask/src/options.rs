//! Options of a command, as `--name value` or `--flag`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// What was given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    values: BTreeMap<String, String>,
    flags: BTreeSet<String>,
}

impl Options {
    /// Reads arguments, of which these have a value and those have none.
    ///
    /// # Errors
    /// If an option is unknown, or lacks its value.
    pub(crate) fn parse(arguments: &[&str], with_value: &[&str], flags: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(&name) = rest.next() {
            if with_value.contains(&name) {
                let value = rest.next().with_context(|| format!("{name} needs a value"))?;
                options.values.insert(name.to_owned(), (*value).to_owned());
            } else if flags.contains(&name) {
                options.flags.insert(name.to_owned());
            } else {
                let known: Vec<&str> = with_value.iter().chain(flags).copied().collect();
                bail!("unknown option {name:?}; the options are {}", known.join(", "));
            }
        }
        Ok(options)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// A value that is a number.
    ///
    /// # Errors
    /// If it is not one.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>> {
        let parse = |text: &str| {
            text.parse().with_context(|| format!("{name} must be a number, not {text:?}"))
        };
        self.value(name).map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let read = |arguments: &[&str]| Options::parse(arguments, &["--runs"], &["--list"]);
        let options = read(&["--list", "--runs", "7"]).unwrap();
        assert!(options.has("--list") && !options.has("--runs"));
        assert_eq!(
            (options.value("--runs"), options.number("--runs").unwrap()),
            (Some("7"), Some(7))
        );
        assert_eq!(read(&[]).unwrap().number("--runs").unwrap(), None);
        assert!(read(&["--runs"]).unwrap_err().to_string().contains("--runs needs a value"));
        assert!(read(&["--run"]).unwrap_err().to_string().contains("--runs, --list"));
        assert!(read(&["--runs", "x"]).unwrap().number("--runs").is_err());
    }
}
