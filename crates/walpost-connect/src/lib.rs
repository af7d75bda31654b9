//! Kafka Connect's REST interface over connectors that one process runs and
//! that a table of PostgreSQL keeps, so that what speaks to a Connect worker
//! speaks to Walpost: scripts, consoles, operators.
//!
//! [`Worker::new`] gives a [`Worker`], which leads or stands by and has
//! connectors run, and [`Connectors`], by which [`router`] asks it. What a
//! connector does is not here: a [`Runner`] is given one [`Assignment`] for each
//! run. What a request makes of a connector is said by [`Machine`], which is
//! pure; [`Plugin`] judges configurations by `walpost-connector`.
//!
//! ```no_run
//! use walpost_connect::{Access, Plugin, Report, Runner, Worker, router};
//! use walpost_connector::{Allowed, Providers};
//! use walpost_postgres::Database;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::parse("postgres://walpost@localhost/connectors")?;
//! let plugin = Plugin::new(Providers::new(Allowed::nothing()));
//! let runner = Runner::new(|assignment| async move {
//!     assignment.report(Report::Working);
//!     assignment.stopped().await;
//!     Ok(())
//! });
//! let (worker, connectors) = Worker::new(database, "walpost", plugin, runner);
//! let app = router(connectors, "127.0.0.1:8083", Access::open());
//! # let _ = app;
//! worker.run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A connector's states, and what it does in them:
//!
//! | state | what is so |
//! |---|---|
//! | `RUNNING` | it publishes |
//! | `UNASSIGNED` | its run begins, or another process has its slot |
//! | `RESTARTING` | it tries again what has failed for now, or begins anew as it was told |
//! | `PAUSED` | nothing is read; the slot keeps its place, and the WAL behind it |
//! | `STOPPED` | the same, without a task |
//! | `FAILED` | its run has ended by itself; it is tried again where that may help |

mod blocking;
mod config;
mod error;
mod http;
mod plugin;
mod runner;
mod state;
mod store;
mod worker;

pub use crate::{
    blocking::{Blocking, Panicked, Turn},
    config::{Config, masked},
    error::ApiError,
    http::{Access, router},
    plugin::{CLASS, Plugin},
    runner::{Assignment, Problem, Runner, Sight},
    state::{
        Event, Machine, RETRY_FIRST, RETRY_LONGEST, Report, Restart, RunFailure, Shown, State,
        Step, Target,
    },
    store::StoreError,
    worker::{Connectors, Role, Worker},
};

/// Describes the metrics of this crate to the recorder that is installed.
pub fn describe_metrics() {
    metrics::describe_gauge!(
        "walpost_connect_connectors",
        "Connectors of this process by the state of their task, or their own without one"
    );
}
