//! What Debezium's connector leaves to its configuration, as far as it decides
//! bytes.

/// `time.precision.mode`: what `date`, `time` and `timestamp` become.
///
/// Debezium 3.7 has one more, `structured`, that is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimePrecision {
    /// `adaptive`: days; milliseconds or microseconds by the column's
    /// precision.
    #[default]
    Adaptive,
    /// `adaptive_time_microseconds`: the same, `time` always in microseconds.
    AdaptiveTimeMicroseconds,
    /// `connect`: Kafka Connect's own types, in milliseconds.
    Connect,
    /// `isostring`: text in UTC.
    IsoString,
    /// `microseconds`: always.
    Microseconds,
    /// `nanoseconds`: always.
    Nanoseconds,
}

/// `decimal.handling.mode`: what `numeric` and `money` become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecimalHandling {
    /// `precise`: bytes of Kafka Connect's `Decimal`, or of a struct with its
    /// scale where the column has none.
    #[default]
    Precise,
    /// `double`: floating point.
    Double,
    /// `string`: text.
    String,
}

/// `binary.handling.mode`: what `bytea` becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BinaryHandling {
    /// `bytes`: as it is.
    #[default]
    Bytes,
    /// `base64`: text.
    Base64,
    /// `base64-url-safe`: text, with `-` and `_`.
    Base64UrlSafe,
    /// `hex`: text, in small letters.
    Hex,
}

/// `interval.handling.mode`: what `interval` becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalHandling {
    /// `numeric`: microseconds, with 30.4375 days in a month.
    #[default]
    Numeric,
    /// `string`: `P1Y2M3DT4H5M6.78S`.
    String,
}

/// `hstore.handling.mode`: what `hstore` becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HstoreHandling {
    /// `json`: text of a JSON object.
    #[default]
    Json,
    /// `map`: a map.
    Map,
}

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

/// The options of Debezium's PostgreSQL connector that decide what a column
/// becomes. The default is Debezium's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnOptions {
    /// `time.precision.mode`
    pub time: TimePrecision,
    /// `decimal.handling.mode`
    pub decimal: DecimalHandling,
    /// `binary.handling.mode`
    pub binary: BinaryHandling,
    /// `interval.handling.mode`
    pub interval: IntervalHandling,
    /// `hstore.handling.mode`
    pub hstore: HstoreHandling,
    /// `money.fraction.digits`
    pub money_fraction_digits: u8,
    /// `include.unknown.datatypes`: the text of a type that Debezium does not
    /// know, as `bytea`, instead of no column at all.
    pub unknown_types: bool,
}

impl Default for ColumnOptions {
    fn default() -> Self {
        Self {
            time: TimePrecision::default(),
            decimal: DecimalHandling::default(),
            binary: BinaryHandling::default(),
            interval: IntervalHandling::default(),
            hstore: HstoreHandling::default(),
            money_fraction_digits: 2,
            unknown_types: false,
        }
    }
}

impl NameAdjustment {
    /// A name of a field.
    pub fn field(self, name: &str) -> String {
        self.adjust(name, false)
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
