//! Taking a partition over in the database: steps 1 to 3 of an assignment.

use std::time::Duration;

use futures_util::future::{Either, select};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow, types::Type};
use uuid::Uuid;

use super::{Interrupt, Partition};
use crate::{
    FirstStart,
    database_error::Verdict,
    decide::Group,
    handler::Handler,
    kafka::{FoundTopic, TopicIdentity},
    marker::{Known, Marker, Owner},
    settings::Settings,
    sql::Sql,
};

/// What a claim returned: the only source of the start.
pub(super) struct Claimed {
    pub(super) position: i32,
    pub(super) epoch: i64,
    pub(super) next_offset: Option<i64>,
    pub(super) run: i32,
    pub(super) reset_id: Option<Uuid>,
    pub(super) known: Vec<i64>,
    /// Of the record before `next_offset`, where that is known.
    pub(super) leader_epoch: Option<i32>,
    pub(super) owner: Owner,
}

impl Claimed {
    /// What a marker of this consumer beside the group's offset means.
    pub(super) fn group(&self, marker: &Marker, offset: i64, has_reset: bool) -> Group {
        let row = Known {
            next_offset: self.next_offset,
            offsets: &self.known,
            epoch: self.epoch - 1,
            reset: self.reset_id,
            has_reset,
        };
        Group::of_marker(marker, offset, &row)
    }
}

impl<H: Handler> Partition<H> {
    /// Raises the epoch, ending a predecessor that stands in the way.
    pub(super) async fn claim(&self) -> Result<Claimed, Interrupt> {
        let FoundTopic { identity, partitions } = self.shared.kafka.topic(&self.of.topic).await?;
        if self.shared.settings.first_start == FirstStart::Latest {
            self.place_first(&identity, &partitions).await?;
        }
        let lease = self.shared.pool.lease().await?;
        let Some(position) = self.position(&lease, &identity).await? else {
            lease.give_back();
            return Err(self.mismatch(&identity).await);
        };
        let nonce = Uuid::new_v4().simple().to_string();
        let settings = &self.shared.settings;
        let guard = settings.guard.as_str();
        let names = [settings.group_id(), &identity.cluster_id, &identity.topic_id, guard];
        let statement = self.shared.sql.claim(&nonce, position, names);
        let grace = Duration::from_millis(settings.claim_timeout_ms / 2);
        let claiming = Box::pin(lease.simple_query(&statement));
        let claimed = match select(claiming, Box::pin(tokio::time::sleep(grace))).await {
            Either::Left((claimed, _)) => claimed,
            Either::Right(((), claiming)) => {
                let ending = self.end_blockers(&nonce);
                futures_util::future::join(claiming, ending).await.0
            }
        };
        let messages = match claimed {
            Ok(messages) => {
                lease.give_back();
                messages
            }
            Err(error) if Verdict::of(&error) == Verdict::Mismatch => {
                drop(lease);
                return Err(self.mismatch(&identity).await);
            }
            Err(error) => return Err(self.claim_failed(error)),
        };
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let owner = owner(settings, identity);
        row.and_then(|row| parse(row, position, owner)).ok_or_else(|| {
            Interrupt::Fault("the claim returned no row that can be read".to_owned())
        })
    }

    fn claim_failed(&self, error: tokio_postgres::Error) -> Interrupt {
        Interrupt::claiming("claiming a partition", &self.shared.settings.schema, error)
    }

