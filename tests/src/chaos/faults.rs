use std::fmt;

use walpost_testkit::Seeded;

/// Faults other than kills of the relay, in so many rounds.
const PER_ROUNDS: usize = 300;
const BROKER_KILLS: usize = 20;
const POSTGRES_STOPS: usize = 20;
const CUTS: usize = 50;

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of the relay while it publishes.
    Kill,
    /// SIGKILL of the relay in its first moments, whatever it does then.
    EarlyKill,
    /// SIGKILL of the broker, and its restart.
    BrokerKill {
        /// The relay is killed while the broker is away.
        relay_too: bool,
    },
    /// `pg_ctl stop -m immediate`, and a restart.
    PostgresStop {
        /// The relay is killed while the server is away.
        relay_too: bool,
    },
    /// All connections of the relay to one side end at once.
    Cut(Link),
    /// They stay open and bring nothing for a while, then end.
    HalfOpen(Link),
}

/// One side of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// To PostgreSQL.
    Postgres,
    /// To Kafka.
    Kafka,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |link: &Link| match link {
            Link::Postgres => "PostgreSQL",
            Link::Kafka => "Kafka",
        };
        match self {
            Self::Kill => write!(f, "kill"),
            Self::EarlyKill => write!(f, "kill right after the start"),
            Self::BrokerKill { relay_too: false } => write!(f, "broker killed"),
            Self::BrokerKill { relay_too: true } => write!(f, "broker and relay killed"),
            Self::PostgresStop { relay_too: false } => write!(f, "PostgreSQL stopped"),
            Self::PostgresStop { relay_too: true } => write!(f, "PostgreSQL stopped, relay killed"),
            Self::Cut(link) => write!(f, "connections to {} cut", side(link)),
            Self::HalfOpen(link) => write!(f, "connections to {} half open", side(link)),
        }
    }
}

/// The faults of `rounds` rounds, dealt to so many runs of equal length, each in
/// an order of its own. At least one of every kind where there are four rounds.
///
/// # Panics
/// When a run would have no round.
pub fn schedule(rounds: usize, runs: usize, seeded: &mut Seeded) -> Vec<Vec<Fault>> {
    assert!(runs > 0 && rounds >= runs, "{rounds} rounds for {runs} runs");
    let share = |of_all: usize| match rounds {
        0..4 => 0,
        _ => (of_all * rounds / PER_ROUNDS).max(1),
    };
    let others = (0..share(BROKER_KILLS))
        .map(|n| Fault::BrokerKill { relay_too: n / runs % 3 == 2 })
        .chain(
            (0..share(POSTGRES_STOPS))
                .map(|n| Fault::PostgresStop { relay_too: n / runs % 3 == 2 }),
        )
        .chain((0..share(CUTS)).map(|n| match n / runs % 4 {
            0 => Fault::Cut(Link::Postgres),
            1 => Fault::Cut(Link::Kafka),
            2 => Fault::HalfOpen(Link::Postgres),
            _ => Fault::HalfOpen(Link::Kafka),
        }));
    let kills = (0..rounds).map(|n| if n % 5 == 4 { Fault::EarlyKill } else { Fault::Kill });
    let mut dealt = vec![Vec::new(); runs];
    for (n, fault) in others.chain(kills).take(rounds).enumerate() {
        dealt[n % runs].push(fault);
    }
    for faults in &mut dealt {
        for last in (1..faults.len()).rev() {
            faults.swap(last, seeded.below(last + 1));
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(faults: &[Fault], is: fn(&Fault) -> bool) -> usize {
        faults.iter().filter(|fault| is(fault)).count()
    }

    fn kinds(faults: &[Fault]) -> [usize; 4] {
        [
            count(faults, |fault| matches!(fault, Fault::Kill | Fault::EarlyKill)),
            count(faults, |fault| matches!(fault, Fault::BrokerKill { .. })),
            count(faults, |fault| matches!(fault, Fault::PostgresStop { .. })),
            count(faults, |fault| matches!(fault, Fault::Cut(_) | Fault::HalfOpen(_))),
        ]
    }

    #[test]
    fn three_hundred_rounds_have_all_that_is_said_of_them() {
        let dealt = schedule(300, 2, &mut Seeded::new(7));
        assert_eq!(kinds(&dealt.concat()), [210, 20, 20, 50]);
        for faults in &dealt {
            assert_eq!(faults.len(), 150);
            assert_eq!(kinds(faults), [105, 10, 10, 25]);
            let sides = [Link::Postgres, Link::Kafka];
            assert!(sides.iter().all(|side| faults.contains(&Fault::Cut(*side))));
            assert!(sides.iter().all(|side| faults.contains(&Fault::HalfOpen(*side))));
            assert!(faults.contains(&Fault::BrokerKill { relay_too: true }));
            assert!(faults.contains(&Fault::EarlyKill));
        }
    }

    #[test]
    fn few_rounds_have_one_of_each() {
        assert_eq!(kinds(&schedule(6, 2, &mut Seeded::new(1)).concat()), [3, 1, 1, 1]);
        assert_eq!(kinds(&schedule(4, 1, &mut Seeded::new(1)).concat()), [1, 1, 1, 1]);
        assert_eq!(kinds(&schedule(1, 1, &mut Seeded::new(1)).concat()), [1, 0, 0, 0]);
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_one_does_not() {
        let order = |seed| schedule(40, 2, &mut Seeded::new(seed));
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }
}
