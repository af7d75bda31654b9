use std::time::Duration;

use super::{super::moments::some_moment, blows::Blow, run::Run};

/// How long after its start a consumer is killed in its first moments.
const EARLY_MOST: Duration = Duration::from_millis(1_500);
const AWAY_MOST: Duration = Duration::from_millis(500);

impl Run {
    pub(super) async fn strike(&mut self, blow: Blow) {
        match blow {
            Blow::Kill => {
                let index = self.any_member();
                self.replace(index);
            }
            Blow::EarlyKill => {
                let index = self.any_member();
                self.replace(index);
                some_moment(&mut self.seeded, EARLY_MOST).await;
                self.replace(index);
            }
            Blow::Zombie(pause) => self.wake_a_zombie(pause).await,
            Blow::Rebalance => self.join_and_leave().await,
            Blow::BrokerKill { member_too } => {
                self.stage.servers(|servers| servers.kafka.kill().unwrap()).await;
                self.away(member_too).await;
                self.stage.servers(|servers| servers.kafka.start().unwrap()).await;
                self.counts.broker_kills += 1;
            }
            Blow::PostgresStop { member_too } => {
                self.stage.servers(|servers| servers.postgres.stop_immediate().unwrap()).await;
                self.away(member_too).await;
                self.stage.servers(|servers| servers.postgres.start().unwrap()).await;
                self.counts.postgres_stops += 1;
            }
        }
        self.counts.rounds += 1;
    }

    fn any_member(&mut self) -> usize {
        self.seeded.below(self.members.len())
    }

    /// SIGKILL, and the next one at once, as the same instance where membership
    /// is static.
    fn replace(&mut self, index: usize) {
        let dead = &self.members[index];
        dead.kill();
        let instance = dead.instance.clone();
        self.members[index] = self.stage.member(self.membership, Some(&instance));
        self.counts.kills += 1;
        self.production.release();
    }

    /// A server is away; perhaps a consumer is killed meanwhile.
    async fn away(&mut self, member_too: bool) {
        some_moment(&mut self.seeded, AWAY_MOST).await;
        if member_too {
            let index = self.any_member();
            self.replace(index);
        }
    }

    /// A fourth one joins and gets partitions; then one of the others leaves.
    async fn join_and_leave(&mut self) {
        let joined = self.stage.member(self.membership, None);
        let joined = self.until_owner(joined).await;
        let index = self.any_member();
        let leaving = std::mem::replace(&mut self.members[index], joined);
        let name = leaving.name.clone();
        assert!(leaving.terminate().await, "{name} did not end well");
        self.counts.rebalances += 1;
        self.production.release();
    }
}
