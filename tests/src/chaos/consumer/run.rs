use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use walpost_testkit::{Seeded, read_all, until};

use super::{
    super::moments::some_moment,
    blows::Blow,
    members::Member,
    membership::Membership,
    outcome::{ConsumerCounts, ConsumerOutcome},
    production::Production,
    stage::{Stage, TOPIC},
    verdict::{Facts, Record, Row},
    zombie::Refused,
};
use crate::LIMIT;

const MEMBERS: usize = 3;
/// Most records between two faults, at 660 a second.
const RECORDS_MOST: usize = 800;
const MOMENT_MOST: Duration = Duration::from_millis(20);
const SAY_EVERY: Duration = Duration::from_secs(3);

/// A mistake that the oracle has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The fence lets every epoch and every offset pass.
    NoFence,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct ConsumerSetting {
    /// The program `walpost-test-consumer`.
    pub program: PathBuf,
    /// In which ways its processes are members, one after the other.
    pub memberships: Vec<Membership>,
    /// Of everything random.
    pub seed: u64,
    /// For logs and, of a violation, the evidence; emptied first.
    pub folder: PathBuf,
    /// What is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Whether the logs stay also when nothing is wrong.
    pub keep: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
}

/// One fault in each round, under load: three processes of one group. The
/// rounds are divided among the memberships, between which all are stopped in
/// order and started again.
///
/// # Panics
/// When the consumers do not get going again within a minute of a fault, and
/// when the servers do not do as they are told. The logs are kept then.
pub async fn consumers(setting: ConsumerSetting, blows: &[Blow]) -> ConsumerOutcome {
    let mut run = Run::begin(setting).await;
    let memberships = run.stage.setting.memberships.clone();
    let each = blows.len().div_ceil(memberships.len()).max(1);
    let mut number = 0;
    for (membership, blows) in memberships.into_iter().zip(blows.chunks(each)) {
        run.start_as(membership).await;
        for blow in blows {
            number += 1;
            run.some_progress().await;
            run.note(number, *blow);
            run.strike(*blow).await;
            run.write("struck");
            run.perhaps_heal().await;
            run.write("healed");
        }
    }
    run.end().await
}

/// A run between its begin and its end.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) members: Vec<Member>,
    pub(super) membership: Membership,
    pub(super) production: Production,
    pub(super) seeded: Seeded,
    pub(super) counts: ConsumerCounts,
    pub(super) refused: Refused,
    orderly: bool,
    began: Instant,
    said: Option<Instant>,
    log: String,
}

impl Run {
    async fn begin(setting: ConsumerSetting) -> Self {
        let (began, mut seeded) = (Instant::now(), Seeded::new(setting.seed));
        let stage = Stage::set(setting).await;
        let production = Production::start(&stage.bootstrap(), TOPIC, &mut seeded);
        Self {
            stage,
            members: Vec::new(),
            membership: Membership::Cooperative,
            production,
            seeded,
            counts: ConsumerCounts::default(),
            refused: Refused::default(),
            orderly: true,
            began,
            said: None,
            log: String::new(),
        }
    }

    /// Stops all, and starts three as such members.
    async fn start_as(&mut self, membership: Membership) {
        self.stop_all().await;
        self.membership = membership;
        for _ in 0..MEMBERS {
            self.members.push(self.stage.member(membership, None));
        }
        until(LIMIT, "consumers at work", async || {
            self.start_fenced_again();
            self.stage.owners().await.is_some_and(|owners| {
                self.members.iter().any(|member| owners.contains(&member.name))
            })
        })
        .await;
        self.production.release();
    }

    async fn stop_all(&mut self) {
        for member in self.members.drain(..) {
            let name = member.name.clone();
            if !member.terminate().await {
                eprintln!("chaos: {name} did not end well");
                self.orderly = false;
            }
        }
    }

    /// Waits until a random number of records more is passed, and for a random
    /// moment. No member has ended by itself.
    async fn some_progress(&mut self) {
        let more = 1 + self.seeded.below(RECORDS_MOST) as u64;
        let target = self.stage.passed().await + more;
        let what = format!("record {target}");
        until(LIMIT, &what, async || {
            self.start_fenced_again();
            self.stage.passed().await >= target
        })
        .await;
        some_moment(&mut self.seeded, MOMENT_MOST).await;
    }

    /// In half of the rounds every partition goes on before the next fault, in
    /// the others it meets the take-over of this one.
    async fn perhaps_heal(&mut self) {
        if self.seeded.chance(50) {
            return;
        }
        let before = self.stage.next_offsets().await.unwrap_or_default();
        until(LIMIT, "every partition going on", async || {
            self.start_fenced_again();
            let Some(now) = self.stage.next_offsets().await else { return false };
            now.len() >= before.len()
                && now.iter().zip(&before).all(|((_, now), (_, before))| now > before)
        })
        .await;
    }

    /// Notes what is about to happen, and says so now and then.
    fn note(&mut self, number: usize, blow: Blow) {
        let membership = self.membership;
        let line = format!("round {number}, {membership}: {blow}; {:?}", self.refused);
        self.write(&line);
        let due = self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY);
        if self.stage.setting.progress && due {
            self.said = Some(Instant::now());
            eprintln!("chaos: {line}");
        }
    }

    /// Kept also when the run is given up.
    fn write(&mut self, line: &str) {
        let at_s = self.began.elapsed().as_secs_f32();
        writeln!(self.log, "{at_s:.3} {line}").expect("a string takes all");
        drop(fs::write(self.stage.setting.folder.join("rounds.log"), &self.log));
    }

    /// Waits until everything is consumed, and judges.
    async fn end(mut self) -> ConsumerOutcome {
        let Self { stage, production, .. } = self;
        let produced = production.stop().await;
        let arrived = stage.at_the_end().await;
        for member in self.members.drain(..) {
            self.orderly &= member.terminate().await;
        }
        let facts = read(&stage).await;
        let parked = "select count(*) from walpost.consumer_parked";
        let parked: Vec<i64> = stage.query(parked, |row| row.get(0)).await.unwrap();
        let outcome = ConsumerOutcome {
            verdict: super::verdict::Verdict::of(&facts),
            counts: self.counts,
            refused: self.refused,
            produced,
            parked: parked[0].unsigned_abs(),
            arrived,
            orderly: self.orderly,
            took: self.began.elapsed(),
        };
        outcome.conclude(&stage, &facts);
        outcome
    }
}

async fn read(stage: &Stage) -> Facts {
    let text = |bytes: &Option<Vec<u8>>| {
        String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
    };
    let records = read_all(&stage.bootstrap(), TOPIC).await;
    let records = records.iter().map(|record| Record {
        partition: record.partition,
        offset: record.offset,
        key: text(&record.key),
        id: record.header_text("id").unwrap_or_default().to_owned(),
    });
    let effects = "select event_id, aggregate, seq from effect order by n";
    let row = |row: &tokio_postgres::Row| Row { id: row.get(0), key: row.get(1), seq: row.get(2) };
    let offered = "select p.part, o.off from chaos_offered o join walpost.position p \
                   on p.id = o.pos_id order by 1, 2";
    let done = "select count(*) from walpost.done";
    let done: Vec<i64> = stage.query(done, |row| row.get(0)).await.unwrap();
    Facts {
        records: records.collect(),
        effects: stage.query(effects, row).await.unwrap(),
        offered: stage.query(offered, |row| (row.get(0), row.get(1))).await.unwrap(),
        done: done[0].unsigned_abs(),
    }
}
