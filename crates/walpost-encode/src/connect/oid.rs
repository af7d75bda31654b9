//! OIDs of built-in types that only the mapping of columns needs.

pub(crate) use walpost_event::type_oid::*;

pub(crate) const CHAR: u32 = 18;
pub(crate) const NAME: u32 = 19;
pub(crate) const XML: u32 = 142;
pub(crate) const POINT: u32 = 600;
pub(crate) const LSEG: u32 = 601;
pub(crate) const PATH: u32 = 602;
pub(crate) const BOX: u32 = 603;
pub(crate) const POLYGON: u32 = 604;
pub(crate) const LINE: u32 = 628;
pub(crate) const CIDR: u32 = 650;
pub(crate) const CIRCLE: u32 = 718;
pub(crate) const MACADDR8: u32 = 774;
pub(crate) const MONEY: u32 = 790;
pub(crate) const MACADDR: u32 = 829;
pub(crate) const INET: u32 = 869;
pub(crate) const INTERVAL: u32 = 1186;
pub(crate) const TIMETZ: u32 = 1266;
pub(crate) const BIT: u32 = 1560;
pub(crate) const VARBIT: u32 = 1562;
pub(crate) const TSVECTOR: u32 = 3614;
pub(crate) const INT4RANGE: u32 = 3904;
pub(crate) const NUMRANGE: u32 = 3906;
pub(crate) const TSRANGE: u32 = 3908;
pub(crate) const TSTZRANGE: u32 = 3910;
pub(crate) const DATERANGE: u32 = 3912;
pub(crate) const INT8RANGE: u32 = 3926;

/// Types with the types of their arrays.
const ARRAYS: [(u32, u32, &str); 42] = [
    (BOOL, 1000, "bool"),
    (BYTEA, 1001, "bytea"),
    (CHAR, 1002, "char"),
    (NAME, 1003, "name"),
    (INT2, 1005, "int2"),
    (INT4, 1007, "int4"),
    (TEXT, 1009, "text"),
    (BPCHAR, 1014, "bpchar"),
    (VARCHAR, 1015, "varchar"),
    (INT8, 1016, "int8"),
    (POINT, 1017, "point"),
    (LSEG, 1018, "lseg"),
    (PATH, 1019, "path"),
    (BOX, 1020, "box"),
    (FLOAT4, 1021, "float4"),
    (FLOAT8, 1022, "float8"),
    (POLYGON, 1027, "polygon"),
    (OID, 1028, "oid"),
    (MACADDR, 1040, "macaddr"),
    (INET, 1041, "inet"),
    (TIMESTAMP, 1115, "timestamp"),
    (DATE, 1182, "date"),
    (TIME, 1183, "time"),
    (TIMESTAMPTZ, 1185, "timestamptz"),
    (INTERVAL, 1187, "interval"),
    (NUMERIC, 1231, "numeric"),
    (TIMETZ, 1270, "timetz"),
    (BIT, 1561, "bit"),
    (VARBIT, 1563, "varbit"),
    (XML, 143, "xml"),
    (JSON, 199, "json"),
    (LINE, 629, "line"),
    (CIDR, 651, "cidr"),
    (CIRCLE, 719, "circle"),
    (MACADDR8, 775, "macaddr8"),
    (MONEY, 791, "money"),
    (UUID, 2951, "uuid"),
    (TSVECTOR, 3643, "tsvector"),
    (JSONB, 3807, "jsonb"),
    (INT4RANGE, 3905, "int4range"),
    (NUMRANGE, 3907, "numrange"),
    (INT8RANGE, 3927, "int8range"),
];

const ARRAYS_OF_TIME_RANGES: [(u32, u32, &str); 3] =
    [(TSRANGE, 3909, "tsrange"), (TSTZRANGE, 3911, "tstzrange"), (DATERANGE, 3913, "daterange")];

/// The element's type of a built-in type of arrays.
pub(crate) fn element_of(array: u32) -> Option<u32> {
    all().find(|entry| entry.1 == array).map(|entry| entry.0)
}

/// Name of a built-in type.
pub(crate) fn name_of(oid: u32) -> Option<&'static str> {
    all().find(|entry| entry.0 == oid).map(|entry| entry.2)
}

fn all() -> impl Iterator<Item = &'static (u32, u32, &'static str)> {
    ARRAYS.iter().chain(&ARRAYS_OF_TIME_RANGES)
}
