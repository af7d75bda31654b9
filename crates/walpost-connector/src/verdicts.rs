use std::fmt;

use crate::error::Position;

/// What becomes of one property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It does what it does in Debezium.
    Honoured,
    /// Walpost has something for it.
    Mapped,
    /// It is taken and does nothing.
    Ignored,
    /// The connector cannot be used with it.
    Refused,
}

/// Which file a property is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The connector's.
    Connector,
    /// The worker's, which is beside it.
    Worker,
}

/// One property with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub property: String,
    /// What the file has, with `***` for a secret; `None` for a property that is
    /// not given, and of which there is something to say.
    pub value: Option<String>,
    /// Whose it is.
    pub origin: Origin,
    /// Where it is in the file.
    pub at: Option<Position>,
    /// The verdict.
    pub verdict: Verdict,
    /// What it is mapped to; why it is ignored; why it is refused, and what to
    /// write; of one that is honoured what one should know, mostly nothing.
    pub note: String,
}

/// Every property of the files with its verdict, in the order of the files;
/// then those that are not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub(crate) rows: Vec<Row>,
}

/// How many properties have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of [`Verdict::Honoured`].
    pub honoured: usize,
    /// Of [`Verdict::Mapped`].
    pub mapped: usize,
    /// Of [`Verdict::Ignored`].
    pub ignored: usize,
    /// Of [`Verdict::Refused`].
    pub refused: usize,
}

impl Verdicts {
    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a property, of the connector rather than of the worker.
    pub fn row(&self, property: &str) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.property == property);
        rows.min_by_key(|row| row.origin)
    }

    /// How many there are of each.
    pub fn counts(&self) -> Counts {
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        Counts {
            honoured: count(Verdict::Honoured),
            mapped: count(Verdict::Mapped),
            ignored: count(Verdict::Ignored),
            refused: count(Verdict::Refused),
        }
    }

    /// Whether nothing is refused.
    pub fn is_usable(&self) -> bool {
        self.refused().next().is_none()
    }

    /// What is refused.
    pub fn refused(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.verdict == Verdict::Refused)
    }

    pub(crate) fn refuse(&mut self, origin: Origin, property: &str, note: String) {
        let verdict = Verdict::Refused;
        let is_of = |row: &&mut Row| row.origin == origin && row.property == property;
        match self.rows.iter_mut().find(is_of) {
            Some(row) => (row.verdict, row.note) = (verdict, note),
            None => {
                let (property, value, at) = (property.to_owned(), None, None);
                self.rows.push(Row { property, value, origin, at, verdict, note });
            }
        }
    }

    /// What somebody should know who starts the connector all the same: what is
    /// ignored, and what is honoured with a note.
    pub fn warnings(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| match row.verdict {
            Verdict::Ignored => true,
            Verdict::Honoured => !row.note.is_empty(),
            Verdict::Mapped | Verdict::Refused => false,
        })
    }
}

impl Verdict {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Mapped => "mapped",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
        }
    }
}

/// Characters of a name or a value that are told.
const TOLD_CHARS: usize = 200;

fn told(text: &str) -> String {
    let mut told = String::new();
    for c in text.chars().take(TOLD_CHARS) {
        if c.is_control() { told.extend(c.escape_default()) } else { told.push(c) }
    }
    if text.chars().nth(TOLD_CHARS).is_some() { told + "…" } else { told }
}

impl fmt::Display for Row {
    /// As `slot.max.retries = 6: mapped to trying for ever`; of a long value its
    /// first characters, and control characters as escapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let property = told(&self.property);
        match self.value.as_deref().map(told) {
            Some(value) => write!(f, "{property} = {value}: ")?,
            None => write!(f, "{property}, not given: ")?,
        }
        f.write_str(self.verdict.name())?;
        match self.verdict {
            _ if self.note.is_empty() => Ok(()),
            Verdict::Honoured => write!(f, ", {}", self.note),
            Verdict::Mapped => write!(f, " to {}", self.note),
            Verdict::Ignored | Verdict::Refused => write!(f, " because {}", self.note),
        }
    }
}

/// A connector cannot be used: of what it has something is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} of the connector's properties cannot be used; the first one: {first}")]
pub struct Refused {
    pub(crate) count: usize,
    pub(crate) first: Box<Row>,
}

impl Refused {
    /// How many properties.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first one.
    pub fn first(&self) -> &Row {
        &self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_that_steers_no_terminal() {
        let row = |value: &str| Row {
            property: "name".to_owned(),
            value: Some(value.to_owned()),
            origin: Origin::Connector,
            at: None,
            verdict: Verdict::Honoured,
            note: String::new(),
        };
        assert_eq!(row("a\u{1b}[31m\nb é").to_string(), "name = a\\u{1b}[31m\\nb é: honoured");
        let long = row(&"x".repeat(1_000_000)).to_string();
        assert_eq!(long, format!("name = {}…: honoured", "x".repeat(TOLD_CHARS)));
    }
}
