//! The row of a pipeline that goes on behind another program on its slot.

use tokio_postgres::types::{PgLsn, Type};

use super::{Checkpoint, CheckpointStore};
use crate::{error::RelayError, sql::Parameter};

impl CheckpointStore {
    /// Makes the row say what `row` says, which nothing was published under yet:
    /// a new one, or in the place of `before` if that is still there.
    pub(crate) async fn begin_behind(
        &self,
        row: &Checkpoint,
        before: Option<&Checkpoint>,
    ) -> Result<(), RelayError> {
        // Of what was proven, recovery would ask topics for records of ours.
        let sql = format!(
            "insert into {table} as c (pipeline, token, generation, system_id, timeline, slot, \
             confirmed_lsn, initial, tables, publication, taken_over_at, clean, relations) \
             values ($1, $2, $3, $4, $5, $6, $7, 'done', $8, $9, $10, true, $13) \
             on conflict (pipeline) do update set token = excluded.token, \
             generation = excluded.generation, system_id = excluded.system_id, \
             timeline = excluded.timeline, slot = excluded.slot, \
             confirmed_lsn = excluded.confirmed_lsn, tables = excluded.tables, \
             publication = excluded.publication, relations = excluded.relations, \
             taken_over_at = excluded.taken_over_at, \
             clean = true, floors = '{{}}', proven = null, pending = null, recovery = null, \
             recovery_requested = null, updated_at = clock_timestamp() \
             where c.generation = $11 and c.confirmed_lsn = $12",
            table = self.table
        );
        let generation = |row: &Checkpoint| i64::from(u32::from(row.generation));
        let lsn = |row: &Checkpoint| PgLsn::from(u64::from(row.confirmed));
        let taken_over_at = row.taken_over_at.map(|position| position.to_string());
        let relations = self.noted_relations();
        let parameters: [Parameter<'_>; 13] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&generation(row), Type::INT8),
            (&row.system_id, Type::TEXT),
            (&i64::from(row.timeline), Type::INT8),
            (&row.slot, Type::TEXT),
            (&lsn(row), Type::PG_LSN),
            (&self.outboxes, Type::TEXT_ARRAY),
            (&self.expected, Type::JSONB),
            (&taken_over_at, Type::TEXT),
            (&before.map(generation), Type::INT8),
            (&before.map(lsn), Type::PG_LSN),
            (&relations, Type::JSONB),
        ];
        let written = self.execute("noting where the pipeline begins", &sql, &parameters).await?;
        self.owned(written)
    }
}
