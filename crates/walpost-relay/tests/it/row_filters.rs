//! Several pipelines with row filters over one outbox table.

use tokio::sync::watch;
use walpost_relay::{
    Initial, LostSlot, Outcome, ReplayFilter, ReplayOrder, ReplayState, Replayer, prune,
};
use walpost_router::RouterConfig;
use walpost_testkit::{postgres_of, until};

use crate::{
    retention::retention,
    rig::{Rig, SOON, raw, stop},
};

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// An outbox with tenants, on a server that nobody publishes from.
pub(crate) async fn tenants_on(version: u32) -> Rig {
    let mut rig = Rig::on(postgres_of(version)).await;
    rig.config.settle_ms = 0;
    run(&rig, "alter table walpost.outbox add column tenant text").await;
    rig
}

/// One event of a tenant, whose aggregate has the tenant's name.
pub(crate) fn event(tenant: &str, value: &str) -> String {
    format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, tenant) \
         values ('order', '{tenant}', 'Placed', '{value}', nullif('{tenant}', 'none'));"
    )
}

pub(crate) async fn events(rig: &Rig, events: &[(&str, &str)]) {
    for (tenant, value) in events {
        run(rig, &event(tenant, value)).await;
    }
}

async fn proven(rig: &Rig, rows: i64) {
    let sql = format!(
        "select count(*) from walpost.outbox, walpost.checkpoint where pipeline = '{}' \
         and pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot) and ({})",
        rig.config.pipeline,
        rig.config.row_filter.as_deref().unwrap_or("true")
    );
    until(SOON, &format!("{rows} proven rows"), async || rig.count(&sql).await == rows).await;
}

