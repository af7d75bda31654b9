//! Parked rows of events that a lost slot may not have brought.

use tokio_postgres::{Row, types::Type};

use super::{Aggregate, ParkedId, aggregates::WAITING_MAX, table::ParkedTable};
#[cfg(test)]
use crate::simulation::ParkedRow;
use crate::{
    config::RelayConfig,
    error::RelayError,
    event_id::printed,
    id_space,
    recovery::not_proven,
    wal::{quote_identifier, quote_literal, row_filter, snapshot::PRINTING},
};

/// Rows that are remembered.
const GAP_MAX: usize = 2 * WAITING_MAX;

/// A row that counts for a recovery.
pub(super) struct Gap {
    /// Of an event that comes again; none for one that does not.
    pub(super) event: Option<ParkedId>,
    /// What waits behind it, while it is open.
    pub(super) aggregate: Option<Aggregate>,
}

impl ParkedTable {
    /// Those whose event is a row that the snapshot `proven` does not see, and
    /// all that are open. `id` is the column of the event's id.
    pub(super) async fn read_gap(
        &self,
        config: &RelayConfig,
        proven: &str,
        id: &str,
    ) -> Result<Vec<Gap>, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            let gap = |(row, comes_again): (ParkedRow, bool)| Gap {
                event: row
                    .event_id
                    .filter(|_| comes_again)
                    .map(|id| ParkedId { space: None, id: Some(id) }),
                aggregate: row
                    .aggregate_id
                    .map(|id| Aggregate { kind: row.aggregate_type, id: Some(id) }),
            };
            return Ok(server.gap(proven).await?.into_iter().map(gap).collect());
        }
        let id = printed(&quote_identifier(id));
        let mut ids = Vec::new();
        for table in &config.tables {
            let rows = row_filter::condition(&self.sql, config, table).await?;
            ids.push(format!(
                "select {id} as id, {} as id_space from {} where {} and {}",
                id_space::of_table(config, table),
                table.quoted(),
                not_proven(proven),
                rows.as_deref().unwrap_or("true")
            ));
        }
        let sql = format!(
            "select g.id, p.aggregate_type, p.aggregate_id, p.state in ('open', 'sending'), \
             p.id_space from {} p left join ({}) g on g.id = p.event_id \
             and (p.id_space is null or p.id_space = g.id_space) \
             where p.pipeline = {} and (g.id is not null or p.state in ('open', 'sending')) limit $1",
            self.parked,
            ids.join(" union "),
            quote_literal(&self.pipeline),
        );
        let limit = [(&(GAP_MAX as i64 + 1) as _, Type::INT8)];
        // Has to read the whole outbox, once.
        let slow = self.sql.within_ms(config.slot_timeout_ms);
        slow.batch("setting up the session", PRINTING).await?;
        let rows = slow.query("reading which missing events are parked", &sql, &limit).await?;
        if rows.len() > GAP_MAX {
            return Err(RelayError::prerequisite(
                format!("more than {GAP_MAX} parked events count for the recovery of the slot"),
                "discard events with `walpost parked discard`, which the next start does first",
            ));
        }
        Ok(rows.iter().map(gap).collect())
    }
}

fn gap(row: &Row) -> Gap {
    let is_waited_for = row.get::<_, bool>(3) && row.get::<_, Option<&str>>(2).is_some();
    let aggregate = is_waited_for.then(|| Aggregate { kind: row.get(1), id: row.get(2) });
    let id = row.get::<_, Option<String>>(0);
    Gap { event: id.map(|id| ParkedId { space: row.get(4), id: Some(id) }), aggregate }
}
