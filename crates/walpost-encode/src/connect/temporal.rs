//! Dates and times: PostgreSQL's text (`DateStyle` ISO) to numbers, and numbers
//! to the text that Java writes.

use std::fmt::Write;

pub(crate) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(crate) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
pub(crate) const MILLIS_PER_DAY: i64 = MICROS_PER_DAY / 1_000;
const NANOS_PER_DAY: i64 = 1_000 * MICROS_PER_DAY;

/// What stands for the infinities of a timestamp.
const INFINITY: Micros = 9_223_372_036_825_200_000_000;
const MINUS_INFINITY: Micros = -9_223_372_036_832_400_000_000;

/// Microseconds since 1970: those of PostgreSQL's last years do not fit into 64
/// bits.
pub(crate) type Micros = i128;

/// What stands for the infinities of a date.
const INFINITY_DATE: (i64, u32, u32) = (5_877_611, 6, 21);
const MINUS_INFINITY_DATE: (i64, u32, u32) = (-5_877_611, 6, 22);

/// Days since 1970.
pub(crate) fn parse_date(text: &str) -> Option<i64> {
    match text {
        "infinity" => Some(days_of(INFINITY_DATE)),
        "-infinity" => Some(days_of(MINUS_INFINITY_DATE)),
        _ => parse_civil(text).map(days_of),
    }
}

/// The same of a date in an array, which Debezium reads without its era, and
/// without infinities.
pub(crate) fn parse_array_date(text: &str) -> Option<i64> {
    let (date, _) = split_era(text);
    civil(date, "").map(days_of)
}

/// Microseconds since 1970 of a timestamp without a time zone.
pub(crate) fn parse_timestamp(text: &str) -> Option<Micros> {
    match text {
        "infinity" => return Some(INFINITY),
        "-infinity" => return Some(MINUS_INFINITY),
        _ => {}
    }
    let (text, era) = split_era(text);
    let (date, time) = text.split_once(' ')?;
    join(date, era, parse_time(time).filter(|micros| *micros < MICROS_PER_DAY)?)
}

/// Microseconds since 1970 of a timestamp with a time zone that is no infinity.
pub(crate) fn parse_zoned_timestamp(text: &str) -> Option<Micros> {
    let (text, era) = split_era(text);
    let (date, rest) = text.split_once(' ')?;
    let (time, offset) = rest.split_at(rest.rfind(['+', '-'])?);
    let micros = parse_time(time).filter(|micros| *micros < MICROS_PER_DAY)?;
    Some(join(date, era, micros)? - Micros::from(parse_offset(offset)? * MICROS_PER_SECOND))
}

/// Microseconds since midnight; 24:00:00 is a time.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.split(':').map(number);
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hours > 24 || minutes > 59 || seconds > 59 || fraction.len() > 6 {
        return None;
    }
    let micros = match fraction {
        "" => 0,
        digits => number(digits)? * 10_i64.pow(6 - digits.len() as u32),
    };
    let micros = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    (micros <= MICROS_PER_DAY).then_some(micros)
}

/// Time of day in UTC of a time with a time zone, as Java writes it: `Z` at the
/// end. `None` also for an offset with seconds, which Debezium cannot read.
pub(crate) fn zoned_time(text: &str) -> Option<String> {
    let (time, offset) = text.split_at(text.rfind(['+', '-', 'Z'])?);
    let micros = parse_time(time)?;
    let is_utc = matches!(offset, "Z" | "+00" | "-00" | "+00:00" | "-00:00");
    if micros == MICROS_PER_DAY && is_utc {
        return Some("24:00:00Z".to_owned());
    }
    if offset.matches(':').count() > 1 {
        return None;
    }
    let offset = if offset == "Z" { 0 } else { parse_offset(offset)? };
    let mut out = String::new();
    write_time((micros - offset * MICROS_PER_SECOND).rem_euclid(MICROS_PER_DAY), None, &mut out);
    out.push('Z');
    Some(out)
}

