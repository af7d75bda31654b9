//! Steady load: writers that share aggregates, whose turns a row lock decides,
//! so that their order of commit is known. Each event is noted in a table of its
//! own in its transaction, whichever way it takes to the WAL: after all it is
//! the database that says what was committed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_postgres::{Client, Error, NoTls, Statement, Transaction};
use walpost_testkit::{Committed, Seeded};

use crate::LIMIT;

const WRITERS: u64 = 4;
const AGGREGATES: usize = 40;
const CONNECT_AGAIN: Duration = Duration::from_millis(10);
/// Between two transactions of a writer; up to 1,500 events/s in all.
const PACE: Duration = Duration::from_millis(12);

pub(super) const TABLES: &str = "create table chaos_aggregate (name text primary key, version \
     bigint not null); create table chaos_event (id uuid primary key, aggregate text not null, \
     version bigint not null)";

/// `$2` events of aggregate `$1`, in the order of its versions.
const FRESH: &str = "with turn as (update chaos_aggregate set version = version + $2::bigint \
     where name = $1::text returning version - $2::bigint as before), \
     fresh as materialized (select gen_random_uuid() as id, before + n as version, \
     (extract(epoch from clock_timestamp()) * 1000000)::bigint as at_us \
     from turn, generate_series(1::bigint, $2::bigint) n), \
     noted as (insert into chaos_event (id, aggregate, version) select id, $1::text, version \
     from fresh)";
const INSERT: &str = "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
     select id, 'order', $1::text, 'Placed', jsonb_build_object('version', version, 'at_us', \
     at_us) from fresh order by version";
const EMIT: &str = "select count(pg_logical_emit_message(true, 'walpost', json_build_object('id', \
     id, 'aggregatetype', 'order', 'aggregateid', $1::text, 'type', 'Placed', 'payload', \
     json_build_object('version', version, 'at_us', at_us), 'created_at', clock_timestamp())\
     ::text)) from (select * from fresh order by version) ordered";

/// Which ways the events take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// The outbox table, and messages without a table.
    All,
    /// The table alone, for who reads no messages.
    Table,
}

#[derive(Debug)]
struct Shared {
    url: String,
    ways: Ways,
    stop: AtomicBool,
    /// Transactions of which nobody was told whether they are committed.
    unknown: AtomicU64,
}

/// The writers. They go on until they are stopped, also over crashes of the
/// server.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the writers on a database that has [`TABLES`].
    pub(super) async fn start(url: &str, ways: Ways, seeded: &mut Seeded) -> Self {
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            ways,
            stop: AtomicBool::new(false),
            unknown: AtomicU64::new(0),
        });
        let client = connect(url).await;
        let aggregates = "insert into chaos_aggregate select 'a-' || n, 0 \
                          from generate_series(0, $1::bigint - 1) n on conflict do nothing";
        client.execute(aggregates, &[&(AGGREGATES as i64)]).await.unwrap();
        let writer = |_| {
            let (shared, mut seeded) = (shared.clone(), Seeded::new(seeded.number()));
            tokio::spawn(async move { write(&shared, &mut seeded).await })
        };
        Self { writers: (0..WRITERS).map(writer).collect(), shared: shared.clone() }
    }

    /// Stops them; of how many transactions nobody was told whether they are
    /// committed.
    pub(super) async fn stop(self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap();
        }
        self.shared.unknown.load(Ordering::Relaxed)
    }
}

/// Every event that the database has committed, in the order of its aggregate.
pub(super) async fn committed(url: &str) -> Vec<Committed> {
    let client = connect(url).await;
    let sql = "select id::text, aggregate from chaos_event order by aggregate, version";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| Committed { id: row.get(0), aggregate: row.get(1) }).collect()
}

/// How many events are committed.
pub(super) async fn count(client: &Client) -> u64 {
    let sql = "select coalesce(sum(version), 0)::bigint from chaos_aggregate";
    let count: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    u64::try_from(count).expect("versions only grow")
}

/// A session, as soon as the server gives one.
pub(super) async fn connect(url: &str) -> Client {
    let began = Instant::now();
    let mut tries = interval(CONNECT_AGAIN);
    loop {
        tries.tick().await;
        match tokio_postgres::connect(url, NoTls).await {
            Ok((client, connection)) => {
                // Its end is told by the client too.
                tokio::spawn(async move { drop(connection.await) });
                return client;
            }
            Err(error) => {
                let reason = walpost_event::error_chain(&error);
                assert!(began.elapsed() < LIMIT, "no session within {LIMIT:?}: {reason}");
            }
        }
    }
}

struct Writer {
    client: Client,
    insert: Statement,
    emit: Statement,
}

impl Writer {
    async fn connect(url: &str) -> Result<Self, Error> {
        let client = connect(url).await;
        let insert = client.prepare(&format!("{FRESH} {INSERT}")).await?;
        let emit = client.prepare(&format!("{FRESH} {EMIT}")).await?;
        Ok(Self { client, insert, emit })
    }
}

async fn write(shared: &Shared, seeded: &mut Seeded) {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut writer = None;
    while !shared.stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let done = match writer.as_mut() {
            Some(writer) => transaction(writer, shared, seeded).await,
            None => Writer::connect(&shared.url).await.map(|connected| {
                writer = Some(connected);
            }),
        };
        if let Err(error) = done {
            assert!(is_crash(&error), "a writer failed: {}", walpost_event::error_chain(&error));
            writer = None;
        }
    }
}

/// The connection is gone, or the server says that it goes.
fn is_crash(error: &Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P"))
}

/// One transaction of a random kind.
async fn transaction(
    writer: &mut Writer,
    shared: &Shared,
    seeded: &mut Seeded,
) -> Result<(), Error> {
    let Writer { client, insert, emit } = writer;
    let tx = client.transaction().await?;
    let way = match shared.ways {
        Ways::All if seeded.chance(25) => &*emit,
        _ => &*insert,
    };
    match seeded.below(20) {
        // Rolled back, whole or up to a savepoint.
        0 => {
            events(&tx, way, seeded, 3).await?;
            return tx.rollback().await;
        }
        1 => {
            tx.batch_execute("savepoint half").await?;
            events(&tx, insert, seeded, 3).await?;
            tx.batch_execute("rollback to savepoint half").await?;
            events(&tx, way, seeded, 2).await?;
        }
        // Many rows, of two aggregates whose locks are taken in one order.
        2 => {
            let mut pair = [seeded.below(AGGREGATES), seeded.below(AGGREGATES)];
            pair.sort_unstable();
            for aggregate in pair {
                let rows = 1 + seeded.below(60) as i64;
                tx.execute(way, &[&format!("a-{aggregate}"), &rows]).await?;
            }
        }
        _ => events(&tx, way, seeded, 1).await?,
    }
    let committed = tx.commit().await;
    if committed.is_err() {
        shared.unknown.fetch_add(1, Ordering::Relaxed);
    }
    committed
}

/// Up to so many events of one aggregate.
async fn events(
    tx: &Transaction<'_>,
    way: &Statement,
    seeded: &mut Seeded,
    most: usize,
) -> Result<(), Error> {
    let aggregate = format!("a-{}", seeded.below(AGGREGATES));
    let count = 1 + seeded.below(most) as i64;
    tx.execute(way, &[&aggregate, &count]).await.map(drop)
}
