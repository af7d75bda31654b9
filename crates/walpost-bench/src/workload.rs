//! The backlog that every subject drains.

use anyhow::Result;
use tokio_postgres::types::PgLsn;

use crate::{database::Database, progress};

/// Rows of a large transaction; as many events follow in transactions of one.
pub(crate) const LARGE_TRANSACTION: u64 = 1_000;

/// Aggregates that the events spread over.
const AGGREGATES: u64 = 1_000;
const BLOCK: u64 = 2 * LARGE_TRANSACTION;
const BLOCKS_PER_CALL: u64 = 10;
const PROGRESS_EVENTS: u64 = 100_000;

/// An event of about 320 bytes: 230 of payload, the rest identity, aggregate,
/// type, and the columns that the table fills in by itself. The long values
/// are digests, so that they compress no better than real ones.
const FUNCTIONS: &str = r#"
create schema bench;
create function bench.payload(n bigint) returns jsonb language sql volatile as $$
    select jsonb_build_object('order', n, 'customer', md5((n % 5000)::text), 'currency', 'EUR',
        'total_cents', 1000 + n % 90000, 'note', md5(n::text) || md5((-n)::text) || md5('a' || n))
$$;
create function bench.aggregate(n bigint) returns text language sql volatile as $$
    select 'customer-' || n * 7919 % AGGREGATES
$$;
create function bench.insert_rows(first bigint, count bigint) returns void language sql as $$
    insert into walpost.outbox (aggregatetype, aggregateid, type, payload)
        select 'order', bench.aggregate(n), 'OrderPlaced', bench.payload(n)
        from generate_series(first, first + count - 1) n
$$;
create procedure bench.fill(first bigint, large bigint, small bigint) language plpgsql as $$
begin
    perform bench.insert_rows(first, large);
    commit;
    for n in first + large .. first + large + small - 1 loop
        insert into walpost.outbox (aggregatetype, aggregateid, type, payload)
            values ('order', bench.aggregate(n), 'OrderPlaced', bench.payload(n));
        commit;
    end loop;
end $$;
set synchronous_commit = off;
"#;

/// Fills the outbox with `events` events, half of them in transactions of
/// 1,000 rows and half in transactions of one, taking turns. Returns where the
/// last commit ends.
pub(crate) fn fill(database: &Database, events: u64) -> Result<PgLsn> {
    create_functions(database)?;
    let mut next = 0;
    while next < events {
        for (first, large, small) in blocks(next, events).take(BLOCKS_PER_CALL as usize) {
            database.run(&format!("call bench.fill({first}, {large}, {small})"))?;
            next = first + large + small;
        }
        if next % PROGRESS_EVENTS == 0 || next == events {
            progress!("filled {next} of {events} events");
        }
    }
    let end = database.wal_position()?;
    database.run("checkpoint")?;
    Ok(end)
}

/// One transaction with all its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneTransaction {
    /// At or before its commit record, behind everything else of it.
    pub(crate) before_commit: PgLsn,
    /// What it has put into the WAL.
    pub(crate) wal_bytes: u64,
}

/// Fills the outbox with `rows` events in one transaction, from 0 on.
pub(crate) fn fill_one_transaction(database: &Database, rows: u64) -> Result<OneTransaction> {
    create_functions(database)?;
    let begin = database.wal_position()?;
    database.run("begin")?;
    database.run(&format!("select bench.insert_rows(0, {rows})"))?;
    let before_commit = database.wal_position()?;
    database.run("commit")?;
    let wal_bytes = u64::from(database.wal_position()?) - u64::from(begin);
    database.run("checkpoint")?;
    Ok(OneTransaction { before_commit, wal_bytes })
}

/// The key of the record of event `n`.
pub(crate) fn key(n: u64) -> String {
    format!("customer-{}", n.wrapping_mul(7_919) % AGGREGATES)
}

/// What [`fill`] and the writers of latency call.
pub(crate) fn create_functions(database: &Database) -> Result<()> {
    database.run(&FUNCTIONS.replace("AGGREGATES", &AGGREGATES.to_string()))
}

/// First event of each block from `next` on, and how many go into one
/// transaction and into one each.
fn blocks(next: u64, events: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (next..events).step_by(BLOCK as usize).map(move |first| {
        let size = BLOCK.min(events - first);
        (first, size.div_ceil(2), size / 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_events_half_and_half() {
        let all: Vec<_> = blocks(0, 5_001).collect();
        assert_eq!(all, [(0, 1_000, 1_000), (2_000, 1_000, 1_000), (4_000, 501, 500)]);
        assert_eq!(blocks(4_000, 5_001).count(), 1);
        assert_eq!(blocks(0, 0).count(), 0);
    }
}
