//! Values that have no UTF-8 form, in databases of several encodings: they concern their own rows.

use walpost_relay::{Initial, ReplayFilter};
use walpost_testkit::{postgres, until};

use crate::{
    parking::parked,
    polling_rig::Polled,
    replay::{begin, replayer, run},
    rig::{Rig, SOON, stop},
    sink::World,
};

/// A database in this encoding.
pub(crate) async fn database_in(encoding: &str) -> Rig {
    let fresh = postgres().fresh_database().await;
    let admin = walpost_postgres::Database::parse(postgres().url()).unwrap();
    let admin = admin.connect().await.unwrap();
    let name = fresh.name();
    admin.batch_execute(&format!("drop database {name}")).await.unwrap();
    let create = format!(
        "create database {name} template template0 encoding '{encoding}' locale_provider libc \
         locale 'C'"
    );
    admin.batch_execute(&create).await.unwrap();
    Rig::at(fresh.url()).await
}

/// One event of an aggregate of its own for each payload, as SQL.
async fn insert(rig: &Rig, payloads: &[&str]) {
    for payload in payloads {
        let sql = format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
             values ('order', gen_random_uuid(), 'Placed', {payload})"
        );
        rig.client.batch_execute(&sql).await.unwrap();
    }
}

async fn details(rig: &Rig) -> Vec<String> {
    let sql = "select detail from walpost.parked order by commit_lsn, ordinal";
    let rows = rig.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The payload that every encoding refuses is parked, and names its column.
fn is_told(detail: &str) {
    assert!(detail.contains("at column payload"), "{detail}");
    assert!(detail.contains("from offset 4 on"), "{detail}");
    assert!(detail.contains("correct the row, then retry"), "{detail}");
    assert!(!detail.contains("caf"), "{detail}");
}

/// The same rows before the slot, in the stream, and published once more.
async fn one_bad_value(encoding: &str, bad: &str, good: &[(&str, &str)]) {
    let mut rig = database_in(encoding).await;
    rig.config.initial = Some(Initial::Publish);
    let payloads: Vec<&str> = good.iter().map(|(sql, _)| *sql).collect();
    let published: Vec<&str> = good.iter().map(|(_, published)| *published).collect();
    for _ in 0..2 {
        insert(&rig, &payloads).await;
        insert(&rig, &[bad]).await;
        insert(&rig, &payloads).await;
    }
    let relay = rig.streaming().await;
    let count = 4 * good.len();
    assert_eq!(rig.landed(count).await, published.repeat(4), "the initial load");
    parked(&rig, "undecodable undecodable").await;
    insert(&rig, &payloads).await;
    insert(&rig, &[bad]).await;
    insert(&rig, &payloads).await;
    assert_eq!(
        rig.landed(count + 2 * good.len()).await[count..],
        published.repeat(2),
        "the stream"
    );
    parked(&rig, "undecodable undecodable undecodable").await;
    details(&rig).await.iter().for_each(|detail| is_told(detail));

    let again = World::default();
    let replayed = run(begin(&rig, ReplayFilter::default(), 1_000_000, &again).await).await;
    assert_eq!((replayed.progress.sent, replayed.error.is_none()), (6 * good.len() as u64, true));
    assert_eq!(again.values(), published.repeat(6), "the replay");
    stop(relay).await;

    // The next start is as good as any.
    let relay = rig.streaming().await;
    insert(&rig, &payloads).await;
    assert_eq!(rig.landed(count + 3 * good.len()).await.len(), count + 3 * good.len());
    stop(relay).await;
}

#[tokio::test]
async fn a_value_that_is_no_utf8_is_parked_alone_where_the_database_knows_no_encoding() {
    let good = [("'1'", "1"), ("'\"é\"'", "\"é\"")];
    one_bad_value("SQL_ASCII", "E'\"caf\\351\"'", &good).await;
}

#[tokio::test]
async fn a_byte_that_a_single_byte_encoding_does_not_define_is_parked_alone() {
    let good = [("'\"é€\"'", "\"é€\""), ("'2'", "2")];
    one_bad_value("WIN1252", "E'\"caf\\x81\"'", &good).await;
}

#[tokio::test]
async fn a_character_of_several_bytes_without_an_equivalent_is_parked_alone() {
    let good = [("'\"あ漢ｱ\"'", "\"あ漢ｱ\""), ("'2'", "2")];
    one_bad_value("EUC_JP", "E'\"caf\\xa9\\xa1\"'", &good).await;
}

#[tokio::test]
async fn only_the_columns_that_a_record_is_made_of_have_to_be_text() {
    let rig = database_in("SQL_ASCII").await;
    let relay = rig.streaming().await;
    let sql = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) values \
               ('order', 'a', E'\\351', '1'), ('order', E'\\351', 'Placed', '2'), \
               (E'\\351', 'a', 'Placed', '3'), ('order', 'b', 'Placed', '4')";
    rig.client.batch_execute(sql).await.unwrap();
    assert_eq!(rig.landed(2).await, ["1", "4"]);
    parked(&rig, "undecodable undecodable").await;
    let details = details(&rig).await;
    assert!(details[0].contains("at column aggregateid"), "{details:?}");
    assert!(details[1].contains("at column aggregatetype"), "{details:?}");
    let found = replayer(&rig).await.find(None, ReplayFilter::default(), None).await.unwrap();
    let types: Vec<_> = found.survey.types.iter().map(|one| one.event_type.as_deref()).collect();
    assert_eq!(types, [Some("Placed"), Some("\u{fffd}")]);
    stop(relay).await;
}

