use toml::Value;
use walpost_connector::{Setting, SettingValue};

use super::ConnectorFile;
use crate::config::{
    error::ConfigError,
    layers::{Entry, Layers},
    origin::Origin,
    secret::HIDDEN,
};

/// Section and key.
type Name = (&'static str, &'static str);

/// Keys of which a connector's own gives way to another one that is set anywhere
/// else, each with that one.
pub(super) const GIVING_WAY: [(Name, Name); 2] = [
    (("postgres", "url"), ("postgres", "url_file")),
    (("kafka", "sasl.password"), ("sink", "sasl_password_file")),
];

impl Layers {
    /// A text about a key without what the key has, if that must not show.
    pub(in crate::config) fn without_secret(&self, section: &str, key: &str, text: &str) -> String {
        let entry = self.entries.get(&(section.to_owned(), key.to_owned()));
        match entry.filter(|entry| entry.is_secret).map(|entry| &entry.value) {
            Some(Value::String(secret)) if !secret.is_empty() => {
                let debug = format!("{secret:?}");
                text.replace(&debug, HIDDEN).replace(secret, HIDDEN)
            }
            _ => text.to_owned(),
        }
    }

    /// Lays those keys of a connector over that are wanted.
    pub(in crate::config) fn lay_connector(
        &mut self,
        connector: &ConnectorFile,
        is_wanted: impl Fn(&Setting) -> bool,
    ) -> Result<(), ConfigError> {
        for setting in connector.settings().iter().filter(|setting| is_wanted(setting)) {
            let Setting { section, key, .. } = *setting;
            let value = match &setting.value {
                SettingValue::Text(text) => Value::String(text.clone()),
                SettingValue::Number(number) => {
                    Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX))
                }
                SettingValue::Boolean(boolean) => Value::Boolean(*boolean),
                SettingValue::List(list) => list.clone().into(),
            };
            self.lay(section, key, value, connector.origin(setting))?;
            if let Some(entry) = self.entries.get_mut(&(section.to_owned(), key.to_owned())) {
                entry.is_secret = setting.is_secret;
            }
        }
        Ok(())
    }

    /// What a connector says gives way to what is set beside it under another
    /// key.
    pub(in crate::config) fn give_way(&mut self, section: &str, key: &str) {
        let found = GIVING_WAY.iter().find(|(_, rival)| *rival == (section, key));
        let Some(((section, key), _)) = found else { return };
        let place = ((*section).to_owned(), (*key).to_owned());
        let is_connectors = |entry: &Entry| matches!(entry.origin, Origin::Property { .. });
        if !self.entries.get(&place).is_some_and(is_connectors) {
            return;
        }
        match Self::defaults().entries.remove(&place) {
            Some(default) => drop(self.entries.insert(place, default)),
            None => drop(self.entries.remove(&place)),
        }
    }
}