/// Seconds east of UTC of `+01`, `-03:30` or `+00:19:32`.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for part in rest.split(':') {
        seconds += number(part)? * unit;
        unit /= 60;
    }
    Some(sign * seconds)
}

fn join(date: &str, era: &str, micros: i64) -> Option<Micros> {
    let days = Micros::from(days_of(civil(date, era)?));
    Some(days * Micros::from(MICROS_PER_DAY) + Micros::from(micros))
}

/// Days since 1970, and microseconds since midnight.
fn split(micros: Micros) -> (i64, i64) {
    let day = Micros::from(MICROS_PER_DAY);
    (micros.div_euclid(day) as i64, micros.rem_euclid(day) as i64)
}

/// Milliseconds since 1970.
pub(crate) fn millis(micros: Micros) -> i64 {
    micros.div_euclid(1_000) as i64
}

/// Microseconds since 1970 in 64 bits: beyond them Java's sum of seconds, which
/// stop at the last number, and of what is behind the point, which goes round.
pub(crate) fn wrapped(micros: Micros) -> i64 {
    let second = Micros::from(MICROS_PER_SECOND);
    let seconds = micros.div_euclid(second) as i64;
    let rest = micros.rem_euclid(second) as i64;
    seconds.saturating_mul(MICROS_PER_SECOND).wrapping_add(rest)
}

fn split_era(text: &str) -> (&str, &str) {
    match text.strip_suffix(" BC") {
        Some(rest) => (rest, "BC"),
        None => (text, ""),
    }
}

fn parse_civil(text: &str) -> Option<(i64, u32, u32)> {
    let (date, era) = split_era(text);
    civil(date, era)
}

/// Year (0 is 1 BC), month and day.
fn civil(date: &str, era: &str) -> Option<(i64, u32, u32)> {
    let mut parts = date.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = parts.next().is_none() && (1..=12).contains(&month) && (1..=31).contains(&day);
    let year = if era == "BC" { 1 - year } else { year };
    is_date.then_some((year, month as u32, day as u32))
}

