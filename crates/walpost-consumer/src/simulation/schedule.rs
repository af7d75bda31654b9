//! One schedule: what happens, in which order, until everything rests.

use walpost_testkit::Seeded;

use super::{
    Bug,
    database::{Copied, Database, PARTITIONS},
    kafka::Kafka,
    member::Member,
    worker::World,
};
use crate::{
    decide::{Mode, OnReset},
    marker::Owner,
};

const MEMBERS_MOST: usize = 3;
const STEPS_LEAST: usize = 100;
const STEPS_MORE: usize = 300;
/// For everything to come to rest.
const REST_STEPS_MOST: usize = 20_000;

/// What is wrong with the schedule of a seed.
pub(super) fn run(seed: u64, bug: Option<Bug>) -> Option<String> {
    Schedule::new(seed, bug).run()
}

/// What happened until then, one thing a line.
pub(super) fn history(seed: u64, bug: Option<Bug>) -> String {
    let mut schedule = Schedule::new(seed, bug);
    schedule.world.database.oracle.history = Some(Vec::new());
    schedule.run();
    schedule.world.database.oracle.history.unwrap_or_default().join("\n")
}

struct Schedule {
    world: World,
    members: Vec<Member>,
    next_member: u64,
    /// A dump, or what a standby has.
    copied: Option<Copied>,
}

