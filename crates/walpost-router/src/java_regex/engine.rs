//! Who matches a translated pattern.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::Translated;
use crate::pattern::PatternError;

/// Bytes of one compiled pattern.
const MAX_BYTES: usize = 1024 * 1024;
/// Instructions of one that backtracks.
const MAX_INSTRUCTIONS: usize = 10_000;
/// Ways that one text may be tried in.
const MAX_STEPS: usize = 1_000_000;

/// A regular expression that looks around, refers back or does not give back has
/// tried too many ways to match a text; Java would go on for as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regular expression has tried {MAX_STEPS} ways to match, write it simpler")]
pub struct GaveUp(());

/// The groups of a pattern, with their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Option<String>>);

impl Groups {
    /// How many there are, without that of the whole match.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The names of those that have one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(String::as_str)
    }

    /// The number of the group of this name.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known.as_deref() == Some(name)).map(|place| place + 1)
    }
}

/// A match: where the whole and each group are; `None` for one that took no part.
pub(crate) type Found = Vec<Option<Range<usize>>>;

/// A Java regular expression, compiled.
#[derive(Clone, Debug)]
pub(crate) struct JavaRegex {
    text: String,
    groups: Groups,
    whole: Engine,
    first: Engine,
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

impl JavaRegex {
    /// Compiles a pattern.
    pub(crate) fn new(text: &str) -> Result<Self, PatternError> {
        let Translated { pattern, backtracks, groups } =
            super::translate(text).map_err(PatternError::JavaOnly)?;
        let compile = |pattern: &str| Engine::new(pattern, backtracks);
        let whole = compile(&whole(&pattern))?;
        let first = compile(&pattern)?;
        Ok(Self { text: text.to_owned(), groups: Groups(groups), whole, first })
    }

    /// The pattern as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The first match in a text that matches as a whole; `None` in others.
    pub(crate) fn first_of_whole(&self, text: &str) -> Result<Option<Found>, GaveUp> {
        match self.whole.matches(text)? {
            true => self.first.find(text, self.groups.count()),
            false => Ok(None),
        }
    }
}

/// A pattern that matches as this one does, but all of a text.
pub(crate) fn whole(pattern: &str) -> String {
    format!(r"\A(?:{pattern})\z")
}

/// One of the linear engine.
pub(crate) fn linear(pattern: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(pattern).size_limit(MAX_BYTES).build().map_err(PatternError::Regex)
}

impl Engine {
    fn new(pattern: &str, backtracks: bool) -> Result<Self, PatternError> {
        if !backtracks {
            return linear(pattern).map(Self::Linear);
        }
        let regex = fancy_regex::RegexBuilder::new(pattern)
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(MAX_BYTES)
            .max_prog_size(MAX_INSTRUCTIONS)
            .build();
        match regex {
            Ok(regex) => Ok(Self::Backtracking(Box::new(regex))),
            Err(error) => Err(PatternError::Backtracking { problem: error.to_string() }),
        }
    }

    fn matches(&self, text: &str) -> Result<bool, GaveUp> {
        match self {
            Self::Linear(regex) => Ok(regex.is_match(text)),
            Self::Backtracking(regex) => regex.is_match(text).map_err(|_| GaveUp(())),
        }
    }

    fn find(&self, text: &str, groups: usize) -> Result<Option<Found>, GaveUp> {
        match self {
            Self::Linear(regex) => Ok(regex.captures(text).map(|captures| {
                (0..=groups).map(|group| Some(captures.get(group)?.range())).collect()
            })),
            Self::Backtracking(regex) => {
                let captures = regex.captures(text).map_err(|_| GaveUp(()))?;
                Ok(captures.map(|captures| {
                    (0..=groups).map(|group| Some(captures.get(group)?.range())).collect()
                }))
            }
        }
    }
}
