//! `interval`: the text that PostgreSQL writes under `IntervalStyle` postgres,
//! iso_8601 and postgres_verbose, and what Debezium makes of it.

use super::decimal::Decimal;
use crate::number::java_double;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Of a month, on average.
const DAYS_PER_MONTH: f64 = 365.25 / 12.0;

/// The parts of an interval, each with its own sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    years: i32,
    months: i32,
    days: i32,
    hours: i32,
    minutes: i32,
    /// Of the seconds.
    micros: i64,
}

impl Interval {
    /// `None` also for the infinities of PostgreSQL 17.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('P') {
            Some(rest) => Self::parse_iso(rest),
            None => Self::parse_postgres(text),
        }
    }

    /// Microseconds, computed in floating point as Debezium does.
    pub(crate) fn total_micros(self) -> i64 {
        let months = self.years.wrapping_mul(12).wrapping_add(self.months);
        let days = f64::from(months) * DAYS_PER_MONTH + f64::from(self.days);
        let minutes = (days * 24.0 + f64::from(self.hours)) * 60.0 + f64::from(self.minutes);
        let seconds = minutes * 60.0 + self.seconds();
        // As in Java, the cast stays within its range.
        (seconds * 1e6 + 0.0) as i64
    }

    /// `P1Y2M3DT4H5M6.78S`, every part present.
    pub(crate) fn iso(self) -> String {
        let Self { years, months, days, hours, minutes, .. } = self;
        let seconds = plain_seconds(self.seconds());
        format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S")
    }

    fn seconds(self) -> f64 {
        (self.micros / MICROS_PER_SECOND) as f64
            + (self.micros % MICROS_PER_SECOND) as f64 / MICROS_PER_SECOND as f64
    }

    fn set_seconds(&mut self, text: &str) -> Option<()> {
        let seconds: f64 = text.parse().ok().filter(|seconds: &f64| seconds.is_finite())?;
        // Java rounds half up.
        let micros = (seconds * 1e6 + 0.5).floor();
        (micros.abs() < i32::MAX as f64 * 1e6).then(|| self.micros = micros as i64)
    }

    /// `1 year -2 mons +3 days -04:05:06.78`, or `@ 1 year 4 hours ago`.
    fn parse_postgres(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let mut interval = Self::default();
        let mut value: Option<&str> = None;
        let is_verbose = lower.starts_with('@');
        let cleaned = lower.replace(['+', '@'], " ");
        if is_verbose && cleaned.trim() == "0" {
            return Some(interval);
        }
        for token in cleaned.split_ascii_whitespace() {
            match value.take() {
                None if token == "ago" => {}
                None if token.contains(':') => interval.set_clock(token)?,
                None => value = Some(token),
                Some(value) => interval.set_unit(value, token)?,
            }
        }
        let is_ago = is_verbose && cleaned.trim_end().ends_with("ago");
        let is_complete = value.is_none();
        is_complete.then(|| if is_ago { interval.negated() } else { interval })
    }

    fn set_clock(&mut self, token: &str) -> Option<()> {
        let (sign, clock) = match token.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, token),
        };
        let mut parts = clock.splitn(3, ':');
        self.hours = sign * parts.next()?.parse::<i32>().ok()?;
        self.minutes = sign * parts.next()?.parse::<i32>().ok()?;
        self.set_seconds(parts.next().unwrap_or("0"))?;
        self.micros *= i64::from(sign);
        Some(())
    }

    fn set_unit(&mut self, value: &str, unit: &str) -> Option<()> {
        let number = || value.parse::<i32>().ok();
        match unit {
            _ if unit.starts_with("year") => self.years = number()?,
            _ if unit.starts_with("mon") => self.months = number()?,
            _ if unit.starts_with("day") => self.days = number()?,
            _ if unit.starts_with("hour") => self.hours = number()?,
            _ if unit.starts_with("min") => self.minutes = number()?,
            _ if unit.starts_with("sec") => self.set_seconds(value)?,
            _ => return None,
        }
        Some(())
    }

    fn negated(self) -> Self {
        Self {
            years: -self.years,
            months: -self.months,
            days: -self.days,
            hours: -self.hours,
            minutes: -self.minutes,
            micros: -self.micros,
        }
    }

    /// What follows the `P` of `P1Y2M3DT4H5M6.78S`.
    fn parse_iso(text: &str) -> Option<Self> {
        let mut interval = Self::default();
        let (date, time) = text.split_once('T').unwrap_or((text, ""));
        for (number, unit) in parts(date) {
            match unit {
                'Y' => interval.years = number.parse().ok()?,
                'M' => interval.months = number.parse().ok()?,
                'D' => interval.days = number.parse().ok()?,
                _ => return None,
            }
        }
        for (number, unit) in parts(time) {
            match unit {
                'H' => interval.hours = number.parse().ok()?,
                'M' => interval.minutes = number.parse().ok()?,
                'S' => interval.set_seconds(number)?,
                _ => return None,
            }
        }
        Some(interval)
    }
}

/// Numbers and the letters behind them.
fn parts(text: &str) -> impl Iterator<Item = (&str, char)> {
    text.split_inclusive(|c: char| c.is_ascii_alphabetic()).filter_map(|part| {
        let unit = part.chars().next_back()?;
        Some((&part[..part.len() - unit.len_utf8()], unit))
    })
}

/// The shortest text of the number, without exponent or zeros at its end, at
/// most nine digits behind the point.
fn plain_seconds(seconds: f64) -> String {
    let text = java_double(seconds);
    let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let (decimal, exponent) = (Decimal::parse(mantissa), exponent.parse::<i32>());
    let (Some(decimal), Ok(exponent)) = (decimal, exponent) else {
        return text;
    };
    decimal.shifted(exponent).truncated(9).normalized().plain()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(text: &str) -> String {
        Interval::parse(text).unwrap().iso()
    }

    #[test]
    fn every_style_is_read() {
        assert_eq!(iso("1 year 2 mons 3 days 04:05:06.78"), "P1Y2M3DT4H5M6.78S");
        assert_eq!(iso("-1 years -2 mons +3 days -04:05:06.5"), "P-1Y-2M3DT-4H-5M-6.5S");
        assert_eq!(iso("P1Y2M3DT4H5M6.78S"), "P1Y2M3DT4H5M6.78S");
        assert_eq!(iso("PT-6.5S"), "P0Y0M0DT0H0M-6.5S");
        assert_eq!(iso("@ 1 year 2 mons 4 hours 5.5 secs ago"), "P-1Y-2M0DT-4H0M-5.5S");
        assert_eq!(iso("@ 0"), "P0Y0M0DT0H0M0S");
        assert_eq!(iso("00:00:00"), "P0Y0M0DT0H0M0S");
        assert_eq!(iso("00:00:00.000001"), "P0Y0M0DT0H0M0.000001S");
    }

    #[test]
    fn what_is_no_interval_is_told() {
        for text in ["infinity", "-infinity", "1", "1 parsec", "x:y:z", "P1Q", "1 year 2"] {
            assert_eq!(Interval::parse(text), None, "{text}");
        }
    }

    #[test]
    fn microseconds_take_months_as_the_average() {
        let micros = |text| Interval::parse(text).unwrap().total_micros();
        assert_eq!(micros("1 mon"), 2_629_800_000_000);
        assert_eq!(micros("-00:00:00.000001"), -1);
        assert_eq!(micros("1 day 00:00:01"), 86_401_000_000);
    }
}
