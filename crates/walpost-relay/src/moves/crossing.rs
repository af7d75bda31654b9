//! The boundary of a move in the stream of its receiver.
//!
//! What is committed behind it may follow, in an aggregate, what the giver still
//! has to publish. So the receiver stops there until the giver's checkpoint is
//! behind it, and until nothing that the giver has parked could follow later.

use serde_json::{Value, json};
use tokio_postgres::{
    Row,
    types::{PgLsn, Type},
};
use walpost_event::Lsn;

#[cfg(test)]
use crate::simulation;
use crate::{config::RelayConfig, error::RelayError, sql::Sql, wal::quote_identifier};

/// Of the logical message that is the boundary.
pub(crate) const PREFIX: &str = "walpost-move";

/// What the message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) schema: String,
    pub(crate) id: i64,
    /// The transaction that made the move.
    pub(crate) xid: u64,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Boundary {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "schema": self.schema,
            "move": self.id,
            "xid": self.xid.to_string(),
            "from": self.from,
            "to": self.to,
        })
    }

    /// Reads what [`to_json`](Self::to_json) wrote. `None` of anything else.
    pub(crate) fn read(content: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(content).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let id = value["move"].as_i64()?;
        let (schema, xid) = (text("schema")?, text("xid")?.parse().ok()?);
        Some(Self { schema, id, xid, from: text("from")?, to: text("to")? })
    }

    /// Whether it is of the transaction of which the stream shows the lower half
    /// of the id, and whose id is not far from `near`. Anybody may write such a
    /// message, but not in the transaction of a move.
    fn is_of(&self, xid: u32, near: u64) -> bool {
        // No slot holds half of all ids back: the server would stop first.
        let distance = xid.wrapping_sub(near as u32).cast_signed();
        near.checked_add_signed(distance.into()) == Some(self.xid)
    }
}

/// The entry of a move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: i64,
    /// The transaction that made it. The number alone anybody can name, also
    /// that of a move to come.
    pub(crate) xid: u64,
}

impl Entry {
    /// The condition on a row of the table, and what it takes: the first two
    /// parameters.
    const IS_IT: &str = "id = $1 and xid = $2::text::xid8";
}

/// What the rows say of the giver of a move.
#[derive(Debug)]
pub(crate) struct Giver {
    /// The boundary was crossed before.
    pub(crate) is_crossed: bool,
    pub(crate) pipeline: String,
    /// Its position; none without a checkpoint.
    pub(crate) confirmed: Option<String>,
    /// That is behind the boundary, and the pipeline streams.
    pub(crate) is_past: bool,
    /// Its open parked events from before the boundary.
    pub(crate) parked: i64,
}

/// Goes on behind the boundary of a move, whose commit record begins at
/// `commit_lsn`. What is waited for, if it cannot be crossed yet.
pub(crate) async fn cross(
    sql: &Sql,
    config: &RelayConfig,
    entry: Entry,
    commit_lsn: Lsn,
) -> Result<Option<String>, RelayError> {
    let id = entry.id;
    let giver = giver(sql, config, entry, commit_lsn).await?;
    #[cfg(test)]
    if giver.is_none() && simulation::has(simulation::Bug::CrossUnseen) {
        return Ok(None);
    }
    let Some(giver) = giver else {
        let schema = quote_identifier(&config.schema);
        return Ok(Some(format!("the entry of move {id} is not to be seen in {schema}.move")));
    };
    if giver.is_crossed {
        return Ok(None);
    }
    let waits = giver.waits(config, id, commit_lsn);
    if waits.is_none() {
        note(sql, config, entry).await?;
    }
    Ok(waits)
}

impl Giver {
    /// What has to happen first.
    fn waits(&self, config: &RelayConfig, id: i64, commit_lsn: Lsn) -> Option<String> {
        let Self { pipeline: giver, parked, .. } = self;
        if !self.is_past {
            return Some(match &self.confirmed {
                Some(confirmed) => format!(
                    "pipeline {giver:?} is at {confirmed}, and has to pass the boundary of move \
                     {id} at {commit_lsn}; have it run"
                ),
                None => format!(
                    "pipeline {giver:?} has no checkpoint any more, and had to pass the boundary \
                     of move {id} at {commit_lsn}; once its events from before are published, set \
                     crossed_at of the entry in {}.move",
                    quote_identifier(&config.schema)
                ),
            });
        }
        (*parked > 0).then(|| {
            format!(
                "pipeline {giver:?} has {parked} parked events, which may belong before the \
                 boundary of move {id}; send them on or discard them with `walpost parked`"
            )
        })
    }
}

