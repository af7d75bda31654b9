use std::{fmt, str::FromStr};

use crate::Lsn;

/// The life of one replication slot on one timeline of one cluster.
///
/// A random number that the relay draws when it creates or first adopts a
/// slot, and stores in its checkpoint. Positions of different generations are
/// never compared.
///
/// ```
/// use walpost_event::Generation;
///
/// let generation: Generation = "00ff3a9c".parse()?;
/// assert_eq!(generation, Generation::from(0x00ff_3a9c));
/// # Ok::<(), walpost_event::ParsePositionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u32);

impl From<u32> for Generation {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl From<Generation> for u32 {
    fn from(generation: Generation) -> Self {
        generation.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for Generation {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 8 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ParsePositionError);
        }
        u32::from_str_radix(text, 16).map(Self).map_err(|_| ParsePositionError)
    }
}

/// Where an event stands: the commit of its transaction, then its place among
/// the events of that transaction.
///
/// Positions of one [`Generation`] are totally ordered, in commit order.
/// `commit_lsn` is the start of the commit record, which no other transaction
/// of that history shares. Rows of one transaction may share a row LSN (`COPY`,
/// multi-row `INSERT`), so the ordinal is counted, not read from the WAL.
///
/// As text: `16/B374D848:7`.
///
/// ```
/// use walpost_event::{Lsn, Position};
///
/// let first = Position { commit_lsn: Lsn::from(0x10), ordinal: 4 };
/// let second: Position = "0/11:0".parse()?;
/// assert!(first < second);
/// # Ok::<(), walpost_event::ParsePositionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Start of the transaction's commit record.
    pub commit_lsn: Lsn,
    /// Index of the event in its transaction, from 0, counting events only.
    pub ordinal: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.commit_lsn, self.ordinal)
    }
}

/// The text is no position such as `16/B374D848:7`, or no generation of eight
/// hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event position, expected text such as 16/B374D848:7")]
pub struct ParsePositionError;

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (lsn, ordinal) = text.split_once(':').ok_or(ParsePositionError)?;
        let digits_only = !ordinal.is_empty() && ordinal.bytes().all(|d| d.is_ascii_digit());
        if !digits_only {
            return Err(ParsePositionError);
        }
        Ok(Self {
            commit_lsn: lsn.parse().map_err(|_| ParsePositionError)?,
            ordinal: ordinal.parse().map_err(|_| ParsePositionError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_commit_then_ordinal() {
        let position = |lsn: u64, ordinal| Position { commit_lsn: Lsn::from(lsn), ordinal };
        assert!(position(1, 9) < position(2, 0));
        assert!(position(2, 0) < position(2, 1));
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "0/1", "0/1:", "0/1:-1", "0/1:+1", "0/1:4294967296", ":1"] {
            assert_eq!(text.parse::<Position>(), Err(ParsePositionError), "{text:?}");
        }
        for text in ["", "1", "0000000g", "+0000001", "000000001"] {
            assert_eq!(text.parse::<Generation>(), Err(ParsePositionError), "{text:?}");
        }
    }
}
