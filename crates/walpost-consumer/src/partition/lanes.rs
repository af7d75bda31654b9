//! A claimed partition at work in several lanes: events of different keys side
//! by side, those of one key in their order.
//!
//! The transactions of all lanes share the fence. The stored
//! offset follows behind what all lanes have done; after a kill the events
//! beyond it come again, and their deduplication rows say which are done.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::{
    Interrupt, Partition,
    attempt::Attempted,
    held::Held,
    lane::{Fence, Lane},
    looks::Looks,
    parked_row::ParkedRow,
    progress::{Progress, Watermark},
    replay::Replay,
    session::Session,
    trials::Trials,
    unpark::Served,
};
use crate::{
    Event, Handler, failpoint::Failpoint, pool::Slot, settings::Settings, sql::ClaimKey,
    threads::heard,
};

/// All lanes of a claim.
struct Lanes {
    all: Vec<State>,
    running: JoinSet<Ended>,
    progress: Progress,
    /// Behind which the offset may move.
    watermark: Option<Watermark>,
    /// When it last moved.
    moved_at: Instant,
}

impl Lanes {
    /// How many transactions the lanes have committed, as far as they have said.
    fn committed(&self) -> i64 {
        self.all.iter().map(|state| state.committed).sum()
    }
}

/// One of them.
struct State {
    queue: VecDeque<Event>,
    request: Option<ParkedRow>,
    /// It has a request for a parked event, or had it and runs.
    serves: bool,
    /// How many transactions it has committed.
    committed: i64,
    /// `None` while it runs.
    idle: Option<Idle>,
}

/// A lane between two jobs.
enum Idle {
    /// It has had none yet.
    Fresh(Box<Fresh>),
    Ready(Box<Lane>),
}

struct Fresh {
    held: Held,
    trials: Trials,
}

/// What a lane is to do in one go.
struct Job {
    index: usize,
    idle: Idle,
    replay: Replay,
    key: ClaimKey,
    events: Vec<Event>,
    request: Option<ParkedRow>,
}

/// What it came to.
struct Ended {
    index: usize,
    lane: Box<Lane>,
    did: Did,
    outcome: Result<(), Interrupt>,
}

/// What of a job is committed.
#[derive(Default)]
struct Did {
    /// Offsets of the events.
    done: Vec<i64>,
    parked: bool,
    served: Option<Served>,
}

impl<H: Handler> Partition<H> {
    /// Until something ends the claim. `trials`: of each lane.
    pub(super) async fn work_in_lanes(
        self: &Arc<Self>,
        session: &mut Session,
        trials: &mut [Trials],
    ) -> Interrupt {
        let mut lanes = self.open(session, trials);
        let interrupt = loop {
            if let Err(interrupt) = self.step_lanes(session, &mut lanes).await {
                break interrupt;
            }
        };
        let interrupt = match interrupt {
            Interrupt::Stopped => self.drain(session, &mut lanes).await,
            interrupt @ (Interrupt::Discarded | Interrupt::Halt(_)) => {
                // So that less comes again; a failure shows with the next claim.
                let _ = self.move_behind(session, &mut lanes, Duration::ZERO).await;
                interrupt
            }
            interrupt => interrupt,
        };
        // Those that still run are dropped, and their transactions with them.
        // What they knew before this claim stays: events of two lanes that end
        // claims in turns would never be given up otherwise.
        for (kept, state) in trials.iter_mut().zip(lanes.all) {
            match state.idle {
                Some(Idle::Fresh(fresh)) => *kept = fresh.trials,
                Some(Idle::Ready(lane)) => *kept = lane.trials,
                None => {}
            }
        }
        interrupt
    }

    fn open(&self, session: &mut Session, trials: &mut [Trials]) -> Lanes {
        let count = trials.len();
        let held = std::mem::take(&mut session.lane.held);
        let held = held.split(count, |key| lane_of(key, count));
        let (epoch, run) = (session.key.epoch, session.lane.replay.run);
        let looks = &mut session.looks;
        let state = |(held, trials): (Held, &mut Trials)| {
            // The offset tells nothing about one lane.
            trials.claimed(epoch, 0, run);
            looks.resume(trials);
            let trials = trials.clone();
            let idle = Some(Idle::Fresh(Box::new(Fresh { held, trials })));
            State { queue: VecDeque::new(), request: None, serves: false, committed: 0, idle }
        };
        Lanes {
            all: held.into_iter().zip(trials).map(state).collect(),
            running: JoinSet::new(),
            progress: Progress::new(self.shared.settings.max_batch_bytes * 2),
            watermark: None,
            moved_at: Instant::now(),
        }
    }

