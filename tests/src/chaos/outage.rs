use std::time::Duration;

use walpost_testkit::until;

use super::{load, moments::pass, outcome::Outcome, rounds::Run, stage::Setting};

/// Events of one transaction.
const CHUNK_EVENTS: u64 = 1_000;
/// Published before the broker goes, so that the relay is in the middle of it.
const WARM_UP_EVENTS: u64 = 2_000;
/// For the whole of it, once the broker is back.
const PUBLISHED_MAX: Duration = Duration::from_secs(300);
/// For a relay that reads on without end to do so.
const LOOK: Duration = Duration::from_secs(3);

const ROWS: &str = "with fresh as materialized (select gen_random_uuid() as id, \
     'bulk-' || n % 1000 as aggregate, $1::bigint + n as version, \
     (extract(epoch from clock_timestamp()) * 1000000)::bigint as at_us \
     from generate_series(1::bigint, $2::bigint) n), \
     noted as (insert into chaos_event (id, aggregate, version) select id, aggregate, version \
     from fresh) \
     insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
     select id, 'order', aggregate, 'Placed', jsonb_build_object('version', version, 'at_us', \
     at_us, 'note', repeat(md5(version::text), 6)) from fresh order by version";

/// So many events are committed while there is no broker, which then comes back.
/// Returns also the most memory that the relay had resident, in kB: until the
/// broker came back, and in all.
///
/// # Panics
/// When the servers do not do as they are told.
pub async fn outage(setting: Setting, events: u64) -> (Outcome, [u64; 2]) {
    let mut run = Run::begin(setting).await;
    // Nothing between it and the servers, whose buffers would take part.
    run.first_relay().await.kill();
    let relay = run.stage.relay_past_proxies();
    let load = run.load().await;
    run.published(WARM_UP_EVENTS).await;
    run.counts.unknown_commits = load.stop().await;
    run.note(0, 1, "no broker");
    run.stage.servers(|servers| servers.kafka.stop().unwrap()).await;
    let mut client = load::connect(&run.stage.url()).await;
    let mut done = 0;
    while done < events {
        let rows = CHUNK_EVENTS.min(events - done);
        let tx = client.transaction().await.unwrap();
        tx.execute(ROWS, &[&(done as i64), &(rows as i64)]).await.unwrap();
        tx.commit().await.unwrap();
        done += rows;
        if done % 200_000 == 0 {
            run.stage.say(format_args!("{done} committed without a broker"));
        }
    }
    pass(LOOK).await;
    run.stage.servers(|servers| servers.kafka.start().unwrap()).await;
    run.counts.rounds = 1;
    let peak_away_kb = relay.peak_rss_kb();
    run.stage.say("the broker is back");
    let all = WARM_UP_EVENTS + events;
    until(PUBLISHED_MAX, "everything published", async || run.tail.distinct() >= all).await;
    let peak_rss_kb = relay.peak_rss_kb();
    (run.judge(relay, false).await, [peak_away_kb, peak_rss_kb])
}
