//! Rows that policies hide from the relay's role: nothing takes them for
//! published, and whoever would is told what to do.

use walpost_relay::{
    Initial, Outcome, RelayError, ReplayFilter, Replayer, SwitchTo, check_retention, plan_recovery,
    prune,
};
use walpost_router::RouterConfig;

use crate::{
    polling_rig::Polled,
    proven::proven,
    refusals::as_newcomer,
    retention::{old, retention, run},
    rig::{Rig, SOON, raw, stop},
    switching::switch,
};

const HIDES: &str = "row level security hides rows";
const REMEDY: &str = "give the role BYPASSRLS";
const POLICY: &str = "create policy tenants on walpost.outbox \
                      using (aggregateid = current_setting('app.tenant', true)); \
                      alter table walpost.outbox enable row level security";

/// A role with every right that owns nothing, on an outbox whose policy shows it
/// no row.
async fn behind_a_policy(rig: Rig) -> (Rig, String) {
    let (rig, role) = as_newcomer(rig).await;
    let grants = format!(
        "grant usage on schema walpost to {role}; grant all on all tables in schema walpost to \
         {role}; grant usage on all sequences in schema walpost to {role}"
    );
    run(&rig, &grants).await;
    run(&rig, POLICY).await;
    (rig, role)
}

fn is_told(error: &RelayError) {
    let RelayError::Prerequisite { problem, remedy } = error else { panic!("{error:?}") };
    assert!(problem.contains(HIDES), "{problem}");
    assert!(remedy.contains(REMEDY), "{remedy}");
}

#[tokio::test]
async fn a_first_start_that_would_not_see_all_rows_is_refused_before_it_makes_a_slot() {
    let (mut rig, role) = behind_a_policy(Rig::new().await).await;
    rig.insert("a", &["1", "2"]).await;
    for initial in [None, Some(Initial::Publish)] {
        rig.config.initial = initial;
        let refusal = rig.refusal().await;
        assert!(refusal.contains(HIDES) && refusal.contains(REMEDY), "{refusal}");
        let (outcome, detail) = rig.checked("first start").await;
        assert!(outcome == Outcome::Fail && refusal.contains(&detail), "{outcome:?} {detail}");
        assert_eq!(rig.checked("row level security").await, (Outcome::Warn, detail));
        let slot = &rig.config.slot;
        let slots = format!("select count(*) from pg_replication_slots where slot_name = '{slot}'");
        assert_eq!(rig.count(&slots).await, 0);
        assert_eq!(rig.count("select count(*) from walpost.checkpoint").await, 0);
    }
    run(&rig, &format!("alter role {role} bypassrls")).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

/// The owner's own policies count where they are forced, and nowhere else.
#[tokio::test]
async fn an_owner_sees_all_rows_until_the_policies_are_forced_on_it() {
    let (mut rig, role) = behind_a_policy(Rig::new().await).await;
    rig.insert("a", &["1"]).await;
    rig.config.initial = Some(Initial::Publish);
    run(&rig, &format!("alter table walpost.outbox owner to {role}")).await;
    run(&rig, "alter table walpost.outbox force row level security").await;
    let refusal = rig.refusal().await;
    assert!(refusal.contains(HIDES), "{refusal}");
    run(&rig, "alter table walpost.outbox no force row level security").await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

/// What streams reads no row, and goes on; whatever reads rows is refused.
#[tokio::test]
async fn what_reads_the_rows_of_a_pipeline_that_streams_is_refused() {
    let (mut rig, role) = behind_a_policy(Rig::new().await).await;
    (rig.config.initial, rig.config.settle_ms) = (Some(Initial::Skip), 0);
    let relay = rig.streaming().await;
    run(&rig, &old("a", "1")).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    proven(&rig, 1).await;
    let hidden = prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await;
    is_told(&hidden.unwrap_err());
    let checked = check_retention(&rig.database, &rig.config, "id", &retention()).await;
    assert_eq!(checked.outcome, Outcome::Warn);
    assert!(checked.detail.contains(HIDES), "{}", checked.detail);
    let (config, router) = (rig.config.clone(), RouterConfig::walpost());
    let replayer = Replayer::open(&rig.database, config, router, raw()).await.unwrap();
    is_told(&replayer.find(None, ReplayFilter::default(), None).await.unwrap_err());
    stop(relay).await;
    rig.released().await;
    let drop_slot = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
    run(&rig, &drop_slot).await;
    is_told(&plan_recovery(&rig.database, &rig.config, true, true).await.unwrap_err());
    rig.config.mark_published = true;
    run(
        &rig,
        "alter table walpost.outbox add column status text, add column published_at timestamptz; \
         create index on walpost.outbox (seq) where published_at is null",
    )
    .await;
    let (outcome, detail) = rig.checked("marking").await;
    assert!(outcome == Outcome::Fail && detail.contains(HIDES), "{detail}");
    run(&rig, &format!("alter role {role} bypassrls")).await;
    assert_eq!(rig.checked("marking").await.0, Outcome::Ok);
    let plan = plan_recovery(&rig.database, &rig.config, true, true).await.unwrap();
    assert_eq!(plan.obstacles, []);
    let done = prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await.unwrap();
    assert_eq!(done[0].rows, 1);
}

#[tokio::test]
async fn a_poller_that_would_not_see_all_rows_is_refused_and_so_is_a_switch_to_it() {
    let mut polled = Polled::new().await;
    let (rig, role) = behind_a_policy(polled.rig).await;
    polled.rig = rig;
    let (outcome, detail, next_step) = polled.checked("outbox table").await;
    assert!(outcome == Outcome::Fail && detail.contains(HIDES), "{detail}");
    assert!(next_step.unwrap().contains(REMEDY));
    let mut poller = polled.start();
    let ended = tokio::time::timeout(SOON, poller.finished()).await.expect("it refuses to start");
    is_told(&ended.unwrap_err());
    polled.rig.config.initial = Some(Initial::Skip);
    let relay = polled.rig.streaming().await;
    stop(relay).await;
    polled.rig.released().await;
    is_told(&switch(&polled, SwitchTo::Polling).await.unwrap_err());
    run(&polled.rig, &format!("alter role {role} bypassrls")).await;
    switch(&polled, SwitchTo::Polling).await.unwrap();
}

/// A partition's own policies count where it is read by its name.
#[tokio::test]
async fn a_policy_of_a_partition_is_found_before_its_rows_leave() {
    let rig = Rig::partitioned(walpost_testkit::postgres()).await;
    let (mut rig, role) = as_newcomer(rig).await;
    run(&rig, &format!("grant usage on schema walpost to {role}")).await;
    run(&rig, &format!("grant all on all tables in schema walpost to {role}")).await;
    run(&rig, "alter table walpost.outbox_default enable row level security").await;
    rig.config.initial = Some(Initial::Skip);
    let relay = rig.streaming().await;
    run(&rig, &old("a", "1")).await;
    proven(&rig, 1).await;
    let hidden = prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await.unwrap_err();
    is_told(&hidden);
    assert!(hidden.to_string().contains("walpost.outbox_default"), "{hidden}");
    run(&rig, &format!("alter role {role} bypassrls")).await;
    let done = prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await.unwrap();
    assert_eq!(done[0].rows, 1);
    stop(relay).await;
}