async fn each_publishes_its_own_rows(version: u32) {
    let base = tenants_on(version).await;
    events(&base, &[("a", "1"), ("b", "2"), ("none", "3")]).await;
    let mut a = base.beside("a", "tenant = 'a'").await;
    let mut b = base.beside("b", "tenant in ('b', 'c')").await;
    (a.config.initial, b.config.initial) = (Some(Initial::Publish), Some(Initial::Publish));
    let running = [a.streaming().await, b.streaming().await];
    // Rows of one transaction go both ways.
    run(&base, &format!("begin; {}{}commit", event("a", "4"), event("b", "5"))).await;
    events(&base, &[("c", "6"), ("none", "7"), ("a", "8")]).await;
    assert_eq!(a.landed(3).await, ["1", "4", "8"]);
    assert_eq!(b.landed(3).await, ["2", "5", "6"]);
    proven(&a, 3).await;
    proven(&b, 3).await;
    for relay in running {
        stop(relay).await;
    }
    // The slot of one is lost: only its own rows come from the table.
    b.released().await;
    events(&base, &[("a", "9"), ("b", "10")]).await;
    run(&base, &format!("select pg_drop_replication_slot('{}')", b.config.slot)).await;
    b.config.on_lost_slot = LostSlot::Recover;
    let relay = b.streaming().await;
    events(&base, &[("c", "11"), ("a", "12")]).await;
    assert_eq!(b.landed(5).await, ["2", "5", "6", "10", "11"]);
    stop(relay).await;
    let relay = a.streaming().await;
    assert_eq!(a.landed(5).await, ["1", "4", "8", "9", "12"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn each_pipeline_publishes_loads_and_recovers_its_own_rows_on_postgres_15() {
    each_publishes_its_own_rows(15).await;
}

#[tokio::test]
async fn each_pipeline_publishes_loads_and_recovers_its_own_rows_on_postgres_18() {
    each_publishes_its_own_rows(18).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn postgres_14_has_no_row_filters_and_says_so() {
    let base = tenants_on(14).await;
    let refusal = base.beside("a", "tenant = 'a'").await.refusal().await;
    assert!(refusal.contains("row_filter is set, and the server is PostgreSQL 14"), "{refusal}");
    let made = "select count(*) from pg_publication where pubname = 'walpost_a'";
    assert_eq!(base.count(made).await, 0);
}

#[tokio::test]
async fn a_filter_is_the_publications_however_it_is_spelled() {
    let base = tenants_on(18).await;
    let mut a = base.beside("a", "tenant IN ('a','x')").await;
    stop(a.streaming().await).await;
    for same in ["(tenant in ('a', 'x'))", "tenant = any (array['a', 'x'])"] {
        a.released().await;
        a.config.row_filter = Some(same.to_owned());
        let (outcome, detail) = a.checked("publication").await;
        assert_eq!(outcome, Outcome::Ok, "{detail}");
        stop(a.streaming().await).await;
    }
    let as_printed = "select rowfilter from pg_publication_tables where pubname = 'walpost_a'";
    let printed: String = a.client.query_one(as_printed, &[]).await.unwrap().get(0);
    a.config.row_filter = Some(printed);
    stop(a.streaming().await).await;
    for other in ["tenant = 'a'", "tenant in ('x', 'b')"] {
        a.config.row_filter = Some(other.to_owned());
        let refusal = a.refusal().await;
        for part in ["has the row filter", "and row_filter is", "set row_filter to what"] {
            assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
        }
        assert_eq!(a.checked("publication").await.0, Outcome::Fail);
    }
    a.config.publication = "walpost".to_owned();
    let refusal = a.refusal().await;
    assert!(
        refusal.contains("\"walpost\" has no row filter for table walpost.outbox"),
        "{refusal}"
    );
    run(&base, "alter table walpost.outbox add column short varchar(20)").await;
    let listed = base.beside("listed", "short in ('a', 'b')").await.refusal().await;
    assert!(listed.contains("no publication takes row_filter"), "{listed}");
    assert!(listed.contains("as tenant::text in"), "{listed}");
    let mut short = base.beside("short", "short::text in ('a', 'b')").await;
    stop(short.streaming().await).await;
    short.config.row_filter = Some("short::text in ('a','b')".to_owned());
    assert_eq!(short.checked("publication").await.0, Outcome::Ok);
    for wrong in ["tenants = 'a'", "tenant = 'a') or (true", "tenant = ", "1"] {
        let rig = base.beside("new", wrong).await;
        let refusal = rig.refusal().await;
        assert!(
            refusal.contains("is no condition over the columns of walpost.outbox"),
            "{refusal}"
        );
    }
    // Whoever compares leaves nothing behind.
    let left = "select count(*) from pg_class where relname = 'walpost_row_filter'";
    assert_eq!(base.count(left).await, 0);
}

/// Without the right to make temporary tables the spelling of the server is
/// asked for.
#[tokio::test]
async fn a_role_that_may_make_no_temporary_table_is_told_what_to_do() {
    let base = tenants_on(18).await;
    let a = base.beside("a", "tenant = 'a'").await;
    stop(a.streaming().await).await;
    let role = walpost_testkit::unique_name("role").replace('-', "_");
    let grant = format!(
        "create role {role} login replication; grant usage on schema walpost to {role}; \
         grant select, insert, update on all tables in schema walpost to {role}; \
         do $$ begin execute format('revoke temporary on database %I from public', \
         current_database()); end $$"
    );
    run(&base, &grant).await;
    let url = format!(
        "host={} port={} user={role} dbname={}",
        { base.database.first_target().0 },
        base.database.first_target().1,
        base.database.dbname()
    );
    a.released().await;
    let mut a = a.connecting_to(&url);
    let refusal = a.refusal().await;
    assert!(refusal.contains("grant it `temporary` on the database"), "{refusal}");
    a.config.row_filter = Some("(tenant = 'a'::text)".to_owned());
    stop(a.streaming().await).await;
}

#[tokio::test]
async fn messages_go_to_the_pipeline_that_is_said_to_take_them() {
    let base = tenants_on(18).await;
    let a = base.beside("a", "tenant = 'a'").await;
    let mut b = base.beside("b", "tenant = 'b'").await;
    b.config.row_filter_messages = true;
    let running = [a.streaming().await, b.streaming().await];
    let content =
        r#"{"id":"m1","aggregatetype":"order","aggregateid":"m","type":"Placed","payload":"m"}"#;
    let emit = format!("select pg_logical_emit_message(true, 'walpost', '{content}')");
    run(&base, &emit).await;
    events(&base, &[("a", "1"), ("b", "2")]).await;
    assert_eq!(b.landed(2).await.len(), 2);
    assert_eq!(a.landed(1).await, ["1"]);
    for relay in running {
        stop(relay).await;
    }
}

#[tokio::test]
async fn rows_leave_with_their_own_pipeline_and_wait_for_no_other() {
    let base = tenants_on(18).await;
    let (a, b) = (base.beside("a", "tenant = 'a'").await, base.beside("b", "tenant = 'b'").await);
    let running = a.streaming().await;
    let other = b.streaming().await;
    b.world.hold(true);
    events(&base, &[("a", "1"), ("b", "2"), ("none", "3"), ("a", "4")]).await;
    run(&base, "update walpost.outbox set created_at = now() - interval '30 days'").await;
    proven(&a, 2).await;
    assert_eq!(prune(&a.database, &a.config, "id", &retention(), |_| {}).await.unwrap()[0].rows, 2);
    let left = "select string_agg(payload::text, ' ' order by seq) from walpost.outbox";
    let rest: String = base.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(rest, "2 3");
    assert_eq!(prune(&b.database, &b.config, "id", &retention(), |_| {}).await.unwrap()[0].rows, 0);
    b.world.hold(false);
    proven(&b, 1).await;
    assert_eq!(prune(&b.database, &b.config, "id", &retention(), |_| {}).await.unwrap()[0].rows, 1);
    let rest: String = base.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(rest, "3", "no pipeline has published it");
    stop(running).await;
    stop(other).await;
}

#[tokio::test]
async fn a_replay_finds_the_rows_of_its_own_pipeline() {
    let base = tenants_on(18).await;
    let (a, b) = (base.beside("a", "tenant = 'a'").await, base.beside("b", "tenant = 'b'").await);
    let running = [a.streaming().await, b.streaming().await];
    events(&base, &[("a", "1"), ("b", "2"), ("none", "3"), ("a", "4")]).await;
    a.landed(2).await;
    b.landed(1).await;
    let replayer = Replayer::open(&a.database, a.config.clone(), RouterConfig::walpost(), raw());
    let replayer = replayer.await.unwrap();
    let filter = ReplayFilter { event_types: vec!["Placed".to_owned()], ..ReplayFilter::default() };
    let found = replayer.find(None, filter, None).await.unwrap();
    assert_eq!(found.survey.events, 2);
    let order = ReplayOrder { to_topic: None, rate_per_s: 1_000, wait: SOON, asked_from: None };
    let sink = a.world.connect().await.unwrap();
    let replay = replayer.begin(found, order, sink).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    assert_eq!(replay.run(stopped, |_| {}).await.state, ReplayState::Done);
    assert_eq!(a.world.values(), ["1", "4", "1", "4"]);
    for relay in running {
        stop(relay).await;
    }
}

#[tokio::test]
async fn rows_that_two_filters_take_or_none_are_told_with_examples() {
    let base = tenants_on(18).await;
    let a = base.beside("a", "tenant in ('a', 'b')").await;
    let mut b = base.beside("b", "tenant = 'b'").await;
    events(&base, &[("a", "1")]).await;
    for rig in [&a, &b] {
        let mut config = rig.config.clone();
        config.initial = Some(Initial::Skip);
        let rig = Rig { config, ..base.beside(&rig.config.pipeline, "true").await };
        stop(rig.streaming().await).await;
    }
    // Nothing is wrong but that tenant may be null.
    let results = walpost_relay::check(&b.database, &b.config, &b.router).await;
    let about = |results: &[walpost_relay::CheckResult]| -> Vec<String> {
        let of = results.iter().filter(|result| result.name == "row filters");
        of.map(|result| format!("{:?}: {}", result.outcome, result.detail)).collect()
    };
    let found = about(&results);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("\"tenant\" of walpost.outbox may be NULL"), "{found:?}");
    assert!(found[1].starts_with("Ok: each of the last 1 rows"), "{found:?}");
    events(&base, &[("b", "2"), ("c", "3"), ("none", "4"), ("b", "5")]).await;
    let found = about(&walpost_relay::check(&b.database, &b.config, &b.router).await);
    assert!(
        found[1].starts_with("Warn: of the last 5 rows of walpost.outbox, 2, such"),
        "{found:?}"
    );
    assert!(found[1].contains("(a and b)"), "{found:?}");
    assert!(found[2].contains("of walpost.outbox, 2, such"), "{found:?}");
    assert!(found[2].contains("are taken by no pipeline"), "{found:?}");
    let id = "select id::text from walpost.outbox where payload = '3'";
    let id: String = base.client.query_one(id, &[]).await.unwrap().get(0);
    assert!(found[2].contains(&id), "{found:?}");
    // One that a row can make fail.
    b = base
        .beside("c", "1 / (tenant = 'zero')::int > 0 or abs(hashtext(aggregateid)) % 2 = 0")
        .await;
    let found = about(&walpost_relay::check(&b.database, &b.config, &b.router).await);
    assert!(found.iter().any(|line| line.contains("takes abs() of a hash")), "{found:?}");
    let fails = "Fail: a row filter fails for a row of walpost.outbox";
    assert!(found.iter().any(|line| line.starts_with(fails)), "{found:?}");
}