    async fn step_lanes(
        self: &Arc<Self>,
        session: &mut Session,
        lanes: &mut Lanes,
    ) -> Result<(), Interrupt> {
        if self.stop.is_requested() {
            return Err(Interrupt::Stopped);
        }
        while let Some(ended) = lanes.running.try_join_next() {
            lanes.take_in(session, ended)?;
        }
        if let Some(row) = self.next_request(session).await? {
            lanes.request(row, &mut session.looks);
        }
        let paced_until = self.take_paced(session, lanes).await?;
        let came = !session.batch.is_empty();
        lanes.give(session.batch.drain(..));
        if let Some(oldest) = lanes.progress.oldest_ms() {
            self.meter.next_is_of(Some(oldest));
        }
        for job in lanes.jobs(session.key, &session.lane.replay, &self.shared.settings) {
            lanes.running.spawn(heard(Arc::clone(self).run_job(job)));
        }
        self.move_behind(session, lanes, self.commit_interval()).await?;
        if came {
            return Ok(());
        }
        if lanes.is_idle() {
            self.catch_up(session).await?;
        } else {
            self.take_answer(session)?;
            self.send_commit(session).await;
        }
        let has_room = lanes.progress.has_room() && paced_until.is_none();
        let moves_at = lanes.watermark.map(|_| lanes.moved_at + self.commit_interval());
        let looks_at = session.look_after.filter(|_| lanes.is_idle());
        let at = [moves_at, looks_at, paced_until].into_iter().flatten().min();
        let Lanes { running, .. } = lanes;
        let next = async {
            match running.join_next().await {
                Some(ended) => ended,
                None => std::future::pending().await,
            }
        };
        match self.wait(session, has_room, at, next).await? {
            Some(ended) => lanes.take_in(session, ended),
            None => Ok(()),
        }
    }

    /// Takes events for the lanes, if there is room for some. In a replay that
    /// is limited, as many as its pace allows, or returns until when it does not.
    async fn take_paced(
        &self,
        session: &mut Session,
        lanes: &Lanes,
    ) -> Result<Option<Instant>, Interrupt> {
        if !lanes.progress.has_room() {
            return Ok(None);
        }
        let now = Instant::now();
        let next = lanes.progress.end().unwrap_or(session.key.next_offset);
        let mut max_events = self.shared.settings.max_batch_events;
        if let Some((wait, most)) = session.lane.replay.limit(next, now) {
            if !wait.is_zero() {
                return Ok(Some(now + wait));
            }
            max_events = max_events.min(most);
        }
        self.take(session, max_events).await?;
        session.lane.replay.made(next, session.batch.len() as u64, now);
        Ok(None)
    }

    /// The lanes finish what they are at, and the offset follows.
    async fn drain(&self, session: &mut Session, lanes: &mut Lanes) -> Interrupt {
        while let Some(ended) = lanes.running.join_next().await {
            match lanes.take_in(session, ended) {
                Ok(()) | Err(Interrupt::Stopped) => {}
                Err(interrupt) => return interrupt,
            }
        }
        match self.move_behind(session, lanes, Duration::ZERO).await {
            Ok(()) => Interrupt::Stopped,
            Err(interrupt) => interrupt,
        }
    }

    /// Moves the stored offset behind what all lanes have done, unless it moved
    /// less than `every` ago.
    async fn move_behind(
        &self,
        session: &mut Session,
        lanes: &mut Lanes,
        every: Duration,
    ) -> Result<(), Interrupt> {
        let is_due = lanes.moved_at.elapsed() >= every;
        let Some(Watermark { next_offset, leader_epoch }) = lanes.watermark.take_if(|_| is_due)
        else {
            return Ok(());
        };
        let to = ClaimKey { next_offset, leader_epoch, ..session.key };
        Failpoint::BeforeLaneOffset.reached();
        self.move_offset(session, to, lanes.committed()).await?;
        lanes.moved_at = Instant::now();
        self.meter.advanced(next_offset);
        self.shared.board.advance(&self.of, next_offset, |_| ());
        Ok(())
    }

    fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.shared.settings.commit_interval_ms)
    }

    async fn run_job(self: Arc<Self>, job: Job) -> Ended {
        let Job { index, idle, replay, key, events, request } = job;
        let mut lane = match idle {
            Idle::Ready(lane) => lane,
            Idle::Fresh(fresh) => {
                let Fresh { held, trials } = *fresh;
                let slot = Slot::new(self.shared.pool.clone());
                Box::new(Lane { slot, replay, held, trials, committed: 0 })
            }
        };
        let mut did = Did::default();
        let outcome = self.do_job(&mut lane, Fence::Epoch { key }, events, request, &mut did).await;
        if outcome.is_ok() {
            lane.slot.give_back();
        } else {
            lane.slot.close();
        }
        Ended { index, lane, did, outcome }
    }

    /// A request first: what waits for its key is older than all events.
    async fn do_job(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        mut events: Vec<Event>,
        request: Option<ParkedRow>,
        did: &mut Did,
    ) -> Result<(), Interrupt> {
        if let Some(row) = request {
            self.take_turn(lane).await?;
            let served = self.serve_late(lane, fence, row).await?;
            self.shared.board.count(|all| all.add(served.counts));
            lane.slot.give_back();
            did.served = Some(served);
        }
        while !events.is_empty() && !self.stop.is_requested() {
            self.take_turn(lane).await?;
            let attempted = self.attempt(lane, fence, lane.next(&events)).await?;
            lane.slot.give_back();
            let Attempted { events: count, counts, parked, halt } = attempted;
            let last = events.get(count.saturating_sub(1)).map(Event::offset);
            did.done.extend(events.drain(..count).map(|event| event.offset()));
            // At once: nothing may come between an effect and its count.
            self.shared.board.count(|all| all.add(counts));
            did.parked |= parked;
            if let Some(last) = last.filter(|_| count > 0) {
                lane.trials.sizing.succeeded(last + 1, counts.are_new());
            }
            if let Some(reason) = halt {
                return Err(Interrupt::Halt(reason));
            }
        }
        Ok(())
    }
}

impl Lanes {
    /// Each event to the lane of its key.
    fn give(&mut self, events: impl Iterator<Item = Event>) {
        let count = self.all.len();
        for event in events {
            self.progress.give(&event);
            let index = match event.key() {
                Some(key) => lane_of(key, count),
                None => usize::try_from(event.offset()).unwrap_or_default() % count,
            };
            self.all[index].queue.push_back(event);
        }
    }

    /// The row to the lane that holds its key, unless that has one.
    fn request(&mut self, row: ParkedRow, looks: &mut Looks) {
        let index = row.event.key().map_or(0, |key| lane_of(key, self.all.len()));
        let (state, now) = (&mut self.all[index], Instant::now());
        if state.serves {
            looks.behind(row.id, index, now);
        } else {
            looks.given(row.id, index, now);
            (state.serves, state.request) = (true, Some(row));
        }
    }

    /// What a lane has done counts, whatever ended it.
    fn take_in(
        &mut self,
        session: &mut Session,
        ended: Result<Ended, tokio::task::JoinError>,
    ) -> Result<(), Interrupt> {
        let ended = ended.map_err(|error| Interrupt::Fault(format!("a lane ended: {error}")))?;
        let Ended { index, lane, did: Did { done, parked, served }, outcome } = ended;
        for offset in done {
            self.progress.done(offset);
        }
        if let Some(watermark) = self.progress.watermark() {
            self.watermark = Some(watermark);
        }
        if parked {
            session.looks.parked(Instant::now());
        }
        if let Some(state) = self.all.get_mut(index) {
            state.committed = lane.committed;
            state.idle = Some(Idle::Ready(lane));
            if let Some(Served { id, not_before, .. }) = served {
                state.serves = false;
                session.looks.is_free(index);
                session.looks.served(id, not_before, Instant::now());
            }
        }
        outcome
    }

    /// Work for the lanes that have some and are idle.
    fn jobs(&mut self, key: ClaimKey, replay: &Replay, settings: &Settings) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (index, state) in self.all.iter_mut().enumerate() {
            let has_work = !state.queue.is_empty() || state.request.is_some();
            if let Some(idle) = state.idle.take_if(|_| has_work) {
                let count = fitting(&state.queue, settings);
                let events = state.queue.drain(..count).collect();
                let request = state.request.take();
                let replay = replay.clone();
                jobs.push(Job { index, idle, replay, key, events, request });
            }
        }
        jobs
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.watermark.is_none()
    }
}

/// How many from the first on may go together; one at least, where there is any.
fn fitting(events: &VecDeque<Event>, settings: &Settings) -> usize {
    let mut bytes = 0;
    let most = events.len().min(settings.max_batch_events);
    let other = events.iter().take(most).enumerate().position(|(index, event)| {
        bytes += event.size_bytes();
        index > 0 && bytes > settings.max_batch_bytes
    });
    other.unwrap_or(most)
}

fn lane_of(key: &[u8], lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % lanes.max(1) as u64) as usize
}
