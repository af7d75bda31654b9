use std::fmt;

use crate::structured::string_item;

/// Longest key, in bytes, as Stripe has it.
pub const KEY_MAX_BYTES: usize = 255;

/// A client's idempotency key: 1 to 255 printable ASCII characters.
///
/// Keys are compared as they are parsed, so `"a"` and `a` are the same key.
/// `Debug` does not show it: whoever has a key and a principal has its response.
///
/// ```
/// use walpost_idempotency::{Key, KeySyntax};
///
/// let quoted = Key::parse(br#""8e03978e-40d5""#, KeySyntax::Strict)?;
/// let plain = Key::parse(b"8e03978e-40d5", KeySyntax::Lenient)?;
/// assert_eq!(quoted, plain);
/// assert!(Key::parse(b"8e03978e-40d5", KeySyntax::Strict).is_err());
/// # Ok::<(), walpost_idempotency::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

/// How a header may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySyntax {
    /// A String of RFC 9651, as under `Strict`, or without quotes one word of
    /// visible ASCII characters that has neither comma nor quote, as most
    /// clients send it.
    #[default]
    Lenient,
    /// An Item of RFC 9651 whose value is a String, as
    /// draft-ietf-httpapi-idempotency-key-header-07 (work in progress, expired)
    /// has it: with quotes. Its parameters mean nothing.
    Strict,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The header is there more than once.
    #[error("the header is there more than once; send one key")]
    Duplicate,
    /// It is none under the syntax that was asked for.
    #[error(
        "the header is no key; send it in quotes, as in \"8e03978e-40d5-43dd-bc93-6894a57f9324\""
    )]
    Malformed,
    /// It is empty, or too long.
    #[error("the key has {bytes} bytes; it has 1 to {KEY_MAX_BYTES}")]
    Length {
        /// How many it has.
        bytes: usize,
    },
}

impl Key {
    /// A key that comes otherwise than by a header, as in metadata of a gRPC
    /// call: as it is, without quotes.
    ///
    /// # Errors
    /// [`KeyError::Length`], and [`KeyError::Malformed`] where a character is
    /// not printable ASCII.
    pub fn new(key: impl Into<String>) -> Result<Self, KeyError> {
        let key = key.into();
        if !key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(KeyError::Malformed);
        }
        match key.len() {
            1..=KEY_MAX_BYTES => Ok(Self(key)),
            bytes => Err(KeyError::Length { bytes }),
        }
    }

    /// The key in the value of a header.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] and [`KeyError::Length`].
    pub fn parse(value: &[u8], syntax: KeySyntax) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        let is_item = value.first() == Some(&b'"') || syntax == KeySyntax::Strict;
        if is_item {
            return Self::new(string_item(value).ok_or(KeyError::Malformed)?);
        }
        let is_word = |byte: &u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b',' | b'"');
        if !value.iter().all(is_word) {
            return Err(KeyError::Malformed);
        }
        Self::new(value.iter().copied().map(char::from).collect::<String>())
    }

    /// The key in all values of a header; none where it is not there.
    ///
    /// # Errors
    /// [`KeyError::Duplicate`] where there are several, the same ones too; else
    /// as [`Key::parse`].
    pub fn from_values<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
        syntax: KeySyntax,
    ) -> Result<Option<Self>, KeyError> {
        let mut values = values.into_iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(KeyError::Duplicate);
        }
        Self::parse(value, syntax).map(Some)
    }

    /// The key as parsed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lenient(value: &str) -> Result<Key, KeyError> {
        Key::parse(value.as_bytes(), KeySyntax::Lenient)
    }

    #[test]
    fn quoted_and_plain_keys_are_the_same_one() {
        assert_eq!(lenient("a;b=c").unwrap().as_str(), "a;b=c");
        assert_eq!(lenient("\"a;b=c\"").unwrap(), lenient("a;b=c").unwrap());
        assert_eq!(lenient(" \t a \t").unwrap(), lenient("a").unwrap());
        assert_ne!(lenient("a").unwrap(), lenient("A").unwrap());
        assert_eq!(lenient("\"a b,c\"").unwrap().as_str(), "a b,c");
    }

    #[test]
    fn strict_takes_strings_alone() {
        let strict = |value: &str| Key::parse(value.as_bytes(), KeySyntax::Strict);
        assert_eq!(strict("\"a\";x=1").unwrap().as_str(), "a");
        for value in ["a", "1", "?1", ":YQ==:", "a\"", "", "\"a\" b"] {
            assert_eq!(strict(value), Err(KeyError::Malformed), "{value}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for value in ["a b", "a,b", "a\"b", "\"a", "\"a\"b", "\u{e4}", "a\u{7f}", "a\0b"] {
            assert_eq!(lenient(value), Err(KeyError::Malformed), "{value:?}");
        }
        assert_eq!(Key::parse(b"\xff\xfe", KeySyntax::Lenient), Err(KeyError::Malformed));
        for value in ["", " ", "\"\""] {
            assert_eq!(lenient(value), Err(KeyError::Length { bytes: 0 }), "{value:?}");
        }
        lenient(&"k".repeat(255)).unwrap();
        assert_eq!(lenient(&"k".repeat(256)), Err(KeyError::Length { bytes: 256 }));
        assert_eq!(Key::new("a\nb"), Err(KeyError::Malformed));
    }

    #[test]
    fn one_header_is_one_key() {
        let of =
            |values: &[&'static [u8]]| Key::from_values(values.iter().copied(), KeySyntax::Lenient);
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[b"a"]).unwrap().unwrap().as_str(), "a");
        assert_eq!(of(&[b"a", b"a"]), Err(KeyError::Duplicate));
    }

    #[test]
    fn debug_does_not_show_it() {
        assert_eq!(format!("{:?}", Key::new("secret").unwrap()), "Key(6 bytes)");
    }
}
