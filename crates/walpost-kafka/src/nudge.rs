use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::consumer::BaseConsumer;
use walpost_librdkafka::{End, Questions};

use crate::{log::Quiet, spans::Span};

/// librdkafka's thread of a broker looks once a second for partitions to fetch,
/// and when it has something else to do.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Questions of one nudge.
const QUESTIONS_MAX: usize = 500;

/// Gives those threads something else to do, so that what was just assigned is
/// fetched at once and not within a second: questions whose answers do not
/// matter.
pub(crate) struct Nudge {
    questions: Questions<Quiet>,
    open: usize,
    since: Instant,
}

impl Nudge {
    pub(crate) fn new(consumer: &Arc<BaseConsumer<Quiet>>) -> Self {
        let questions = Questions::new(consumer.clone(), ANSWER_MAX, || {});
        Self { questions, open: 0, since: Instant::now() }
    }

    /// Once more, if the last questions are answered. Never waits.
    pub(crate) fn again<'a>(&mut self, spans: impl Iterator<Item = &'a Span>) {
        if self.since.elapsed() > LOOKS_EVERY {
            return;
        }
        while self.questions.answer().is_some() {
            self.open -= 1;
        }
        if self.open > 0 {
            return;
        }
        for Span { topic, partition, .. } in spans.take(QUESTIONS_MAX) {
            let asked = self.questions.end(topic, *partition, End::Newest { uncommitted: true }, 0);
            self.open += usize::from(asked.is_ok());
        }
    }
}
