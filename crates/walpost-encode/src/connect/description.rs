use std::sync::Arc;

use super::oid;

/// What the catalog knows of a column and the stream does not say.
///
/// `pgoutput` sends name, type and modifier alone. Without the rest, which a
/// [`from_type`](Self::from_type) then has to guess, schemas say `optional` for
/// a column that is NOT NULL, and types of extensions are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// `attname`
    pub name: Arc<str>,
    /// `atttypid`, and what there is to know of it.
    pub data_type: TypeDescription,
    /// `atttypmod`, -1 for none.
    pub modifier: i32,
    /// Not `attnotnull`.
    pub nullable: bool,
    /// `pg_get_expr(adbin, adrelid)` of the column's default; `None` where
    /// there is none, and for a generated column.
    pub default: Option<String>,
}

/// A type, as far as its columns depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeDescription {
    /// `pg_type.oid`
    pub oid: u32,
    /// `typname`: types of extensions, such as `citext` and `hstore`, are known
    /// by it.
    pub name: Arc<str>,
    /// What kind of type it is.
    pub kind: TypeKind,
}

/// The kind of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeKind {
    /// Built in or of an extension, or a range or composite type.
    Base,
    /// `typtype` is `e`.
    Enum {
        /// `enumlabel` of each, by `enumsortorder`.
        labels: Vec<String>,
    },
    /// `typtype` is `d`.
    Domain {
        /// `typbasetype`
        base: Box<TypeDescription>,
        /// `typtypmod`
        modifier: i32,
    },
    /// `typcategory` is `A`.
    Array {
        /// `typelem`
        element: Box<TypeDescription>,
        /// `typdelim` of the element.
        delimiter: char,
    },
}

impl ColumnDescription {
    /// What is known of a column without the catalog: it may be NULL, has no
    /// default, and its type is a built-in one.
    pub fn from_type(name: Arc<str>, type_oid: u32, modifier: i32) -> Self {
        let data_type = TypeDescription::built_in(type_oid);
        Self { name, data_type, modifier, nullable: true, default: None }
    }
}

impl TypeDescription {
    /// A built-in type; for any other OID one without a name.
    pub fn built_in(type_oid: u32) -> Self {
        if let Some(element) = oid::element_of(type_oid) {
            let element = Self::built_in(element);
            let name = format!("_{}", element.name).into();
            let delimiter = if element.oid == oid::BOX { ';' } else { ',' };
            let kind = TypeKind::Array { element: Box::new(element), delimiter };
            return Self { oid: type_oid, name, kind };
        }
        let name = oid::name_of(type_oid).unwrap_or_default().into();
        Self { oid: type_oid, name, kind: TypeKind::Base }
    }
}
