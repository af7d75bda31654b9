//! `walpost serve`: connectors that come over HTTP, and a pipeline for each.

mod pipelines;
mod ready;
mod sight;

use std::{pin::pin, process, sync::Arc, time::Duration};

use tokio::{sync::oneshot, task::JoinSet};
use walpost_connect::{Runner, StoreError, Worker, router};

use self::{pipelines::Pipelines, ready::Ready};
use crate::{
    command::run,
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
    http, log,
    signals::Signals,
};

/// Gauges of pipelines that run are set every few seconds.
const GAUGES_STAY: Duration = Duration::from_secs(60);

pub(crate) const HELP: &str = "\
Connectors are created and looked after over HTTP, as in Kafka Connect, and kept in
the table that `walpost migrate --set connect` creates. [postgres] names its
database and pipeline.schema its schema; whatever else walpost.toml, environment
and flags say holds for every connector that does not say it itself. [connect] says
where requests are answered and which token they bring. A second process on the
same database stands by. See docs/connect-api.md.

  curl -X PUT -H 'Content-Type: application/json' -d @connectors/orders.json \\
       http://127.0.0.1:8083/connectors/orders/config

Exit codes:
  0  stopped as asked
  1  failed while running
  2  wrong arguments or configuration
  3  PostgreSQL is not as it has to be";

pub(crate) async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    if args.connector.is_named() {
        let text = "walpost serve takes connectors over HTTP, and no file of one";
        let next_step = "leave --connector out, or start it with `walpost run`";
        return Err(Failure::found(Exit::Configuration, text).next_step(next_step));
    }
    let reading = args.connector.reading()?;
    let config = Config::load_over(args, None)?;
    log::start(&config)?;
    let database = config.database()?;
    let serving = config.serving()?;
    let listen = config.listen()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        postgres = %database,
        listen = %serving.listen,
        with_token = !serving.access.is_open(),
        "walpost serves"
    );
    let mut signals = Signals::listen()?;
    let metrics = run::record_metrics(Some(GAUGES_STAY))?;
    walpost_connect::describe_metrics();
    let plugin = reading.plugin();
    let schema = config.settings.pipeline.schema.clone();
    let pipelines = Arc::new(Pipelines::new(config, reading));
    let (worker, connectors) = Worker::new(database.clone(), schema, plugin, runner(&pipelines));
    // They end with this.
    let mut beside = JoinSet::new();
    if let Some(address) = listen {
        let listener = http::bind(address).await?;
        let ready = Ready::new(connectors.clone(), pipelines);
        beside.spawn(http::serve_beside(listener, ready.routes(), metrics.clone()));
    }
    beside.spawn(run::upkeep(metrics));
    let next_step = "set connect.listen to another address";
    let listener = http::bind_or(serving.listen, next_step).await?;
    let routes = router(connectors, serving.worker_id, serving.access);
    beside.spawn(http::serve_alone(listener, routes));
    let done = until_stopped(worker, &mut signals).await;
    done.map_err(|error| failure(error).for_role(&database))?;
    tracing::info!("walpost has stopped");
    Ok(())
}

fn runner(pipelines: &Arc<Pipelines>) -> Runner {
    let (runs, checks, looks) = (pipelines.clone(), pipelines.clone(), pipelines.clone());
    Runner::new(move |assignment| runs.clone().run(assignment))
        .checking(move |properties| checks.problems(properties))
        .looking(move |properties| looks.clone().sight(properties))
}

/// The first signal ends all pipelines in order, the second ends at once.
async fn until_stopped(worker: Worker, signals: &mut Signals) -> Result<(), StoreError> {
    let (stop, stopped) = oneshot::channel::<()>();
    let mut stop = Some(stop);
    let mut worker = pin!(worker.run(async move { drop(stopped.await) }));
    loop {
        tokio::select! {
            done = worker.as_mut() => return done,
            signal = signals.next() => {
                if stop.take().is_none() {
                    tracing::warn!(signal, "ending at once");
                    process::exit(i32::from(Exit::Running as u8));
                }
                tracing::info!(signal, "stopping; a second signal ends at once");
            }
        }
    }
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Connect(error) => Failure::of_connect(error),
        StoreError::NoTable { .. } => Failure::postgres(error),
        error => Failure::postgres(error).next_step(
            "let an owner grant <role> usage on the schema, and select, insert, update and delete \
             on its table connector",
        ),
    }
}
