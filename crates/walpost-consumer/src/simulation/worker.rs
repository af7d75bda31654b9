//! A partition of a member, step by step, as `partition/` goes: each function
//! here names its own there.

use uuid::Uuid;
use walpost_testkit::Seeded;

use super::{
    Bug,
    database::{Answer, Batch, Connection, Database, Row},
    kafka::{Commit, Kafka, MemberId},
};
use crate::{
    decide::{Decision, Group, Mode, OnReset, Stored, decide},
    ledger::Ledger,
    marker::{Known, Marker, Owner, Pending},
    partition::{Again, Range, Replay},
};

const BATCH_MOST: usize = 4;

/// What all members share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) bug: Option<Bug>,
    pub(super) policy: OnReset,
    pub(super) kafka: Kafka,
    pub(super) database: Database,
    pub(super) seeded: Seeded,
    pub(super) connections: Connection,
    pub(super) owner: Owner,
}

impl World {
    pub(super) fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.seeded.number(), self.seeded.number())
    }
}

/// What a worker does next.
#[derive(Debug)]
enum State {
    Claim,
    Ask(Row),
    /// A commit with a marker has to be there first.
    Confirming(Row, Then),
    Rewind(Row, i64, Mode, Uuid),
    Run(Box<Session>),
    Halted,
    GaveUp,
}

/// What follows a commit that was waited for.
#[derive(Clone, Copy, Debug)]
enum Then {
    Run(i64),
    Rewind(i64, Mode, Uuid),
}

/// What a claim holds while it lasts.
#[derive(Debug)]
struct Session {
    epoch: i64,
    next: i64,
    replay: Replay,
    reset: Option<Uuid>,
    ledger: Ledger,
    in_flight: bool,
    /// The end of the batch whose transaction is open, and whether it was
    /// deduplicated.
    open: Option<(i64, bool)>,
}

#[derive(Debug)]
pub(super) struct Worker {
    member: MemberId,
    part: usize,
    pub(super) connection: Connection,
    state: State,
    /// To a commit of this worker's.
    pub(super) answer: Option<bool>,
    /// What the group held before the claim, for the mistake of asking then.
    early: Option<(i64, String)>,
    group_offset: Option<i64>,
}

impl Worker {
    pub(super) fn new(member: MemberId, part: usize, world: &mut World) -> Self {
        world.connections += 1;
        let early = world.kafka.committed[part].clone();
        let (connection, state) = (world.connections, State::Claim);
        Self { member, part, connection, state, answer: None, early, group_offset: None }
    }

    pub(super) fn is_halted(&self) -> bool {
        matches!(self.state, State::Halted)
    }

    /// Nothing is left to do, neither for it nor for who it waits for.
    pub(super) fn is_at_rest(&self, world: &World) -> bool {
        let State::Run(session) = &self.state else { return false };
        session.next == world.kafka.logs[self.part].end()
            && session.open.is_none()
            && !session.in_flight
            && session.ledger.to_commit(session.next).is_none()
            && !session.ledger.is_stale()
            && !self.is_outdated(world)
    }

    /// Somebody has claimed the partition since. It is found out at the next
    /// batch.
    pub(super) fn is_outdated(&self, world: &World) -> bool {
        match &self.state {
            State::Run(session) => session.epoch != world.database.row(self.part).epoch,
            _ => false,
        }
    }

    /// Gives the partition back in order: the last offset is sent, if nothing is
    /// open.
    pub(super) fn finish(&mut self, world: &mut World, generation: u64) {
        if let State::Run(session) = &mut self.state
            && session.open.is_none()
            && !session.in_flight
            && let Some(offset) = session.ledger.to_commit(session.next)
        {
            let marker = world.owner.marker(offset, session.epoch, session.reset);
            self.send(world, generation, &marker);
        }
        world.database.roll_back(self.connection);
    }

    /// One step.
    pub(super) fn step(&mut self, world: &mut World, generation: u64) {
        self.state = match std::mem::replace(&mut self.state, State::GaveUp) {
            State::Claim => {
                world.connections += 1;
                (self.connection, self.answer) = (world.connections, None);
                State::Ask(world.database.claim(self.part))
            }
            State::Ask(row) => self.ask(world, generation, row),
            State::Confirming(row, then) => match (self.answer.take(), then) {
                (None, then) => State::Confirming(row, then),
                (Some(false), _) => State::GaveUp,
                (Some(true), Then::Run(next)) => self.run(world, row, next),
                (Some(true), Then::Rewind(to, mode, id)) => State::Rewind(row, to, mode, id),
            },
            State::Rewind(row, to, mode, id) => self.rewind(world, row, to, (mode, id)),
            State::Run(session) => self.work(world, generation, session),
            State::Halted => State::Halted,
            State::GaveUp => State::Claim,
        };
    }

