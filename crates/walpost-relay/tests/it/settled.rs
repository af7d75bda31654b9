//! Parked events that are settled leave their table, and whoever prunes is told
//! what it may not.

use tokio_postgres::Client;
use walpost_relay::{
    Outcome, RetentionConfig, check_retention, prunable_parked, prune, prune_parked,
};
use walpost_testkit::until;

use crate::{
    proven::proven,
    refusals::as_newcomer,
    retention::{old, pruned, retention, run},
    rig::{Rig, SOON, stop},
};

const MONTHS_AGO: &str = "update walpost.parked set updated_at = now() - interval '90 days'";

async fn settled(rig: &Rig, retention: &RetentionConfig) -> u64 {
    let counted = prunable_parked(&rig.database, &rig.config, "id", retention).await.unwrap();
    let deleted = prune_parked(&rig.database, &rig.config, "id", retention).await.unwrap();
    assert_eq!(counted, deleted);
    deleted
}

/// Parked rows that are no row's, each with its name as the id of its event.
async fn park(client: &Client, name: &str, changes: &str) {
    let sql = format!(
        "insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, event_id, \
             reason, state) \
         select 'shop', generation, '0/1', 0, 'walpost', '{name}', 'rejected', 'done' \
         from walpost.checkpoint; \
         update walpost.parked set {changes} where event_id = '{name}'"
    );
    client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn a_settled_parked_event_leaves_behind_its_row_and_its_position() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    for value in ["1", "2", "3"] {
        rig.world.never(value);
        run(&rig, &old(value, value)).await;
    }
    proven(&rig, 3).await;
    let ask = "update walpost.parked set requested = 'discard' \
               where aggregate_id in ('1', '2')";
    run(&rig, ask).await;
    let open = "select count(*) from walpost.parked where state = 'open'";
    until(SOON, "two are discarded", async || rig.count(open).await == 1).await;
    run(&rig, MONTHS_AGO).await;
    let mut retention = retention();
    (retention.archive_days, retention.batch_rows) = (30, 1);
    assert_eq!(settled(&rig, &retention).await, 0, "their rows are in the outbox");
    assert_eq!(pruned(&rig, &retention).await.rows, 3);
    assert_eq!(settled(&rig, &retention).await, 0, "their rows are in the archive");
    run(&rig, "delete from walpost.outbox_archive").await;
    assert_eq!(settled(&rig, &retention).await, 2);
    assert_eq!(rig.count(open).await, 1);

    let old = "updated_at = now() - interval '31 days'";
    for (name, changes) in [
        ("passed", old.to_owned()),
        ("discarded", format!("{old}, state = 'discarded'")),
        ("of a lost slot", format!("{old}, generation = 7, commit_lsn = 'FFFFFFFF/0'")),
        ("to come", format!("{old}, commit_lsn = 'FFFFFFFF/0'")),
        ("young", "updated_at = now() - interval '29 days'".to_owned()),
        ("open", format!("{old}, state = 'open'")),
        ("sending", format!("{old}, state = 'sending', sending_floor = '{{}}'")),
        ("of another", format!("{old}, pipeline = 'other'")),
        ("unknown", format!("{old}, source = 'gone.outbox'")),
    ] {
        park(&rig.client, name, &changes).await;
    }
    assert_eq!(settled(&rig, &retention).await, 3);
    let left = "select string_agg(event_id, ', ' order by id) from walpost.parked \
                where source <> 'walpost.outbox'";
    let left: String = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "to come, young, open, sending, of another, unknown");
    stop(relay).await;
}

#[tokio::test]
async fn missing_rights_are_told_before_the_first_row_goes() {
    let rig = Rig::new().await;
    stop(rig.streaming().await).await;
    let owner = rig.database.connect().await.unwrap();
    let (rig, role) = as_newcomer(rig).await;
    let beforehand = format!(
        "grant usage on schema walpost to {role}; \
         grant select on all tables in schema walpost to {role}; \
         grant insert, update on walpost.checkpoint, walpost.parked, walpost.move to {role}; \
         grant insert, update on walpost.id_space to {role}"
    );
    owner.batch_execute(&beforehand).await.unwrap();
    let mut retention = retention();
    retention.archive_days = 30;
    for (rights, table) in [
        ("delete", "parked"),
        ("update, delete", "outbox"),
        ("insert, update, delete", "outbox_archive"),
    ] {
        let found = check_retention(&rig.database, &rig.config, "id", &retention).await;
        let problem = format!("role {role:?} lacks the right to {rights} on table walpost.{table}");
        let grant = format!("grant {rights} on \"walpost\".\"{table}\" to \"{role}\"");
        assert_eq!((found.outcome, &found.detail), (Outcome::Warn, &problem));
        assert_eq!(found.next_step, Some(format!("run `{grant}`")));
        let refused =
            prune(&rig.database, &rig.config, "id", &retention, |_| {}).await.unwrap_err();
        assert!(refused.to_string().contains(&problem), "{refused}");
        owner.batch_execute(&grant).await.unwrap();
    }
    let found = check_retention(&rig.database, &rig.config, "id", &retention).await;
    assert_eq!(
        (found.outcome, found.detail.as_str()),
        (Outcome::Ok, "published rows leave after 14 days, and the archive 30 days later")
    );
}
