use std::{
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use walpost_testkit::{Published, ReadRecord, Seeded, judge, read_all_with, until};

use super::{
    evidence,
    faults::Fault,
    load::{self, Load},
    moments::{pass, some_moment},
    outcome::{Counts, Outcome, Spread},
    stage::{Relay, Setting, Stage, Subject},
    strike::strike,
    tail::{Tail, now_us},
};
use crate::LIMIT;

/// Most events between two faults, at 1,000 to 1,500 a second.
const EVENTS_MOST: usize = 2_000;
/// Also between two records of a busy moment.
const MOMENT_MOST: Duration = Duration::from_millis(20);
/// A backlog that is none, at the rate of the load.
const LITTLE_EVENTS: u64 = 1_000;
const CATCH_UP_MAX: Duration = Duration::from_secs(300);
const SAY_EVERY: Duration = Duration::from_secs(3);
/// Without a record for so long, what is left when the load has ended is lost.
const SILENCE_MAX: Duration = LIMIT;
const REST_POLL: Duration = Duration::from_millis(20);

/// One fault in each round, under load.
///
/// # Panics
/// When the relay does not get going again within a minute of a fault, and when
/// the servers do not do as they are told. The logs are kept then.
pub async fn rounds(setting: Setting, faults: &[Fault]) -> Outcome {
    let mut run = Run::begin(setting).await;
    let mut relay = run.first_relay().await;
    let load = run.load().await;
    for (number, fault) in faults.iter().enumerate() {
        if run.stage.setting.subject == Subject::Debezium {
            run.caught_up().await;
        }
        run.some_progress().await;
        run.note(number, faults.len(), *fault);
        let struck_us = now_us();
        let killed = strike(&run.stage, &mut relay, *fault, &mut run.seeded).await;
        run.count(*fault, killed, struck_us);
    }
    run.some_progress().await;
    let copies_allowed = run.stage.setting.subject == Subject::Debezium;
    run.end(load, relay, copies_allowed).await
}

/// A run of any kind, between its begin and its end.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) tail: Tail,
    pub(super) seeded: Seeded,
    pub(super) counts: Counts,
    /// When relays were killed whose successor is waited for.
    pub(super) killed_us: Vec<u64>,
    began: Instant,
    said: Option<Instant>,
    log: String,
}

impl Run {
    pub(super) async fn begin(setting: Setting) -> Self {
        Self::begin_with(setting, 1).await
    }

    /// With so many brokers.
    pub(super) async fn begin_with(setting: Setting, brokers: u32) -> Self {
        let (began, seeded) = (Instant::now(), Seeded::new(setting.seed));
        let stage = Stage::set(setting, brokers).await;
        let isolation = stage.setting.mode.isolation();
        let tail = Tail::follow(&stage.bootstrap(), &stage.topic, isolation).await;
        let (counts, killed_us) = (Counts::default(), Vec::new());
        Self { stage, tail, seeded, counts, killed_us, began, said: None, log: String::new() }
    }

    pub(super) async fn first_relay(&self) -> Relay {
        self.stage.first_relay().await
    }

    pub(super) async fn load(&mut self) -> Load {
        self.stage.load(&mut self.seeded).await
    }

    /// Waits until a random number of events more is published, and for a random
    /// moment.
    pub(super) async fn some_progress(&mut self) {
        let target = self.tail.distinct() + 1 + self.seeded.below(EVENTS_MOST) as u64;
        self.published(target).await;
        some_moment(&mut self.seeded, MOMENT_MOST).await;
    }

    pub(super) async fn published(&self, target: u64) {
        let what = format!("event {target} in the topic");
        until(LIMIT, &what, async || self.tail.distinct() >= target).await;
    }

    /// Waits until little is left to publish. It takes a JVM long to start, and
    /// a peer that reads a backlog would repeat more than one that does not.
    async fn caught_up(&self) {
        let client = load::connect(&self.stage.url()).await;
        until(CATCH_UP_MAX, "a peer that has caught up", async || {
            load::count(&client).await <= self.tail.distinct() + LITTLE_EVENTS
        })
        .await;
    }

    /// Notes what is about to happen, and says so now and then.
    pub(super) fn note(&mut self, number: usize, of: usize, what: impl std::fmt::Display) {
        let (published, copies) = (self.tail.distinct(), self.tail.copies());
        let line =
            format!("round {} of {of}, {what}: {published} published, {copies} copies", number + 1);
        let at_s = self.began.elapsed().as_secs_f32();
        writeln!(self.log, "{at_s:.3} {line}").expect("a string takes all");
        // Kept also when the run is given up.
        drop(fs::write(self.stage.setting.folder.join("rounds.log"), &self.log));
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said = Some(Instant::now());
            self.stage.say(line);
        }
    }

    fn count(&mut self, fault: Fault, killed: u64, struck_us: u64) {
        let counts = &mut self.counts;
        counts.rounds += 1;
        counts.kills += killed;
        match fault {
            Fault::Kill => self.killed_us.push(struck_us),
            Fault::EarlyKill => {}
            Fault::BrokerKill { .. } => counts.broker_kills += 1,
            Fault::PostgresStop { .. } => counts.postgres_stops += 1,
            Fault::Cut(_) | Fault::HalfOpen(_) => counts.cuts += 1,
        }
    }

    /// Waits for the rest, reads the topic once more from its beginning, and
    /// judges.
    pub(super) async fn end(mut self, load: Load, relay: Relay, copies_allowed: bool) -> Outcome {
        self.counts.unknown_commits = load.stop().await;
        self.judge(relay, copies_allowed).await
    }

    pub(super) async fn judge(self, relay: Relay, copies_allowed: bool) -> Outcome {
        let Self { stage, tail, counts, .. } = &self;
        let committed = load::committed(&stage.url()).await;
        stage.say(format_args!("{} committed, waiting for the rest", committed.len()));
        let (mut seen, mut silent_since) = (tail.distinct(), Instant::now());
        while seen < committed.len() as u64 && silent_since.elapsed() < SILENCE_MAX {
            pass(REST_POLL).await;
            if tail.distinct() > seen {
                (seen, silent_since) = (tail.distinct(), Instant::now());
            }
        }
        let orderly_end = relay.terminate().await || stage.setting.subject == Subject::Debezium;
        let isolation = stage.setting.mode.isolation();
        let read = read_all_with(&stage.bootstrap(), &stage.topic, isolation).await;
        let published: Vec<Published> = read.iter().map(published).collect();
        let gaps = self.killed_us.iter().filter_map(|killed_us| tail.gap_us(*killed_us));
        let outcome = Outcome {
            name: stage.setting.name(),
            counts: *counts,
            report: judge(&committed, &published, None),
            parked: stage.parked().await,
            recovery: Spread::of(gaps.map(Duration::from_micros).collect()),
            took: self.began.elapsed(),
            orderly_end,
            copies_allowed,
        };
        if !outcome.violations().is_empty() {
            evidence::keep(stage, &outcome, &committed, &read);
        } else if !stage.setting.keep {
            drop(fs::remove_dir_all(&stage.setting.folder));
        }
        outcome
    }
}

fn published(record: &ReadRecord) -> Published {
    Published {
        id: record.header_text("id").unwrap_or_default().to_owned(),
        partition: record.partition,
        offset: record.offset,
    }
}
