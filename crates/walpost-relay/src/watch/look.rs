use std::time::Instant;

use tokio_postgres::{
    Row,
    types::{PgLsn, Type},
};
use walpost_event::Lsn;

use crate::{
    config::RelayConfig,
    error::{RelayError, SourceError},
    sight::{Holder, ParkedSight, SlotSight, SlotState},
    sql::Sql,
    wal::quote_identifier,
};

/// A session that asks the server about one pipeline.
pub(super) struct Look {
    sql: Sql,
    slot: String,
    pipeline: String,
    schema: String,
}

/// A look at the slot.
pub(super) struct SlotLook {
    pub(super) sight: SlotSight,
    /// `max_slot_wal_keep_size`, where the server has a limit.
    pub(super) keep_bytes: Option<u64>,
}

/// Columns that only newer servers have are asked for through JSON, which
/// knows none of them on the older.
const SLOT: &str = "\
    select case when not pg_is_in_recovery() then pg_current_wal_lsn() end,
        s.wal_status,
        coalesce(to_jsonb(s) ->> 'invalidation_reason',
            case when (to_jsonb(s) ->> 'conflicting')::boolean then 'conflict' end),
        s.restart_lsn, s.confirmed_flush_lsn, s.safe_wal_size, s.active_pid,
        (extract(epoch from r.reply_time) * 1e6)::int8,
        a.state = 'active' and coalesce(a.wait_event_type, 'IO') in ('IO', 'LWLock'),
        pg_size_bytes(current_setting('max_slot_wal_keep_size')), c.system_identifier::text
    from pg_control_system() c
    left join pg_replication_slots s on s.slot_name = $1
    left join pg_stat_replication r on r.pid = s.active_pid
    left join pg_stat_activity a on a.pid = s.active_pid";

/// Prepared transactions are among them.
const OLDEST_TRANSACTION: &str = "\
    select what, extract(epoch from clock_timestamp() - since)::int8 from (
        select 'the transaction of process ' || pid as what, xact_start as since
        from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
        union all
        select 'a prepared transaction of database ' || database, prepared
        from pg_prepared_xacts
    ) open where since is not null order by since limit 1";

impl Look {
    pub(super) fn new(sql: Sql, config: &RelayConfig) -> Self {
        let (slot, pipeline) = (config.slot.clone(), config.pipeline.clone());
        Self { sql, slot, pipeline, schema: quote_identifier(&config.schema) }
    }

    /// On the primary of the cluster `system_id`: a name may stand for several
    /// servers.
    pub(super) async fn slot(&self, system_id: &str) -> Result<SlotLook, RelayError> {
        let parameters = [(&self.slot as _, Type::TEXT)];
        let row = self.sql.one("looking at the replication slot", SLOT, &parameters).await?;
        let (wal, found) = (lsn(&row, 0), row.get::<_, &str>(10));
        let Some(wal) = wal.filter(|_| found == system_id) else {
            let kind = if wal.is_none() { "a standby" } else { "the primary" };
            return Err(RelayError::Source(SourceError::OtherServer {
                expected: format!("the primary of cluster {system_id}"),
                found: format!("{kind} of cluster {found}"),
            }));
        };
        let count = |index| row.get::<_, Option<i64>>(index).map(|n| u64::try_from(n).unwrap_or(0));
        let sight = SlotSight {
            at: Instant::now(),
            wal,
            state: SlotState::of(row.get(1)),
            invalidation: row.get(2),
            restart: lsn(&row, 3),
            confirmed: lsn(&row, 4),
            invalidation_bytes: count(5),
            active_pid: row.get(6),
            budget: None,
            parked: None,
            holder: Holder {
                reported_us: row.get(7),
                is_working: row.get::<_, Option<bool>>(8).unwrap_or(false),
            },
        };
        let keep_bytes = u64::try_from(row.get::<_, i64>(9)).ok();
        Ok(SlotLook { sight, keep_bytes })
    }

    /// Counts what is set aside, as far as an index leads to it and no further
    /// than to 100,000.
    pub(super) async fn parked(&self) -> Result<ParkedSight, RelayError> {
        let sql = format!(
            "select count(*) filter (where reason <> 'behind'),
                count(*) filter (where reason = 'behind'),
                coalesce(extract(epoch from clock_timestamp() - min(parked_at)), 0)::float8
            from (select reason, parked_at from {}.parked
                where pipeline = $1 and state in ('open', 'sending') limit 100000) parked",
            self.schema
        );
        let parameters = [(&self.pipeline as _, Type::TEXT)];
        let row = self.sql.one("counting the parked events", &sql, &parameters).await?;
        let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
        Ok(ParkedSight { open: count(0), held: count(1), oldest_seconds: row.get(2) })
    }

    /// The oldest transaction that our role may see, for people.
    pub(super) async fn oldest_transaction(&self) -> Result<Option<String>, RelayError> {
        let attempt = "looking for open transactions";
        let row = self.sql.opt(attempt, OLDEST_TRANSACTION, &[]).await?;
        let describe =
            |row: Row| format!("{}, begun {} s ago,", row.get::<_, &str>(0), row.get::<_, i64>(1));
        Ok(row.map(describe))
    }
}

fn lsn(row: &Row, index: usize) -> Option<Lsn> {
    row.get::<_, Option<PgLsn>>(index).map(|lsn| Lsn::from(u64::from(lsn)))
}
