//! Numbers as JSON and Java write them.

/// Is `text` a number in JSON's grammar?
pub(crate) fn is_json_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (integer, rest) = split_digits(text);
    let is_integer = matches!(integer, [_] | [b'1'..=b'9', ..]);
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let (digits, rest) = split_digits(rest);
            (!digits.is_empty(), rest)
        }
        None => (true, rest),
    };
    let exponent = match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', digits @ ..] | [b'e' | b'E', digits @ ..] => {
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    is_integer && fraction && exponent
}

/// Is `text` digits, with or without a minus?
pub(crate) fn is_integer(text: &[u8]) -> bool {
    is_json_number(text) && !text.iter().any(|c| matches!(c, b'.' | b'e' | b'E'))
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().take_while(|c| c.is_ascii_digit()).count();
    text.split_at(len)
}

/// PostgreSQL's text of a `double precision`; `None` if it is no such text.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok().filter(|_| is_float(text))?;
    (number.is_finite() || is_no_number(text)).then_some(number)
}

/// The same of `real`.
pub(crate) fn parse_single(text: &str) -> Option<f32> {
    let number: f32 = text.parse().ok().filter(|_| is_float(text))?;
    (number.is_finite() || is_no_number(text)).then_some(number)
}

fn is_float(text: &str) -> bool {
    is_json_number(text.as_bytes()) || is_no_number(text)
}

fn is_no_number(text: &str) -> bool {
    matches!(text, "NaN" | "Infinity" | "-Infinity")
}

/// Only the form changes, not the digits.
fn place_exponent(text: &str) -> Option<String> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ("-", text),
        None => ("", text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().ok()?;
    let all = format!("{integer}{fraction}");
    let leading_zeros = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0');
    if digits.is_empty() {
        return Some(format!("{sign}0.0"));
    }
    // The number is 0.digits times ten to the power of point.
    let point = (integer.len() as i64).checked_sub(leading_zeros as i64)?.checked_add(exponent)?;
    Some(format!("{sign}{}", place_point(digits, point)))
}

/// A number as Java's `Double.toString` writes it, from Java 19 on: the fewest
/// digits that mean it, but two, and then the nearest.
pub(crate) fn java_double(value: f64) -> String {
    java_text(value.is_nan(), value.is_infinite(), value < 0.0, &format!("{value:e}"), || {
        format!("{value:.1e}")
    })
}

/// The same of `Float.toString`.
pub(crate) fn java_single(value: f32) -> String {
    java_text(value.is_nan(), value.is_infinite(), value < 0.0, &format!("{value:e}"), || {
        format!("{value:.1e}")
    })
}

fn java_text(
    is_nan: bool,
    is_infinite: bool,
    is_negative: bool,
    shortest: &str,
    two_digits: impl Fn() -> String,
) -> String {
    if is_nan {
        return "NaN".to_owned();
    }
    if is_infinite {
        return if is_negative { "-Infinity" } else { "Infinity" }.to_owned();
    }
    let is_single_digit = !shortest.contains('.');
    let text = if is_single_digit { two_digits() } else { shortest.to_owned() };
    place_exponent(&text).unwrap_or(text)
}

/// Plain from 0.001 up to 10,000,000, else with an exponent.
fn place_point(digits: &str, point: i64) -> String {
    let or_zero = |fraction: &str| if fraction.is_empty() { "0" } else { fraction }.to_owned();
    match point {
        1..=7 if (point as usize) < digits.len() => {
            let (integer, fraction) = digits.split_at(point as usize);
            format!("{integer}.{}", or_zero(fraction))
        }
        1..=7 => format!("{digits}{}.0", "0".repeat(point as usize - digits.len())),
        -2..=0 => format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        _ => {
            let (first, fraction) = digits.split_at(1);
            format!("{first}.{}E{}", or_zero(fraction), point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_json_are_told_from_others() {
        for text in ["0", "-0", "7", "-12", "1.10", "0.5", "1e5", "1E+5", "1.5e-400", "10"] {
            assert!(is_json_number(text.as_bytes()), "{text}");
        }
        for text in
            ["", "-", "+1", "01", ".5", "1.", "1e", "1e+", "NaN", "0x1", "1 ", "--1", "1.e5"]
        {
            assert!(!is_json_number(text.as_bytes()), "{text}");
        }
        assert!(is_integer(b"-12") && !is_integer(b"1.0") && !is_integer(b"1e5"));
    }

    #[test]
    fn floating_point_numbers_are_written_as_in_java() {
        let cases = [
            ("0", "0.0"),
            ("-0", "-0.0"),
            ("1", "1.0"),
            ("-1.5", "-1.5"),
            ("100", "100.0"),
            ("1234567", "1234567.0"),
            ("9999999.5", "9999999.5"),
            ("10000000", "1.0E7"),
            ("12345678.9", "1.23456789E7"),
            ("1e+10", "1.0E10"),
            ("10000000000", "1.0E10"),
            ("1.7976931348623157e+308", "1.7976931348623157E308"),
            ("0.001", "0.001"),
            ("0.05", "0.05"),
            ("0.00012", "1.2E-4"),
            ("1e-05", "1.0E-5"),
            // Two digits, and then the nearest.
            ("5e-324", "4.9E-324"),
            ("2e+23", "2.0E23"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_double(text).map(java_double).as_deref(), Some(expected), "{text}");
        }
        let single = |text| parse_single(text).map(java_single);
        assert_eq!(single("1e-45").as_deref(), Some("1.4E-45"));
        assert_eq!(single("0.1").as_deref(), Some("0.1"));
        for text in ["1,5", "1e99999999999999999999", "inf", "nan", "+1", ""] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }
}
