//! Keeps the gauges of a consumer, beside its partitions.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::{TopicPartition, kafka::Kafka, meter::Meter, meter::Meters, metrics::StateGauges};
use crate::{settings::Settings, status::Board};

/// Between two times that gauges are set.
const INTERVAL_MS: u64 = 1_000;
/// Partitions whose end is asked for at one time.
const MAX_ASKING: usize = 32;

/// The task, which ends with this value, and the gauges go to 0.
pub(crate) struct Reporter {
    task: JoinHandle<()>,
    meters: Meters,
    states: Arc<Vec<StateGauges>>,
}

impl Reporter {
    pub(crate) fn start(settings: &Settings, kafka: Kafka, board: Board, meters: Meters) -> Self {
        let topics = settings.topics.iter();
        let states = topics.map(|topic| StateGauges::new(&settings.consumer, topic)).collect();
        let states = Arc::new(states);
        let task = report(kafka, board, meters.clone(), Arc::clone(&states));
        Self { task: tokio::spawn(task), meters, states }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
        self.meters.clear();
        self.states.iter().for_each(StateGauges::clear);
    }
}

async fn report(kafka: Kafka, board: Board, meters: Meters, states: Arc<Vec<StateGauges>>) {
    let mut tick = interval(Duration::from_millis(INTERVAL_MS));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asking = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let now = Instant::now();
                meters.publish(now, now_ms());
                board.look(|status| states.iter().for_each(|states| states.set(status)));
                for (of, meter) in meters.to_be_asked(now, MAX_ASKING - asking.len()) {
                    asking.push(ask(&kafka, of, meter));
                }
            }
            Some(()) = asking.next() => {}
        }
    }
}

/// What cannot be answered stays as it was, and ages.
fn ask(kafka: &Kafka, of: TopicPartition, meter: Arc<Meter>) -> impl Future<Output = ()> + use<> {
    let kafka = kafka.clone();
    async move {
        let end = kafka.watermarks(&of).await.ok().map(|(_, end)| end);
        meter.asked(end, Instant::now());
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
