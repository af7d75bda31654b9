//! Rows that go from one pipeline to another: the server's part.

use super::{
    condition,
    server::Server,
    world::{PIPELINES, State, xid},
};
use crate::{
    checkpoint::Checkpoint,
    error::RelayError,
    moves::{crossing::Giver, history::Past},
};

/// Between two looks whether writers have ended.
const LOOK_MS: u64 = 5;

/// Which aggregates each pipeline takes; none for all.
pub(super) type Filters = Vec<Option<Vec<usize>>>;

/// The moves of the outbox.
#[derive(Default)]
pub(super) struct Moves {
    /// Writers wait for the next transaction, which is to be a move.
    pub(super) are_waited_for: bool,
    /// The transaction of one, as far as it has come.
    open: Option<Open>,
    made: Vec<Made>,
}

struct Open {
    filters: Filters,
    entry: Option<Entry>,
    message: String,
}

#[derive(Clone)]
struct Entry {
    from: usize,
    to: usize,
    /// Sees what was committed before.
    boundary: String,
}

struct Made {
    /// Its transaction.
    index: usize,
    entry: Entry,
    before: Filters,
    after: Filters,
    message: String,
    is_crossed: bool,
}

impl Moves {
    /// The message of a move in its transaction.
    pub(super) fn message(&self, index: usize) -> Option<&str> {
        self.made.iter().find(|made| made.index == index).map(|made| &*made.message)
    }

    pub(super) fn give_up(&mut self) {
        self.open = None;
    }

    /// The number of a move is that of its entry, from 1 on.
    fn get(&mut self, id: i64) -> Option<&mut Made> {
        self.made.get_mut(usize::try_from(id - 1).ok()?)
    }
}

impl State {
    /// What a statement sees of the publications.
    fn publications(&self) -> &Filters {
        let hidden = self.moves.made.iter().find(|made| !self.is_visible_now(made.index));
        hidden.map_or(&self.filters, |made| &made.before)
    }

    /// The row filter of a pipeline's publication.
    pub(super) fn publication(&self, name: &str) -> Option<String> {
        let pipeline = number(name);
        text(&self.publications()[pipeline])
    }

    fn make_move(&mut self) {
        let Some(Open { filters, entry: Some(entry), message }) = self.moves.open.take() else {
            return;
        };
        let before = std::mem::replace(&mut self.filters, filters.clone());
        let (index, after, is_crossed) = (self.committed(), filters, false);
        self.moves.made.push(Made { index, entry, before, after, message, is_crossed });
        self.commit_move();
    }
}