impl Schedule {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut seeded = Seeded::new(seed);
        let policy = match seeded.below(10) {
            0..5 => OnReset::Rerun,
            5..8 => OnReset::Fill,
            _ => OnReset::Refuse,
        };
        let owner = Owner { consumer: "c".into(), cluster: "k".into(), topic: "t".into() };
        let (kafka, database) = (Kafka::default(), Database::new(bug));
        let world = World { bug, policy, kafka, database, seeded, connections: 0, owner };
        let mut schedule = Self { world, members: Vec::new(), next_member: 0, copied: None };
        for _ in 0..2 {
            schedule.start();
        }
        schedule
    }

    fn run(&mut self) -> Option<String> {
        for _ in 0..STEPS_LEAST + self.world.seeded.below(STEPS_MORE) {
            self.happen();
            if self.wrong().is_some() {
                return self.wrong();
            }
        }
        self.rest();
        self.wrong()
    }

    fn wrong(&self) -> Option<String> {
        self.world.database.oracle.wrong.clone()
    }

    fn happen(&mut self) {
        match self.world.seeded.below(1_000) {
            0..150 => self.produce(),
            150..700 => self.step(),
            700..850 => self.deliver(),
            850..910 => self.hear(),
            910..930 => self.pause(),
            930..950 => self.wake(),
            950..965 => self.kill(),
            965..975 => self.start(),
            975..985 => self.rebalance(),
            985..993 => self.operate(),
            993..995 => self.copy_or_go_back(),
            _ => self.reset_live(),
        }
    }

    /// A record more: of a new event, or a copy of one.
    fn produce(&mut self) {
        let World { seeded, database, kafka, .. } = &mut self.world;
        let events = database.oracle.events();
        let id = match events > 0 && seeded.chance(15) {
            true => seeded.below(events),
            false => database.event(),
        };
        let part = seeded.below(PARTITIONS);
        kafka.logs[part].append(part, id);
    }

    fn step(&mut self) {
        if let Some(index) = self.some_member(|member| !member.is_paused) {
            let part = self.world.seeded.below(PARTITIONS);
            self.members[index].step(&mut self.world, part);
        }
    }

    /// A commit reaches the group, or is lost, and so may be its answer.
    fn deliver(&mut self) {
        let count = self.world.kafka.on_their_way.len();
        if count == 0 {
            return;
        }
        let index = self.world.seeded.below(count);
        let commit = self.world.kafka.on_their_way.swap_remove(index);
        let arrives = !self.world.seeded.chance(5);
        let taken = arrives && self.world.kafka.take(&commit);
        self.world.database.oracle.note(|| format!("arrives: {commit:?}: {taken}"));
        let told = taken && !self.world.seeded.chance(5);
        let asker = self.members.iter_mut().find(|member| member.id == commit.member);
        if let Some(Some(worker)) = asker.map(|member| &mut member.workers[commit.part])
            && worker.connection == commit.asker
        {
            worker.answer = Some(told);
        }
    }

    fn hear(&mut self) {
        if let Some(index) = self.some_member(|member| !member.is_paused) {
            self.hear_one(index);
        }
    }

    fn hear_one(&mut self, index: usize) {
        if self.members[index].hear(&mut self.world) {
            self.world.kafka.members.push(self.members[index].id);
            self.rebalance();
        }
    }

    fn pause(&mut self) {
        if let Some(index) = self.some_member(|member| !member.is_paused) {
            self.members[index].is_paused = true;
        }
    }

    fn wake(&mut self) {
        if let Some(index) = self.some_member(|member| member.is_paused) {
            self.members[index].is_paused = false;
        }
    }

    /// Also a paused one. The group counts it until the next rebalance.
    fn kill(&mut self) {
        if let Some(index) = self.some_member(|_| true) {
            self.members.swap_remove(index).die(&mut self.world);
        }
    }

    fn start(&mut self) {
        if self.members.len() < MEMBERS_MOST {
            self.next_member += 1;
            self.members.push(Member::new(self.next_member));
            self.world.kafka.members.push(self.next_member);
            self.rebalance();
        }
    }

    /// Counts out who is dead, and who is paused, and deals the partitions to
    /// the others; or takes some away first, to be dealt the next time.
    fn rebalance(&mut self) {
        let World { kafka, seeded, .. } = &mut self.world;
        let lives =
            |id: &u64| self.members.iter().any(|member| member.id == *id && !member.is_paused);
        kafka.members.retain(lives);
        kafka.generation += 1;
        for owner in &mut kafka.owners {
            let takes_away = owner.is_some_and(|owner| kafka.members.contains(&owner));
            *owner = match kafka.members.len() {
                0 => None,
                _ if takes_away && seeded.chance(30) => None,
                count => Some(kafka.members[seeded.below(count)]),
            };
        }
    }

    /// Everyone who is awake ends; then somebody may use a tool on the empty
    /// group; then others start. Those who are paused sleep through it.
    fn operate(&mut self) {
        let halted = self.halted();
        let (asleep, awake): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.members).into_iter().partition(|member| member.is_paused);
        self.members = asleep;
        for member in awake {
            match self.world.seeded.chance(50) {
                true => member.stop(&mut self.world),
                false => member.die(&mut self.world),
            }
        }
        // What they sent last.
        for _ in 0..self.world.seeded.below(4) {
            self.deliver();
        }
        self.rebalance();
        for (part, halted) in halted.into_iter().enumerate() {
            match halted {
                true => self.undo(part),
                false => self.use_tool(part),
            }
        }
        let locked = (0..PARTITIONS).any(|part| self.world.database.is_locked(part));
        if self.world.policy == OnReset::Fill && !locked && self.world.seeded.chance(30) {
            self.lose_and_fill();
        }
        for _ in 0..1 + self.world.seeded.below(2) {
            self.start();
        }
    }

    /// Beside members at work, as in a failover, or while no one works, as in a
    /// restore.
    fn copy_or_go_back(&mut self) {
        let Some(copied) = self.copied.take() else {
            self.copied = Some(self.world.database.copy());
            return;
        };
        if self.world.seeded.chance(50) {
            for member in std::mem::take(&mut self.members) {
                member.die(&mut self.world);
            }
        }
        self.world.database.go_back(copied);
        for part in 0..PARTITIONS {
            self.sync_unmarked(part);
        }
    }

    /// What a tool has left without its marker is no wish of before the copy: the
    /// operator puts the stored offset in its place.
    fn sync_unmarked(&mut self, part: usize) {
        let World { kafka, database, owner, .. } = &mut self.world;
        let row = database.row(part);
        let (Some(next), Some((_, metadata))) = (row.next, &kafka.committed[part]) else { return };
        if metadata.is_empty() {
            let marker = owner.marker(next, row.epoch, row.reset).to_string();
            kafka.committed[part] = Some((next, marker));
        }
    }

    fn halted(&self) -> [bool; PARTITIONS] {
        let mut halted = [false; PARTITIONS];
        let workers = self.members.iter().flat_map(|member| member.workers.iter().enumerate());
        for (part, _) in
            workers.filter(|(_, worker)| worker.as_ref().is_some_and(|w| w.is_halted()))
        {
            halted[part] = true;
        }
        halted
    }

    /// Kafka's tool, which drops the marker.
    fn use_tool(&mut self, part: usize) {
        let World { seeded, kafka, database, .. } = &mut self.world;
        match seeded.below(10) {
            0..3 => {
                let end = usize::try_from(kafka.logs[part].end()).expect("an offset");
                let to = i64::try_from(seeded.below(end + 1)).expect("an offset");
                self.set_offset(part, to);
            }
            // `--to-current`
            3..6 => {
                database.oracle.note(|| format!("--to-current of {part}"));
                if let Some((offset, metadata)) = &mut kafka.committed[part] {
                    // Without its marker a number that the row does not know is a wish.
                    let row = database.row(part);
                    let is_known = row.next == Some(*offset) || row.known.contains(offset);
                    let may_be_unknown = database.oracle.is_older || metadata.contains("pending");
                    if !is_known && may_be_unknown {
                        database.oracle.wish(part, *offset);
                    }
                    metadata.clear();
                }
            }
            // Deleted, or expired.
            6 => {
                database.oracle.note(|| format!("the offset of {part} is deleted"));
                kafka.committed[part] = None;
            }
            _ => {}
        }
    }

    fn set_offset(&mut self, part: usize, to: i64) {
        self.world.kafka.committed[part] = Some((to, String::new()));
        self.world.database.oracle.wish(part, to);
    }

    /// The way out of a halt that takes no replay, or either way out where there
    /// is no stored offset.
    fn undo(&mut self, part: usize) {
        let group = self.world.kafka.committed[part].as_ref().map_or(0, |(offset, _)| *offset);
        let to = match self.world.database.row(part).next {
            Some(next) => next,
            None if self.world.seeded.chance(50) => group,
            None => 0,
        };
        self.set_offset(part, to);
    }

    /// Some effects are lost, and the group is set back to make them again.
    fn lose_and_fill(&mut self) {
        for id in 0..self.world.database.oracle.events() {
            if self.world.seeded.chance(30) {
                self.world.database.lose(id);
            }
        }
        for part in 0..PARTITIONS {
            self.set_offset(part, 0);
        }
    }

    /// `reset_partition`, on a live group.
    fn reset_live(&mut self) {
        let World { seeded, kafka, database, policy, .. } = &mut self.world;
        let part = seeded.below(PARTITIONS);
        let Some(next) = database.row(part).next.filter(|_| !database.is_locked(part)) else {
            return;
        };
        let end = usize::try_from(kafka.logs[part].end()).expect("an offset");
        let to = i64::try_from(seeded.below(end + 1)).expect("an offset");
        let mode = match policy {
            _ if to > next => Mode::Skip,
            OnReset::Fill => Mode::Fill,
            _ if seeded.chance(30) => Mode::Fill,
            _ => Mode::Rerun,
        };
        let id = self.world.uuid();
        let World { kafka, database, .. } = &mut self.world;
        database.reset_partition(part, (to, mode, id), &kafka.logs[part].ids);
    }

    fn some_member(&mut self, is: impl Fn(&Member) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            (0..self.members.len()).filter(|index| is(&self.members[*index])).collect();
        match found.len() {
            0 => None,
            count => Some(found[self.world.seeded.below(count)]),
        }
    }

    /// Everybody wakes, nothing else happens, and every partition gets to its
    /// end.
    fn rest(&mut self) {
        for member in &mut self.members {
            member.is_paused = false;
        }
        for step in 0..REST_STEPS_MOST {
            if self.wrong().is_some() {
                return;
            }
            if step % 500 == 0 && self.halted().contains(&true) {
                self.restart_undone();
            }
            if self.members.is_empty() {
                self.start();
            }
            // The sessions of those that died end, and there is no last event.
            if step % 100 == 0 {
                self.forget_the_dead();
                self.produce_for_the_outdated();
            }
            match self.world.seeded.below(4) {
                0 => self.deliver(),
                1 => {
                    let index = self.world.seeded.below(self.members.len());
                    self.hear_one(index);
                }
                _ => self.step(),
            }
            if step % 50 == 0 && self.is_at_rest() {
                let Kafka { logs: [first, second], .. } = &self.world.kafka;
                self.world.database.oracle.end([&first.ids, &second.ids]);
                return;
            }
        }
        let state = format!("{:?}", self.members);
        self.world.database.oracle.wrong(|| format!("it does not come to rest: {state}"));
    }

    fn produce_for_the_outdated(&mut self) {
        for part in 0..PARTITIONS {
            let mut workers =
                self.members.iter().filter_map(|member| member.workers[part].as_ref());
            if workers.any(|worker| worker.is_outdated(&self.world)) {
                let id = self.world.database.event();
                self.world.kafka.logs[part].append(part, id);
            }
        }
    }

    fn forget_the_dead(&mut self) {
        let workers = || self.members.iter().flat_map(|member| member.workers.iter().flatten());
        self.world.database.keep_only(|one| workers().any(|worker| worker.connection == one));
        let lives = |id: &u64| self.members.iter().any(|member| member.id == *id);
        let kafka = &self.world.kafka;
        if !kafka.members.iter().all(lives) || kafka.owners.contains(&None) {
            self.rebalance();
        }
    }

    /// All end in order, what halted is undone, and one starts.
    fn restart_undone(&mut self) {
        let halted = self.halted();
        for member in std::mem::take(&mut self.members) {
            member.stop(&mut self.world);
        }
        self.rebalance();
        for (part, halted) in halted.into_iter().enumerate() {
            if halted {
                self.undo(part);
            }
        }
        self.start();
    }

    fn is_at_rest(&self) -> bool {
        self.world.kafka.on_their_way.is_empty()
            && (0..PARTITIONS).all(|part| {
                let owner = self.world.kafka.owners[part];
                let owner = self.members.iter().find(|member| Some(member.id) == owner);
                let worker = owner.and_then(|owner| owner.workers[part].as_ref());
                worker.is_some_and(|worker| worker.is_at_rest(&self.world))
            })
    }
}