/// As databases are that were declared to be UTF-8 afterwards.
#[tokio::test]
async fn bytes_that_only_the_catalog_calls_utf8_are_parked_alone() {
    let mut rig = database_in("SQL_ASCII").await;
    rig.config.initial = Some(Initial::Publish);
    let bad = "E'\"caf\\351\"'";
    insert(&rig, &["'1'", bad, "'2'"]).await;
    let declare = "update pg_database set encoding = pg_char_to_encoding('UTF8') \
                   where datname = current_database()";
    rig.client.batch_execute(declare).await.unwrap();
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    // This session is from before.
    insert(&rig, &["'3'", bad, "'4'"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    parked(&rig, "undecodable undecodable").await;
    stop(relay).await;
}

/// Names are in the encoding of the database as well.
#[tokio::test]
async fn a_table_whose_name_is_no_ascii_is_an_outbox_in_every_encoding() {
    for encoding in ["LATIN1", "EUC_JP"] {
        let mut rig = database_in(encoding).await;
        let name = if encoding == "LATIN1" { "größe" } else { "箱" };
        let sql = format!("create table \"{name}\" (like walpost.outbox including all)");
        rig.client.batch_execute(&sql).await.unwrap();
        rig.config.tables = vec![format!("public.\"{name}\"").parse().unwrap()];
        rig.config.publication = format!("{}_names", rig.config.slot);
        let relay = rig.streaming().await;
        let sql = format!(
            "insert into \"{name}\" (aggregatetype, aggregateid, type, payload) \
             values ('order', 'a', 'Placed', to_jsonb('{name}'::text))"
        );
        rig.client.batch_execute(&sql).await.unwrap();
        assert_eq!(rig.landed(1).await, [format!("\"{name}\"")]);
        stop(relay).await;
    }
}

/// A record may have characters that the database has not: JSON escapes bring them.
#[tokio::test]
async fn a_parked_record_need_not_fit_the_encoding_of_the_database() {
    let rig = database_in("LATIN1").await;
    rig.world.never("1");
    let relay = rig.streaming().await;
    let message = r#"{"id": "\u3042", "aggregatetype": "order", "aggregateid": "\u3042", "type": "Placed", "payload": "1"}"#;
    let emit = "select pg_logical_emit_message(true, 'walpost', $1::text::bytea)";
    let message = message.replace('\\', "\\\\");
    rig.client.execute(emit, &[&message]).await.unwrap();
    insert(&rig, &["'2'"]).await;
    assert_eq!(rig.landed(1).await, ["2"]);
    parked(&rig, "rejected").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_polled_row_with_such_a_value_fails_alone() {
    let polled = Polled::on(database_in("SQL_ASCII").await).await;
    let relay = polled.polling().await;
    insert(&polled.rig, &["'1'", "E'\"caf\\351\"'", "'\"é\"'"]).await;
    polled.reaches("PUBLISHED", 2).await;
    let mut values = polled.rig.landed(2).await;
    values.sort();
    assert_eq!(values, ["\"é\"", "1"]);
    let failed =
        "select count(*) from walpost.polling_attempts where last_error like '%at column payload%'";
    until(SOON, "the reason", async || polled.rig.count(failed).await == 1).await;
    stop(relay).await;
}
