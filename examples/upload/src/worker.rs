//! The worker: one job for each file, taken out of the inbox, and its row in the
//! transaction that says that it is done.

use std::time::Duration;

use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio_postgres::{Config, Transaction};
use walpost_inbox::{
    Database, Error, Event, Handler, HandlerError, Head, Processor, RetrySchedule,
};

use crate::{
    api::{FILE_UPLOADED, SOURCE},
    failpoint::Failpoint,
    picture::{NoThumbnail, thumbnail},
    store::Store,
};

/// Pictures at a time, each within its memory.
const CONCURRENCY: u32 = 2;
const LIMIT_MS: u32 = 8_000;
/// Behind that a job whose worker is gone is taken by another one.
const LEASE_MS: u32 = 15_000;
const WAITS_S: [u64; 5] = [1, 2, 5, 30, 300];

/// What of the event is of interest here.
#[derive(Deserialize)]
struct FileUploaded {
    file_id: i64,
    sha256: String,
}

pub(crate) struct Thumbnails {
    store: Store,
}

impl Handler for Thumbnails {
    type Work = ();

    fn select(&self, event: &Head) -> Option<()> {
        (event.event_type() == FILE_UPLOADED).then_some(())
    }

    /// The row commits together with the state of the job, once. The thumbnail
    /// itself is no part of that, so it is made in such a way that making it again
    /// changes nothing: under a name that its contents have, by a rename. The table
    /// has no unique key, and a job that was done twice would show.
    async fn process(
        &self,
        tx: &Transaction<'_>,
        (): &(),
        event: &Event,
    ) -> Result<(), HandlerError> {
        let FileUploaded { file_id, sha256 } = event.json()?;
        Failpoint::Claimed.reached();
        let store = self.store.clone();
        let drawn = spawn_blocking(move || draw(&store, &sha256)).await;
        let (width, height) = drawn.map_err(|_| HandlerError::retry("the decoder panicked"))??;
        let insert = "insert into thumbnail (file_id, width, height) values ($1, $2, $3)";
        tx.execute(insert, &[&file_id, &width, &height]).await?;
        Failpoint::Noted.reached();
        Ok(())
    }
}

/// Makes the thumbnail of these contents.
fn draw(store: &Store, sha256: &str) -> Result<(i32, i32), HandlerError> {
    let drawn = thumbnail(&store.file(sha256)).map_err(|error| match error {
        NoThumbnail::TooLarge => HandlerError::give_up("the picture is too large"),
        NoThumbnail::NoPicture => HandlerError::give_up("this is no PNG or JPEG"),
        NoThumbnail::Unread => HandlerError::transient("the file cannot be read"),
    })?;
    let kept = store.keep_thumbnail(sha256, &drawn.png);
    kept.map_err(|_| HandlerError::transient("the thumbnail cannot be written"))?;
    // No side is longer than the thumbnail's bound.
    Ok((drawn.width.cast_signed(), drawn.height.cast_signed()))
}

/// The processor, not yet running.
pub(crate) fn processor(config: Config, store: Store) -> Result<Processor<Thumbnails>, Error> {
    Processor::builder(Database::config(config))
        .source(SOURCE)
        .concurrency(CONCURRENCY)
        .handler_timeout_ms(LIMIT_MS)
        .lease_ms(LEASE_MS)
        .retries(RetrySchedule::new(WAITS_S.map(Duration::from_secs)))
        .handler(Thumbnails { store })
}
