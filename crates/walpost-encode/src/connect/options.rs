//! What Debezium's connector leaves to its configuration, as far as it decides
//! bytes.

pub use walpost_router::NameAdjustment;

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