fn number(digits: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&digits.len()) && digits.bytes().all(|d| d.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Days from 1970 to a day of the Gregorian calendar.
pub(crate) fn days_of((year, month, day): (i64, u32, u32)) -> i64 {
    // Years begin in March, so that the leap day is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The day of the Gregorian calendar that many days after 1970.
pub(crate) fn civil_of(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month + 2) / 5 + 1) as u32;
    let month = if month < 10 { month + 3 } else { month - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Nanoseconds since 1970; `None` where 64 bits do not hold them. The
/// infinities are the outermost numbers.
pub(crate) fn nanos(micros: Micros) -> Option<i64> {
    match micros {
        INFINITY => Some(i64::MAX),
        MINUS_INFINITY => Some(i64::MIN),
        _ => {
            let (days, of_day) = split(micros);
            days.checked_mul(NANOS_PER_DAY)?.checked_add(of_day * 1_000)
        }
    }
}

/// `2024-01-31`, with a sign where the year has not four digits.
pub(crate) fn write_date(days: i64, out: &mut String) {
    let (year, month, day) = civil_of(days);
    let sign = match year {
        0..=9999 => "",
        10_000.. => "+",
        _ => "-",
    };
    // Writing to a string does not fail.
    let _ = write!(out, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs());
}

/// `2024-01-31T12:00:00.5Z`, with that many digits behind the point, or as many
/// as are not zero.
pub(crate) fn iso_timestamp(micros: Micros, digits: Option<u32>) -> String {
    let mut out = String::with_capacity(32);
    let (days, of_day) = split(micros);
    write_date(days, &mut out);
    out.push('T');
    write_time(of_day, digits, &mut out);
    out.push('Z');
    out
}

/// `12:00:00.5Z` of microseconds since midnight.
pub(crate) fn iso_time(micros: i64) -> String {
    let mut out = String::with_capacity(16);
    write_time(micros.rem_euclid(MICROS_PER_DAY), None, &mut out);
    out.push('Z');
    out
}

fn write_time(micros: i64, digits: Option<u32>, out: &mut String) {
    let seconds = micros / MICROS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = write!(out, "{hour:02}:{minute:02}:{second:02}");
    let fraction = format!("{:06}000", micros % MICROS_PER_SECOND);
    let fraction = match digits {
        Some(digits) => &fraction[..digits.min(9) as usize],
        None => fraction.trim_end_matches('0'),
    };
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(days: i64) -> String {
        let mut out = String::new();
        write_date(days, &mut out);
        out
    }

    #[test]
    fn days_count_from_1970_in_the_gregorian_calendar() {
        let cases = [
            ("1970-01-01", 0, "1970-01-01"),
            ("1969-12-31", -1, "1969-12-31"),
            ("2000-02-29", 11_016, "2000-02-29"),
            ("0001-01-01", -719_162, "0001-01-01"),
            ("0001-12-31 BC", -719_163, "0000-12-31"),
            ("0044-03-15 BC", -735_160, "-0043-03-15"),
            ("10000-01-01", 2_932_897, "+10000-01-01"),
        ];
        for (text, days, written) in cases {
            assert_eq!(parse_date(text), Some(days), "{text}");
            assert_eq!(date(days), written, "{text}");
        }
        for days in (-3_000_000..3_000_000).step_by(977) {
            assert_eq!(days_of(civil_of(days)), days);
        }
    }

    #[test]
    fn timestamps_are_read_with_their_offset() {
        assert_eq!(parse_timestamp("1970-01-02 00:00:00.5"), Some(86_400_500_000));
        assert_eq!(parse_zoned_timestamp("1970-01-01 05:30:00+05:30"), Some(0));
        assert_eq!(parse_zoned_timestamp("1969-12-31 20:29:00-03:31"), Some(0));
        assert_eq!(parse_zoned_timestamp("1970-01-01 00:19:32.000001+00:19:32"), Some(1));
        assert_eq!(iso_timestamp(86_400_500_000, None), "1970-01-02T00:00:00.5Z");
        assert_eq!(iso_timestamp(86_400_500_000, Some(6)), "1970-01-02T00:00:00.500000Z");
        assert_eq!(iso_timestamp(-1, Some(3)), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_is_no_time_is_told() {
        for text in ["", "1", "12:00", "25:00:00", "12:60:00", "12:00:00.1234567", "a:b:c"] {
            assert_eq!(parse_time(text), None, "{text:?}");
        }
        for text in ["2024-13-01", "2024-01", "2024-01-01-01", "x-01-01", ""] {
            assert_eq!(parse_date(text), None, "{text:?}");
        }
        assert_eq!(parse_timestamp("2024-01-01"), None);
        assert_eq!(parse_zoned_timestamp("2024-01-01 00:00:00"), None);
    }

    #[test]
    fn times_with_a_zone_are_in_utc() {
        assert_eq!(zoned_time("12:00:00.250+02").as_deref(), Some("10:00:00.25Z"));
        assert_eq!(zoned_time("01:00:00+02:30").as_deref(), Some("22:30:00Z"));
        assert_eq!(zoned_time("24:00:00+00").as_deref(), Some("24:00:00Z"));
        assert_eq!(zoned_time("24:00:00+01").as_deref(), Some("23:00:00Z"));
        assert_eq!(zoned_time("01:00:00+00:19:32"), None);
    }

    #[test]
    fn infinities_have_numbers() {
        assert_eq!(parse_timestamp("infinity"), Some(INFINITY));
        assert_eq!(nanos(INFINITY), Some(i64::MAX));
        assert_eq!(nanos(MINUS_INFINITY), Some(i64::MIN));
        assert_eq!(nanos(Micros::from(i64::MAX)), None);
        assert_eq!(nanos(-1), Some(-1_000));
        let last = parse_timestamp("294276-12-31 23:59:59.999999").unwrap();
        assert_eq!(wrapped(last), i64::MIN + 999_998);
        assert_eq!(wrapped(-1), -1);
    }
}
