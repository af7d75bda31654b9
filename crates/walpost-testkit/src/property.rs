use std::{
    env,
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

/// Runs `test` with one random seed after another, for `budget` or the
/// milliseconds in `WALPOST_TEST_BUDGET_MS`, at least once. With
/// `WALPOST_TEST_SEED` it runs with that seed alone.
///
/// # Panics
///
/// When `test` does. The seed is printed first.
pub fn property(name: &str, budget: Duration, mut test: impl FnMut(&mut Seeded)) {
    let mut run = |seed| {
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&mut Seeded::new(seed))));
        if let Err(panic) = outcome {
            eprintln!("{name} failed; run it again with WALPOST_TEST_SEED={seed}");
            resume_unwind(panic);
        }
    };
    if let Some(seed) = variable("WALPOST_TEST_SEED") {
        return run(seed);
    }
    let budget = variable("WALPOST_TEST_BUDGET_MS").map_or(budget, Duration::from_millis);
    let start = Instant::now();
    loop {
        run(RandomState::new().hash_one(name));
        if start.elapsed() >= budget {
            break;
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Seeded {
    state: u64,
}

impl Seeded {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    ///
    /// When `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a usize fits in a u64");
        usize::try_from(self.number() % limit).expect("it is below a usize")
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut one = Seeded::new(7);
        let mut other = one.clone();
        assert_eq!(one.number(), other.number());
        assert_ne!(one.number(), Seeded::new(8).number());
    }

    #[test]
    fn a_property_runs_even_without_a_budget() {
        let mut runs = 0;
        property("counting", Duration::ZERO, |_| runs += 1);
        assert_eq!(runs, 1);
    }

    #[test]
    #[should_panic(expected = "as planted")]
    fn a_property_that_fails_fails_its_test() {
        property("failing", Duration::from_secs(60), |_| panic!("as planted"));
    }
}
