use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio_postgres::types::{PgLsn, ToSql, Type};
use walpost_event::{Generation, Identity, Lsn, Position};

use crate::{
    config::{ParkMode, RelayConfig},
    error::RelayError,
    sql::Sql,
    wal::quote_identifier,
};

/// Events that could not be delivered, and the aggregates that wait for them.
///
/// A parked event is a committed row before the position passes it. Its row
/// keeps its position, so an event that is streamed again is neither parked
/// nor sent a second time.
pub(crate) struct Parked {
    sql: Sql,
    table: String,
    pipeline: String,
    generation: Generation,
    mode: ParkMode,
    positions: HashMap<Position, Option<String>>,
    aggregates: HashSet<Aggregate>,
    rejected: HashMap<Position, Parking>,
}

type Aggregate = (Option<Bytes>, Option<Bytes>);

/// Why an event is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// The class of the reason.
    pub reason: ParkReason,
    /// What was wrong; never contents.
    pub detail: String,
}

/// The class of reason for which an event is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkReason {
    /// No topic, or a column that the route needs is missing.
    Unroutable,
    /// Larger than `max_event_bytes` or than the topic takes.
    Oversize,
    /// The sink looked at it and refused it.
    Rejected,
    /// It cannot be encoded, or is no event.
    Undecodable,
    /// An earlier event of its aggregate is parked.
    Behind,
}

impl ParkReason {
    /// As the table has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unroutable => "unroutable",
            Self::Oversize => "oversize",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
            Self::Behind => "behind",
        }
    }
}

impl Parked {
    /// Reads what is parked at or above `confirmed`, and which aggregates wait.
    pub(crate) async fn load(
        sql: Sql,
        config: &RelayConfig,
        generation: Generation,
        confirmed: Lsn,
        rejected: HashMap<Position, Parking>,
    ) -> Result<Self, RelayError> {
        let mut parked = Self {
            sql,
            table: format!("{}.parked", quote_identifier(&config.schema)),
            pipeline: config.pipeline.clone(),
            generation,
            mode: config.park,
            positions: HashMap::new(),
            aggregates: HashSet::new(),
            rejected,
        };
        parked.load_positions(confirmed).await?;
        parked.load_aggregates().await?;
        Ok(parked)
    }

    /// Whether this very event has a row already, in whatever state. The id
    /// counts too: rows that were deleted meanwhile shift a load's ordinals.
    pub(crate) fn contains(&self, position: Position, identity: &Identity) -> bool {
        self.positions.get(&position).is_some_and(|id| *id == text(identity.event_id.as_ref()))
    }

    /// Why the event has to be parked before anybody tries to send it.
    pub(crate) fn must_wait(&self, position: Position, identity: &Identity) -> Option<Parking> {
        if let Some(parking) = self.rejected.get(&position) {
            return Some(parking.clone());
        }
        if self.aggregates.is_empty() || !self.aggregates.contains(&aggregate(identity)) {
            return None;
        }
        let detail = "an earlier event of this aggregate is parked".to_owned();
        Some(Parking { reason: ParkReason::Behind, detail })
    }

    /// Whether anything is parked, rejected or waits, so that identities
    /// matter.
    pub(crate) fn is_empty(&self) -> bool {
        self.rejected.is_empty() && self.aggregates.is_empty() && self.positions.is_empty()
    }

    /// Commits a row for the event.
    pub(crate) async fn park(
        &mut self,
        position: Position,
        identity: &Identity,
        parking: &Parking,
    ) -> Result<(), RelayError> {
        let sql = format!(
            "insert into {} (pipeline, generation, commit_lsn, ordinal, event_id, aggregate_type, \
             aggregate_id, reason, detail) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             on conflict (pipeline, generation, commit_lsn, ordinal) do nothing",
            self.table
        );
        self.sql
            .query(
                "parking an event",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&i64::from(u32::from(self.generation)), Type::INT8),
                    (&PgLsn::from(u64::from(position.commit_lsn)), Type::PG_LSN),
                    (&i64::from(position.ordinal), Type::INT8),
                    (&text(identity.event_id.as_ref()), Type::TEXT),
                    (&text(identity.aggregate_type.as_ref()), Type::TEXT),
                    (&text(identity.aggregate_id.as_ref()), Type::TEXT),
                    (&parking.reason.as_str(), Type::TEXT),
                    (&parking.detail, Type::TEXT),
                ],
            )
            .await?;
        self.positions.insert(position, text(identity.event_id.as_ref()));
        if self.mode == ParkMode::Aggregate && identity.aggregate_id.is_some() {
            self.aggregates.insert(aggregate(identity));
        }
        tracing::warn!(
            %position,
            event_id = text(identity.event_id.as_ref()),
            reason = parking.reason.as_str(),
            detail = parking.detail,
            "event parked; see it with `walpost parked list`"
        );
        Ok(())
    }

    async fn load_positions(&mut self, confirmed: Lsn) -> Result<(), RelayError> {
        let sql = format!(
            "select commit_lsn, ordinal, event_id from {} \
             where pipeline = $1 and generation = $2 and commit_lsn >= $3",
            self.table
        );
        // Commit records end behind where they start: a page of slack keeps
        // the transaction that ends at the confirmed position.
        let from = u64::from(confirmed).saturating_sub(1 << 16);
        let rows = self
            .sql
            .query(
                "reading the parked events",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&i64::from(u32::from(self.generation)), Type::INT8),
                    (&PgLsn::from(from), Type::PG_LSN),
                ],
            )
            .await?;
        for row in rows {
            let position = Position {
                commit_lsn: Lsn::from(u64::from(row.get::<_, PgLsn>(0))),
                ordinal: u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX),
            };
            self.positions.insert(position, row.get(2));
        }
        Ok(())
    }

    async fn load_aggregates(&mut self) -> Result<(), RelayError> {
        if self.mode == ParkMode::Event {
            return Ok(());
        }
        let sql = format!(
            "select distinct aggregate_type, aggregate_id from {} \
             where pipeline = $1 and state in ('open', 'sending') and aggregate_id is not null",
            self.table
        );
        let parameters = [(&self.pipeline as &(dyn ToSql + Sync), Type::TEXT)];
        for row in self.sql.query("reading the parked aggregates", &sql, &parameters).await? {
            let part = |index| row.get::<_, Option<String>>(index).map(Bytes::from);
            self.aggregates.insert((part(0), part(1)));
        }
        Ok(())
    }
}

fn aggregate(identity: &Identity) -> Aggregate {
    // As the table gives it back: text.
    let part = |bytes: &Option<Bytes>| text(bytes.as_ref()).map(Bytes::from);
    (part(&identity.aggregate_type), part(&identity.aggregate_id))
}

/// PostgreSQL's text takes neither NUL nor broken UTF-8.
fn text(bytes: Option<&Bytes>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}"))
}
