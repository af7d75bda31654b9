use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use tokio_postgres::{Statement, types::Type};

use super::{mark, now_micros};
use crate::{database::Database, progress};

/// What one connection has to keep up with.
const RATE_PER_WRITER: u32 = 500;
/// Behind its schedule by more than this, the rate was not what was asked for.
const LATE: Duration = Duration::from_millis(100);

const INSERT: &str = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
    values ('order', bench.aggregate($1), 'OrderPlaced', \
            bench.payload($1) || jsonb_build_object('sent', $2))";

/// Commits transactions of one event each at that rate, by as many writers as
/// it takes, and returns how many there were.
///
/// The schedule is fixed beforehand: a commit that takes long delays no other
/// writer, and the events that became late through it follow at once. The time
/// in an event is taken just before its INSERT is sent, so that its commit is
/// part of the latency, and the time by which a writer was late is not.
pub(crate) fn write_at_rate(conninfo: &str, rate: u32, duration: Duration) -> Result<u64> {
    let writers = rate.div_ceil(RATE_PER_WRITER);
    let events = (duration.as_secs_f64() * f64::from(rate)) as u64;
    let gap = Duration::from_secs(1) / rate;
    let writers = (0..writers).map(|_| Writer::connect(conninfo)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let late = thread::scope(|scope| {
        let count = writers.len();
        let spawn = |(writer, first): (Writer, u64)| {
            let due = (first..events).step_by(count);
            let due = due.map(move |n| (n, start + gap * u32::try_from(n).unwrap_or(u32::MAX)));
            scope.spawn(move || writer.write(due))
        };
        let threads: Vec<_> = writers.into_iter().zip(0..).map(spawn).collect();
        threads.into_iter().try_fold(Duration::ZERO, |late, thread| {
            let own = thread.join().map_err(|_| anyhow!("a writer panicked"))??;
            Ok::<_, anyhow::Error>(late.max(own))
        })
    })?;
    if late > LATE {
        progress!("the writers could not keep {rate} events/s: up to {late:?} late");
    }
    Ok(events)
}

struct Writer {
    database: Database,
    insert: Statement,
}

impl Writer {
    fn connect(conninfo: &str) -> Result<Self> {
        let mut database = Database::connect(conninfo)?;
        let types = [Type::INT8, Type::TEXT];
        let insert = database.with(async |client| client.prepare_typed(INSERT, &types).await)?;
        Ok(Self { database, insert })
    }

    /// Returns by how much it was late at most.
    fn write(mut self, due: impl Iterator<Item = (u64, Instant)>) -> Result<Duration> {
        let mut late = Duration::ZERO;
        for (n, at) in due {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            late = late.max(at.elapsed());
            let (n, sent) = (i64::try_from(n)?, mark(now_micros()));
            let insert = &self.insert;
            self.database.with(async |client| client.execute(insert, &[&n, &sent]).await)?;
        }
        Ok(late)
    }
}
