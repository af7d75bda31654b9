use std::{fmt, time::Duration};

use walpost_testkit::{Direction, Seeded};

use super::{super::moments::some_moment, run::Run, stage::Side};

const AWAY_MOST: Duration = Duration::from_millis(500);
const EARLY_MOST: Duration = Duration::from_millis(800);

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookBlow {
    /// SIGKILL of `walpost run`.
    SenderKill,
    /// The same, and of its successor in its first moments.
    EarlySenderKill,
    /// SIGKILL of the receiver.
    ReceiverKill,
    /// SIGKILL of both.
    BothKilled,
    /// Requests arrive, and their answers do not.
    AnswersLost,
    /// Nothing arrives, and connections stay open.
    NothingArrives,
    /// `pg_ctl stop -m immediate` of the sender's database, and a restart.
    SenderDatabase,
    /// The same of the receiver's.
    ReceiverDatabase,
}

impl WebhookBlow {
    const ALL: [Self; 8] = [
        Self::SenderKill,
        Self::ReceiverKill,
        Self::AnswersLost,
        Self::SenderDatabase,
        Self::ReceiverDatabase,
        Self::BothKilled,
        Self::NothingArrives,
        Self::EarlySenderKill,
    ];
}

impl fmt::Display for WebhookBlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SenderKill => "sender killed",
            Self::EarlySenderKill => "sender killed, and its successor right after the start",
            Self::ReceiverKill => "receiver killed",
            Self::BothKilled => "both killed",
            Self::AnswersLost => "answers lost",
            Self::NothingArrives => "nothing arrives",
            Self::SenderDatabase => "the sender's database stopped",
            Self::ReceiverDatabase => "the receiver's database stopped",
        })
    }
}

/// The faults of so many rounds, in a random order; each kind as often as the
/// others.
#[must_use]
pub fn webhook_blows(rounds: usize, seeded: &mut Seeded) -> Vec<WebhookBlow> {
    let mut blows: Vec<WebhookBlow> = WebhookBlow::ALL.into_iter().cycle().take(rounds).collect();
    for last in (1..blows.len()).rev() {
        blows.swap(last, seeded.below(last + 1));
    }
    blows
}

impl Run {
    pub(super) async fn strike(&mut self, blow: WebhookBlow) {
        match blow {
            WebhookBlow::SenderKill => self.stage.restart(Side::Sender),
            WebhookBlow::EarlySenderKill => {
                self.stage.restart(Side::Sender);
                some_moment(&mut self.seeded, EARLY_MOST).await;
                self.stage.restart(Side::Sender);
            }
            WebhookBlow::ReceiverKill => self.stage.restart(Side::Receiver),
            WebhookBlow::BothKilled => {
                self.stage.restart(Side::Receiver);
                self.stage.restart(Side::Sender);
            }
            WebhookBlow::AnswersLost => self.between(Direction::ToClient).await,
            WebhookBlow::NothingArrives => self.between(Direction::ToTarget).await,
            WebhookBlow::SenderDatabase => self.database(Side::Sender).await,
            WebhookBlow::ReceiverDatabase => self.database(Side::Receiver).await,
        }
    }

    /// What goes this way is kept for a while, and then never comes.
    async fn between(&mut self, direction: Direction) {
        self.stage.proxy.hold(direction);
        some_moment(&mut self.seeded, AWAY_MOST).await;
        self.stage.proxy.cut_connections();
        self.stage.proxy.restore();
    }

    async fn database(&mut self, side: Side) {
        self.stage.database(side, |postgres| postgres.stop_immediate().unwrap()).await;
        some_moment(&mut self.seeded, AWAY_MOST).await;
        self.stage.database(side, |postgres| postgres.start().unwrap()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn of_eight_rounds_each_has_another_fault() {
        let blows = webhook_blows(8, &mut Seeded::new(1));
        assert_eq!(blows.iter().collect::<BTreeSet<_>>().len(), 8);
        assert_ne!(blows, webhook_blows(8, &mut Seeded::new(2)));
        assert_eq!(webhook_blows(20, &mut Seeded::new(1)).len(), 20);
    }
}
