//! What the tables and the folder have: how many thumbnails for how many files.

use std::fmt;

use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::{Failed, store::Store};

pub(crate) struct Report {
    client: Client,
    store: Store,
    wanted: i64,
}

pub(crate) struct Counts {
    wanted: i64,
    files: i64,
    /// With a row and a thumbnail on the disk.
    thumbnails: i64,
    twice: i64,
    refused: i64,
    missing: i64,
}

/// The last line.
pub(crate) struct AtTheEnd(Counts);

impl Report {
    pub(crate) async fn new(
        database: &Database,
        store: Store,
        wanted: i64,
    ) -> Result<Self, Failed> {
        Ok(Self { client: database.connect().await?, store, wanted })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        // In one statement, so that they fit together.
        let select = "select f.sha256, count(t.file_id), \
                      bool_or(i.processing_state = 'failed' and i.next_attempt_at is null) \
                      from file f left join thumbnail t on t.file_id = f.id \
                      left join walpost.inbox i on i.event_id = 'file-' || f.id group by f.id";
        let rows = self.client.query(select, &[]).await?;
        let mut counts = Counts {
            wanted: self.wanted,
            files: rows.len() as i64,
            thumbnails: 0,
            twice: 0,
            refused: 0,
            missing: 0,
        };
        for row in rows {
            let (sha256, thumbnails): (String, i64) = (row.get(0), row.get(1));
            counts.twice += i64::from(thumbnails > 1);
            counts.refused += i64::from(row.get::<_, Option<bool>>(2).unwrap_or_default());
            if thumbnails > 0 {
                counts.thumbnails += 1;
                let is_there = self.store.thumbnail(&sha256).is_file();
                counts.missing += i64::from(!is_there || !self.store.file(&sha256).is_file());
            }
        }
        Ok(counts)
    }

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }
}

impl Counts {
    pub(crate) fn files(&self) -> i64 {
        self.files
    }

    /// Every file is there, and its job is over.
    pub(crate) fn is_complete(&self) -> bool {
        self.files >= self.wanted && self.thumbnails + self.refused == self.files
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, thumbnails, twice, refused, .. } = self;
        let waiting = files - thumbnails - refused;
        write!(
            f,
            "{files:>6} files   {thumbnails:>6} thumbnails   {waiting:>4} on their way   \
             {twice} twice"
        )
    }
}

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Counts { wanted, files, thumbnails, twice, refused, missing }) = self;
        match (self.0.is_complete(), twice + missing) {
            (true, 0) if *refused == 0 => {
                write!(f, "done: {files} files, {thumbnails} thumbnails, none twice")
            }
            (true, 0) => write!(
                f,
                "done: {files} files, {thumbnails} thumbnails, none twice; of {refused} there is \
                 none: walpost inbox list --state failed"
            ),
            (_, 0) => write!(
                f,
                "stopped: {files} of {wanted} files, {thumbnails} thumbnails, none twice; the \
                 next start goes on from here"
            ),
            _ => write!(
                f,
                "BROKEN: of {files} files {twice} have two thumbnails, and {missing} are not on \
                 the disk"
            ),
        }
    }
}
