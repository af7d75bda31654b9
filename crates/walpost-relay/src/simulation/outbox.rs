//! The rows of the outbox, for those who ask whose they are and have them leave.

use super::{
    Bug, has,
    server::Server,
    world::{PIPELINES, State},
};
use crate::{error::RelayError, retention::Reader};

impl Server {
    /// The readers, with the row filters of their publications.
    pub(crate) async fn readers(&self) -> Result<Vec<Reader>, RelayError> {
        let read = |state: &mut State| {
            let reader = |(rows, name): (&super::server::Rows, &str)| Reader {
                pipeline: name.to_owned(),
                proven: match has(Bug::PruneUnproven) {
                    true => rows.pending().or(rows.proven()),
                    false => rows.proven(),
                },
                rows: state.publication(name),
                is_here: true,
                messages: Vec::new(),
                feed: None,
                brought: None,
            };
            state.rows.iter().zip(PIPELINES).map(reader).collect()
        };
        self.statement("reading what is proven", read).await
    }

    /// The row filter of a publication.
    pub(crate) async fn filter(&self, publication: &str) -> Result<Option<String>, RelayError> {
        let read = |state: &mut State| state.publication(publication);
        self.statement("reading the publication's row filter", read).await
    }

    /// Has rows leave for which a condition holds; how many.
    pub(crate) async fn remove(&self, condition: &str, max: usize) -> Result<u64, RelayError> {
        let remove = |state: &mut State| {
            let rows = state.visible_rows(condition);
            let rows = &rows[..rows.len().min(max)];
            rows.iter().for_each(|event| state.oracle.pruned(event));
            rows.len() as u64
        };
        self.statement("pruning the outbox", remove).await
    }
}
