//! Two pipelines that would publish the same rows.

use walpost_relay::{NamedColumn, Outcome, check_polling};
use walpost_router::{MissingColumn, RouterConfig};

use crate::{
    polling_rig::Polled,
    refusals::{check, complaints},
    rig::{Rig, stop},
};

const BOTH: &str = "both publish the rows of table walpost.outbox: each event would be published \
                    twice";

/// Another pipeline over the same table and publication.
async fn second_of(rig: &Rig, name: &str) -> Rig {
    let mut second = rig.beside(name, "true").await;
    second.config.row_filter = None;
    second.config.publication.clone_from(&rig.config.publication);
    second
}

#[tokio::test]
async fn a_second_pipeline_over_one_table_is_refused_unless_it_is_allowed() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let mut second = second_of(&rig, "second").await;
    check(&second, &[BOTH, "pipeline.allow_overlap = true", "\"shop\" and \"second\""]).await;
    let traces = "select count(*) from walpost.checkpoint where pipeline = 'second'";
    assert_eq!(rig.count(traces).await, 0);
    // A filter of some of the rows repeats these.
    let mut some = rig.beside("some", "aggregateid = 'a'").await;
    check(&some, &[BOTH]).await;
    some.config.row_filter = Some("false".to_owned());
    some.client.batch_execute("drop publication if exists walpost_some").await.unwrap();
    assert_eq!(complaints(&some).await, "", "no row is its own");

    second.config.allow_overlap = true;
    assert_eq!(complaints(&second).await, "");
    stop(second.streaming().await).await;
    // One that publishes already goes on, and is warned.
    second.config.allow_overlap = false;
    let (outcome, detail) = second.checked("overlap").await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains(BOTH), "{detail}");
    stop(second.streaming().await).await;
    stop(relay).await;
}

#[tokio::test]
async fn of_two_first_starts_at_the_same_time_not_both_publish() {
    let rig = Rig::new().await;
    let (first, second) = (second_of(&rig, "first").await, second_of(&rig, "second").await);
    let mut relays = [first.start(), second.start()];
    let refused = tokio::time::timeout(crate::rig::SOON, async {
        let [one, other] = &mut relays;
        tokio::select! {
            ended = one.finished() => ended,
            ended = other.finished() => ended,
        }
    });
    let text = refused.await.expect("one is refused").unwrap_err().to_string();
    assert!(text.contains(BOTH), "{text}");
}

#[tokio::test]
async fn a_pipeline_that_is_gone_with_its_slot_holds_no_other_up() {
    let rig = Rig::new().await;
    stop(rig.streaming().await).await;
    rig.released().await;
    let second = second_of(&rig, "second").await;
    check(&second, &[BOTH, "drop its slot"]).await;
    let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
    rig.client.batch_execute(&drop).await.unwrap();
    assert_eq!(complaints(&second).await, "");
    stop(second.streaming().await).await;
}

#[tokio::test]
async fn a_poller_and_a_reader_of_the_wal_do_not_share_a_table() {
    let mut polled = Polled::new().await;
    let reader = second_of(&polled.rig, "reader").await;
    let relay = reader.streaming().await;
    polled.rig.config.pipeline = "poller".to_owned();
    let (outcome, detail, _) = polled.checked("source").await;
    assert_eq!(outcome, Outcome::Fail);
    assert!(detail.contains(BOTH), "{detail}");
    let refused = polled.start().finished().await.unwrap_err().to_string();
    assert!(refused.contains(BOTH), "{refused}");
    stop(relay).await;
    // Pollers share the work.
    let drop = format!("select pg_drop_replication_slot('{}')", reader.config.slot);
    reader.released().await;
    reader.client.batch_execute(&drop).await.unwrap();
    stop(polled.polling().await).await;
    polled.rig.config.pipeline = "other".to_owned();
    stop(polled.polling().await).await;
    // Nor does one that begins to read the WAL.
    reader
        .client
        .batch_execute("delete from walpost.checkpoint where pipeline = 'reader'")
        .await
        .unwrap();
    check(&reader, &[BOTH]).await;
}

#[tokio::test]
async fn a_named_column_that_no_table_has_is_refused() {
    let mut rig = Rig::new().await;
    let named =
        |name: &str, key, is_required| NamedColumn { name: name.to_owned(), key, is_required };
    rig.router = RouterConfig {
        additional_placement: Some("type:header,tracparent:header".to_owned()),
        additional_missing: MissingColumn::Ignore,
        headers_column: Some("headrs".to_owned()),
        ..RouterConfig::default()
    };
    assert_eq!(complaints(&rig).await, "", "nobody has named them");
    rig.config.named_columns = vec![
        named("type", "router.additional_placement", true),
        named("tracparent", "router.additional_placement", true),
    ];
    check(&rig, &["no column \"tracparent\", which router.additional_placement names"]).await;
    rig.config.named_columns = vec![named("headrs", "router.headers_column", true)];
    check(&rig, &["no column \"headrs\", which router.headers_column names"]).await;
    // A table of several may lack it.
    let other = "create table other (id text, aggregatetype text, aggregateid text, payload text, \
                 headrs jsonb); alter publication walpost add table other";
    rig.client.batch_execute(other).await.unwrap();
    rig.config.tables.push("public.other".parse().unwrap());
    assert_eq!(complaints(&rig).await, "");
    rig.config.tables.pop();
    rig.config.named_columns[0].is_required = false;
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    let warned = |result: &walpost_relay::CheckResult| {
        result.outcome == Outcome::Warn && result.detail.contains("headrs")
    };
    assert!(results.iter().any(warned), "{results:?}");
    stop(rig.streaming().await).await;
}

#[tokio::test]
async fn a_poller_refuses_a_named_column_that_its_table_lacks() {
    let mut polled = Polled::new().await;
    polled.rig.config.named_columns = vec![NamedColumn {
        name: "headrs".to_owned(),
        key: "router.headers_column",
        is_required: true,
    }];
    let Rig { database, config, router, .. } = &polled.rig;
    let results = check_polling(database, config, &polled.polling, router).await;
    let told = |result: &walpost_relay::CheckResult| {
        result.outcome == Outcome::Fail && result.detail.contains("\"headrs\"")
    };
    assert!(results.iter().any(told), "{results:?}");
    let refused = polled.start().finished().await.unwrap_err().to_string();
    assert!(refused.contains("\"headrs\", which router.headers_column names"), "{refused}");
}
