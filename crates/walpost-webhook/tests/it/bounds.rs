//! How many requests are on their way at once.

use tokio::{io::AsyncWriteExt, sync::watch};
use walpost_testkit::until;

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, ids, run, settings},
};

/// Of the server, in seconds.
const CLOCK: &str = "select extract(epoch from clock_timestamp())::bigint";

#[tokio::test(flavor = "multi_thread")]
async fn after_looks_in_vain_as_many_go_at_once_as_may_and_no_more() {
    let world = World::new().await;
    let (open, opened) = watch::channel(false);
    let receiver = Receiver::scripted(move |mut stream, notes| {
        let mut opened = opened.clone();
        async move {
            while notes.read(&mut stream).await? {
                opened.wait_for(|open| *open).await.unwrap();
                stream.write_all(answer("200 OK", "", "").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.pace.concurrency = 3;
    settings.client.timeout = LIMIT;
    settings.lease = LIMIT * 2;
    let running = run(&world, settings);
    // It looks and finds nothing, and leaves no transaction open behind it.
    let looks = "select count(*) from pg_stat_activity where datname = current_database() \
                 and pid <> pg_backend_pid() and backend_type = 'client backend' \
                 and query_start > backend_start + interval '1 s'";
    until(LIMIT, "a second of looks in vain", async || world.number(looks).await > 0).await;
    let left = "select count(*) from pg_stat_activity where datname = current_database() \
                and pid <> pg_backend_pid() and backend_type = 'client backend' \
                and xact_start < now() - interval '500 ms'";
    until(LIMIT / 10, "none open", async || world.number(left).await == 0).await;
    world.insert(&ids("a", 30)).await;
    until(LIMIT, "three requests", async || receiver.requests().len() >= 3).await;
    let later = world.number(CLOCK).await + 2;
    until(LIMIT, "time for a fourth", async || world.number(CLOCK).await >= later).await;
    assert_eq!(receiver.requests().len(), 3);
    open.send(true).unwrap();
    world.until("delivered", 30).await;
    running.stop().await;
}
