use std::pin::pin;

use super::{
    condition,
    lives::Polled,
    schedule::Handing,
    server::Server,
    world::{PIPELINES, World},
};
use crate::{
    config::RelayConfig,
    error::RelayError,
    moves::{MoveOrder, made},
    sql::Sql,
};

/// How often somebody tries, while writers wait.
const ATTEMPTS: usize = 3;
const RETRY_MS: u64 = 150;

/// A transaction is to be a move, as the product makes it: whatever the command
/// comes to, and whoever kills it.
pub(super) async fn hand(world: &World, index: usize, handing: Handing) {
    let world = world.of(handing.from);
    until_turn(&world, index).await;
    for attempt in 0..ATTEMPTS {
        let polls = handing.polls.filter(|_| attempt == 0).unwrap_or(u64::MAX);
        let order = order(&world, &handing);
        let config = RelayConfig::new(&order.from);
        let sql = Sql::simulated(Server::connect(&world));
        let ended = {
            let work = pin!(made(&sql, &config, &order, "id"));
            Polled { session: work, polls }.await
        };
        if is_made(&world, index, ended) {
            break;
        }
        world.pass(RETRY_MS).await;
    }
    let mut state = world.lock();
    if state.committed() == index {
        state.commit_move();
    }
    state.beside -= 1;
    drop(state);
    world.written();
    drop(world.lock());
}

/// The session of the command is gone, however it ended: whether the move is made.
fn is_made<T>(world: &World, index: usize, ended: Option<Result<T, RelayError>>) -> bool {
    let mut state = world.lock();
    state.moves.give_up();
    // It may be refused: then it is tried again.
    if let Some(Err(error)) = ended
        && !error.is_transient()
        && !matches!(error, RelayError::Prerequisite { .. })
    {
        state.oracle.wrong(walpost_event::error_chain(&error));
    }
    state.committed() > index
}

async fn until_turn(world: &World, index: usize) {
    loop {
        let next_ms = {
            let state = world.lock();
            if state.committed() == index && state.moves.are_waited_for {
                return;
            }
            state.next_ms()
        };
        match next_ms {
            Some(next_ms) => world.until(next_ms).await,
            None => world.pass(RETRY_MS).await,
        }
    }
}

/// The aggregates go from one pipeline to the other.
fn order(world: &World, handing: &Handing) -> MoveOrder {
    let state = world.lock();
    let own = |pipeline: usize| state.filters[pipeline].clone().unwrap_or_default();
    let (from, to) = (handing.from, 1 - handing.from);
    let is_given = |aggregate: &usize| handing.aggregates.contains(aggregate);
    let (given, kept): (Vec<_>, Vec<_>) = own(from).into_iter().partition(is_given);
    let taken: Vec<usize> = own(to).into_iter().chain(given).collect();
    MoveOrder {
        from: PIPELINES[from].to_owned(),
        to: PIPELINES[to].to_owned(),
        filter_from: condition::filter(&kept),
        filter_to: condition::filter(&taken),
        lock_timeout_ms: 2_000,
    }
}