impl Server {
    /// The statements that begin and end the transaction of a move.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), RelayError> {
        if sql.starts_with("begin") {
            let lock = |state: &mut State| {
                let is_free = state.all_is_visible();
                if is_free {
                    let (filters, message) = (state.filters.clone(), String::new());
                    state.moves.open = Some(Open { filters, entry: None, message });
                }
                is_free
            };
            while !self.statement("locking the outbox table", lock).await? {
                self.world.pass(LOOK_MS).await;
            }
            return Ok(());
        }
        let end = |state: &mut State| match sql {
            "commit" => state.make_move(),
            _ => state.moves.give_up(),
        };
        self.statement("ending the move", end).await?;
        // Whoever waits for a synchronous standby is told when it is visible.
        while !self.world.lock().all_is_visible() {
            self.world.pass(LOOK_MS).await;
        }
        Ok(())
    }

    /// What a row of the checkpoint says, of a pipeline that streams.
    pub(crate) async fn side(&self, pipeline: &str) -> Result<Option<Checkpoint>, RelayError> {
        let pipeline = number(pipeline);
        let find = |state: &mut State| {
            let is_lost = state.slots[pipeline].is_lost;
            let row = state.rows[pipeline].is_done().then(|| state.rows[pipeline].read());
            row.filter(|_| !is_lost)
        };
        self.statement("looking for the pipelines of a move", find).await
    }

    /// The first move of one of the two that is not finished.
    pub(crate) async fn uncrossed_of(
        &self,
        pipelines: [&str; 2],
    ) -> Result<Option<i64>, RelayError> {
        let pipelines = pipelines.map(number);
        let find = |state: &mut State| {
            let mut made = state.moves.made.iter().zip(1..);
            let concerns =
                |entry: &Entry| pipelines.contains(&entry.from) || pipelines.contains(&entry.to);
            made.find(|(made, _)| !made.is_crossed && concerns(&made.entry)).map(|(_, id)| id)
        };
        self.statement("looking what stands between the pipelines", find).await
    }

    pub(crate) async fn alter(&self, publication: &str, filter: &str) -> Result<(), RelayError> {
        let alter = |state: &mut State| {
            if let Some(open) = &mut state.moves.open {
                open.filters[number(publication)] = Some(condition::aggregates(filter));
            }
        };
        self.statement("changing the publication", alter).await
    }

    /// Notes a move: its number, and the id of its transaction.
    pub(crate) async fn note_move(&self, from: &str, to: &str) -> Result<(i64, u64), RelayError> {
        let (from, to) = (number(from), number(to));
        let note = |state: &mut State| {
            let (boundary, index) = (state.snapshot(), state.committed());
            if let Some(open) = &mut state.moves.open {
                open.entry = Some(Entry { from, to, boundary });
            }
            (state.moves.made.len() as i64 + 1, u64::from(xid(index)))
        };
        self.statement("noting the move", note).await
    }

    pub(crate) async fn emit(&self, message: &str) -> Result<(), RelayError> {
        let emit = |state: &mut State| {
            if let Some(open) = &mut state.moves.open {
                message.clone_into(&mut open.message);
            }
        };
        self.statement("writing the boundary", emit).await
    }

    /// Moves, as a statement sees them, for each of their pipelines.
    pub(crate) async fn past(&self) -> Result<Vec<Past>, RelayError> {
        let read = |state: &mut State| {
            let made = state.moves.made.iter().zip(1..);
            let made = made.filter(|(made, _)| state.is_visible_now(made.index));
            let past = made.flat_map(|(made, id)| {
                [made.entry.from, made.entry.to].map(|pipeline| Past {
                    id,
                    pipeline: PIPELINES[pipeline].to_owned(),
                    boundary: made.entry.boundary.clone(),
                    before: text(&made.before[pipeline]),
                    after: text(&made.after[pipeline]),
                })
            });
            past.collect()
        };
        self.statement("reading which rows were moved", read).await
    }

    /// What a statement sees of the giver of a move.
    pub(crate) async fn giver(
        &self,
        id: i64,
        boundary: walpost_event::Lsn,
    ) -> Result<Option<Giver>, RelayError> {
        let look = |state: &mut State| {
            let made = state.moves.get(id)?;
            let (index, from, is_crossed) = (made.index, made.entry.from, made.is_crossed);
            let row = state.rows[from].read();
            let is_past = state.rows[from].is_done() && row.confirmed > boundary;
            state.is_visible_now(index).then(|| Giver {
                is_crossed,
                pipeline: PIPELINES[from].to_owned(),
                confirmed: Some(row.confirmed.to_string()),
                is_past,
                parked: state.rows[from].parked() as i64,
            })
        };
        let attempt = "looking whether the giver of a move has passed its boundary";
        self.statement(attempt, look).await
    }

    pub(crate) async fn crossed(&self, id: i64) -> Result<(), RelayError> {
        let note = |state: &mut State| {
            if let Some(made) = state.moves.get(id) {
                made.is_crossed = true;
            }
        };
        self.statement("noting that a boundary was crossed", note).await
    }

    /// Moves to this pipeline that it has not crossed and that a snapshot sees.
    pub(crate) async fn uncrossed(&self, boundary: &str) -> Result<Vec<i64>, RelayError> {
        let pipeline = self.world.pipeline;
        let find = |state: &mut State| {
            let made = state.moves.made.iter().zip(1..);
            let open = made.filter(|(made, _)| {
                !made.is_crossed
                    && made.entry.to == pipeline
                    && crate::proven::sees(boundary, xid(made.index))
                    && state.is_visible_now(made.index)
            });
            open.map(|(_, id)| id).collect()
        };
        self.statement("looking for moves to this pipeline", find).await
    }

    /// Whether statements see all that a snapshot does.
    pub(crate) async fn sees_all(&self, snapshot: &str) -> Result<bool, RelayError> {
        let look = |state: &mut State| state.is_visible(snapshot);
        self.statement("looking what is visible", look).await
    }
}

fn number(pipeline: &str) -> usize {
    PIPELINES.iter().position(|name| *name == pipeline).unwrap_or_default()
}

fn text(aggregates: &Option<Vec<usize>>) -> Option<String> {
    aggregates.as_deref().map(|aggregates| format!("({})", condition::filter(aggregates)))
}
