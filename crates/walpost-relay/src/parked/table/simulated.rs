//! The table in the simulation's server. Nobody asks there for parked events to be
//! sent on.

use super::{Aggregate, ParkedEvent, ParkedTable, Waiting, column_text};
use crate::{
    error::RelayError,
    parked::requests::Head,
    simulation::{ParkedRow, Server},
};

impl ParkedTable {
    pub(super) async fn insert_into(
        &self,
        server: &Server,
        events: &[ParkedEvent],
    ) -> Result<(), RelayError> {
        let row = |event: &ParkedEvent| {
            let Aggregate { kind, id } = Aggregate::new(&event.identity);
            ParkedRow {
                position: event.position,
                event_id: column_text(event.identity.event_id.as_ref()),
                aggregate_type: kind,
                aggregate_id: id,
            }
        };
        if server.park(self.token, events.iter().map(row).collect()).await? {
            return Ok(());
        }
        Err(self.taken_over())
    }

    pub(super) async fn aggregates_of(server: &Server) -> Result<Waiting, RelayError> {
        let mut waiting = Waiting::default();
        for row in server.parked_aggregates().await? {
            waiting.load(aggregate(&row), row.position)?;
        }
        Ok(waiting)
    }

    pub(in crate::parked) async fn heads_of(
        server: &Server,
        aggregates: &[Aggregate],
    ) -> Result<Vec<Option<Head>>, RelayError> {
        let rows = server.parked_aggregates().await?;
        let head = |row: &ParkedRow| Head {
            id: 1,
            open: true,
            behind: false,
            retry: false,
            discard: false,
            passed: true,
            commit_lsn: row.position.commit_lsn,
        };
        let of = |one: &Aggregate| rows.iter().find(|row| aggregate(row) == *one).map(head);
        Ok(aggregates.iter().map(of).collect())
    }
}

fn aggregate(row: &ParkedRow) -> Aggregate {
    Aggregate { kind: row.aggregate_type.clone(), id: row.aggregate_id.clone() }
}
