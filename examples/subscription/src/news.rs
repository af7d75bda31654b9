//! What the provider says of a subscription, and what we make of it: the same
//! whether it has told us or was asked.

use serde::Deserialize;
use tokio_postgres::{Error as PgError, Transaction};
use walpost_outbox::{Error, OutboxTable};

use crate::{failpoint::Failpoint, state::State, table};

/// A subscription as the provider has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct News {
    /// The provider's id of it.
    pub(crate) id: String,
    /// Ours.
    pub(crate) reference: String,
    /// As the provider calls it, which is as we do.
    pub(crate) state: String,
}

/// Why news could not be written down; the transaction is to be given up.
pub(crate) enum NewsError {
    Database(PgError),
    Outbox(Error),
}

impl From<PgError> for NewsError {
    fn from(error: PgError) -> Self {
        Self::Database(error)
    }
}

/// Writes down what is new, with its event, in the caller's transaction. The same
/// again changes nothing, and old news neither.
pub(crate) async fn settle(
    tx: &Transaction<'_>,
    outbox: &OutboxTable,
    news: &News,
) -> Result<(), NewsError> {
    Failpoint::Settling.reached();
    let Some(ours) = table::lock(tx, &news.reference).await? else {
        return Ok(table::note_stray(tx, &news.id, &news.reference).await?);
    };
    let theirs = State::of(&news.state);
    // For the same request.
    let is_second = ours.external_id.as_ref().is_some_and(|known| *known != news.id);
    if is_second || theirs.is_some_and(|news| ours.state.is_denied_by(news)) {
        return Ok(table::note_stray(tx, &news.id, &news.reference).await?);
    }
    if let Some(state) = theirs.and_then(|news| ours.state.told(news)) {
        table::settle(tx, &ours.id, state, &news.id).await?;
        table::tell(tx, outbox, &ours, state).await.map_err(NewsError::Outbox)?;
    }
    Failpoint::Settled.reached();
    Ok(())
}