    /// `begin`: asks the group, and decides.
    fn ask(&mut self, world: &mut World, generation: u64, row: Row) -> State {
        if world.kafka.is_committing(self.member, self.part) {
            return State::Ask(row);
        }
        let committed = match world.bug {
            Some(Bug::AskedBeforeClaim) => self.early.clone(),
            _ => world.kafka.committed[self.part].clone(),
        };
        self.group_offset = committed.as_ref().map(|(offset, _)| *offset);
        let group = self.group(world, &row, committed.as_ref());
        let stored = Stored { next_offset: row.next, known: row.known.clone() };
        match decide(&stored, group, world.policy) {
            Decision::Begin { at } => {
                let at = at.unwrap_or(0);
                match world.database.start_at(self.part, row.epoch, at, &row.known) {
                    Answer::Ok(()) => self.confirm(world, generation, row, Then::Run(at)),
                    _ => State::GaveUp,
                }
            }
            Decision::Resume { mark } => {
                let next = row.next.expect("nothing is resumed that has not begun");
                if world.database.row(self.part).epoch == row.epoch {
                    world.database.oracle.resumed(self.part);
                }
                match mark {
                    true => self.confirm(world, generation, row, Then::Run(next)),
                    false => self.run(world, row, next),
                }
            }
            Decision::Older { .. } | Decision::NoRow { .. }
                if world.database.row(self.part).epoch != row.epoch =>
            {
                State::GaveUp
            }
            Decision::Older { group } => {
                let next = row.next.expect("nothing is older that has not begun");
                world.database.oracle.resumed_older(self.part, group);
                self.confirm(world, generation, row, Then::Run(next))
            }
            Decision::Reset { to, mode, confirmed: Some(id) } => State::Rewind(row, to, mode, id),
            Decision::Reset { to, mode, confirmed: None } => {
                let id = world.uuid();
                self.confirm(world, generation, row, Then::Rewind(to, mode, id))
            }
            Decision::NoRow { group } => {
                world.database.oracle.resumed_older(self.part, group);
                State::Halted
            }
            Decision::Ambiguous { .. } | Decision::Refused { .. } => State::Halted,
        }
    }

    fn group(&self, world: &World, row: &Row, committed: Option<&(i64, String)>) -> Group {
        let Some((offset, metadata)) = committed else { return Group::Nothing };
        let marker = Marker::parse(metadata.as_bytes());
        let Some(marker) = marker.filter(|marker| marker.is_of(&world.owner)) else {
            return Group::Foreign { offset: *offset };
        };
        let is_done = |id| row.reset == Some(id) || world.database.has_reset(self.part, id);
        let known = Known {
            next_offset: row.next,
            offsets: &row.known,
            epoch: row.epoch - 1,
            reset: row.reset,
            has_reset: marker.reset.is_none_or(is_done),
        };
        match (Group::of_marker(&marker, *offset, &known), marker.reset) {
            (Group::Newer { offset }, _) if world.bug == Some(Bug::GroupLeads) => {
                Group::Foreign { offset }
            }
            (Group::Newer { offset }, Some(reset))
                if !known.has_reset && world.bug == Some(Bug::EveryResetPending) =>
            {
                Group::Pending { offset, reset }
            }
            (group, _) => group,
        }
    }

    /// `commit_now`: the answer is waited for.
    fn confirm(&mut self, world: &mut World, generation: u64, row: Row, then: Then) -> State {
        let owner = &world.owner;
        let marker = match then {
            Then::Run(next) => owner.marker(next, row.epoch, row.reset),
            Then::Rewind(to, _, id) => {
                let pending = row.next.map(|from| Pending { from, after: row.reset });
                owner.marker(to, row.epoch, Some(id)).pending(pending)
            }
        };
        self.send(world, generation, &marker);
        State::Confirming(row, then)
    }

    fn send(&mut self, world: &mut World, generation: u64, marker: &Marker) {
        self.answer = None;
        world.kafka.on_their_way.push(Commit {
            member: self.member,
            part: self.part,
            asker: self.connection,
            generation,
            offset: marker.offset,
            metadata: marker.to_string(),
        });
    }

    /// `reset`: the database carries out what Kafka holds.
    fn rewind(&self, world: &mut World, mut row: Row, to: i64, how: (Mode, Uuid)) -> State {
        let (mode, id) = how;
        let from = row.next.expect("nothing is reset that has not begun");
        let records = &world.kafka.logs[self.part].ids;
        let key = (row.epoch, from);
        match world.database.reset_to(self.part, key, (to, mode, id), records) {
            Answer::Ok(run) => {
                (row.run, row.reset, row.known, row.next) = (run, Some(id), vec![to], Some(to));
                self.run(world, row, to)
            }
            Answer::Waits => State::Rewind(row, to, mode, id),
            Answer::Missed | Answer::Gone => State::GaveUp,
        }
    }

