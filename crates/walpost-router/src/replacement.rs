use regex::Regex;

use crate::java_regex::{Found, Groups};

/// A replacement in the syntax of Java's `Matcher.replaceFirst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Group(usize),
}

/// What is wrong with `route.topic.replacement`. Java finds most of it only at
/// the first row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplacementError {
    /// A backslash at the end.
    #[error("nothing follows the backslash at the end, write \\\\ for a backslash")]
    DanglingBackslash,
    /// A `$` that no group follows.
    #[error("no group follows the dollar sign at byte {offset}, write \\$ for a dollar sign")]
    NoGroup {
        /// Byte offset in the replacement.
        offset: usize,
    },
    /// A `${` without `}`.
    #[error("the group at byte {offset} has no closing brace")]
    UnclosedGroup {
        /// Byte offset in the replacement.
        offset: usize,
    },
    /// A group name that the regex does not have.
    #[error("the regex has no group named {name:?}, {}", named(.names))]
    UnknownName {
        /// The name.
        name: String,
        /// Those that it has.
        names: Vec<String>,
    },
    /// A group number that the regex does not have.
    #[error("the regex has no group {number}")]
    UnknownNumber {
        /// The number.
        number: usize,
    },
}

impl Replacement {
    /// Reads `text` against the groups of a regex.
    pub(crate) fn parse(text: &str, groups: &Groups) -> Result<Self, ReplacementError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let offset = text.len() - rest.len();
            rest = &rest[c.len_utf8()..];
            match c {
                '\\' => {
                    let escaped = rest.chars().next().ok_or(ReplacementError::DanglingBackslash)?;
                    literal.push(escaped);
                    rest = &rest[escaped.len_utf8()..];
                }
                '$' => {
                    let (group, after) = parse_group(rest, groups, offset)?;
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Group(group));
                    rest = after;
                }
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// Whether `text` has its form, whatever stands for its groups. Where it is
    /// groups alone, which every text has the form of, false.
    pub(crate) fn has_form_of(&self, text: &str) -> bool {
        let is_literal = |part: &Part| matches!(part, Part::Literal(_));
        let form: String = self.0.iter().map(Part::pattern).collect();
        self.0.iter().any(is_literal)
            && Regex::new(&format!(r"(?s)\A{form}\z")).is_ok_and(|form| form.is_match(text))
    }

    /// Appends the replacement for one match in `text`. A group that took no part
    /// in the match gives nothing.
    pub(crate) fn expand(&self, text: &str, found: &Found, out: &mut String) {
        for part in &self.0 {
            match part {
                Part::Literal(literal) => out.push_str(literal),
                Part::Group(group) => {
                    out.push_str(found[*group].clone().map_or("", |range| &text[range]));
                }
            }
        }
    }
}

impl Part {
    fn pattern(&self) -> String {
        match self {
            Self::Literal(literal) => regex::escape(literal),
            Self::Group(_) => ".*".to_owned(),
        }
    }
}

/// The names that a regex has, of many the first.
fn named(names: &[String]) -> String {
    const MOST: usize = 5;
    match names {
        [] => "and none with a name".to_owned(),
        [name] => format!("only {name}"),
        names => {
            let more = if names.len() > MOST { ", …" } else { "" };
            format!("only {}{more}", names[..names.len().min(MOST)].join(", "))
        }
    }
}

/// The group named behind a `$`, and what follows it.
fn parse_group<'a>(
    rest: &'a str,
    groups: &Groups,
    offset: usize,
) -> Result<(usize, &'a str), ReplacementError> {
    if let Some(named) = rest.strip_prefix('{') {
        let (name, after) =
            named.split_once('}').ok_or(ReplacementError::UnclosedGroup { offset })?;
        let unknown = || ReplacementError::UnknownName {
            name: name.to_owned(),
            names: groups.names().map(str::to_owned).collect(),
        };
        return Ok((groups.number(name).ok_or_else(unknown)?, after));
    }
    parse_number(rest, groups.count()).map_err(|number| match number {
        Some(number) => ReplacementError::UnknownNumber { number },
        None => ReplacementError::NoGroup { offset },
    })
}

