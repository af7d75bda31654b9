use std::{fmt, sync::Arc};

/// The shape of a table as it was when its rows were written.
///
/// Shared by the rows of the relation; cheap to clone behind its [`Arc`].
#[derive(Clone, PartialEq, Eq)]
pub struct Relation {
    /// OID of the table, or 0 where there is none (logical messages, polling).
    pub oid: u32,
    /// Schema name, without quotes.
    pub schema: String,
    /// Table name, without quotes.
    pub name: String,
    /// Replica identity; decides what UPDATE and DELETE carry of the old row.
    pub replica_identity: ReplicaIdentity,
    /// Columns in the order in which a row's values come.
    pub columns: Vec<Column>,
}

impl Relation {
    /// Index of the column named `name`, compared exactly as PostgreSQL stores
    /// it.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| &*column.name == name)
    }
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relation({}.{}, {} columns)", self.schema, self.name, self.columns.len())
    }
}

/// A column of a [`Relation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name as stored, without quotes.
    pub name: Arc<str>,
    /// OID of the type; see [`type_oid`] for those that Walpost knows.
    pub type_oid: u32,
    /// `atttypmod`, -1 for none.
    pub type_modifier: i32,
    /// Part of the replica identity.
    pub is_key: bool,
}

/// `REPLICA IDENTITY` of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaIdentity {
    /// The primary key, if there is one.
    Default,
    /// Nothing of the old row.
    Nothing,
    /// The whole old row.
    Full,
    /// The columns of a named index.
    Index,
}

/// OIDs of built-in types, fixed in PostgreSQL's `pg_type.dat`.
pub mod type_oid {
    /// `boolean`
    pub const BOOL: u32 = 16;
    /// `bytea`
    pub const BYTEA: u32 = 17;
    /// `bigint`
    pub const INT8: u32 = 20;
    /// `smallint`
    pub const INT2: u32 = 21;
    /// `integer`
    pub const INT4: u32 = 23;
    /// `text`
    pub const TEXT: u32 = 25;
    /// `oid`
    pub const OID: u32 = 26;
    /// `json`
    pub const JSON: u32 = 114;
    /// `real`
    pub const FLOAT4: u32 = 700;
    /// `double precision`
    pub const FLOAT8: u32 = 701;
    /// `character(n)`
    pub const BPCHAR: u32 = 1042;
    /// `character varying`
    pub const VARCHAR: u32 = 1043;
    /// `date`
    pub const DATE: u32 = 1082;
    /// `time without time zone`
    pub const TIME: u32 = 1083;
    /// `timestamp without time zone`
    pub const TIMESTAMP: u32 = 1114;
    /// `timestamp with time zone`
    pub const TIMESTAMPTZ: u32 = 1184;
    /// `numeric`
    pub const NUMERIC: u32 = 1700;
    /// `uuid`
    pub const UUID: u32 = 2950;
    /// `jsonb`
    pub const JSONB: u32 = 3802;
    /// `xid8`
    pub const XID8: u32 = 5069;

    /// The OID of one of these types by its name in `pg_catalog`.
    ///
    /// ```
    /// use walpost_event::type_oid;
    ///
    /// assert_eq!(type_oid::of_name("jsonb"), Some(type_oid::JSONB));
    /// assert_eq!(type_oid::of_name("order_state"), None);
    /// ```
    pub fn of_name(name: &str) -> Option<u32> {
        let known = match name {
            "bool" => BOOL,
            "bytea" => BYTEA,
            "int8" => INT8,
            "int2" => INT2,
            "int4" => INT4,
            "text" => TEXT,
            "oid" => OID,
            "json" => JSON,
            "float4" => FLOAT4,
            "float8" => FLOAT8,
            "bpchar" => BPCHAR,
            "varchar" => VARCHAR,
            "date" => DATE,
            "time" => TIME,
            "timestamp" => TIMESTAMP,
            "timestamptz" => TIMESTAMPTZ,
            "numeric" => NUMERIC,
            "uuid" => UUID,
            "jsonb" => JSONB,
            "xid8" => XID8,
            _ => return None,
        };
        Some(known)
    }
}