/// None while the entry of the move is not to be seen.
async fn giver(
    sql: &Sql,
    config: &RelayConfig,
    entry: Entry,
    commit_lsn: Lsn,
) -> Result<Option<Giver>, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.giver(entry.id, commit_lsn).await;
    }
    let schema = quote_identifier(&config.schema);
    let look = format!(
        "select m.crossed_at is not null, m.from_pipeline, c.confirmed_lsn::text, \
         coalesce(c.initial = 'done' and c.recovery is null and c.confirmed_lsn > $3, false), \
         (select count(*) from {schema}.parked p where p.pipeline = m.from_pipeline \
             and p.state in ('open', 'sending') \
             and (p.generation is distinct from c.generation or p.commit_lsn < $3)) \
         from (select * from {schema}.move where {}) m \
         left join {schema}.checkpoint c on c.pipeline = m.from_pipeline",
        Entry::IS_IT
    );
    let xid = entry.xid.to_string();
    let position = PgLsn::from(u64::from(commit_lsn));
    let parameters =
        [(&entry.id as _, Type::INT8), (&xid as _, Type::TEXT), (&position as _, Type::PG_LSN)];
    let attempt = "looking whether the giver of a move has passed its boundary";
    let row = sql.opt(attempt, &look, &parameters).await?;
    Ok(row.map(|row| Giver {
        is_crossed: row.get(0),
        pipeline: row.get(1),
        confirmed: row.get(2),
        is_past: row.get(3),
        parked: row.get(4),
    }))
}

async fn note(sql: &Sql, config: &RelayConfig, entry: Entry) -> Result<(), RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.crossed(entry.id).await;
    }
    let note = format!(
        "update {}.move set crossed_at = clock_timestamp() \
         where {} and crossed_at is null returning 1",
        quote_identifier(&config.schema),
        Entry::IS_IT
    );
    let xid = entry.xid.to_string();
    let parameters = [(&entry.id as _, Type::INT8), (&xid as _, Type::TEXT)];
    sql.query("noting that a boundary was crossed", &note, &parameters).await.map(|_| ())
}

/// What a message is that says to be a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// Its move is there, or may still come to be seen: a commit is in the
    /// stream before it is visible.
    Boundary,
    /// It names the id of a transaction that is not its own.
    OfAnother,
    /// Its transaction is finished and visible, and has no such entry: it was
    /// made up, or the entry was deleted.
    WithoutEntry,
}

/// Looks whether a message in transaction `xid`, lower half, is a boundary.
pub(crate) async fn sight(
    sql: &Sql,
    config: &RelayConfig,
    boundary: &Boundary,
    xid: u32,
) -> Result<Sighting, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(Sighting::Boundary);
    }
    let query = format!(
        "select pg_snapshot_xmax(now)::text, pg_visible_in_snapshot($2::text::xid8, now) \
         and not exists (select from {}.move where {}) from pg_current_snapshot() as now",
        quote_identifier(&config.schema),
        Entry::IS_IT
    );
    let claimed = boundary.xid.to_string();
    let parameters = [(&boundary.id as _, Type::INT8), (&claimed as _, Type::TEXT)];
    let row = sql.one("looking for the entry of a move", &query, &parameters).await?;
    let near: u64 = row.get::<_, &str>(0).parse().unwrap_or_default();
    Ok(match (boundary.is_of(xid, near), row.get(1)) {
        (false, _) => Sighting::OfAnother,
        (true, true) => Sighting::WithoutEntry,
        (true, false) => Sighting::Boundary,
    })
}

/// Moves to this pipeline that it has not crossed and that the snapshot
/// `boundary` of its slot sees: no message of theirs is in its stream.
pub(crate) async fn uncrossed(
    sql: &Sql,
    config: &RelayConfig,
    boundary: &str,
) -> Result<Vec<Entry>, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        let ids = server.uncrossed(boundary).await?;
        return Ok(ids.into_iter().map(|id| Entry { id, xid: 0 }).collect());
    }
    let query = format!(
        "select id, xid::text from {}.move where to_pipeline = $1 and crossed_at is null \
         and pg_visible_in_snapshot(xid, $2::text::pg_snapshot) order by id",
        quote_identifier(&config.schema)
    );
    let parameters = [(&config.pipeline as _, Type::TEXT), (&boundary as _, Type::TEXT)];
    let rows = sql.query("looking for moves to this pipeline", &query, &parameters).await?;
    let entry = |row: &Row| {
        let xid = row.get::<_, &str>(1).parse().unwrap_or_default();
        Entry { id: row.get(0), xid }
    };
    Ok(rows.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_read_as_it_was_written_and_is_of_its_transaction() {
        let (from, to) = ("a".to_owned(), "b".to_owned());
        let (schema, xid) = ("walpost".to_owned(), (3 << 32) + 9);
        let boundary = Boundary { schema, id: 7, xid, from, to };
        let content = boundary.to_json().to_string();
        assert_eq!(Boundary::read(content.as_bytes()).as_ref(), Some(&boundary));
        assert_eq!(Boundary::read(b"{\"move\": 7}"), None);
        assert_eq!(Boundary::read(b"no json"), None);
        let forged = content.replace("12884901897", "x");
        assert_eq!(Boundary::read(forged.as_bytes()), None);
        for near in [(3 << 32) + 8, (3 << 32) + 9, (3 << 32) + 5_000, (3 << 32) - 5_000] {
            assert!(boundary.is_of(9, near), "{near}");
            assert!(!boundary.is_of(8, near), "of another transaction");
        }
        for near in [9, 5_000, (2 << 32) + 9, (4 << 32) + 9, u64::MAX] {
            assert!(!boundary.is_of(9, near), "of another epoch: {near}");
        }
        let early = Boundary { xid: 9, ..boundary };
        assert!(early.is_of(9, 4) && !early.is_of(9, (1 << 32) + 4));
        assert!(!early.is_of(u32::MAX, 4), "before the first");
    }
}
