//! What the tables and the folder have: how many thumbnails for how many files.

use std::fmt;

use stand::{End, Figures};
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
}

impl Counts {
    pub(crate) fn files(&self) -> i64 {
        self.files
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    /// Done where every file is there, and its job is over.
    fn end(&self) -> End {
        let is_over = self.thumbnails + self.refused == self.files;
        End::of(self.twice + self.missing > 0, self.files >= self.wanted && is_over)
    }

    fn last_line(&self) -> String {
        let Self { wanted, files, thumbnails, twice, refused, missing } = self;
        match self.end() {
            End::Done if *refused == 0 => {
                format!("done: {files} files, {thumbnails} thumbnails, none twice")
            }
            End::Done => format!(
                "done: {files} files, {thumbnails} thumbnails, none twice; of {refused} there is \
                 none: walpost inbox list --state failed"
            ),
            End::GoesOn => format!(
                "stopped: {files} of {wanted} files, {thumbnails} thumbnails, none twice; the \
                 next start goes on from here"
            ),
            End::Broken => format!(
                "BROKEN: of {files} files {twice} have two thumbnails, and {missing} are not on \
                 the disk"
            ),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thumbnail_or_one_that_is_not_there_breaks_it_however_far_it_is() {
        let of = |thumbnails, twice, missing| Counts {
            wanted: 5,
            files: 5,
            thumbnails,
            twice,
            refused: 1,
            missing,
        };
        assert_eq!(of(4, 0, 0).end(), End::Done);
        assert_eq!(of(3, 0, 0).end(), End::GoesOn);
        for broken in [of(4, 1, 0), of(4, 0, 1), of(3, 1, 0), of(3, 0, 1)] {
            assert_eq!(broken.end(), End::Broken, "{broken}");
            assert!(broken.last_line().starts_with("BROKEN: of 5 "), "{}", broken.last_line());
        }
    }
}
