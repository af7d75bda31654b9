use super::{
    database::PARTITIONS,
    kafka::MemberId,
    worker::{Worker, World},
};

/// A process, from its start to its end.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) is_paused: bool,
    /// The last generation of the group that it has heard of.
    heard: u64,
    pub(super) workers: [Option<Worker>; PARTITIONS],
}

impl Member {
    pub(super) fn new(id: MemberId) -> Self {
        Self { id, is_paused: false, heard: 0, workers: [None, None] }
    }

    /// Takes notice of what the group has decided. Whoever was counted out drops
    /// everything, and asks to be let in again: then it is true.
    pub(super) fn hear(&mut self, world: &mut World) -> bool {
        if self.heard == world.kafka.generation {
            return false;
        }
        let heard = std::mem::replace(&mut self.heard, world.kafka.generation);
        let is_out = !world.kafka.members.contains(&self.id);
        for part in 0..PARTITIONS {
            let is_mine = !is_out && world.kafka.owners[part] == Some(self.id);
            match (&mut self.workers[part], is_mine) {
                (Some(_), true) | (None, false) => {}
                (None, true) => self.workers[part] = Some(Worker::new(self.id, part, world)),
                (Some(worker), false) => {
                    if is_out {
                        world.database.roll_back(worker.connection);
                    } else {
                        // What nobody has yet is given back in order.
                        let in_order = world.kafka.owners[part].is_none();
                        worker.finish(world, if in_order { self.heard } else { heard });
                    }
                    self.workers[part] = None;
                }
            }
        }
        is_out
    }

    /// One step of one of its partitions, as far as it knows.
    pub(super) fn step(&mut self, world: &mut World, part: usize) {
        if let Some(worker) = &mut self.workers[part] {
            worker.step(world, self.heard);
        }
    }

    /// Ends in order.
    pub(super) fn stop(mut self, world: &mut World) {
        for worker in self.workers.iter_mut().flatten() {
            worker.finish(world, self.heard);
        }
    }

    /// Ends at once. The server may take a while to notice.
    pub(super) fn die(self, world: &mut World) {
        for worker in self.workers.into_iter().flatten() {
            if world.seeded.chance(50) {
                world.database.roll_back(worker.connection);
            }
        }
    }
}
