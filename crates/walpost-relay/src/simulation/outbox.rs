//! The rows of the outbox, for those who ask whose they are and have them leave.

use super::{
    Bug, condition, has,
    server::Server,
    world::{PIPELINES, State},
};
use crate::{error::RelayError, moves::history, retention::Reader};

impl Server {
    pub(crate) async fn readers(&self) -> Result<Vec<Reader>, RelayError> {
        let read = |state: &mut State| {
            let pipelines = state.schedule.pipelines.iter().zip(&state.rows).zip(PIPELINES);
            let reader = |((plan, rows), name): ((&_, &super::server::Rows), &str)| Reader {
                pipeline: name.to_owned(),
                proven: match has(Bug::PruneUnproven) {
                    true => rows.pending().or(rows.proven()),
                    false => rows.proven(),
                },
                rows: history::own(filter_of(plan).as_deref(), name, &[]),
                is_here: true,
                messages: Vec::new(),
            };
            pipelines.map(reader).collect()
        };
        self.statement("reading what is proven", read).await
    }

    /// The row filter of the pipeline's publication.
    pub(crate) async fn filter(&self) -> Result<Option<String>, RelayError> {
        let pipeline = self.world.pipeline;
        let read = |state: &mut State| filter_of(&state.schedule.pipelines[pipeline]);
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

fn filter_of(plan: &super::schedule::Pipeline) -> Option<String> {
    plan.aggregates.as_deref().map(|aggregates| format!("({})", condition::filter(aggregates)))
}