    /// `start`: from here on batches.
    fn run(&self, world: &World, row: Row, next: i64) -> State {
        let fill_until = world.database.fill_until(self.part, row.run);
        let fill = |until| Range { again: Again::Fill, until, events_per_s: None };
        let replay = Replay::claimed(row.run, fill_until.map(fill).into_iter().collect());
        let ledger = Ledger::claimed(row.known, next, self.group_offset);
        let (epoch, reset) = (row.epoch, row.reset);
        let (in_flight, open) = (false, None);
        State::Run(Box::new(Session { epoch, next, replay, reset, ledger, in_flight, open }))
    }

    /// `work`: one step of a batch, or of what follows it.
    fn work(&mut self, world: &mut World, generation: u64, mut session: Box<Session>) -> State {
        if let Some(taken) = self.answer.take() {
            session.in_flight = false;
            if taken { session.ledger.acknowledged() } else { session.ledger.failed() }
        }
        let answer = match session.open {
            Some((_, false)) => {
                let answer = world.database.deduplicate(self.connection);
                if answer == Answer::Ok(()) {
                    session.open = session.open.map(|(end, _)| (end, true));
                }
                answer
            }
            // The handler fails.
            Some((_, true)) if world.seeded.chance(5) => {
                world.database.roll_back(self.connection);
                session.open = None;
                Answer::Ok(())
            }
            Some((end, true)) => {
                let answer = world.database.commit(self.connection);
                if answer == Answer::Ok(()) {
                    (session.next, session.open) = (end, None);
                    session.ledger.stored();
                }
                answer
            }
            None if session.next < world.kafka.logs[self.part].end() && world.seeded.chance(75) => {
                self.begin_batch(world, generation, &mut session)
            }
            None => self.idle(world, generation, &mut session),
        };
        match answer {
            Answer::Ok(()) => State::Run(session),
            // `lock_timeout`, some time.
            Answer::Waits if world.seeded.chance(10) => {
                world.database.roll_back(self.connection);
                State::GaveUp
            }
            Answer::Waits => State::Run(session),
            Answer::Missed | Answer::Gone => State::GaveUp,
        }
    }

    /// `apply`, up to the fence.
    fn begin_batch(&mut self, world: &mut World, generation: u64, session: &mut Session) -> Answer {
        let log = &world.kafka.logs[self.part];
        let from = usize::try_from(session.next).expect("an offset");
        let most = log.ids.len().min(from + 1 + world.seeded.below(BATCH_MOST));
        let events = &log.events[from..most];
        let count = match world.bug {
            Some(Bug::FillUncut) => events.len(),
            _ => session.replay.cut(events),
        };
        let reruns = session.replay.reruns(&events[..count]);
        let end = session.next + i64::try_from(count).expect("a short batch");
        let batch = Batch {
            part: self.part,
            epoch: session.epoch,
            ends: (session.next, end),
            known: session.ledger.known().to_vec(),
            run: session.replay.run,
            reruns,
            ids: log.ids[from..from + count].to_vec(),
        };
        let moves_first = world.bug == Some(Bug::OffsetFirst);
        let moved = moves_first.then(|| batch.clone());
        let answer = world.database.begin(self.connection, batch);
        if answer != Answer::Ok(()) {
            return answer;
        }
        session.open = Some((end, false));
        if let Some(batch) = moved {
            world.database.move_alone(&batch);
        }
        if world.bug == Some(Bug::KafkaFirst) && !session.in_flight {
            self.commit_to_kafka(world, generation, session, end);
        }
        answer
    }

    /// `idle`, and `send_commit` between batches.
    fn idle(&mut self, world: &mut World, generation: u64, session: &mut Session) -> Answer {
        if session.ledger.is_stale() && world.seeded.chance(50) {
            let key = (session.epoch, session.next);
            let answer = world.database.store_known(self.part, key, session.ledger.known());
            if answer == Answer::Ok(()) {
                session.ledger.stored();
            }
            return answer;
        }
        if !session.in_flight
            && let Some(offset) = session.ledger.to_commit(session.next)
        {
            self.commit_to_kafka(world, generation, session, offset);
        }
        Answer::Ok(())
    }

    fn commit_to_kafka(
        &mut self,
        world: &mut World,
        generation: u64,
        session: &mut Session,
        offset: i64,
    ) {
        let marker = world.owner.marker(offset, session.epoch, session.reset);
        self.send(world, generation, &marker);
        session.in_flight = true;
        session.ledger.sent(offset);
    }
}
