//! A moment as people write it on the command line.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// A moment in ISO 8601, such as `2026-05-01T12:00Z`, `2026-05-01 14:00+02:00` or
/// `2026-05-01`; UTC without an offset. Nothing else, because `01/02/2026` has two
/// readings.
///
/// # Errors
/// If it is anything else.
pub(crate) fn instant(text: &str) -> Result<Timestamp, String> {
    let refused = || {
        format!(
            "{text:?} is not a time in ISO 8601, such as 2026-05-01T12:00Z, \
             2026-05-01T14:00+02:00 or 2026-05-01; without an offset it is UTC"
        )
    };
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    // A name of a time zone without an offset would be passed over.
    if text.contains('[') {
        return Err(refused());
    }
    let date = text.parse::<DateTime>().map_err(|_| refused())?;
    TimeZone::UTC.to_timestamp(date).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_8601_is_read_and_is_utc_without_an_offset() {
        for (text, expected) in [
            ("2026-05-01T12:00Z", "2026-05-01T12:00:00Z"),
            ("2026-05-01T14:00+02:00", "2026-05-01T12:00:00Z"),
            ("2026-05-01 12:00:00.25+00", "2026-05-01T12:00:00.25Z"),
            ("2026-05-01T12:00", "2026-05-01T12:00:00Z"),
            ("2026-05-01 12:00:01", "2026-05-01T12:00:01Z"),
            ("2026-05-01", "2026-05-01T00:00:00Z"),
        ] {
            assert_eq!(instant(text).map(|instant| instant.to_string()), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_form() {
        for text in
            ["yesterday", "01/02/2026", "2026-05-01T12:00[Europe/Berlin]", "now", "", "12:00"]
        {
            let problem = instant(text).unwrap_err();
            assert!(problem.contains("2026-05-01T12:00Z"), "{text}: {problem}");
        }
    }
}
