//! The gauges of what waits.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::sync::oneshot;
use walpost_testkit::until;
use walpost_webhook::{DeliveryState, NewDelivery, StoreError, Watch};

use crate::{
    grants::as_role,
    operating::plant,
    world::{LIMIT, NAME, World, delivery},
};

fn watch(world: &World) -> Watch {
    let database = walpost_postgres::Database::parse(world.database.url()).unwrap();
    Watch::new(database).every(Duration::from_millis(100))
}

// One thread, which has the recorder.
#[tokio::test]
async fn the_watch_says_what_waits_and_which_destination_is_disabled() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let world = World::new().await;
    let names = DeliveryState::ALL.map(DeliveryState::as_str);
    world.insert(&names.map(str::to_owned)).await;
    for state in DeliveryState::ALL {
        plant(&world, state.as_str(), state).await;
    }
    let aged = "update walpost.webhook_delivery set created_at = now() - interval '2 hours'";
    world.past_triggers(aged).await;
    let watch = watch(&world);
    let (stop, stopped) = oneshot::channel::<()>();
    let looking = async {
        watch.run(async { stopped.await.unwrap() }).await.unwrap();
    };
    let asking = async {
        let has = async |line: String| {
            until(LIMIT, &line, async || metrics.render().contains(&line)).await;
        };
        for state in DeliveryState::OPEN {
            has(format!(
                "walpost_webhook_deliveries{{destination=\"{NAME}\",state=\"{state}\"}} 1\n"
            ))
            .await;
        }
        has(format!("walpost_webhook_oldest_pending_seconds{{destination=\"{NAME}\"}} 72")).await;
        let disabled = format!("walpost_webhook_destination_disabled{{destination=\"{NAME}\"}}");
        has(format!("{disabled} 0\n")).await;
        world.deliveries.disable(&world.client, NAME, "a reason").await.unwrap();
        has(format!("{disabled} 1\n")).await;
        assert_eq!(watch.backlog()[0].reason.as_deref(), Some("a reason"));
        // Not even a restart of the server ends it.
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        world.client.query(end, &[]).await.unwrap();
        world.past_triggers("delete from walpost.webhook_delivery").await;
        world.past_triggers("delete from walpost.webhook_destination").await;
        has(format!("{disabled} 0\n")).await;
        has(format!("walpost_webhook_oldest_pending_seconds{{destination=\"{NAME}\"}} 0\n")).await;
        stop.send(()).unwrap();
    };
    tokio::join!(looking, asking);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_where_it_cannot_see_anything() {
    let world = World::new().await;
    world.client.batch_execute("drop schema walpost cascade").await.unwrap();
    let error = watch(&world).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotMigrated { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_reads_no_more_rows_than_it_counts() {
    let world = World::new().await;
    // By statistics each of many destinations has a little; one has far more than is
    // counted.
    let many = "insert into walpost.webhook_delivery (destination, event_id, idempotency_key, \
                body, state, next_attempt_at, finished_at) select 'd' || n % 20, n, n, 'b', \
                'delivered', null, now() from generate_series(1, 20000) n; \
                insert into walpost.webhook_delivery (destination, event_id, idempotency_key, \
                body, attempts) select 'logistics', 'p' || n, n, 'b', 1 \
                from generate_series(1, 40000) n";
    world.past_triggers(many).await;
    let elsewhere = NewDelivery { destination: "billing".to_owned(), ..delivery("a") };
    world.deliveries.insert(&world.client, &[elsewhere]).await.unwrap();
    world.client.batch_execute("vacuum analyze walpost.webhook_delivery").await.unwrap();
    let reads = "select seq_tup_read + idx_tup_fetch from pg_stat_all_tables \
                 where relid = 'walpost.webhook_delivery'::regclass";
    let flush = "select pg_stat_force_next_flush()";
    let reader = as_role(&world, "reader").await;
    world.client.execute(flush, &[]).await.unwrap();
    let before = world.number(reads).await;
    let seen = reader.deliveries.backlog(&reader.client).await.unwrap();
    assert_eq!(seen.iter().map(|each| each.pending).collect::<Vec<_>>(), [1, 10_000]);
    reader.client.execute(flush, &[]).await.unwrap();
    let read = world.number(reads).await - before;
    assert!((10_001..11_000).contains(&read), "{read} rows");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// One thread, which has the recorder and the log.
#[tokio::test]
async fn deliveries_to_a_destination_that_is_not_configured_are_told_once() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    // With one subscriber alone, who meets a line first decides for all threads whether it
    // is written.
    let _other = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let world = World::new().await;
    let old = NewDelivery { destination: "old".to_owned(), ..delivery("a") };
    world.deliveries.insert(&world.client, &[old, delivery("b")]).await.unwrap();
    let watch = watch(&world).destinations([NAME]);
    let (stop, stopped) = oneshot::channel::<()>();
    let looking = async {
        watch.run(async { stopped.await.unwrap() }).await.unwrap();
    };
    let told = || {
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = log.lines().filter(|line| line.contains("WARN"));
        let lines = lines.filter(|line| line.contains("not configured here"));
        let lines: Vec<bool> = lines.map(|line| line.contains("destination=\"old\"")).collect();
        lines
    };
    let asking = async {
        let gauge = |name: &str, value: u8| {
            format!("walpost_webhook_destination_unconfigured{{destination=\"{name}\"}} {value}\n")
        };
        let has = async |line: String| {
            until(LIMIT, &line, async || metrics.render().contains(&line)).await;
        };
        has(gauge("old", 1)).await;
        has(gauge(NAME, 0)).await;
        // Looks go on, and say it no more.
        for (pending, id) in (3_u64..).zip(["c", "d", "e"]) {
            let one = NewDelivery { destination: "old".to_owned(), ..delivery(id) };
            world.deliveries.insert(&world.client, &[one]).await.unwrap();
            until(LIMIT, "a look", async || {
                watch.backlog().iter().map(|each| each.pending).sum::<u64>() >= pending
            })
            .await;
        }
        assert_eq!(told(), [true]);
        world.past_triggers("delete from walpost.webhook_delivery").await;
        has(gauge("old", 0)).await;
        let again = NewDelivery { destination: "old".to_owned(), ..delivery("f") };
        world.deliveries.insert(&world.client, &[again]).await.unwrap();
        has(gauge("old", 1)).await;
        assert_eq!(told(), [true, true]);
        stop.send(()).unwrap();
    };
    tokio::join!(looking, asking);
}
