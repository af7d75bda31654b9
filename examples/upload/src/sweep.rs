//! What processes that were killed leave on the disk: temporary files, and
//! contents that no row has.

use std::time::Duration;

use tokio_postgres::{Client, IsolationLevel::ReadCommitted};

use crate::{Failed, api::lock, store::Store};

/// Longer than any upload lives.
pub(crate) const AGE: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    pub(crate) temporary: usize,
    pub(crate) files: usize,
}

/// Removes what nobody has touched for `age`. It may be killed at any moment, and
/// run beside uploads: contents are removed under the lock under which they are
/// placed, and only where no row has them.
pub(crate) async fn sweep(
    client: &mut Client,
    store: &Store,
    age: Duration,
) -> Result<Swept, Failed> {
    let mut swept = Swept { temporary: store.sweep_temporary(age)?, files: 0 };
    for sha256 in store.old_files(age)? {
        // What is read is to be younger than the lock, whatever the default is.
        let tx = client.build_transaction().isolation_level(ReadCommitted).start().await?;
        lock(&tx, &sha256).await?;
        let select = "select exists (select from file where sha256 = $1)";
        let is_known: bool = tx.query_one(select, &[&sha256]).await?.get(0);
        if !is_known {
            store.remove(&sha256)?;
            swept.files += 1;
        }
        tx.commit().await?;
    }
    Ok(swept)
}
