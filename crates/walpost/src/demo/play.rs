use std::time::{Duration, Instant};

use tokio::{
    task::spawn_blocking,
    time::{self, MissedTickBehavior},
};
use tokio_postgres::Client;

use super::{
    child::Child,
    figures::Figures,
    oracle::{self, Committed, Effect, Record},
    progress::{Counts, Progress},
    replay,
    shop::Shop,
    stage::{AGGREGATE_TYPE, Stage},
    topic::TopicWatch,
};
use crate::{
    command::demo_consumer::SESSION_TIMEOUT_MS,
    failure::{Exit, Failure},
    output,
    table::thousands,
};

const TICK: Duration = Duration::from_millis(25);
const START_LIMIT: Duration = Duration::from_secs(60);
/// With no count changing. A killed member of a group is missed after 6 s.
const STALL_LIMIT: Duration = Duration::from_secs(45);

/// The demo from its start to its figures.
pub(super) async fn play(stage: &mut Stage) -> Result<Figures, Failure> {
    let start = Instant::now();
    stage.set_up().await?;
    let client = stage.client().await?;
    start_children(stage, &client).await?;
    let mut progress = Progress::new(stage.options.events);
    run_the_shop(stage, &client, &mut progress).await?;

    let (relay, _) = stage.children();
    relay.stop()?;
    let topic = stage.topic();
    let reader = topic.clone();
    let records: Vec<Record> =
        spawn_blocking(move || reader.read()).await.map_err(Failure::running)??;
    let mut position =
        replay::Position { consumer: stage.name.clone(), run: 0, end: records.len() };
    position.wait(stage, &client, &mut progress).await?;
    let before = effects(&client).await?;
    let verdict = oracle::judge(&committed(&client).await?, &records, &before);

    progress.note("resetting the group's offsets to the beginning, as Kafka's own tool does");
    let (_, consumer) = stage.children();
    consumer.stop()?;
    let group = stage.name.clone();
    spawn_blocking(move || topic.reset_group(&group)).await.map_err(Failure::running)??;
    let (_, consumer) = stage.children();
    consumer.start()?;
    position.run = 1;
    position.wait(stage, &client, &mut progress).await?;
    let (_, consumer) = stage.children();
    consumer.stop()?;
    let replayed = oracle::replayed(&before, &effects(&client).await?);
    Ok(Figures::new(verdict, replayed, start.elapsed().as_secs_f64()))
}

/// The relay has to have its slot before the shop opens: it refuses to guess
/// what rows before that mean.
async fn start_children(stage: &mut Stage, client: &Client) -> Result<(), Failure> {
    let slot = stage.name.clone();
    let (relay, consumer) = stage.children();
    relay.start()?;
    consumer.start()?;
    let start = Instant::now();
    let streams = "select 1 from pg_replication_slots where slot_name = $1 and active
        and confirmed_flush_lsn is not null and not temporary";
    while client.query_opt(streams, &[&slot]).await.map_err(Failure::postgres)?.is_none() {
        relay.check()?;
        consumer.check()?;
        if start.elapsed() > START_LIMIT {
            output::note(relay.log_tail().trim_end());
            let text =
                format!("the relay does not stream {} s after its start", START_LIMIT.as_secs());
            return Err(Failure::found(Exit::Running, &text));
        }
        time::sleep(TICK).await;
    }
    Ok(())
}

/// The shop writes; relay and consumer work, are killed, and work on.
async fn run_the_shop(
    stage: &mut Stage,
    client: &Client,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (events, kills) = (stage.options.events, stage.options.kills);
    let mut shop = Shop::open(stage.database(), AGGREGATE_TYPE, events).await?;
    let watch = stage.topic().watch()?;
    let (relay, consumer) = stage.children();
    let mut relay_kills = Kills::new(events, kills);
    let mut consumer_kills = Kills::new(events, kills);
    let mut eye = Eye::new(client);
    let mut tick = time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let counts = eye.look(&shop, &watch).await?;
        progress.show(counts);
        relay.check()?;
        consumer.check()?;
        if relay_kills.is_due(counts.published) {
            let what = format!("relay at {} published", thousands(counts.published));
            kill(relay, &what, "its successor reads the topic back", progress)?;
        }
        if consumer_kills.is_due(counts.applied) {
            let what = format!("consumer at {} applied", thousands(counts.applied));
            kill(consumer, &what, &missed(), progress)?;
        }
        shop.allow(relay_kills.allowed().min(consumer_kills.allowed()));
        let is_over = shop.is_done()? && relay_kills.are_done() && consumer_kills.are_done();
        if is_over && counts.applied >= events && eye.distinct().await? >= events {
            progress.note("every event is applied; reading topic and effects back");
            return Ok(());
        }
        if eye.unchanged_for() > STALL_LIMIT {
            progress.note("");
            for child in [relay, consumer] {
                output::note(child.log_tail().trim_end());
            }
            return Err(Failure::found(Exit::Running, &stuck(counts, events)));
        }
    }
}

fn kill(child: &mut Child, what: &str, then: &str, progress: &mut Progress) -> Result<(), Failure> {
    child.kill()?;
    progress.note(&format!("SIGKILL to the {what}; {then}"));
    child.start()
}

