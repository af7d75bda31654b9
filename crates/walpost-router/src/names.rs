//! Names of columns and schemas, as Avro allows them.

use std::sync::Arc;

/// `field.name.adjustment.mode` and `schema.name.adjustment.mode`: what becomes
/// of names that Avro does not allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameAdjustment {
    /// `none`: they stay.
    #[default]
    None,
    /// `avro`: other characters become `_`.
    Avro,
    /// `avro_unicode`: other characters, and `_` at the start, become `_u` with
    /// their code.
    AvroUnicode,
}

impl NameAdjustment {
    /// A name of a field.
    pub fn field(self, name: &str) -> String {
        self.adjust(name, false)
    }

    /// A name of a field, shared where it stays.
    pub fn shared(self, name: &Arc<str>) -> Arc<str> {
        match self {
            Self::None => Arc::clone(name),
            Self::Avro | Self::AvroUnicode => self.field(name).into(),
        }
    }

    /// A full name of a schema, whose parts have points between them.
    pub fn schema(self, name: &str) -> String {
        self.adjust(name, true)
    }

    // Character by character of Java: two for one beyond the basic plane.
    fn adjust(self, name: &str, with_points: bool) -> String {
        if self == Self::None {
            return name.to_owned();
        }
        let mut adjusted = String::with_capacity(name.len());
        for (index, unit) in name.encode_utf16().enumerate() {
            let ascii = u8::try_from(unit).ok().filter(u8::is_ascii).map(char::from);
            match ascii {
                Some(c) if self.allows(c, index == 0, with_points) => adjusted.push(c),
                c if self == Self::Avro => {
                    adjusted.push('_');
                    adjusted.extend(c.filter(|c| index == 0 && c.is_ascii_digit()));
                }
                _ => {
                    let hex = format!("{unit:x}");
                    let zeros = if hex.len() <= 2 { "00" } else { "" };
                    adjusted.push_str("_u");
                    adjusted.push_str(zeros);
                    adjusted.push_str(&hex);
                }
            }
        }
        adjusted
    }

    fn allows(self, c: char, is_first: bool, with_points: bool) -> bool {
        match c {
            'a'..='z' | 'A'..='Z' => true,
            '_' => self == Self::Avro,
            '0'..='9' => !is_first,
            '.' => with_points && !is_first,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_fit_for_avro() {
        let cases = [
            (NameAdjustment::None, "1-a_b", "1-a_b"),
            (NameAdjustment::Avro, "1-a_b.c", "_1_a_b_c"),
            (NameAdjustment::Avro, "-a", "_a"),
            (NameAdjustment::AvroUnicode, "1-a_b", "_u0031_u002da_u005fb"),
            (NameAdjustment::AvroUnicode, "ä€", "_u00e4_u20ac"),
            (NameAdjustment::Avro, "😀", "__"),
        ];
        for (mode, name, expected) in cases {
            assert_eq!(mode.field(name), expected, "{name}");
        }
        assert_eq!(NameAdjustment::Avro.schema("a-b.c.Value"), "a_b.c.Value");
        assert_eq!(NameAdjustment::None.schema("a-b"), "a-b");
    }
}
