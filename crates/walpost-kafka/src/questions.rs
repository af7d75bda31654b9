use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::deliveries::lock;

/// Between two questions about a topic that cannot be used, and between two whether
/// brokers answer that did not.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at the number of partitions and the limits of the topics
/// in use.
const REFRESH: Duration = Duration::from_secs(60);

/// What to ask the brokers next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// All about one topic that nothing is known of.
    Topic(Arc<str>),
    /// What may have changed of those in use.
    Refresh,
    /// Whether any broker answers again. Where nothing is sent, nothing else
    /// would tell.
    Reach,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Answered,
    Again,
}

/// A thread of its own that asks the brokers about topics, one question at a
/// time. At most one question for each topic in use waits.
#[derive(Debug)]
pub(crate) struct Questions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plan: Mutex<Plan>,
    changed: Condvar,
}

impl Questions {
    /// Starts the thread; `ask` answers a question, and may block. `is_silent`
    /// says whether no broker has answered lately.
    pub(crate) fn start(
        mut ask: impl FnMut(&Question) -> Asked + Send + 'static,
        is_silent: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let plan = Mutex::new(Plan::new(now()));
        let shared = Arc::new(Shared { plan, changed: Condvar::new() });
        let questions = Self { shared: shared.clone() };
        let thread = std::thread::Builder::new().name("kafka-topics".to_owned());
        let thread = thread.spawn(move || {
            while let Some(question) = shared.next(&is_silent) {
                let asked = ask(&question);
                lock(&shared.plan).asked(question, asked, now());
            }
        })?;
        Ok((questions, thread))
    }

    pub(crate) fn ask(&self, topic: Arc<str>) {
        lock(&self.shared.plan).waiting.push((topic, now()));
        self.shared.changed.notify_one();
    }

