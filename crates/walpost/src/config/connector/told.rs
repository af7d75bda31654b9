use super::ConnectorFile;
use crate::config::{Config, origin::Origin};

/// What is said of values without their key: section and key, the words, and
/// those for a connector that says what the key is.
const WORDS: [((&str, &str), &str, &str); 9] = [
    (
        ("postgres", "url"),
        "mend the password: in the url, or the file postgres.password_file",
        "mend database.password",
    ),
    (
        ("postgres", "url"),
        "name a password, in the url or by postgres.password_file,",
        "name database.password",
    ),
    (
        ("postgres", "url"),
        "mend the url, or the file that it names",
        "mend database.sslmode, or the file of database.sslrootcert, sslcert or sslkey",
    ),
    (("postgres", "url"), "write sslmode=prefer", "write database.sslmode = prefer"),
    (
        ("postgres", "url"),
        "name one that exists, in the url, or create it",
        "name one that exists, in database.dbname, or create it",
    ),
    (
        ("pipeline", "create_publication"),
        "set create_publication = true",
        "set publication.autocreate.mode = filtered",
    ),
    (("pipeline", "initial"), "initial = \"skip\"", "snapshot.mode = no_data"),
    (("pipeline", "initial"), "initial = \"publish\"", "snapshot.mode = initial"),
    (
        ("pipeline", "initial"),
        "publishes the whole table again, or \"skip\"",
        "publishes the whole table again, or no_data",
    ),
];

/// Commands that take the connector's file, up to where options begin, and what
/// follows.
const COMMANDS: [(&str, &str); 4] = [
    ("`walpost migrate", "`"),
    ("`walpost check", "`"),
    ("`walpost slot recover", "`"),
    ("`walpost slot recover", " --accept"),
];

impl Config {
    /// A text with the connector's properties where it names keys of ours that
    /// these set, and with its file where it names commands; the same text without a
    /// connector.
    pub(crate) fn in_properties(&self, text: &str) -> String {
        if self.connector().is_none() {
            return text.to_owned();
        }
        let is_connectors =
            |section, key| matches!(self.layers.origin(section, key), Origin::Property { .. });
        let mut told = text.to_owned();
        for ((section, key), words, properties) in WORDS {
            if is_connectors(section, key) {
                told = told.replace(words, properties);
            }
        }
        for (section, key) in self.layers.entries.keys() {
            let name = match self.layers.origin(section, key) {
                Origin::Property { name, file, line: Some(line) } => {
                    format!("{name} ({file} line {line})")
                }
                Origin::Property { name, .. } => name,
                _ => continue,
            };
            told = replaced(&told, &format!("{section}.{key}"), &name);
        }
        let Some(options) = self.connector_file().and_then(ConnectorFile::options) else {
            return told;
        };
        for (command, behind) in COMMANDS {
            let with_options = format!("{command}{options}{behind}");
            told = told.replace(&format!("{command}{behind}"), &with_options);
        }
        told
    }
}

/// With `to` for `from`, where it is a whole name.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(from) {
        let (before, after) = (&rest[..place], &rest[place + from.len()..]);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_whole = !before.ends_with(|c: char| is_part(c) || c == '.')
            && !after.starts_with(is_part)
            && !after.strip_prefix('.').is_some_and(|more| more.starts_with(is_part));
        told.push_str(before);
        told.push_str(if is_whole { to } else { from });
        rest = after;
    }
    told.push_str(rest);
    told
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn whole_names_are_replaced_alone() {
        let text = "pipeline.slot, pipeline.slot_timeout_ms, (pipeline.slot) a.pipeline.slot. \
                    pipeline.slot.more pipeline.slot";
        let told = "P, pipeline.slot_timeout_ms, (P) a.pipeline.slot. pipeline.slot.more P";
        assert_eq!(replaced(text, "pipeline.slot", "P"), told);
    }
}
