use std::fmt::Write;

use toml::Value;

use super::{
    Config,
    layers::Entry,
    secret::{HIDDEN, hide},
};

impl Config {
    /// What holds, as a file, with the origin of each value that is no
    /// default. Secrets are hidden.
    pub(crate) fn effective(&self) -> String {
        let mut entries: Vec<(&(String, String), &Entry)> = self.layers.entries.iter().collect();
        let first_line = |section: &str| {
            let of_section = entries_of(&self.layers.entries, section);
            of_section.map(|entry| entry.place).min().unwrap_or(usize::MAX)
        };
        entries.sort_by_key(|((section, key), entry)| {
            (first_line(section), section, entry.place, key)
        });
        let mut text = String::new();
        let mut current = None;
        for ((section, key), entry) in entries {
            if current != Some(section) {
                let gap = if current.is_some() { "\n" } else { "" };
                let _ = writeln!(text, "{gap}[{section}]");
                current = Some(section);
            }
            let line = match (section.as_str(), key.as_str(), self.found_by()) {
                ("pipeline", "tables", Some(found_by)) => format!("# tables: {found_by}"),
                _ => line(section, key, entry),
            };
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Who says what the tables are, where no key of ours does.
    fn found_by(&self) -> Option<String> {
        self.filters()?;
        let file = &self.connector_file()?.file;
        Some(format!("those that the filters of {file} mean, as `walpost check` lists them"))
    }
}

fn entries_of<'a>(
    entries: &'a std::collections::BTreeMap<(String, String), Entry>,
    section: &'a str,
) -> impl Iterator<Item = &'a Entry> {
    entries.iter().filter(move |((name, _), _)| name == section).map(|(_, entry)| entry)
}

fn line(section: &str, key: &str, entry: &Entry) -> String {
    let value = match &entry.value {
        Value::String(_) if entry.is_secret => Value::String(HIDDEN.to_owned()),
        Value::String(text) => Value::String(hide(section, key, text)),
        Value::Array(parts) => {
            let hidden = |part: &Value| match part {
                Value::String(text) => Value::String(hide(section, key, text)),
                other => other.clone(),
            };
            Value::Array(parts.iter().map(hidden).collect())
        }
        other => other.clone(),
    };
    let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { key.to_owned() } else { Value::String(key.to_owned()).to_string() };
    match &entry.origin {
        super::origin::Origin::Default => format!("{key} = {value}"),
        origin => format!("{key} = {value}  # {origin}"),
    }
}
