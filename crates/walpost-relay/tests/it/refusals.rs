//! What an operator gets wrong, and what the relay says about it.

use walpost_relay::{Initial, Outcome};
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting, unique_name};

use crate::rig::{Rig, stop};

/// What `check` says of all that would not work.
pub(crate) async fn complaints(rig: &Rig) -> String {
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    let failed = results.into_iter().filter(|result| result.outcome == Outcome::Fail);
    let told: Vec<String> = failed
        .map(|result| format!("{}; {}", result.detail, result.next_step.unwrap_or_default()))
        .collect();
    told.join("\n")
}

/// A start is refused with these words, and `check` has found the same before.
pub(crate) async fn check(rig: &Rig, expected: &[&str]) {
    let found = complaints(rig).await;
    let refusal = rig.refusal().await;
    for part in expected {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
        assert!(found.contains(part), "expected {part:?} of check, which says: {found:?}");
    }
}

/// The same database for a new role that may replicate, and its name.
pub(crate) async fn as_newcomer(rig: Rig) -> (Rig, String) {
    let role = unique_name("role").replace('-', "_");
    rig.client.batch_execute(&format!("create role {role} login replication")).await.unwrap();
    let url = format!(
        "host={} port={} user={role} dbname={}",
        rig.database.first_target().0,
        rig.database.first_target().1,
        rig.database.dbname()
    );
    (rig.connecting_to(&url), role)
}

#[tokio::test]
async fn every_missing_grant_is_named_and_together_they_are_enough() {
    let (rig, role) = as_newcomer(Rig::new().await).await;
    let grant = async |statement: String| {
        let expected = statement.replace(&role, &format!("\"{role}\""));
        check(&rig, &[&format!("`{expected}`")]).await;
        rig.client.batch_execute(&statement).await.unwrap();
    };
    grant(format!("grant usage on schema \"walpost\" to {role}")).await;
    let rights = "select, insert, update";
    grant(format!(
        "grant {rights} on \"walpost\".\"checkpoint\" to {role}; \
         grant {rights} on \"walpost\".\"parked\" to {role}; \
         grant select, update on \"walpost\".\"move\" to {role}; \
         grant {rights} on \"walpost\".\"id_space\" to {role}"
    ))
    .await;
    grant(format!("grant select on \"walpost\".\"outbox\" to {role}")).await;
    rig.client.batch_execute("drop publication walpost").await.unwrap();
    let problem = "may not create in this database, and does not own walpost.outbox";
    let remedy = "run `create publication \"walpost\" for table \"walpost\".\"outbox\" with";
    check(&rig, &[problem, remedy]).await;
    rig.client.batch_execute("create publication walpost for table walpost.outbox").await.unwrap();
    assert_eq!(complaints(&rig).await, "");
    stop(rig.streaming().await).await;
}

#[tokio::test]
async fn a_slot_with_initial_skip_needs_no_right_to_read_the_table() {
    let (mut rig, role) = as_newcomer(Rig::new().await).await;
    rig.client
        .batch_execute(&format!(
            "grant usage on schema walpost to {role}; \
             grant select, insert, update on walpost.checkpoint, walpost.parked to {role}; \
             grant select, update on walpost.move to {role}; \
             grant select, insert, update on walpost.id_space to {role}"
        ))
        .await
        .unwrap();
    rig.config.initial = Some(Initial::Skip);
    assert_eq!(complaints(&rig).await, "");
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
}

#[tokio::test]
async fn the_slot_of_another_pipeline_is_refused_with_its_name() {
    let mut rig = Rig::new().await;
    stop(rig.streaming().await).await;
    rig.released().await;
    rig.config.pipeline = "seventh".into();
    rig.config.initial = Some(Initial::Skip);
    let owner = "belongs to pipeline \"shop\", and this is pipeline \"seventh\"";
    check(
        &rig,
        &[owner, "name another by pipeline.slot", "stop pipeline \"shop\" and delete its row"],
    )
    .await;
    // Nor is it made when it is gone.
    rig.client.query("select pg_drop_replication_slot($1)", &[&rig.config.slot]).await.unwrap();
    check(&rig, &[owner]).await;
    rig.client.batch_execute("delete from walpost.checkpoint").await.unwrap();
    stop(rig.streaming().await).await;
}

