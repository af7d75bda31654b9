use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, IsolationLevel, types::Type};

use crate::{Pace, Pruning};

/// Of one batch; the server gives it up a little earlier.
const BATCH_TIMEOUT: Duration = Duration::from_secs(35);
const LIMITS: &str = "set local statement_timeout = '30s'; set local lock_timeout = '1s'";
/// For as long as the transaction lasts, so that it works through a pooler.
const ALONE: &str = "select pg_try_advisory_xact_lock(hashtext($1), hashtext($2))";

/// What a pass of a pruner has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass<P> {
    /// What has left.
    pub pruned: P,
    /// Another process was found at work, and the rest was left to it.
    pub yielded: bool,
}

/// Once, on this connection. It may be dropped at any await.
///
/// # Errors
/// Those of the pruning. What left before stays so.
pub async fn pass<P: Pruning>(
    pruning: &P,
    pace: Pace,
    client: &mut Client,
) -> Result<Pass<P::Pruned>, P::Error> {
    let mut pass = Pass::default();
    for &part in P::PARTS {
        loop {
            let Some(rows) = batch(pruning, client, part).await? else {
                pass.yielded = true;
                return Ok(pass);
            };
            pruning.count(&mut pass.pruned, part, rows);
            if rows < u64::from(pruning.batch_rows()) {
                break;
            }
            sleep(pace.pause).await;
        }
    }
    Ok(pass)
}

/// One transaction; `None` where another process is in one.
async fn batch<P: Pruning>(
    pruning: &P,
    client: &mut Client,
    part: P::Part,
) -> Result<Option<u64>, P::Error> {
    let done = timeout(BATCH_TIMEOUT, batch_alone(pruning, client, part)).await;
    done.unwrap_or_else(|_| Err(pruning.unanswered(format!("no answer in {BATCH_TIMEOUT:?}"))))
}

async fn batch_alone<P: Pruning>(
    pruning: &P,
    client: &mut Client,
    part: P::Part,
) -> Result<Option<u64>, P::Error> {
    let failed = |error: tokio_postgres::Error| pruning.failed(&error);
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let tx = begun.start().await.map_err(failed)?;
    tx.batch_execute(LIMITS).await.map_err(failed)?;
    let (kind, schema) = (P::KIND, pruning.schema());
    let names = [(&kind as _, Type::TEXT), (&schema as _, Type::TEXT)];
    if !tx.query_typed_one(ALONE, &names).await.map_err(failed)?.get::<_, bool>(0) {
        return Ok(None);
    }
    let rows = pruning.batch(&tx, part).await?;
    tx.commit().await.map_err(failed)?;
    Ok(Some(rows))
}
