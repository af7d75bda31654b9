//! The threads that partitions and handlers run on. They are no threads of the application's
//! runtime: a handler that blocks its thread neither keeps the application from hearing of a
//! signal nor its runtime from ending.

use std::{future::Future, sync::OnceLock, thread::available_parallelism};

use futures_util::future::Either;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tracing::instrument::WithSubscriber;

use crate::tell::is_heard;

/// As many partitions go on beside handlers that block, on a machine with fewer cores.
const MIN_THREADS: usize = 4;

/// Of all consumers of the process. It never ends: connections that handlers have opened stay
/// usable after a consumer, and a thread that is blocked is waited for by nothing.
static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Runs a partition's task, which logs to the subscriber of this thread.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let task = heard(task);
    match RUNTIME.get_or_init(start) {
        Some(runtime) => runtime.spawn(task),
        None => tokio::spawn(task),
    }
}

/// The task with the subscriber of this thread, if there is one.
pub(crate) fn heard<F: Future>(task: F) -> impl Future<Output = F::Output> {
    match is_heard() {
        true => Either::Left(task.with_current_subscriber()),
        false => Either::Right(task),
    }
}

fn start() -> Option<Runtime> {
    let threads = available_parallelism().map_or(MIN_THREADS, |cores| MIN_THREADS.max(cores.get()));
    let mut builder = Builder::new_multi_thread();
    let built =
        builder.worker_threads(threads).thread_name("walpost-consumer").enable_all().build();
    built
        .inspect_err(|error| {
            tracing::warn!(%error, "no threads for handlers; using those of the application");
        })
        .ok()
}
