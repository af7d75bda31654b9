//! Messages that say to be the boundary of a move. Anybody may write them.

use walpost_testkit::until;

use crate::{
    moves::{CROSSED, moved, order, run, two},
    rig::{Rig, SOON, status, stop},
    row_filters::events,
};

/// The message of a move `id` from a to b, under a transaction id as SQL.
async fn forge(rig: &Rig, id: i64, xid: &str) {
    let forged = format!(
        "select pg_logical_emit_message(true, 'walpost-move', json_build_object(\
         'schema', 'walpost', 'move', {id}, 'xid', {xid}, 'from', 'a', 'to', 'b')::text)"
    );
    run(rig, &forged).await;
}

const OWN_XID: &str = "pg_current_xact_id()::text";
/// The same 32 bits, as the stream has them.
const OF_ANOTHER_EPOCH: &str = "(pg_current_xact_id()::text::numeric + 4294967296)::text";

/// Anybody may write the message of a move, and nobody waits for one that is none.
#[tokio::test]
async fn a_boundary_that_somebody_has_made_up_stops_nobody() {
    let (base, _, b) = two(18).await;
    let relay = b.streaming().await;
    for xid in ["'x'", "'9999999999'", OWN_XID] {
        forge(&base, 1, xid).await;
    }
    events(&base, &[("c", "1")]).await;
    assert_eq!(b.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_boundary_under_a_transaction_id_of_another_epoch_stops_nobody() {
    let (base, _, b) = two(18).await;
    let receiver = b.streaming().await;
    forge(&base, 999, OF_ANOTHER_EPOCH).await;
    events(&base, &[("c", "1")]).await;
    assert_eq!(b.landed(1).await, ["1"]);
    stop(receiver).await;
    b.released().await;
    let receiver = b.streaming().await;
    forge(&base, 999, OF_ANOTHER_EPOCH).await;
    events(&base, &[("c", "2")]).await;
    assert_eq!(b.landed(2).await, ["1", "2"]);
    stop(receiver).await;
}

#[tokio::test]
async fn a_boundary_that_was_made_up_for_the_next_move_takes_nothing_from_the_real_one() {
    let (base, a, b) = two(18).await;
    let (giver, receiver) = (a.streaming().await, b.streaming().await);
    events(&base, &[("c", "1")]).await;
    b.landed(1).await;
    forge(&base, 1, OWN_XID).await;
    forge(&base, 1, OF_ANOTHER_EPOCH).await;
    // The giver passes what was made up, and not the real one.
    events(&base, &[("a", "2")]).await;
    a.landed(1).await;
    let passed = base.lsn("select pg_current_wal_insert_lsn()::text").await;
    until(SOON, "the giver is past it", async || a.slot_position().await >= passed).await;
    a.world.hold(true);
    events(&base, &[("b", "3")]).await;
    moved(&base, &order()).await;
    events(&base, &[("b", "4")]).await;
    let waits = |status: &walpost_relay::PipelineStatus| {
        status.waits.as_ref().is_some_and(|text| text.contains("has to pass the boundary"))
    };
    status(&receiver, "the real boundary", waits).await;
    assert_eq!((b.world.values(), base.count(CROSSED).await), (vec!["1".to_owned()], 0));
    a.world.hold(false);
    assert_eq!(b.landed(2).await, ["1", "4"]);
    assert_eq!(a.world.values(), ["2", "3"]);
    stop(giver).await;
    stop(receiver).await;
}
