//! What the catalog says of a table's columns, and the table's rows as text.

use std::{collections::HashMap, sync::Arc};

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use walpost_encode::connect::{CatalogColumn, RowShape, ShapeOptions, TypeDescription, TypeKind};
use walpost_event::{Column, Relation, ReplicaIdentity, Row};
use walpost_local::Postgres;

pub(crate) async fn connect(postgres: &Postgres) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&postgres.conninfo("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET TimeZone = 'UTC'").await.unwrap();
    client
}

/// The rows of a statement, as text.
pub(crate) async fn rows(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap();
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

/// The types of the server, by OID.
async fn types(client: &Client) -> HashMap<u32, Vec<Option<String>>> {
    let sql = "SELECT t.oid, typname, typtype, typcategory, typelem, typbasetype, typtypmod, \
               (SELECT string_agg(enumlabel, chr(1) ORDER BY enumsortorder) FROM pg_enum \
                WHERE enumtypid = t.oid), \
               (SELECT typdelim FROM pg_type e WHERE e.oid = t.typelem) FROM pg_type t";
    let rows = rows(client, sql).await;
    rows.into_iter().map(|row| (number(&row[0]), row)).collect()
}

fn number<T: std::str::FromStr>(text: &Option<String>) -> T {
    text.as_deref().unwrap().parse().ok().expect("a number")
}

fn describe(types: &HashMap<u32, Vec<Option<String>>>, oid: u32) -> TypeDescription {
    let row = &types[&oid];
    let text = |at: usize| row[at].as_deref().unwrap();
    let kind = match (text(2), text(3)) {
        ("e", _) => TypeKind::Enum { labels: text(7).split('\u{1}').map(str::to_owned).collect() },
        ("d", _) => TypeKind::Domain {
            base: Box::new(describe(types, number(&row[5]))),
            modifier: number(&row[6]),
        },
        (_, "A") => TypeKind::Array {
            element: Box::new(describe(types, number(&row[4]))),
            delimiter: text(8).chars().next().unwrap(),
        },
        _ => TypeKind::Base,
    };
    TypeDescription { oid, name: text(1).into(), kind }
}

/// A table, as the stream and the catalog have it.
pub(crate) struct Table {
    pub(crate) relation: Arc<Relation>,
    columns: Vec<CatalogColumn>,
    types: HashMap<u32, TypeDescription>,
}

impl Table {
    pub(crate) fn shape(&self, options: &ShapeOptions) -> RowShape {
        let of_oid = |oid| self.types.get(&oid).cloned();
        RowShape::new(&self.relation, &self.columns, of_oid, options)
    }
}

pub(crate) async fn table(client: &Client, name: &str) -> Table {
    let all_types = types(client).await;
    let sql = format!(
        "SELECT attname, atttypid, atttypmod, attnotnull, \
         CASE WHEN attgenerated = '' THEN pg_get_expr(adbin, adrelid) END FROM pg_attribute a \
         LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum \
         WHERE attrelid = '{name}'::regclass AND attnum > 0 ORDER BY attnum"
    );
    let mut streamed = Vec::new();
    let mut columns = Vec::new();
    let mut types = HashMap::new();
    for row in rows(client, &sql).await {
        let name: Arc<str> = row[0].as_deref().unwrap().into();
        let (type_oid, modifier) = (number(&row[1]), number(&row[2]));
        streamed.push(Column {
            name: Arc::clone(&name),
            type_oid,
            type_modifier: modifier,
            is_key: false,
        });
        types.insert(type_oid, describe(&all_types, type_oid));
        let nullable = row[3].as_deref() == Some("f");
        let default = row[4].clone();
        columns.push(CatalogColumn { name, type_oid, nullable, default, key_place: None });
    }
    let relation = Relation {
        oid: 1,
        schema: "public".into(),
        name: name.into(),
        replica_identity: ReplicaIdentity::Default,
        columns: streamed,
    };
    Table { relation: Arc::new(relation), columns, types }
}

/// The rows of a table, in the order of their ids.
pub(crate) async fn table_rows(client: &Client, relation: &Arc<Relation>) -> Vec<Row> {
    let sql = format!("SELECT * FROM {} ORDER BY id", relation.name);
    let rows = rows(client, &sql).await;
    rows.into_iter().map(|row| Row::from_text(Arc::clone(relation), row)).collect()
}
