use clap::{Parser, Subcommand};

use crate::{
    command::{
        check, config, consumer, contracts, demo, demo_consumer, idempotency, inbox, migrate,
        parked, pipeline, prune, replay, requeue, run, serve, shadow, slot, source, status,
        take_over, webhook,
    },
    config::ConfigArgs,
    failure::Failure,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped as asked
  1  failed while running
  2  wrong arguments or configuration
  3  PostgreSQL is not as it has to be, or cannot be reached
  4  Kafka is not as it has to be, or cannot be reached
  5  nothing matched, and nothing was done
  6  compared, and something differs";

/// Moves events from a PostgreSQL outbox to Kafka exactly as they were committed.
#[derive(Debug, Parser)]
#[command(name = "walpost", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publishes events until it is told to stop
    #[command(after_help = EXIT_CODES)]
    Run(run::Args),
    /// Runs connectors that are created over HTTP, as a Kafka Connect worker does
    #[command(after_help = serve::HELP)]
    Serve,
    /// Creates Walpost's tables, or brings them up to date
    #[command(after_help = migrate::SETS_HELP)]
    Migrate(migrate::Args),
    /// Looks at everything that `run` needs, and changes nothing
    Check(check::Args),
    /// Shows pipelines, their slots, and what is parked
    Status(status::Args),
    /// Prints the default configuration, which is its manual
    Config(config::Args),
    /// Counts the rows that may leave the outbox, or has them leave
    Prune(prune::Args),
    /// Hands rows from one pipeline of an outbox table to another
    Pipeline(pipeline::Args),
    /// Looks after the replication slot
    Slot(slot::Args),
    /// Switches what brings the events: the WAL, or polling the outbox table
    Source(source::Args),
    /// Compares what a live Debezium connector publishes with what `run` would, and writes nothing
    #[command(after_help = EXIT_CODES)]
    Shadow(shadow::Args),
    /// Takes the slot of a stopped Debezium connector over, or hands it back
    #[command(after_help = EXIT_CODES)]
    TakeOver(take_over::Args),
    /// Shows events that could not be delivered, sends them on or discards them
    Parked(parked::Args),
    /// Publishes events of the outbox table once more, on purpose
    #[command(after_help = EXIT_CODES)]
    Replay(replay::Args),
    /// Makes failed rows of a polled outbox pending again, in order
    Requeue(requeue::Args),
    /// Shows events received from outside, and has them tried again, ignored or pruned
    #[command(after_help = EXIT_CODES)]
    Inbox(inbox::Args),
    /// Shows webhooks that are sent, has them sent again, held, let go, settled or pruned
    #[command(after_help = EXIT_CODES)]
    Webhook(webhook::Args),
    /// Shows a request under an idempotency key, forgets it, and prunes what has expired
    #[command(after_help = EXIT_CODES)]
    Idempotency(idempotency::Args),
    /// Shows consumers, their offsets and what they parked; resets, retries, prunes
    #[command(after_help = EXIT_CODES)]
    Consumer(consumer::Args),
    /// Checks the contracts of events: their documents, and what a change would break
    #[command(after_help = EXIT_CODES)]
    Contracts(contracts::Args),
    /// Shows the whole chain at work, with its processes killed half-way
    Demo(demo::Args),
    #[command(hide = true)]
    DemoConsumer(demo_consumer::Args),
}

impl Cli {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::Check(args) => args.json,
            Command::Status(args) => args.json,
            Command::Parked(args) => args.json(),
            Command::Slot(args) => args.json(),
            Command::Pipeline(args) => args.json(),
            Command::Source(args) => args.json(),
            Command::Shadow(args) => args.json,
            Command::TakeOver(args) => args.json(),
            Command::Prune(args) => args.json,
            Command::Replay(args) => args.json,
            Command::Requeue(args) => args.json,
            Command::Inbox(args) => args.json(),
            Command::Webhook(args) => args.json(),
            Command::Idempotency(args) => args.json(),
            Command::Consumer(args) => args.json(),
            Command::Contracts(args) => args.json(),
            Command::Demo(args) => args.json,
            Command::Run(_)
            | Command::Serve
            | Command::Migrate(_)
            | Command::Config(_)
            | Command::DemoConsumer(_) => false,
        }
    }

    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { mut config, command } = self;
        // Where it is the one thing that a command is about, it needs no option.
        config.connector.name(match &command {
            Command::Run(args) => args.of.as_ref(),
            Command::Check(args) => args.of.as_ref(),
            Command::Shadow(args) => args.of.as_ref(),
            Command::Config(args) => args.of.as_ref(),
            _ => None,
        });
        match command {
            Command::Config(args) => config::run(&config, &args),
            Command::Contracts(args) => contracts::run(&args),
            Command::Run(_) => block_on(run::run(&config)),
            Command::Serve => block_on(serve::run(&config)),
            Command::Migrate(args) => block_on(migrate::run(&config, &args)),
            Command::Check(args) => block_on(check::run(&config, &args)),
            Command::Status(args) => block_on(status::run(&config, &args)),
            Command::Parked(args) => block_on(parked::run(&config, &args)),
            Command::Slot(args) => block_on(slot::run(&config, &args)),
            Command::Pipeline(args) => block_on(pipeline::run(&config, &args)),
            Command::Source(args) => block_on(source::run(&config, &args)),
            Command::Shadow(args) => block_on(shadow::run(&config, &args)),
            Command::TakeOver(args) => block_on(take_over::run(&config, &args)),
            Command::Prune(args) => block_on(prune::run(&config, &args)),
            Command::Replay(args) => block_on(replay::run(&config, &args)),
            Command::Requeue(args) => block_on(requeue::run(&config, &args)),
            Command::Inbox(args) => block_on(inbox::run(&config, &args)),
            Command::Webhook(args) => block_on(webhook::run(&config, &args)),
            Command::Idempotency(args) => block_on(idempotency::run(&config, &args)),
            Command::Consumer(args) => block_on(consumer::run(&config, &args)),
            Command::Demo(args) => block_on(demo::run(&config, &args)),
            Command::DemoConsumer(args) => block_on(demo_consumer::run(&config, &args)),
        }
    }
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::running(error).context("cannot start the runtime"))?;
    let done = runtime.block_on(command);
    // A call into librdkafka that still waits must not hold the exit back.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
