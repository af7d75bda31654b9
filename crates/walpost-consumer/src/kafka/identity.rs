//! Which topics names stand for, as it was told lately: the partitions of a
//! topic ask together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use super::command::TopicIdentity;

/// What was told of topics.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    all: Arc<Mutex<HashMap<Arc<str>, Told>>>,
}

/// Of one topic. Whoever asks holds it, so that others wait for that answer.
pub(super) type Told = Arc<tokio::sync::Mutex<Option<Identity>>>;

/// What was told, and when it was asked: it was so then, or later.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) asked_at: Instant,
    pub(super) of: TopicIdentity,
    /// How many it has.
    pub(super) partitions: u32,
}

impl Identities {
    pub(super) fn told(&self, topic: &Arc<str>) -> Told {
        let mut all = self.all.lock().expect("no code panics while it holds the lock");
        Arc::clone(all.entry(Arc::clone(topic)).or_default())
    }
}
