use std::fmt;

use bytes::Bytes;

use super::value::Text;

/// An encoding of text other than UTF-8, under Java's name of it:
/// `converter.encoding` of `StringConverter`.
///
/// What a character set does not have is `?`, as in Java; of characters beyond
/// the basic plane as well, each once.
///
/// ```
/// use walpost_encode::connect::Charset;
///
/// let latin = Charset::named("latin1").expect("a name that Java knows");
/// assert_eq!(latin.encode(&"é€".into()), &b"\xe9?"[..]);
/// assert_eq!(Charset::Utf16.encode(&"é".into()), &b"\xfe\xff\x00\xe9"[..]);
/// assert_eq!(Charset::named("UTF-8"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charset {
    /// `US-ASCII`
    Ascii,
    /// `ISO-8859-1`
    Latin1,
    /// `ISO-8859-15`
    Latin9,
    /// `windows-1252`
    Windows1252,
    /// `UTF-16`: most significant byte first, behind a byte order mark.
    Utf16,
    /// `UTF-16BE`: the same without the mark.
    Utf16Be,
    /// `UTF-16LE`: least significant byte first, without a mark.
    Utf16Le,
}

/// Names of UTF-8 in Java.
const UTF_8: &[&str] = &["UTF-8", "UTF8", "unicode-1-1-utf-8"];

const BYTE_ORDER_MARK: u16 = 0xfeff;

/// What stands for a character that there is not.
const UNKNOWN: u8 = b'?';

impl Charset {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ascii,
        Self::Latin1,
        Self::Latin9,
        Self::Windows1252,
        Self::Utf16,
        Self::Utf16Be,
        Self::Utf16Le,
    ];

    /// The one of this name or alias in Java, whatever its case.
    pub fn named(name: &str) -> Option<Self> {
        let is_it = |known: &&str| known.eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(|charset| charset.names().iter().any(is_it))
    }

    /// Whether it is a name or alias of UTF-8 in Java, whatever its case.
    pub fn is_utf8(name: &str) -> bool {
        UTF_8.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The text in this encoding.
    pub fn encode(self, text: &Text) -> Bytes {
        match self {
            Self::Ascii | Self::Latin1 | Self::Latin9 | Self::Windows1252 => {
                text.chars().map(|c| self.byte(c).unwrap_or(UNKNOWN)).collect()
            }
            Self::Utf16 if text.is_empty() => Bytes::new(),
            Self::Utf16 => {
                let units = std::iter::once(BYTE_ORDER_MARK).chain(text.encode_utf16());
                units.flat_map(u16::to_be_bytes).collect()
            }
            Self::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            Self::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        }
    }

    /// A character of one byte, where there is one.
    fn byte(self, c: char) -> Option<u8> {
        let table = match self {
            Self::Latin9 => LATIN_9,
            Self::Windows1252 => WINDOWS_1252,
            _ => &[],
        };
        if let Some((_, byte)) = table.iter().find(|(known, _)| *known == c) {
            return Some(*byte);
        }
        let byte = u8::try_from(u32::from(c)).ok()?;
        let is_there = match self {
            Self::Ascii => byte.is_ascii(),
            Self::Windows1252 => !(0x80..0xa0).contains(&byte),
            _ => !table.iter().any(|(_, taken)| *taken == byte),
        };
        is_there.then_some(byte)
    }

    /// Java's name, and its aliases.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Ascii => &[
                "US-ASCII",
                "ASCII",
                "ASCII7",
                "ISO646-US",
                "646",
                "cp367",
                "IBM367",
                "csASCII",
                "iso-ir-6",
                "ISO_646.irv:1991",
                "iso_646.irv:1983",
                "ANSI_X3.4-1968",
                "ANSI_X3.4-1986",
                "default",
                "us",
            ],
            Self::Latin1 => &[
                "ISO-8859-1",
                "ISO8859-1",
                "ISO8859_1",
                "ISO_8859-1",
                "ISO_8859_1",
                "ISO_8859-1:1987",
                "8859_1",
                "iso-ir-100",
                "latin1",
                "l1",
                "cp819",
                "IBM819",
                "IBM-819",
                "819",
                "csISOLatin1",
            ],
            Self::Latin9 => &[
                "ISO-8859-15",
                "ISO8859-15",
                "ISO8859_15",
                "ISO_8859-15",
                "ISO8859_15_FDIS",
                "8859_15",
                "Latin-9",
                "LATIN9",
                "L9",
                "LATIN0",
                "csISO885915",
                "csISOlatin9",
                "csISOlatin0",
                "cp923",
                "IBM923",
                "IBM-923",
                "923",
            ],
            Self::Windows1252 => &["windows-1252", "cp1252", "ibm-1252", "ibm1252", "cp5348"],
            Self::Utf16 => &["UTF-16", "UTF_16", "utf16", "unicode", "UnicodeBig"],
            Self::Utf16Be => {
                &["UTF-16BE", "UTF_16BE", "X-UTF-16BE", "ISO-10646-UCS-2", "UnicodeBigUnmarked"]
            }
            Self::Utf16Le => &["UTF-16LE", "UTF_16LE", "X-UTF-16LE", "UnicodeLittleUnmarked"],
        }
    }
}

