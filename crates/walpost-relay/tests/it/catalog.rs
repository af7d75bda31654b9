//! Tables as the catalog describes them.

use std::{sync::Arc, time::Duration};

use walpost_encode::connect::{ShapeOptions, TypeDescription, TypeKind};
use walpost_event::{Column, Relation, ReplicaIdentity, type_oid};
use walpost_relay::{TableDescription, describe_table};

use crate::rig::Rig;

const LIMIT: Duration = Duration::from_secs(20);

/// The relation as the stream would send it now.
async fn relation(rig: &Rig, table: &str) -> Relation {
    let sql = "SELECT attrelid, attname::text, atttypid, atttypmod FROM pg_attribute \
               WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped \
               ORDER BY attnum";
    let rows = rig.client.query(sql, &[&table]).await.unwrap();
    let column = |row: &tokio_postgres::Row| Column {
        name: row.get::<_, &str>(1).into(),
        type_oid: row.get(2),
        type_modifier: row.get(3),
        is_key: false,
    };
    Relation {
        oid: rows[0].get(0),
        schema: "public".into(),
        name: table.into(),
        replica_identity: ReplicaIdentity::Default,
        columns: rows.iter().map(column).collect(),
    }
}

async fn described(rig: &Rig, relation: &Relation) -> TableDescription {
    let client = Arc::new(rig.database.connect().await.unwrap());
    describe_table(client, LIMIT, relation).await.unwrap()
}

#[tokio::test]
async fn a_table_is_described_with_the_types_of_its_columns() {
    let rig = Rig::new().await;
    let sql = "CREATE TYPE mood AS ENUM ('sad', 'so, so', 'happy');
               ALTER TYPE mood ADD VALUE 'angry' BEFORE 'sad';
               CREATE DOMAIN price AS numeric(8, 2);
               CREATE DOMAIN gain AS price;
               CREATE TABLE described (
                   id int PRIMARY KEY, gone int, moods mood[], gain gain,
                   boxes box[], state mood NOT NULL DEFAULT 'happy',
                   twice int GENERATED ALWAYS AS (id * 2) STORED, at timestamptz DEFAULT now());
               ALTER TABLE described DROP COLUMN gone";
    rig.client.batch_execute(sql).await.unwrap();
    let relation = relation(&rig, "described").await;
    let description = described(&rig, &relation).await;

    let column = |column: &walpost_encode::connect::CatalogColumn| {
        (column.name.to_string(), column.nullable, column.default.clone())
    };
    let of = |name: &str, nullable, default: Option<&str>| {
        (name.to_owned(), nullable, default.map(str::to_owned))
    };
    assert_eq!(
        description.columns.iter().map(column).collect::<Vec<_>>(),
        [
            of("id", false, None),
            of("moods", true, None),
            of("gain", true, None),
            of("boxes", true, None),
            of("state", false, Some("'happy'::mood")),
            of("twice", true, None),
            of("at", true, Some("now()")),
        ]
    );
    let of_column = |name: &str| {
        let index = relation.column_index(name).unwrap();
        &description.types[&relation.columns[index].type_oid]
    };
    let labels = ["angry", "sad", "so, so", "happy"].map(str::to_owned).to_vec();
    let mood = of_column("state");
    assert_eq!((&*mood.name, &mood.kind), ("mood", &TypeKind::Enum { labels }));
    let array = |element: &TypeDescription, delimiter| TypeKind::Array {
        element: Box::new(element.clone()),
        delimiter,
    };
    assert_eq!(of_column("moods").kind, array(mood, ','));
    assert!(matches!(of_column("boxes").kind, TypeKind::Array { delimiter: ';', .. }));
    let TypeKind::Domain { base: price, modifier: -1 } = &of_column("gain").kind else {
        panic!("a domain of a domain")
    };
    let TypeKind::Domain { base: numeric, modifier } = &price.kind else { panic!("a domain") };
    assert_eq!((numeric.oid, *modifier), (type_oid::NUMERIC, (8 << 16 | 2) + 4));

    let shape = description.shape(&relation, &ShapeOptions::default());
    let (_, state) = shape.column_named("state").unwrap();
    assert!(!state.schema().optional);
    assert_eq!(state.default_text(), Some("happy"));
}

/// A row that was written before the table changed.
#[tokio::test]
async fn what_the_stream_names_and_the_table_has_no_more_is_still_known() {
    let rig = Rig::new().await;
    let sql = "CREATE TYPE old AS ENUM ('a'); CREATE TYPE lost AS ENUM ('a');
               CREATE TABLE changed (id int PRIMARY KEY, x old NOT NULL DEFAULT 'a', y lost)";
    rig.client.batch_execute(sql).await.unwrap();
    let before = relation(&rig, "changed").await;
    let sql = "ALTER TABLE changed ALTER x DROP DEFAULT, ALTER x TYPE text USING x::text;
               ALTER TABLE changed ALTER x SET DEFAULT 'b', DROP y; DROP TYPE lost";
    rig.client.batch_execute(sql).await.unwrap();
    let description = described(&rig, &before).await;
    assert!(!description.types.contains_key(&before.columns[2].type_oid));
    let shape = description.shape(&before, &ShapeOptions::default());
    let (_, x) = shape.column_named("x").unwrap();
    assert_eq!(x.schema().name(), Some("io.debezium.data.Enum"));
    assert!(!x.schema().optional, "that goes by the name, as in Debezium");
    assert_eq!(x.default_text(), None);
    assert!(shape.column_named("y").is_none(), "a type that nothing is known of");
}