/// Why nothing is applied for a while after the kill of a consumer.
fn missed() -> String {
    let seconds = SESSION_TIMEOUT_MS / 1_000;
    format!("its group misses it only after {seconds} s")
}

/// Says who stands still.
fn stuck(counts: Counts, events: u64) -> String {
    let who = match counts {
        Counts { published, .. } if published < counts.written => "the relay does not publish",
        Counts { applied, .. } if applied < counts.written => "the consumer does not apply",
        _ => "the shop does not write",
    };
    format!(
        "nothing has moved for {} s: {who} (written {}, published {}, applied {} of {})",
        STALL_LIMIT.as_secs(),
        thousands(counts.written),
        thousands(counts.published),
        thousands(counts.applied),
        thousands(events)
    )
}

/// When to kill: at equal distances of the count.
struct Kills {
    events: u64,
    done: u64,
    total: u64,
}

impl Kills {
    /// Beyond half the way to the next kill, so that a transaction of full
    /// size always fits in.
    const SLACK_EVENTS: u64 = 50;

    fn new(events: u64, kills: u32) -> Self {
        Self { events, done: 0, total: kills.into() }
    }

    fn next(&self) -> Option<u64> {
        let next = self.events * (self.done + 1) / (self.total + 1);
        (!self.are_done()).then_some(next.max(1))
    }

    fn are_done(&self) -> bool {
        self.done >= self.total
    }

    fn is_due(&mut self, count: u64) -> bool {
        let is_due = self.next().is_some_and(|next| count >= next);
        self.done += u64::from(is_due);
        is_due
    }

    /// How many events the shop may write now: so that there are some on their
    /// way when the next kill comes, and some left for the one after it.
    fn allowed(&self) -> u64 {
        let half = self.events / (self.total + 1) / 2;
        self.next().map_or(self.events, |next| next + half + Self::SLACK_EVENTS)
    }
}

/// Counts, looked at no more often than is cheap.
struct Eye<'a> {
    client: &'a Client,
    counts: Counts,
    changed: Instant,
    next_look: Instant,
}

impl<'a> Eye<'a> {
    fn new(client: &'a Client) -> Self {
        let now = Instant::now();
        Self { client, counts: Counts::default(), changed: now, next_look: now }
    }

    async fn look(&mut self, shop: &Shop, watch: &TopicWatch) -> Result<Counts, Failure> {
        let mut counts =
            Counts { written: shop.written(), published: watch.records(), ..self.counts };
        let now = Instant::now();
        if now >= self.next_look {
            let count = self.client.query_one("select count(*) from shipment", &[]).await;
            counts.applied = as_count(count.map_err(Failure::postgres)?.get(0));
            self.next_look = Instant::now() + TICK + now.elapsed() * 10;
        }
        // The two are not asked at the same moment, and what is applied is
        // published.
        counts.published = counts.published.max(counts.applied);
        if counts != self.counts {
            self.changed = now;
        }
        self.counts = counts;
        Ok(counts)
    }

    async fn distinct(&self) -> Result<u64, Failure> {
        let text = "select count(distinct event_id) from shipment";
        let row = self.client.query_one(text, &[]).await.map_err(Failure::postgres)?;
        Ok(as_count(row.get(0)))
    }

    fn unchanged_for(&self) -> Duration {
        self.changed.elapsed()
    }
}

async fn committed(client: &Client) -> Result<Vec<Committed>, Failure> {
    let text = "select id::text from walpost.outbox where aggregatetype = $1";
    let rows = client.query(text, &[&AGGREGATE_TYPE]).await.map_err(Failure::postgres)?;
    Ok(rows.iter().map(|row| Committed { id: row.get(0) }).collect())
}

async fn effects(client: &Client) -> Result<Vec<Effect>, Failure> {
    let text = "select event_id, order_id, sequence from shipment order by n";
    let rows = client.query(text, &[]).await.map_err(Failure::postgres)?;
    let effect = |row: &tokio_postgres::Row| Effect {
        id: row.get(0),
        order: row.get(1),
        sequence: row.get(2),
    };
    Ok(rows.iter().map(effect).collect())
}

fn as_count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_come_at_equal_distances_and_each_once() {
        let mut kills = Kills::new(1_000, 3);
        let mut at = Vec::new();
        for count in 0..=1_000 {
            if kills.is_due(count) {
                at.push(count);
            }
        }
        assert_eq!(at, [250, 500, 750]);
    }

    #[test]
    fn the_shop_is_always_allowed_to_reach_the_next_kill() {
        for (events, total) in [(1, 0), (1, 1), (100, 1), (100, 7), (100, 100)] {
            let mut kills = Kills::new(events, total);
            while let Some(next) = kills.next() {
                assert!(kills.allowed() >= next + Kills::SLACK_EVENTS);
                assert!(!kills.is_due(next - 1) && next <= events, "{events} {total}: {next}");
                assert!(kills.is_due(next));
            }
            assert_eq!(kills.allowed(), events);
        }
    }

    #[test]
    fn who_stands_still_is_named() {
        let counts = |written, published, applied| Counts { written, published, applied };
        assert!(stuck(counts(5, 3, 3), 9).contains("the relay does not publish"));
        assert!(stuck(counts(5, 6, 3), 9).contains("the consumer does not apply"));
        assert!(stuck(counts(5, 5, 5), 9).contains("the shop does not write"));
    }
}
