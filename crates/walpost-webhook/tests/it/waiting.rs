//! What waits for its time costs those nothing who look for what is due.

use walpost_testkit::until;

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, NAME, World, ids, run, settings},
};

/// Deliveries of which there is nothing to do.
const MANY: i64 = 20_000;

/// Entries of the indexes by which deliveries are found that were read so far.
pub(crate) async fn entries_read(world: &World) -> i64 {
    let entries = "select sum(idx_tup_read)::int8 from pg_stat_all_indexes \
                   where relname = 'webhook_delivery'";
    world.number(entries).await
}

/// Sessions leave their statistics as they end.
pub(crate) async fn alone(world: &World) {
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                    and pid <> pg_backend_pid() and backend_type = 'client backend'";
    until(LIMIT, "the end of its sessions", async || world.number(sessions).await == 0).await;
    world.client.execute("select pg_stat_force_next_flush()", &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_do_not_read_what_is_not_due() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let later = format!(
        "insert into walpost.webhook_delivery \
         (destination, event_id, idempotency_key, body, next_attempt_at) \
         select '{NAME}', 'w' || n, n, 'b', now() + interval '1 hour' \
         from generate_series(1, {MANY}) n"
    );
    world.past_triggers(&later).await;
    world.client.batch_execute("vacuum analyze walpost.webhook_delivery").await.unwrap();
    let entries = "select idx_tup_read from pg_stat_all_indexes where indexrelname = 'webhook_due'";
    alone(&world).await;
    let before = world.number(entries).await;
    world.insert(&ids("a", 3)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 3).await;
    running.stop().await;
    alone(&world).await;
    let read = world.number(entries).await - before;
    assert!((3..MANY).contains(&read), "{read} entries");
}