    /// The id of the partition's row, which it makes if there is none; `None`
    /// where the name is another group's.
    async fn position(
        &self,
        client: &Client,
        identity: &TopicIdentity,
    ) -> Result<Option<i32>, Interrupt> {
        let (sql, settings) = (&self.shared.sql, &self.shared.settings);
        let consumer = settings.consumer.as_str();
        let found = async || {
            let of = &self.of;
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&consumer, Type::TEXT), (&&*of.topic, Type::TEXT), (&of.partition, Type::INT4)];
            client.query_typed_opt(&sql.find_position, &parameters).await
        };
        let failed = |error| self.claim_failed(error);
        if let Some(row) = found().await.map_err(failed)? {
            return Ok(Some(row.get(0)));
        }
        let of = &self.of;
        client
            .execute_typed(
                &sql.ensure_position,
                &[
                    (&consumer, Type::TEXT),
                    (&&*of.topic, Type::TEXT),
                    (&of.partition, Type::INT4),
                    (&settings.group_id(), Type::TEXT),
                    (&identity.cluster_id, Type::TEXT),
                    (&identity.topic_id, Type::TEXT),
                ],
            )
            .await
            .map_err(failed)?;
        Ok(found().await.map_err(failed)?.map(|row| row.get(0)))
    }

    /// Under [`FirstStart::Latest`]: gives every partition of a topic that the
    /// consumer sees for the first time its start, so that those of later are
    /// known to be later. Partitions with an offset of the group keep it.
    async fn place_first(
        &self,
        identity: &TopicIdentity,
        partitions: &[i32],
    ) -> Result<(), Interrupt> {
        let (sql, settings) = (&self.shared.sql, &self.shared.settings);
        let (consumer, topic) = (settings.consumer.as_str(), &*self.of.topic);
        let failed = |error| self.claim_failed(error);
        let lease = self.shared.pool.lease().await?;
        let known = lease
            .query_typed_one(&sql.knows_topic, &[(&consumer, Type::TEXT), (&topic, Type::TEXT)])
            .await
            .map_err(failed)?;
        lease.give_back();
        if known.get(0) {
            return Ok(());
        }
        let owner = owner(settings, identity.clone());
        let mut starts = Vec::new();
        for &partition in partitions {
            let of = crate::TopicPartition { topic: self.of.topic.clone(), partition };
            let group = self.shared.kafka.committed(&of).await?;
            let marker = Marker::parse(&group.metadata);
            if group.offset.is_some() && marker.as_ref().is_some_and(|one| one.is_of(&owner)) {
                // Read before, by a database newer than this one.
                return Ok(());
            }
            let is_here = |offset: &i64| {
                !marker.as_ref().is_some_and(|one| one.is_of_deleted_topic(&owner, *offset))
            };
            let is_new = group.offset.filter(is_here).is_none();
            let (_, end) = self.shared.kafka.watermarks(&of).await?;
            starts.push((partition, is_new.then_some(end)));
        }
        let lease = self.shared.pool.lease().await?;
        lease.batch_execute("begin").await.map_err(failed)?;
        for (partition, start) in starts {
            lease
                .execute_typed(
                    &sql.place_position,
                    &[
                        (&consumer, Type::TEXT),
                        (&topic, Type::TEXT),
                        (&partition, Type::INT4),
                        (&settings.group_id(), Type::TEXT),
                        (&identity.cluster_id, Type::TEXT),
                        (&identity.topic_id, Type::TEXT),
                        (&start, Type::INT8),
                    ],
                )
                .await
                .map_err(failed)?;
        }
        lease.batch_execute("commit").await.map_err(failed)?;
        lease.give_back();
        Ok(())
    }

    /// Ends whatever the claim with this nonce waits for, by a connection of
    /// its own. What fails here shows as a claim that timed out.
    async fn end_blockers(&self, nonce: &str) {
        let ended: Result<_, Interrupt> = async {
            let spare = self.shared.pool.spare().await?;
            let ended = spare.query_typed(Sql::end_blockers(), &[(&nonce, Type::TEXT)]).await;
            let ended = ended.map_err(|error| self.claim_failed(error))?;
            spare.give_back();
            Ok(ended)
        }
        .await;
        match ended {
            Ok(rows) => {
                for row in rows {
                    let (pid, ended): (i32, bool) = (row.get(0), row.get(1));
                    tracing::warn!(partition = %self.of, pid, ended, "ended the predecessor's transaction");
                }
            }
            Err(interrupt) => {
                tracing::warn!(partition = %self.of, reason = interrupt.reason(), "the predecessor could not be ended");
            }
        }
    }

    /// Why the claim is refused.
    async fn mismatch(&self, now: &TopicIdentity) -> Interrupt {
        let (schema, settings, of) =
            (self.shared.sql.schema(), &self.shared.settings, self.of.clone());
        let consumer = settings.consumer.as_str();
        let query = format!(
            "select n.group_id, n.guard, q.group_id, q.cluster_id, q.topic_id \
             from (select $1::text as name) w left join {schema}.consumer n on n.name = w.name \
             left join {schema}.position q on q.consumer = w.name and q.topic = $2 and q.part = $3"
        );
        let stored = async {
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&consumer, Type::TEXT), (&&*of.topic, Type::TEXT), (&of.partition, Type::INT4)];
            let lease = self.shared.pool.lease().await?;
            let row = lease.query_typed_one(&query, &parameters).await;
            let row = row.map_err(|error| self.claim_failed(error))?;
            lease.give_back();
            Ok([0, 1, 2, 3, 4].map(|column| row.get::<_, Option<String>>(column)))
        };
        let stored: Result<_, Interrupt> = stored.await;
        let [group, guard, of_group, cluster, topic] = match stored {
            Ok(stored) => stored,
            Err(interrupt) => return interrupt,
        };
        if let Some(group) = group.filter(|group| group != settings.group_id()) {
            return self.named_otherwise(&group);
        }
        if let Some(guard) = guard.filter(|guard| guard != settings.guard.as_str()) {
            return self.guarded_otherwise(&guard);
        }
        match (of_group, cluster, topic) {
            (Some(group), Some(cluster), Some(topic)) => {
                self.placed_otherwise([&group, &cluster, &topic], now)
            }
            _ => Interrupt::Fault("the row of the partition vanished".to_owned()),
        }
    }
}

fn owner(settings: &Settings, identity: TopicIdentity) -> Owner {
    let TopicIdentity { cluster_id: cluster, topic_id: topic } = identity;
    Owner { consumer: settings.consumer.clone(), cluster, topic }
}

fn parse(row: &SimpleQueryRow, position: i32, owner: Owner) -> Option<Claimed> {
    let optional = |column: &str| row.try_get(column).ok();
    let known = optional("known")??.trim_start_matches('{').trim_end_matches('}');
    Some(Claimed {
        position,
        epoch: optional("epoch")??.parse().ok()?,
        next_offset: match optional("next_offset")? {
            Some(offset) => Some(offset.parse().ok()?),
            None => None,
        },
        run: optional("run")??.parse().ok()?,
        reset_id: match optional("reset_id")? {
            Some(id) => Some(id.parse().ok()?),
            None => None,
        },
        known: known
            .split(',')
            .filter(|offset| !offset.is_empty())
            .map(|offset| offset.parse().ok())
            .collect::<Option<_>>()?,
        leader_epoch: match optional("leader_epoch")? {
            Some(epoch) => Some(epoch.parse().ok()?),
            None => None,
        },
        owner,
    })
}
