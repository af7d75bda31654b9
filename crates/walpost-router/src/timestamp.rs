//! The record timestamp from a column.
//!
//! Debezium takes `timestamp` alone, as UTC, and truncates toward zero to
//! milliseconds; it fails on `timestamptz`. Walpost takes both.

use walpost_event::{Row, Value, type_oid};

use crate::{error::RouteErrorKind, message, value::undecodable};

/// PostgreSQL's epoch, 2000-01-01, in microseconds since 1970.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// How the text of the column names its time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// `timestamp`: not at all, and it is UTC.
    Utc,
    /// `timestamptz`: by an offset.
    Offset,
}

/// What a column of this type may be read as.
pub(crate) fn zone(relation: &walpost_event::Relation, oid: u32) -> Result<Zone, RouteErrorKind> {
    match zone_of_type(oid) {
        Some(zone) => Ok(zone),
        None if oid == type_oid::TEXT && message::is_message(relation) => Ok(Zone::Offset),
        None => Err(RouteErrorKind::TimestampType { type_oid: oid }),
    }
}

/// The same of a column of a table; `None` where it may not be read as a time.
pub(crate) fn zone_of_type(oid: u32) -> Option<Zone> {
    match oid {
        type_oid::TIMESTAMP => Some(Zone::Utc),
        type_oid::TIMESTAMPTZ => Some(Zone::Offset),
        _ => None,
    }
}

/// Column `index` in milliseconds since 1970, `None` for NULL. One millisecond
/// before 1970 is `None` too, as in Kafka Connect.
pub(crate) fn timestamp_ms(
    row: &Row,
    index: usize,
    zone: Zone,
) -> Result<Option<i64>, RouteErrorKind> {
    let since_1970_us = match row.value(index) {
        Value::Null => return Ok(None),
        Value::Unchanged => return Err(RouteErrorKind::UnchangedValue),
        Value::Undecodable { bytes, at } => return Err(undecodable(bytes, at)),
        Value::Text(b"infinity" | b"-infinity") => {
            return Err(RouteErrorKind::TimestampOutOfRange);
        }
        Value::Text(text) => parse(text, zone).ok_or(RouteErrorKind::MalformedTimestamp)?,
        Value::Binary(value) => {
            let oid = row.relation().columns[index].type_oid;
            let malformed = RouteErrorKind::MalformedBinary { type_oid: oid, len: value.len() };
            let since_2000_us = i64::from_be_bytes(value.try_into().map_err(|_| malformed)?);
            if matches!(since_2000_us, i64::MIN | i64::MAX) {
                return Err(RouteErrorKind::TimestampOutOfRange);
            }
            Micros::from(since_2000_us) + Micros::from(POSTGRES_EPOCH_US)
        }
    };
    match since_1970_us / 1000 {
        -1 => Ok(None),
        ..-1 => Err(RouteErrorKind::TimestampOutOfRange),
        since_1970_ms => {
            let since_1970_ms = i64::try_from(since_1970_ms);
            since_1970_ms.map(Some).map_err(|_| RouteErrorKind::TimestampOutOfRange)
        }
    }
}

/// Microseconds since 1970. Those of PostgreSQL's last years do not fit into 64 bits.
type Micros = i128;

/// Microseconds since 1970 of `2019-03-24 20:46:19.777[+01[:30[:15]]][ BC]`,
/// with a `T` for the blank and a `Z` for the offset allowed, and a sign before a
/// year, as Java and JavaScript write those beyond 9999.
fn parse(text: &[u8], zone: Zone) -> Option<Micros> {
    let text = std::str::from_utf8(text).ok()?;
    let (text, is_bc) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, offset_s) = match zone {
        Zone::Utc => (time, 0),
        Zone::Offset => {
            let at = time.find(['+', '-', 'Z'])?;
            (&time[..at], parse_offset_s(&time[at..])?)
        }
    };
    let days = parse_date(date, is_bc)?;
    let local_us = Micros::from(days) * Micros::from(DAY_US) + Micros::from(parse_time_us(time)?);
    Some(local_us - Micros::from(offset_s * 1_000_000))
}

fn parse_offset_s(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, text) = match text.split_at_checked(1)? {
        ("+", text) => (1, text),
        ("-", text) => (-1, text),
        _ => return None,
    };
    let mut parts = text.split(':');
    let hours = digits(parts.next()?, 2..=2)?;
    let minutes = parts.next().map_or(Some(0), |part| digits(part, 2..=2))?;
    let seconds = parts.next().map_or(Some(0), |part| digits(part, 2..=2))?;
    let is_legal = hours <= 24 && minutes < 60 && seconds < 60 && parts.next().is_none();
    is_legal.then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}

