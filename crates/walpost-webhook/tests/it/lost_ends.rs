//! Ends of attempts that the database may have, though its answer is lost.

use std::{net::SocketAddr, sync::Arc};

use tokio::{io::AsyncWriteExt, sync::Semaphore};
use walpost_testkit::{Direction, Proxy, Target, until};
use walpost_webhook::Snapshot;

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, ids, patient, run_at},
};

/// A proxy before the database, and the URL through it.
async fn proxied(world: &World) -> (Proxy, String) {
    let port = world.database.config().get_ports()[0];
    let proxy = Proxy::start(Target::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))).await;
    let url = world.database.url().replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    assert!(url.contains(&proxy.port().to_string()), "{url}");
    (proxy, url)
}

/// Answers deliveries of `a` with 200, and others with `status` once the gate is open.
async fn receiver(status: &'static str, gate: &Arc<Semaphore>) -> Receiver {
    let gate = Arc::clone(gate);
    Receiver::scripted(move |mut stream, notes| {
        let gate = Arc::clone(&gate);
        async move {
            while let Some(request) = notes.request(&mut stream).await? {
                let is_first = request.contains("a000");
                if !is_first {
                    gate.acquire().await.unwrap().forget();
                }
                let status = if is_first { "200 OK" } else { status };
                stream.write_all(answer(status, "", "").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await
}

/// From now on a COMMIT of an end waits until lock 7 is free.
const SLOW: &str = "
    create function public.wait_at_commit() returns trigger language plpgsql
        set lock_timeout = 0 as $$ begin
        perform pg_advisory_xact_lock(7);
        return null;
    end $$;
    create constraint trigger wait_at_commit after insert on walpost.webhook_attempt
        initially deferred for each row execute function public.wait_at_commit();
    select pg_advisory_lock(7)";
const COMMITS: &str = "from pg_stat_activity where datname = current_database() \
                       and wait_event = 'advisory'";

/// What a processor has counted whose second delivery was answered with `status`. No answer
/// came to the COMMIT of its end, which waited until the database was told `meanwhile`; the
/// delivery was `left` so before the end was sent again.
async fn ended_twice(status: &'static str, meanwhile: &str, left: &str) -> (World, Snapshot) {
    let world = World::new().await;
    let (proxy, url) = proxied(&world).await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = receiver(status, &gate).await;
    let running = run_at(&url, patient(&receiver.url("127.0.0.1")));
    // Whose end has a session opened for the next.
    world.insert(&ids("a", 1)).await;
    until(LIMIT, "the first end", async || running.snapshot().delivered == 1).await;
    world.client.batch_execute(SLOW).await.unwrap();
    world.insert(&ids("b", 1)).await;
    until(LIMIT, "a call", async || receiver.requests().len() == 2).await;
    gate.add_permits(1);
    let waiting = format!("select count(*) {COMMITS}");
    until(LIMIT, "a COMMIT", async || world.number(&waiting).await == 1).await;
    proxy.hold(Direction::ToClient);
    world.past_triggers(meanwhile).await;
    until(LIMIT, left, async || world.row("b000").await.0 == left).await;
    // Nothing of what is held is delivered, and no attempt succeeds meanwhile.
    proxy.cut();
    until(LIMIT, "the end of all connections", async || proxy.open() == 0).await;
    proxy.restore();
    (world, running.stop().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_commit_is_lost_is_found_written_and_counts() {
    let committed = "select pg_advisory_unlock(7)";
    let (world, snapshot) = ended_twice("200 OK", committed, "delivered").await;
    assert_eq!((snapshot.delivered, snapshot.lost), (2, 0));
    assert_eq!(world.row("b000").await, ("delivered".to_owned(), 1, Some("success".to_owned())));
    let (world, snapshot) = ended_twice("410 Gone", committed, "held").await;
    assert_eq!((snapshot.disabled, snapshot.lost), (1, 0));
    let states = "select state from walpost.webhook_destination";
    assert_eq!(world.texts(states).await, ["disabled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_undone_and_is_another_s_at_its_second_attempt_is_lost() {
    // As whoever finds its lease ended does it.
    let undone = format!(
        "select pg_terminate_backend(pid) {COMMITS}; \
         update walpost.webhook_delivery set state = 'pending', lease_until = null, \
         next_attempt_at = now() + interval '1 day', outcome = 'lease_expired' \
         where event_id = 'b000'; \
         insert into walpost.webhook_attempt (delivery, number, outcome, elapsed_ms) \
         select id, fence, outcome, 0 from walpost.webhook_delivery where event_id = 'b000'"
    );
    let (world, snapshot) = ended_twice("200 OK", &undone, "pending").await;
    assert_eq!((snapshot.delivered, snapshot.lost), (1, 1));
    let expected = ("pending".to_owned(), 1, Some("lease_expired".to_owned()));
    assert_eq!(world.row("b000").await, expected);
}
