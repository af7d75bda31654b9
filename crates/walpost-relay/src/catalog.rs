//! What the catalog says of a table, and the stream does not.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio_postgres::{Client, Row, types::Type};
use walpost_encode::connect::{CatalogColumn, RowShape, ShapeOptions, TypeDescription, TypeKind};
use walpost_event::Relation;

use crate::{
    error::RelayError,
    sql::{Parameter, Sql},
};

/// A table's columns and their types, as the catalog has them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// The columns. Rows in the stream may be older than some.
    pub columns: Vec<CatalogColumn>,
    /// The types of the columns in the stream, by OID; not those that have been
    /// dropped since.
    pub types: HashMap<u32, TypeDescription>,
}

impl TableDescription {
    /// The shape of the rows of `relation`, which this describes.
    pub fn shape(&self, relation: &Relation, options: &ShapeOptions) -> RowShape {
        RowShape::new(relation, &self.columns, |oid| self.types.get(&oid).cloned(), options)
    }
}

/// Describes the table of a relation that the stream has named. Each statement
/// may take `limit`.
///
/// # Errors
/// [`RelayError`] for a statement that fails.
pub async fn describe_table(
    client: Arc<Client>,
    limit: Duration,
    relation: &Relation,
) -> Result<TableDescription, RelayError> {
    describe(&Sql::new(client, limit), relation).await
}

/// The same in a session that is there. A relation without an OID, as that of a
/// parked row, is found by its name.
pub(crate) async fn describe(
    sql: &Sql,
    relation: &Relation,
) -> Result<TableDescription, RelayError> {
    let columns = columns(sql, relation).await?;
    let oids: Vec<u32> = relation.columns.iter().map(|column| column.type_oid).collect();
    let known = types(sql, &oids).await?;
    let types = oids.iter().filter_map(|oid| Some((*oid, described(&known, *oid)?))).collect();
    Ok(TableDescription { columns, types })
}

async fn columns(sql: &Sql, relation: &Relation) -> Result<Vec<CatalogColumn>, RelayError> {
    let statement = "SELECT attname::text, atttypid, attnotnull, \
                     CASE WHEN attgenerated = '' THEN pg_get_expr(adbin, adrelid) END, \
                     array_position(indkey::int2[], attnum) \
                     FROM pg_attribute LEFT JOIN pg_attrdef \
                     ON adrelid = attrelid AND adnum = attnum \
                     LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary \
                     WHERE attrelid = CASE WHEN $1 <> 0::oid THEN $1 \
                     ELSE to_regclass(format('%I.%I', $2, $3))::oid END AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let parameters: [Parameter<'_>; 3] =
        [(&relation.oid, Type::OID), (&relation.schema, Type::TEXT), (&relation.name, Type::TEXT)];
    let rows = sql.query("describing columns", statement, &parameters).await?;
    let column = |row: &Row| CatalogColumn {
        name: row.get::<_, &str>(0).into(),
        type_oid: row.get(1),
        nullable: !row.get::<_, bool>(2),
        default: row.get(3),
        key_place: row.get::<_, Option<i32>>(4).and_then(|place| place.try_into().ok()),
    };
    Ok(rows.iter().map(column).collect())
}

/// A type, and those that it is made of by their OIDs.
struct Known {
    name: Arc<str>,
    kind: Kind,
}

enum Kind {
    Base,
    Enum(Vec<String>),
    Domain(u32, i32),
    Array(u32, char),
}

/// The types with these OIDs, and those that they are made of.
async fn types(sql: &Sql, oids: &[u32]) -> Result<HashMap<u32, Known>, RelayError> {
    let statement = "WITH RECURSIVE needed (oid) AS ( \
                       SELECT unnest($1) UNION \
                       SELECT CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END \
                       FROM needed JOIN pg_type USING (oid) \
                       WHERE typtype = 'd' OR typcategory = 'A' AND typelem <> 0) \
                     SELECT t.oid, t.typname::text, t.typtype::text, \
                     t.typcategory = 'A' AND t.typelem <> 0, t.typelem, t.typbasetype, \
                     t.typtypmod, coalesce(e.typdelim, ',')::text, \
                     ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid \
                     ORDER BY enumsortorder) \
                     FROM needed JOIN pg_type t USING (oid) \
                     LEFT JOIN pg_type e ON e.oid = t.typelem";
    let rows = sql.query("describing types", statement, &[(&oids, Type::OID_ARRAY)]).await?;
    let known = |row: &Row| {
        let kind = match row.get(2) {
            "e" => Kind::Enum(row.get(8)),
            "d" => Kind::Domain(row.get(5), row.get(6)),
            _ if row.get(3) => {
                Kind::Array(row.get(4), row.get::<_, &str>(7).chars().next().unwrap_or(','))
            }
            _ => Kind::Base,
        };
        (row.get(0), Known { name: row.get::<_, &str>(1).into(), kind })
    };
    Ok(rows.iter().map(known).collect())
}

fn described(known: &HashMap<u32, Known>, oid: u32) -> Option<TypeDescription> {
    let Known { name, kind } = known.get(&oid)?;
    let kind = match kind {
        Kind::Base => TypeKind::Base,
        Kind::Enum(labels) => TypeKind::Enum { labels: labels.clone() },
        Kind::Domain(base, modifier) => {
            let base = Box::new(described(known, *base)?);
            TypeKind::Domain { base, modifier: *modifier }
        }
        Kind::Array(element, delimiter) => {
            let element = Box::new(described(known, *element)?);
            TypeKind::Array { element, delimiter: *delimiter }
        }
    };
    Some(TypeDescription { oid, name: Arc::clone(name), kind })
}