#[tokio::test]
async fn a_row_that_the_server_quotes_is_in_no_error() {
    let rig = Rig::new().await;
    let constraint = "alter table walpost.checkpoint add constraint closed check (slot = '')";
    rig.client.batch_execute(constraint).await.unwrap();
    let refusal = rig.refusal().await;
    let expected =
        "ERROR 23514 (check violation), constraint closed, schema walpost, table checkpoint";
    assert!(refusal.contains(expected), "{refusal}");
    assert!(!refusal.contains("Failing row") && !refusal.contains(&rig.config.slot), "{refusal}");
}

#[tokio::test]
async fn a_value_that_the_server_quotes_is_in_no_refusal() {
    let rig = Rig::new().await;
    rig.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    let value = format!("'{MARKER}'");
    for quoting in Quoting::ALL {
        let trigger = quoting.trigger("before insert or update on walpost.checkpoint", &value);
        rig.client.batch_execute(&trigger).await.unwrap();
        let refusal = rig.refusal().await;
        assert!(refusal.contains(quoting.state), "{}: {refusal}", quoting.name);
        quoting.is_hidden_in(&[refusal]);
    }
}

#[tokio::test]
async fn a_publication_may_have_any_name() {
    let mut rig = Rig::new().await;
    rig.config.publication = "c:\\it's \"mine\"".into();
    rig.client.batch_execute("drop publication walpost").await.unwrap();
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_missing_outbox_table_is_named() {
    let mut rig = Rig::new().await;
    rig.config.tables = vec!["shop.events".parse().unwrap()];
    check(&rig, &["shop.events does not exist", "walpost migrate"]).await;
}

#[tokio::test]
async fn a_missing_column_is_named_with_those_there_are() {
    let rig = Rig::new().await;
    rig.client.batch_execute("alter table walpost.outbox rename aggregateid to key").await.unwrap();
    check(&rig, &["no column \"aggregateid\"", "aggregatetype, key, type"]).await;
}

#[tokio::test]
async fn missing_tables_of_our_own_lead_to_migrate() {
    let rig = Rig::new().await;
    rig.client.batch_execute("drop table walpost.parked").await.unwrap();
    check(&rig, &["walpost.parked does not exist", "walpost migrate"]).await;
}

#[tokio::test]
async fn a_publication_without_the_table_is_mended_by_one_statement() {
    let rig = Rig::new().await;
    rig.client
        .batch_execute(
            "drop publication walpost; create table other (id int primary key); \
             create publication walpost for table other",
        )
        .await
        .unwrap();
    check(&rig, &["alter publication \"walpost\" add table \"walpost\".\"outbox\""]).await;
}

#[tokio::test]
async fn a_publication_without_inserts_is_refused() {
    let rig = Rig::new().await;
    rig.client.batch_execute("alter publication walpost set (publish = 'update')").await.unwrap();
    check(&rig, &["does not publish inserts", "publish = 'insert'"]).await;
}

#[tokio::test]
async fn a_missing_publication_is_created_unless_forbidden() {
    let mut rig = Rig::new().await;
    rig.client.batch_execute("drop publication walpost").await.unwrap();
    rig.config.create_publication = false;
    check(&rig, &["create publication \"walpost\" for table \"walpost\".\"outbox\""]).await;
    rig.config.create_publication = true;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_slot_of_another_plugin_is_refused() {
    let rig = Rig::new().await;
    rig.client
        .query(
            "select pg_create_logical_replication_slot($1, 'test_decoding')",
            &[&rig.config.slot],
        )
        .await
        .unwrap();
    check(&rig, &["test_decoding, not with pgoutput", "name another by pipeline.slot"]).await;
}

#[tokio::test]
async fn a_slot_that_somebody_advanced_is_refused_with_both_positions() {
    let rig = Rig::new().await;
    stop(rig.streaming().await).await;
    rig.released().await;
    rig.insert("a", &["1"]).await;
    rig.client
        .query("select pg_replication_slot_advance($1, pg_current_wal_lsn())", &[&rig.config.slot])
        .await
        .unwrap();
    let (outcome, detail) = rig.checked("slot").await;
    assert_eq!(outcome, Outcome::Fail);
    assert!(detail.contains("ahead of"), "{detail}");
    check(&rig, &["ahead of", "events in between may be missing"]).await;
}

#[tokio::test]
async fn a_slot_that_is_gone_is_never_made_again_in_silence() {
    let rig = Rig::new().await;
    stop(rig.streaming().await).await;
    rig.released().await;
    rig.client.query("select pg_drop_replication_slot($1)", &[&rig.config.slot]).await.unwrap();
    check(&rig, &["is gone", "had published up to"]).await;
}

#[tokio::test]
async fn a_role_without_replication_is_told_the_grant() {
    let rig = Rig::new().await;
    let role = unique_name("role").replace('-', "_");
    rig.client.batch_execute(&format!("create role {role} login")).await.unwrap();
    let url = format!(
        "host={} port={} user={role} dbname={}",
        rig.database.first_target().0,
        rig.database.first_target().1,
        rig.database.dbname()
    );
    let rig = rig.connecting_to(&url);
    check(&rig, &["may not use replication", "alter role", "replication"]).await;
}

#[tokio::test]
async fn an_unreachable_server_is_named_and_given_up_on_in_time() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = Some(300);
    let port = walpost_testkit::local::free_port().unwrap();
    let rig = rig.connecting_to(&format!("host=127.0.0.1 port={port} user=x dbname=x"));
    check(&rig, &["cannot reach PostgreSQL", &port.to_string()]).await;
}

#[tokio::test]
async fn a_database_that_does_not_exist_ends_at_once() {
    let rig = Rig::new().await;
    let url = format!(
        "host={} port={} user={} dbname=nowhere",
        rig.database.first_target().0,
        rig.database.first_target().1,
        rig.database.user()
    );
    let rig = rig.connecting_to(&url);
    check(&rig, &["nowhere"]).await;
}

#[tokio::test]
async fn a_server_without_logical_wal_is_told_so() {
    let server =
        walpost_testkit::local::Postgres::builder().setting("wal_level", "replica").start();
    let server = Box::leak(Box::new(server.unwrap()));
    let rig = Rig::on_local(server).await;
    check(&rig, &["wal_level is replica", "alter system set wal_level"]).await;
}

#[tokio::test]
async fn rows_that_would_come_under_another_name_are_refused_beforehand() {
    let mut rig = Rig::new().await;
    rig.client
        .batch_execute(
            "create table ob (id text, aggregatetype text, aggregateid text, type text, \
             payload text) partition by list (type); \
             create table ob1 partition of ob default; \
             create publication plain for table ob; \
             create publication rooted for table ob with (publish_via_partition_root = true)",
        )
        .await
        .unwrap();
    rig.config.tables = vec!["public.ob".parse().unwrap()];
    rig.config.publication = "plain".into();
    check(&rig, &["is partitioned", "publish_via_partition_root = true"]).await;
    rig.config.tables = vec!["public.ob1".parse().unwrap()];
    rig.config.publication = "rooted".into();
    check(&rig, &["is a partition", "name the root"]).await;
    // Rows of its partitions alone would be passed over under their own names.
    let of_leaves = "create publication leaves for table ob1 with (publish_via_partition_root)";
    rig.client.batch_execute(of_leaves).await.unwrap();
    rig.config.tables = vec!["public.ob".parse().unwrap()];
    rig.config.publication = "leaves".into();
    check(&rig, &["does not contain outbox table public.ob itself", "add table \"public\".\"ob\""])
        .await;
}
