use std::fmt;

use walpost_testkit::Seeded;

/// Faults other than kills of a consumer, in so many rounds.
const PER_ROUNDS: usize = 300;
const ZOMBIES: usize = 50;
const REBALANCES: usize = 50;
const BROKER_KILLS: usize = 20;
const POSTGRES_STOPS: usize = 20;

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL of a consumer at a random moment.
    Kill,
    /// SIGKILL of a consumer, and of its replacement in its first moments.
    EarlyKill,
    /// A consumer is stopped past the take-over of its partitions, and woken
    /// beside their new owners.
    Zombie(Pause),
    /// A fourth one joins and gets partitions, then another one leaves in order.
    Rebalance,
    /// SIGKILL of the broker, and its restart.
    BrokerKill {
        /// A consumer is killed while the broker is away.
        member_too: bool,
    },
    /// `pg_ctl stop -m immediate`, and a restart.
    PostgresStop {
        /// A consumer is killed while the server is away.
        member_too: bool,
    },
}

/// When a consumer is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// At a random moment.
    Anywhere,
    /// Within a handler, so with a transaction open.
    InHandler,
    /// Right after a COMMIT, with more events at hand.
    AfterCommit,
}

impl Pause {
    const ALL: [Self; 3] = [Self::InHandler, Self::AfterCommit, Self::Anywhere];
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::EarlyKill => "kill, and another one right after the start",
            Self::Zombie(Pause::Anywhere) => "stopped, and woken beside its successor",
            Self::Zombie(Pause::InHandler) => "stopped in a handler, and woken",
            Self::Zombie(Pause::AfterCommit) => "stopped after a commit, and woken",
            Self::Rebalance => "one joins and one leaves",
            Self::BrokerKill { member_too: false } => "broker killed",
            Self::BrokerKill { member_too: true } => "broker and consumer killed",
            Self::PostgresStop { member_too: false } => "PostgreSQL stopped",
            Self::PostgresStop { member_too: true } => "PostgreSQL stopped, consumer killed",
        })
    }
}

/// The faults of so many rounds, in a random order. At least one of every kind
/// where there are six rounds.
#[must_use]
pub fn blows(rounds: usize, seeded: &mut Seeded) -> Vec<Blow> {
    let share = |of_all: usize| match rounds {
        0..6 => 0,
        _ => (of_all * rounds / PER_ROUNDS).max(1),
    };
    let zombies = (0..share(ZOMBIES)).map(|n| Blow::Zombie(Pause::ALL[n % 3]));
    let rebalances = (0..share(REBALANCES)).map(|_| Blow::Rebalance);
    let broker = (0..share(BROKER_KILLS)).map(|n| Blow::BrokerKill { member_too: n % 3 == 2 });
    let postgres =
        (0..share(POSTGRES_STOPS)).map(|n| Blow::PostgresStop { member_too: n % 3 == 2 });
    let kills = (0..rounds).map(|n| if n % 5 == 4 { Blow::EarlyKill } else { Blow::Kill });
    let all = zombies.chain(rebalances).chain(broker).chain(postgres).chain(kills);
    let mut blows: Vec<Blow> = all.take(rounds).collect();
    for last in (1..blows.len()).rev() {
        blows.swap(last, seeded.below(last + 1));
    }
    blows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(blows: &[Blow]) -> [usize; 5] {
        let count = |is: fn(&Blow) -> bool| blows.iter().filter(|blow| is(blow)).count();
        [
            count(|blow| matches!(blow, Blow::Kill | Blow::EarlyKill)),
            count(|blow| matches!(blow, Blow::Zombie(_))),
            count(|blow| matches!(blow, Blow::Rebalance)),
            count(|blow| matches!(blow, Blow::BrokerKill { .. })),
            count(|blow| matches!(blow, Blow::PostgresStop { .. })),
        ]
    }

    #[test]
    fn three_hundred_rounds_have_all_that_is_said_of_them() {
        let blows = blows(300, &mut Seeded::new(7));
        assert_eq!(kinds(&blows), [160, 50, 50, 20, 20]);
        assert!(Pause::ALL.iter().all(|pause| blows.contains(&Blow::Zombie(*pause))));
        for both in [false, true] {
            assert!(blows.contains(&Blow::BrokerKill { member_too: both }));
            assert!(blows.contains(&Blow::PostgresStop { member_too: both }));
        }
    }

    #[test]
    fn few_rounds_have_one_of_each() {
        assert_eq!(kinds(&blows(12, &mut Seeded::new(1))), [6, 2, 2, 1, 1]);
        assert_eq!(kinds(&blows(6, &mut Seeded::new(1))), [2, 1, 1, 1, 1]);
        assert_eq!(kinds(&blows(3, &mut Seeded::new(1))), [3, 0, 0, 0, 0]);
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_one_does_not() {
        let order = |seed| blows(40, &mut Seeded::new(seed));
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }
}