fn parse_time_us(text: &str) -> Option<i64> {
    let (clock, fraction_us) = match text.split_once('.') {
        Some((clock, fraction)) => {
            digits(fraction, 1..=9)?;
            let micros = &fraction[..fraction.len().min(6)];
            (clock, digits(micros, 1..=6)? * 10_i64.pow(6 - micros.len() as u32))
        }
        None => (text, 0),
    };
    let mut parts = clock.split(':');
    let hours = digits(parts.next()?, 2..=2)?;
    let minutes = digits(parts.next()?, 2..=2)?;
    let seconds = digits(parts.next()?, 2..=2)?;
    let is_legal = hours <= 24 && minutes < 60 && seconds <= 60 && parts.next().is_none();
    is_legal.then_some((hours * 3600 + minutes * 60 + seconds) * 1_000_000 + fraction_us)
}

/// Days since 1970.
fn parse_date(text: &str, is_bc: bool) -> Option<i64> {
    // Year 0 of ISO 8601 is 1 BC.
    let (sign, text) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => (0, text),
    };
    let mut parts = text.split('-');
    let year = match sign {
        0 => digits(parts.next()?, 4..=6)?,
        1 => digits(parts.next()?, 5..=6)?,
        _ => -digits(parts.next()?, 4..=6)?,
    };
    let month = digits(parts.next()?, 2..=2)?;
    let day = digits(parts.next()?, 2..=2)?;
    let is_legal = (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
    is_legal.then(|| days_since_1970(if is_bc { 1 - year } else { year }, month, day))
}

/// Days since 1970 of a date of the Gregorian calendar. Counts years from
/// March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_before_month = (153 * month + 2) / 5;
    const MARCH_YEAR_0_TO_1970: i64 = 719_469;
    year * 365 + leap_days + days_before_month + day - MARCH_YEAR_0_TO_1970
}

fn digits(text: &str, len: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let well_formed = len.contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    if well_formed { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_both_types_is_read_to_the_microsecond() {
        let cases = [
            ("2019-03-24 20:46:19.000999", Zone::Utc, 1_553_460_379_000_999),
            ("1970-01-01 00:00:00", Zone::Utc, 0),
            ("2000-02-29 00:00:00.5", Zone::Utc, 951_782_400_500_000),
            ("2000-03-01 00:00:00", Zone::Utc, 951_868_800_000_000),
            ("2000-01-01 00:00:00", Zone::Utc, Micros::from(POSTGRES_EPOCH_US)),
            ("2100-12-31 23:59:59.999999", Zone::Utc, 4_133_980_799_999_999),
            ("12345-06-07 08:09:10", Zone::Utc, 327_416_976_550_000_000),
            ("294276-12-31 23:59:59.999999", Zone::Utc, 9_224_318_015_999_999_999),
            ("+012345-06-07T08:09:10Z", Zone::Offset, 327_416_976_550_000_000),
            ("-000001-01-01T00:00:00Z", Zone::Offset, -62_198_755_200_000_000),
            ("1970-01-01 01:00:00+01", Zone::Offset, 0),
            ("1969-12-31 20:30:00-03:30", Zone::Offset, 0),
            ("1970-01-01 00:19:32+00:19:32", Zone::Offset, 0),
            ("1970-01-01T00:00:01.25Z", Zone::Offset, 1_250_000),
            ("1970-01-01T00:00:01.123456789Z", Zone::Offset, 1_123_456),
            ("0001-01-01 00:00:00 BC", Zone::Utc, -62_167_219_200_000_000),
        ];
        for (text, zone, expected) in cases {
            assert_eq!(parse(text.as_bytes(), zone), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        let cases = [
            ("", Zone::Utc),
            ("2019-03-24", Zone::Utc),
            ("2019-03-24 20:46", Zone::Utc),
            ("2019-03-24 20:46:19+00", Zone::Utc),
            ("2019-03-24 20:46:19", Zone::Offset),
            ("2019-03-24 20:46:19+", Zone::Offset),
            ("2019-03-24 20:46:19+1", Zone::Offset),
            ("2019-03-24 20:46:19 Europe/Berlin", Zone::Offset),
            ("2019-13-24 20:46:19", Zone::Utc),
            ("2019-03-32 20:46:19", Zone::Utc),
            ("2019-03-24 25:46:19", Zone::Utc),
            ("2019-03-24 20:46:19.", Zone::Utc),
            ("2019-03-24 20:46:19.12345ä", Zone::Utc),
            ("Sun Mar 24 20:46:19 2019", Zone::Utc),
            ("24/03/2019 20:46:19", Zone::Utc),
            ("+2019-03-24 20:46:19", Zone::Utc),
        ];
        for (text, zone) in cases {
            assert_eq!(parse(text.as_bytes(), zone), None, "{text}");
        }
    }
}
