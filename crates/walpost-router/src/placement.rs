use std::sync::Arc;

use crate::{config::key, error::ConfigError};

/// Where a further column goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Header,
    Envelope,
    Partition,
}

impl Target {
    /// Whether a column of this type may go there.
    pub(crate) fn takes(self, type_oid: u32) -> bool {
        self != Self::Partition || type_oid == walpost_event::type_oid::INT4
    }
}

/// One entry of `table.fields.additional.placement`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) column: Arc<str>,
    pub(crate) target: Target,
    /// Name of the header or member: the alias, else the column.
    pub(crate) name: Arc<str>,
}

/// What is wrong with an entry of `table.fields.additional.placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementProblem {
    /// Not two or three parts.
    #[error("{parts} parts instead of two or three")]
    Parts {
        /// How many there are.
        parts: usize,
    },
    /// An empty part.
    #[error("a part is empty")]
    EmptyPart,
    /// No such placement.
    #[error("no such placement")]
    UnknownTarget,
}

/// Reads the comma list. Entries and parts may have blanks around them, and
/// empty ones at the end do not count, as in Java.
pub(crate) fn parse(list: &str) -> Result<Vec<Placement>, ConfigError> {
    let entries = split(list, ',');
    if entries.is_empty() {
        return Err(ConfigError::Empty { key: key::PLACEMENT });
    }
    let parse = |entry: &&str| {
        parse_entry(entry).map_err(|source| ConfigError::Placement {
            key: key::PLACEMENT,
            entry: (*entry).to_owned(),
            source,
        })
    };
    entries.iter().map(parse).collect()
}

fn parse_entry(entry: &str) -> Result<Placement, PlacementProblem> {
    let parts = split(entry, ':');
    let (column, target, name) = match *parts.as_slice() {
        [column, target] => (column, target, column),
        [column, target, alias] => (column, target, alias),
        _ => return Err(PlacementProblem::Parts { parts: parts.len() }),
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err(PlacementProblem::EmptyPart);
    }
    let target = match target.to_ascii_lowercase().as_str() {
        "header" => Target::Header,
        "envelope" => Target::Envelope,
        "partition" => Target::Partition,
        _ => return Err(PlacementProblem::UnknownTarget),
    };
    Ok(Placement { column: column.into(), target, name: name.into() })
}

fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(separator).map(str::trim).collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(list: &str) -> PlacementProblem {
        match parse(list) {
            Err(ConfigError::Placement { source, .. }) => source,
            other => panic!("{list:?} gave {other:?}"),
        }
    }

    #[test]
    fn blanks_case_and_alias_are_read_as_in_java() {
        let found = parse(" type : HEADER : eventType , p:Partition,x:envelope, ").unwrap();
        let found: Vec<_> = found.iter().map(|p| (&*p.column, p.target, &*p.name)).collect();
        let expected = [
            ("type", Target::Header, "eventType"),
            ("p", Target::Partition, "p"),
            ("x", Target::Envelope, "x"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_empty_list_is_refused() {
        for list in ["", " ", ",", " , "] {
            assert_eq!(parse(list), Err(ConfigError::Empty { key: key::PLACEMENT }), "{list:?}");
        }
    }

    #[test]
    fn a_malformed_entry_is_refused() {
        assert_eq!(problem("type"), PlacementProblem::Parts { parts: 1 });
        assert_eq!(problem("a:header,,b:header"), PlacementProblem::Parts { parts: 0 });
        assert_eq!(problem("a:header:b:c"), PlacementProblem::Parts { parts: 4 });
        assert_eq!(problem(":header"), PlacementProblem::EmptyPart);
        assert_eq!(problem("type:headr"), PlacementProblem::UnknownTarget);
    }
}
