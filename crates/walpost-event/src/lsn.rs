use std::{fmt, str::FromStr};

/// A byte position in the write-ahead log of a PostgreSQL cluster.
///
/// Written as PostgreSQL writes a `pg_lsn`: two hexadecimal halves.
///
/// ```
/// use walpost_event::Lsn;
///
/// let lsn: Lsn = "16/B374D848".parse()?;
/// assert_eq!(lsn.to_string(), "16/B374D848");
/// assert_eq!(u64::from(lsn), 0x16_B374_D848);
/// # Ok::<(), walpost_event::ParseLsnError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The position before the first byte, PostgreSQL's "invalid" LSN.
    pub const ZERO: Self = Self(0);

    /// Bytes from `earlier` to `self`, 0 if `earlier` is later.
    pub fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<u64> for Lsn {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> Self {
        lsn.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is no `pg_lsn` such as `16/B374D848`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a WAL position, expected two hexadecimal numbers such as 16/B374D848")]
pub struct ParseLsnError;

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (high, low) = text.split_once('/').ok_or(ParseLsnError)?;
        let half = |digits: &str| -> Result<u64, ParseLsnError> {
            let well_formed = (1..=8).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            if !well_formed {
                return Err(ParseLsnError);
            }
            u64::from_str_radix(digits, 16).map_err(|_| ParseLsnError)
        };
        Ok(Self(half(high)? << 32 | half(low)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for value in [0, 1, 0x16_B374_D848, u64::MAX] {
            let lsn = Lsn::from(value);
            assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
    }

    #[test]
    fn refuses_what_postgres_refuses() {
        for text in ["", "/", "1", "1/", "/1", "g/1", "1/123456789", "+1/1", "1/2/3", " 1/2"] {
            assert_eq!(text.parse::<Lsn>(), Err(ParseLsnError), "{text:?}");
        }
    }
}