impl fmt::Display for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names()[0])
    }
}

/// Where it differs from ISO-8859-1.
const LATIN_9: &[(char, u8)] = &[
    ('€', 0xa4),
    ('Š', 0xa6),
    ('š', 0xa8),
    ('Ž', 0xb4),
    ('ž', 0xb8),
    ('Œ', 0xbc),
    ('œ', 0xbd),
    ('Ÿ', 0xbe),
];

/// Where it differs from ISO-8859-1, whose control characters from 0x80 on it has
/// not.
const WINDOWS_1252: &[(char, u8)] = &[
    ('€', 0x80),
    ('‚', 0x82),
    ('ƒ', 0x83),
    ('„', 0x84),
    ('…', 0x85),
    ('†', 0x86),
    ('‡', 0x87),
    ('ˆ', 0x88),
    ('‰', 0x89),
    ('Š', 0x8a),
    ('‹', 0x8b),
    ('Œ', 0x8c),
    ('Ž', 0x8e),
    ('‘', 0x91),
    ('’', 0x92),
    ('“', 0x93),
    ('”', 0x94),
    ('•', 0x95),
    ('–', 0x96),
    ('—', 0x97),
    ('˜', 0x98),
    ('™', 0x99),
    ('š', 0x9a),
    ('›', 0x9b),
    ('œ', 0x9c),
    ('ž', 0x9e),
    ('Ÿ', 0x9f),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(charset: Charset, text: &str) -> Vec<u8> {
        charset.encode(&text.into()).into()
    }

    #[test]
    fn text_is_as_java_encodes_it() {
        let text = "é🎉a";
        assert_eq!(encoded(Charset::Ascii, text), b"??a");
        assert_eq!(encoded(Charset::Latin1, text), b"\xe9?a");
        assert_eq!(encoded(Charset::Windows1252, text), b"\xe9?a");
        let big = b"\x00\xe9\xd8\x3c\xdf\x89\x00\x61";
        assert_eq!(encoded(Charset::Utf16Be, text), big);
        assert_eq!(encoded(Charset::Utf16, text), [b"\xfe\xff", &big[..]].concat());
        assert_eq!(encoded(Charset::Utf16Le, text), b"\xe9\x00\x3c\xd8\x89\xdf\x61\x00");
        for charset in Charset::ALL {
            assert_eq!(encoded(charset, ""), b"", "{charset}");
        }
    }

    #[test]
    fn a_character_set_has_the_characters_that_it_has_in_java() {
        assert_eq!(encoded(Charset::Latin1, "\u{80}\u{ff}\u{100}€"), b"\x80\xff??");
        assert_eq!(encoded(Charset::Latin9, "\u{80}€Š¤¦ÿ"), b"\x80\xa4\xa6??\xff");
        assert_eq!(encoded(Charset::Windows1252, "\u{80}\u{81}\u{9d}€Ÿ\u{a0}"), b"???\x80\x9f\xa0");
        assert_eq!(encoded(Charset::Ascii, "\u{7f}\u{80}"), b"\x7f?");
    }

    #[test]
    fn names_are_javas_in_any_case_and_each_is_of_one() {
        for charset in Charset::ALL {
            for name in charset.names() {
                assert_eq!(Charset::named(&name.to_uppercase()), Some(charset), "{name}");
                assert!(!Charset::is_utf8(name), "{name}");
            }
        }
        assert!(Charset::is_utf8("utf8"));
        assert_eq!(Charset::named("EBCDIC"), None);
        assert_eq!(Charset::Latin1.to_string(), "ISO-8859-1");
    }
}