    /// Ends the thread after the question that it may be asking.
    pub(crate) fn stop(&self) {
        lock(&self.shared.plan).stopped = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// Waits for the next question; `None` when there will be none.
    fn next(&self, is_silent: impl Fn() -> bool) -> Option<Question> {
        let mut plan = lock(&self.plan);
        loop {
            match plan.next(now(), is_silent()) {
                Next::Stop => return None,
                Next::Ask(question) => return Some(question),
                Next::Wait(time) => {
                    // Nobody wakes this when brokers fall silent.
                    let time = time.min(ASK_AGAIN);
                    let waited = self.changed.wait_timeout(plan, time);
                    plan = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// What to ask, and when. Pure.
#[derive(Debug)]
struct Plan {
    stopped: bool,
    /// Topics to be asked for, and when.
    waiting: Vec<(Arc<str>, Instant)>,
    /// Whether any topic was found.
    any_known: bool,
    refreshed: Instant,
    /// When it was last asked whether brokers answer.
    reached: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Ask(Question),
    Wait(Duration),
    Stop,
}

impl Plan {
    fn new(now: Instant) -> Self {
        let (refreshed, reached) = (now, now);
        Self { stopped: false, waiting: Vec::new(), any_known: false, refreshed, reached }
    }

    fn next(&mut self, now: Instant, is_silent: bool) -> Next {
        if self.stopped {
            return Next::Stop;
        }
        // First: while it has no answer, the others have none either.
        if is_silent && self.reached + ASK_AGAIN <= now {
            return Next::Ask(Question::Reach);
        }
        if let Some(due) = self.waiting.iter().position(|(_, due)| *due <= now) {
            return Next::Ask(Question::Topic(self.waiting.remove(due).0));
        }
        let refresh = self.refreshed + REFRESH;
        if refresh <= now {
            self.refreshed = now;
            if self.any_known {
                return Next::Ask(Question::Refresh);
            }
        }
        let next = self.waiting.iter().map(|(_, due)| *due).min();
        let next = next.map_or(self.refreshed + REFRESH, |due| due.min(self.refreshed + REFRESH));
        Next::Wait(next.saturating_duration_since(now))
    }

    fn asked(&mut self, question: Question, asked: Asked, now: Instant) {
        match (question, asked) {
            (Question::Topic(_), Asked::Answered) => self.any_known = true,
            (Question::Topic(topic), Asked::Again) => self.waiting.push((topic, now + ASK_AGAIN)),
            (Question::Refresh, _) => {}
            (Question::Reach, _) => self.reached = now,
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_asked_for_at_once_and_again_until_there_is_an_answer() {
        let start = Instant::now();
        let mut plan = Plan::new(start);
        assert_eq!(plan.next(start, false), Next::Wait(REFRESH));
        plan.waiting.push(("a".into(), start));
        let question = || Question::Topic("a".into());
        for attempt in 0..3 {
            let now = start + attempt * ASK_AGAIN;
            assert_eq!(plan.next(now, false), Next::Ask(question()));
            plan.asked(question(), Asked::Again, now);
            assert_eq!(plan.next(now, false), Next::Wait(ASK_AGAIN), "not at once");
        }
        let now = start + 3 * ASK_AGAIN;
        assert_eq!(plan.next(now, false), Next::Ask(question()));
        plan.asked(question(), Asked::Answered, now);
        assert_eq!(plan.next(now, false), Next::Wait(REFRESH - 3 * ASK_AGAIN));
    }

    #[test]
    fn what_is_known_is_asked_for_again_at_intervals() {
        let start = Instant::now();
        let mut plan = Plan::new(start);
        assert_eq!(plan.next(start + REFRESH, false), Next::Wait(REFRESH), "nothing to ask for");
        let start = start + REFRESH;
        for topic in ["a", "b"] {
            plan.asked(Question::Topic(topic.into()), Asked::Answered, start);
        }
        let due = start + REFRESH;
        assert_eq!(plan.next(due, false), Next::Ask(Question::Refresh));
        assert_eq!(
            plan.next(due, false),
            Next::Wait(REFRESH),
            "once, whatever the number of topics"
        );
        plan.asked(Question::Refresh, Asked::Again, due);
        assert_eq!(plan.next(due, false), Next::Wait(REFRESH), "what is known stays meanwhile");
    }

    #[test]
    fn silent_brokers_are_asked_every_second_whether_they_answer_again() {
        let start = Instant::now();
        let mut plan = Plan::new(start);
        assert_eq!(plan.next(start, true), Next::Wait(REFRESH), "not at once");
        let mut now = start + ASK_AGAIN;
        for _ in 0..3 {
            assert_eq!(plan.next(now, true), Next::Ask(Question::Reach));
            // An answer may take long.
            now += 5 * ASK_AGAIN;
            plan.asked(Question::Reach, Asked::Answered, now);
            assert!(matches!(plan.next(now, true), Next::Wait(_)));
            now += ASK_AGAIN;
        }
        assert!(matches!(plan.next(now, false), Next::Wait(_)), "they answer");
    }

    #[test]
    fn a_new_topic_goes_before_a_refresh_and_the_end_before_all() {
        let start = Instant::now();
        let mut plan = Plan::new(start);
        plan.asked(Question::Topic("a".into()), Asked::Answered, start);
        let due = start + REFRESH;
        plan.waiting.push(("b".into(), due));
        assert_eq!(plan.next(due, false), Next::Ask(Question::Topic("b".into())));
        plan.stopped = true;
        assert_eq!(plan.next(due, false), Next::Stop);
    }

    #[test]
    fn the_thread_asks_until_it_is_stopped() {
        let (asked, questions) = std::sync::mpsc::channel();
        let (thread, handle) = Questions::start(
            move |question| {
                asked.send(format!("{question:?}")).unwrap();
                Asked::Answered
            },
            || false,
        )
        .unwrap();
        for topic in ["a", "b"] {
            thread.ask(topic.into());
            let limit = Duration::from_secs(30);
            assert_eq!(questions.recv_timeout(limit).unwrap(), format!("Topic({topic:?})"));
        }
        thread.stop();
        handle.join().unwrap();
    }
}
