use walpost_router::{Pattern, PatternError};

use crate::{layer::SettingValue, lists};

/// What a value may be. Blanks around it do not count, as in Kafka's `ConfigDef`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Any text, which never shows, and of which no blank is taken away.
    Password,
    /// `true` or `false`, in any case.
    Boolean,
    /// A number between two bounds.
    Number(i64, i64),
    /// Texts, separated by commas.
    List,
    /// Statements of SQL, which never show.
    Sql,
    /// A Java regular expression.
    Regex,
    /// A regular expression whose match is replaced: it may backtrack, and is
    /// compiled with its replacement.
    Replaced,
    /// Java regular expressions of any case, separated by commas; `\,` is a
    /// comma in one, as in Debezium's lists.
    Regexes,
    /// Java regular expressions, separated by commas, which none of them has, as
    /// in Kafka Connect's lists.
    Patterns,
    /// The name of a Java class.
    Class,
    /// One of these, in any case.
    OneOf(&'static [&'static str]),
    /// Letters, digits, `.`, `_` and `-`.
    Name,
    /// 1 to 63 of a-z, 0-9 and `_`.
    SlotName,
    /// One or more URLs, of which user and password never show.
    Url,
    /// A path in the file system.
    File,
}

/// A whole number of any size that Java's `int` has.
pub(crate) const INT: Kind = Kind::Number(i32::MIN as i64, i32::MAX as i64);
/// From 0.
pub(crate) const COUNT: Kind = Kind::Number(0, i32::MAX as i64);
/// From 1.
pub(crate) const POSITIVE: Kind = Kind::Number(1, i32::MAX as i64);
/// A time in milliseconds, or a size in bytes.
pub(crate) const LONG: Kind = Kind::Number(0, i64::MAX);

/// Regular expressions of one list.
const MAX_PATTERNS: usize = 1_000;

impl Kind {
    /// What is expected, where `value` is not that.
    pub(crate) fn problem(self, value: &str) -> Option<String> {
        let trimmed = value.trim();
        let is_right = match self {
            Self::Text | Self::Password | Self::Sql | Self::List => true,
            Self::Boolean => parse_boolean(value).is_some(),
            Self::Number(low, high) => {
                trimmed.parse::<i64>().is_ok_and(|number| (low..=high).contains(&number))
            }
            // Once, by whoever needs them: see `patterns`.
            Self::Regex | Self::Replaced | Self::Regexes | Self::Patterns => true,
            Self::Class => is_class(trimmed),
            Self::OneOf(names) => names.iter().any(|name| name.eq_ignore_ascii_case(trimmed)),
            Self::Name => {
                let is_legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
                !trimmed.is_empty() && trimmed.bytes().all(is_legal)
            }
            Self::SlotName => {
                let is_legal = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_');
                (1..=63).contains(&trimmed.len()) && trimmed.bytes().all(is_legal)
            }
            Self::Url | Self::File => !trimmed.is_empty(),
        };
        (!is_right).then(|| self.expected())
    }

    /// The regular expressions of a value, each compiled; none of another kind.
    ///
    /// # Errors
    /// What is expected instead.
    pub(crate) fn patterns(self, value: &str) -> Result<Vec<Pattern>, String> {
        type Compile = fn(&str) -> Result<Pattern, PatternError>;
        let (list, compile): (_, Compile) = match self {
            Self::Regex => (vec![value.trim().to_owned()], Pattern::new),
            Self::Regexes => (lists::split_escaped(value), Pattern::ignoring_case),
            Self::Patterns => (lists::split(value), Pattern::new),
            _ => return Ok(Vec::new()),
        };
        if list.len() > MAX_PATTERNS {
            return Err(format!("at most {MAX_PATTERNS} regular expressions"));
        }
        list.iter().map(|text| compile(text)).collect::<Result<_, _>>().map_err(|error| {
            let text = walpost_event::error_chain(&error).replace('\n', " ");
            format!("a regular expression that both Java and Walpost read alike; {text}")
        })
    }

    /// A value of this kind, as Walpost's own configuration has it.
    pub(crate) fn value(self, text: String) -> SettingValue {
        match self {
            Self::Boolean => SettingValue::Boolean(parse_boolean(&text) == Some(true)),
            Self::Number(..) => text.parse().map_or(SettingValue::Text(text), SettingValue::Number),
            Self::OneOf(names) => {
                let known = names.iter().find(|name| name.eq_ignore_ascii_case(&text));
                known.map_or(SettingValue::Text(text), |name| (*name).into())
            }
            Self::List => SettingValue::List(lists::split(&text)),
            _ => SettingValue::Text(text),
        }
    }

    /// What a value has to be, for a person.
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Password => "a password".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Number(low, high) => {
                let least = i64::from(i32::MIN);
                let most = i64::from(i32::MAX);
                match (low, high) {
                    (low, high) if (low, high) == (least, most) => "a whole number".to_owned(),
                    (low, high) if high >= most => format!("a whole number from {low}"),
                    _ => format!("a whole number from {low} to {high}"),
                }
            }
            Self::List => "texts, separated by commas".to_owned(),
            Self::Regex | Self::Replaced => "a regular expression".to_owned(),
            Self::Regexes | Self::Patterns => "regular expressions, separated by commas".to_owned(),
            Self::Sql => "SQL".to_owned(),
            Self::Class => "the name of a class".to_owned(),
            Self::OneOf(names) => match names {
                [one] => (*one).to_owned(),
                [first @ .., last] => format!("{} or {last}", first.join(", ")),
                [] => "nothing".to_owned(),
            },
            Self::Name => "a name of letters, digits, '.', '_' and '-'".to_owned(),
            Self::SlotName => "1 to 63 of a-z, 0-9 and _".to_owned(),
            Self::Url => "a URL".to_owned(),
            Self::File => "a path".to_owned(),
        }
    }
}

pub(crate) fn parse_boolean(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn is_class(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
    };
    text.split('.').all(is_part)
}
