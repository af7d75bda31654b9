use std::time::{Duration, Instant};

use super::{
    Bug,
    run::run,
    schedule::{Fault, Kind, Life, Mode, Schedule},
};
use crate::config::ParkMode;

/// What shrinking may take.
const SHRINK_MAX: Duration = Duration::from_secs(20);

/// A schedule that fails, made smaller step by step as long as it fails, and
/// what is wrong with it then.
pub(super) fn shrink(
    mut schedule: Schedule,
    bug: Option<Bug>,
    mut wrong: String,
) -> (Schedule, String) {
    let began = Instant::now();
    'smaller: loop {
        for candidate in candidates(&schedule) {
            if began.elapsed() > SHRINK_MAX {
                return (schedule, wrong);
            }
            if let Some(found) = run(&candidate, bug).filter(|found| is_alike(found, &wrong)) {
                (schedule, wrong) = (candidate, found);
                continue 'smaller;
            }
        }
        return (schedule, wrong);
    }
}

/// The schedule with one thing less each, the largest first.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut candidates = Vec::new();
    let mut with = |change: &dyn Fn(&mut Schedule)| {
        let mut smaller = schedule.clone();
        change(&mut smaller);
        candidates.push(smaller);
    };
    for index in 0..schedule.transactions.len() {
        with(&|smaller| _ = smaller.transactions.remove(index));
    }
    for (of, pipeline) in schedule.pipelines.iter().enumerate() {
        if pipeline.starts_ms > 0 {
            with(&|smaller| smaller.pipelines[of].starts_ms = 0);
        }
        for (index, life) in pipeline.lives.iter().enumerate() {
            with(&|smaller| _ = smaller.pipelines[of].lives.remove(index));
            if let Life::Pause { polls, .. } = *life {
                with(&|smaller| smaller.pipelines[of].lives[index] = Life::Crash { polls });
            }
        }
    }
    for index in 0..schedule.pruning.len() {
        with(&|smaller| _ = smaller.pruning.remove(index));
        if schedule.pruning[index].polls.is_some() {
            with(&|smaller| smaller.pruning[index].polls = None);
        }
    }
    if schedule.pipelines.len() > 1 {
        with(&Schedule::with_one_pipeline);
    }
    for index in 0..schedule.faults.len() {
        with(&|smaller| _ = smaller.faults.remove(index));
    }
    for (index, fault) in schedule.faults.iter().enumerate() {
        if let Fault::Batch { number, what } = *fault
            && number > 0
        {
            // So that batches before it are not needed.
            let earlier = Fault::Batch { number: number / 2, what };
            with(&|smaller| smaller.faults[index] = earlier);
        }
    }
    for (index, transaction) in schedule.transactions.iter().enumerate() {
        for event in 0..transaction.events.len() {
            with(&|smaller| _ = smaller.transactions[index].events.remove(event));
            if transaction.events[event].kind != Kind::Row {
                with(&|smaller| smaller.transactions[index].events[event].kind = Kind::Row);
            }
        }
        if transaction.handing.as_ref().is_some_and(|handing| handing.polls.is_some()) {
            with(&|smaller| {
                let handing = &mut smaller.transactions[index].handing;
                handing.iter_mut().for_each(|handing| handing.polls = None);
            });
        }
        if transaction.noise > 0 {
            with(&|smaller| smaller.transactions[index].noise = 0);
        }
        if transaction.after_ms > 0 {
            with(&|smaller| smaller.transactions[index].after_ms = 0);
        }
    }
    simpler(schedule, &mut with);
    candidates
}

/// The schedule with one thing simpler each.
fn simpler(schedule: &Schedule, with: &mut impl FnMut(&dyn Fn(&mut Schedule))) {
    let settings = &schedule.settings;
    for mode in settings.modes {
        if settings.modes != [mode; 2] {
            with(&|smaller| smaller.settings.modes = [mode; 2]);
        }
    }
    if settings.modes != [Mode::Idempotent; 2] {
        with(&|smaller| smaller.settings.modes = [Mode::Idempotent; 2]);
    }
    if !settings.position_header {
        with(&|smaller| smaller.settings.position_header = true);
    }
    if settings.park == ParkMode::Event {
        with(&|smaller| smaller.settings.park = ParkMode::Aggregate);
    }
    if settings.server_max_ms > 0 {
        with(&|smaller| smaller.settings.server_max_ms = 0);
    }
    if settings.brokers_max_ms > 1 {
        with(&|smaller| smaller.settings.brokers_max_ms = 1);
    }
}

/// Whether it is the same that is wrong, of whatever event.
fn is_alike(one: &str, other: &str) -> bool {
    let words = |text: &str| text.replace(|c: char| c.is_ascii_hexdigit(), "");
    words(one) == words(other)
}
