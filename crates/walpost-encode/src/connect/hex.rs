//! Bytes as pairs of hexadecimal digits.

/// The bytes; `None` for what is not pairs of digits.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        Some((high? << 4 | low?) as u8)
    };
    pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// The digits, in small letters.
pub(crate) fn text(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pairs_of_digits() {
        assert_eq!(parse("00fFa1"), Some(vec![0, 255, 161]));
        assert_eq!(text(&[0, 255, 161]), "00ffa1");
        assert_eq!(parse(""), Some(vec![]));
        for text in ["0", "0g", "000", "ä"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
