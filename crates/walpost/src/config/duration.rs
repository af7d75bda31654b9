use std::time::Duration;

/// Reads `200ms`, `5s`, `30m` or `4h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let factor_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(factor_ms).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_a_unit() {
        let millis = |text| duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("200ms"), Some(200));
        assert_eq!(millis("5s"), Some(5_000));
        assert_eq!(millis("30m"), Some(1_800_000));
        assert_eq!(millis("4h"), Some(14_400_000));
        for text in
            ["", "5", "s", "-5s", "5 s", "1.5s", "99999999999999999999s", "9999999999999999h"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
