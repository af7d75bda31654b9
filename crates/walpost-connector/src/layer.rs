use std::fmt;

use crate::{error::Position, secret::HIDDEN, verdicts::Origin};

/// A key of Walpost's own configuration, as a connector's files have it.
///
/// All of them together are a layer of configuration: they lie above Walpost's
/// defaults, and below whatever its own file, the environment and flags say.
/// `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Setting {
    /// As `pipeline`.
    pub section: &'static str,
    /// As `slot`.
    pub key: &'static str,
    /// The value.
    pub value: SettingValue,
    /// The property that says so, or whose default this is.
    pub property: String,
    /// Whose property it is.
    pub origin: Origin,
    /// Where the property is in its file; `None` for one that is not given, and
    /// for one that comes from no file.
    pub at: Option<Position>,
    /// Whether the property is not given, and this is what holds then in
    /// Debezium.
    pub is_default: bool,
    /// Whether the value must not show.
    pub is_secret: bool,
}

/// The value of a [`Setting`].
#[derive(Clone, PartialEq, Eq)]
pub enum SettingValue {
    /// A text; the only kind in the section `kafka`.
    Text(String),
    /// A whole number.
    Number(u64),
    /// True or false.
    Boolean(bool),
    /// Texts.
    List(Vec<String>),
}

impl SettingValue {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Boolean(_) | Self::List(_) => None,
        }
    }
}

impl From<&str> for SettingValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for SettingValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for SettingValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for SettingValue {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

impl From<Vec<String>> for SettingValue {
    fn from(list: Vec<String>) -> Self {
        Self::List(list)
    }
}

/// As TOML has it, secret or not.
impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Boolean(boolean) => write!(f, "{boolean}"),
            Self::List(list) => write!(f, "{list:?}"),
        }
    }
}

impl fmt::Debug for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} = ", self.section, self.key)?;
        match self.is_secret {
            true => f.write_str(HIDDEN)?,
            false => write!(f, "{}", self.value)?,
        }
        write!(f, " by {}", self.property)
    }
}
