use std::pin::pin;

use super::{
    lives::Polled,
    schedule::Pruning,
    server::Server,
    world::{PIPELINES, World},
};
use crate::{
    config::RelayConfig,
    retention::{Removal, RetentionConfig},
    sql::Sql,
};

/// Rows leave the outbox, a few at a time, as the product has them leave.
pub(super) async fn prune(world: &World, pruning: Pruning) {
    let Pruning { pipeline, at_ms, polls } = pruning;
    world.until(at_ms).await;
    let world = world.of(pipeline);
    let config = RelayConfig::new(PIPELINES[pipeline]);
    let retention = RetentionConfig { batch_rows: 2, pause_ms: 5, ..RetentionConfig::default() };
    let removal = Removal::new(&config, &config.tables[0], "id", retention, None);
    let sql = Sql::simulated(Server::connect(&world));
    let mut tell = |_: &_| {};
    let work = pin!(removal.run(&sql, &mut tell));
    let ended = Polled { session: work, polls: polls.unwrap_or(u64::MAX) }.await;
    let mut state = world.lock();
    if let Some(Err(error)) = ended
        && !error.is_transient()
    {
        state.oracle.wrong(walpost_event::error_chain(&error));
    }
    state.beside -= 1;
    drop(state);
    // Whether that was all.
    drop(world.lock());
}