/// As Java: the first digit always counts, further ones only while the regex
/// has such a group. Fails with the number that the regex does not have, or
/// none.
fn parse_number(rest: &str, groups: usize) -> Result<(usize, &str), Option<usize>> {
    let digit = |text: &str| text.chars().next().and_then(|c| c.to_digit(10)).map(|d| d as usize);
    let mut number = digit(rest).ok_or(None)?;
    let mut rest = &rest[1..];
    if number > groups {
        return Err(Some(number));
    }
    while let Some(next) = digit(rest).map(|digit| number * 10 + digit).filter(|n| *n <= groups) {
        number = next;
        rest = &rest[1..];
    }
    Ok((number, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::java_regex::JavaRegex;

    fn replace(pattern: &str, replacement: &str, text: &str) -> Result<String, ReplacementError> {
        let regex = JavaRegex::new(pattern).expect("a pattern");
        let replacement = Replacement::parse(replacement, regex.groups())?;
        let found = regex.first_of_whole(text).expect("few steps").expect("a match");
        let mut out = String::new();
        replacement.expand(text, &found, &mut out);
        Ok(out)
    }

    #[test]
    fn groups_and_escapes_expand_as_in_java() {
        let cases = [
            (r"(?<n>.*)", "outbox.${n}", "a", "outbox.a"),
            (r"(.)(.*)", "x.$2.$1", "User", "x.ser.U"),
            (r"(.)", r"\$1\\$1\x", "a", r"$1\ax"),
            (r"(.)", "$0$1", "a", "aa"),
            (r"(.)", "$12", "a", "a2"),
            (r"(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)", "$11$111", "abcdefghijk", "kk1"),
            (r"(.)|(z)", "[$2]", "a", "[]"),
            (r"(.)", "$1ä}", "ö", "öä}"),
            (r".*", "", "a", ""),
        ];
        for (pattern, replacement, text, expected) in cases {
            let found = replace(pattern, replacement, text);
            assert_eq!(found.as_deref(), Ok(expected), "{pattern} {replacement}");
        }
    }

    #[test]
    fn what_java_finds_at_the_first_row_is_found_at_once() {
        let offset = 1;
        let unknown = |name: &str| ReplacementError::UnknownName {
            name: name.to_owned(),
            names: vec!["n".to_owned()],
        };
        let cases = [
            (r"x\", ReplacementError::DanglingBackslash),
            ("x$", ReplacementError::NoGroup { offset }),
            ("x$y", ReplacementError::NoGroup { offset }),
            ("x${n", ReplacementError::UnclosedGroup { offset }),
            ("x${}", unknown("")),
            ("x${m}", unknown("m")),
            ("x$2", ReplacementError::UnknownNumber { number: 2 }),
        ];
        for (replacement, expected) in cases {
            assert_eq!(replace("(?<n>.)", replacement, "a"), Err(expected), "{replacement}");
        }
    }

    #[test]
    fn a_name_that_is_unknown_is_told_with_those_there_are() {
        for (pattern, expected) in [
            ("(?<n>.)", "the regex has no group named \"m\", only n"),
            ("(?<a>.)(.)(?<b>.)", "the regex has no group named \"m\", only a, b"),
            ("(.)", "the regex has no group named \"m\", and none with a name"),
        ] {
            assert_eq!(replace(pattern, "${m}", "a").unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_text_has_its_form_or_not_whatever_the_groups_match() {
        let has = |replacement: &str, text: &str| {
            let regex = JavaRegex::new("(?<n>.*)").expect("a pattern");
            Replacement::parse(replacement, regex.groups())
                .expect("a replacement")
                .has_form_of(text)
        };
        for (replacement, text) in [
            ("outbox.${n}", "outbox.dead"),
            ("outbox.${n}", "outbox."),
            ("a$1b$1", "a-b"),
            ("x", "x"),
        ] {
            assert!(has(replacement, text), "{replacement} {text}");
        }
        for (replacement, text) in
            [("outbox.${n}", "outbox-dead"), ("${n}", "dead"), ("x", "xy"), ("x", "yx"), ("", "x")]
        {
            assert!(!has(replacement, text), "{replacement} {text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails_without_panic(text in any::<String>()) {
            let regex = JavaRegex::new("(?<n>.)(.)").unwrap();
            let _ = Replacement::parse(&text, regex.groups());
        }

        #[test]
        fn text_is_literal_once_its_dollars_and_backslashes_are_escaped(text in "[^\n]*") {
            let escaped = text.replace('\\', r"\\").replace('$', r"\$");
            prop_assert_eq!(replace("(?<n>.)", &escaped, "a"), Ok(text));
        }

        #[test]
        fn a_group_expands_between_any_literals(
            before in "[^$\\\\]*", value in "[a-z]{1,8}", after in "[^$\\\\0-9]*",
        ) {
            let expected = format!("{before}{value}{after}");
            for group in ["$1", "${n}", "$0"] {
                let replacement = format!("{before}{group}{after}");
                let found = replace("(?<n>.*)", &replacement, &value);
                prop_assert_eq!(found.as_ref(), Ok(&expected));
            }
        }
    }
}
