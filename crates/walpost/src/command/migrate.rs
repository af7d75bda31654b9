use std::time::SystemTime;

use walpost_migrate::{Error, Form, Migrator, Set, State};
use walpost_postgres::Database;
use walpost_relay::{Days, PublishedTable, make_days, publish_tables};

use crate::{
    command::sql,
    config::{Config, ConfigArgs, ConfigError, SinkKind},
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// What stands below the options, as `--set` is one of every command.
pub(crate) const SETS_HELP: &str = "\
Sets of tables:
  --set relay        the outbox and the tables of the relay
  --set consumer     those of consumers
  --set inbox        that of received events
  --set idempotency  that of requests under idempotency keys
  --set webhook      those of webhooks that are sent
  --set connect      that of connectors that are created over HTTP
  --set all          all of them
Without one: relay and consumer, with sink.kind = \"webhook\" relay and webhook;
the others are brought up to date where they are there already.";

/// Which tables, and whether to create them or to show them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Schema of the tables; without it pipeline.schema
    #[arg(long)]
    schema: Option<String>,
    /// Create the outbox in partitions, one for each day, so that old days leave as a whole
    #[arg(long)]
    partitioned: bool,
    /// Print the SQL, for other migration tools, and do nothing
    #[arg(long, conflicts_with = "status")]
    print: bool,
    /// Show what is applied and what would be, and do nothing
    #[arg(long)]
    status: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let mut config = config.clone();
    let sets = take_sets(&mut config.assignments);
    let config = Config::load(&config).map_err(|error| match error {
        ConfigError::Assignment(text) => ConfigError::NoSet(text),
        error => error,
    })?;
    let pipeline = &config.settings.pipeline;
    let schema = args.schema.as_deref().unwrap_or(&pipeline.schema);
    let migrator = Migrator::new().schema(schema).publication(config.migrated_publication());
    let wanted = match (sets, config.sink_kind()?) {
        (Some(sets), _) => sets,
        (None, SinkKind::Kafka) => Set::DEFAULT,
        (None, SinkKind::Webhook) => &[Set::Relay, Set::Webhook],
    };
    let migrator = match sets {
        Some(sets) => migrator.sets(sets.iter().copied()),
        None => migrator.at_least(wanted.iter().copied()),
    };
    let has_outbox = wanted.contains(&Set::Relay);
    if args.partitioned && !has_outbox {
        let text = "--partitioned is about the outbox, which these sets leave out; it takes --set \
                    relay";
        return Err(Failure::new(Exit::Configuration, anyhow::anyhow!(text)));
    }
    let migrator = if args.partitioned { migrator.partitioned() } else { migrator };
    if args.print {
        for set in wanted {
            output::print(migrator.render(*set).map_err(failure)?)?;
        }
        return Ok(());
    }
    let database = config.database()?;
    let mut client = sql::connect(&database).await?;
    if args.status {
        return output::print(status(&migrator.status(&client).await.map_err(failure)?));
    }
    let applied = migrator.migrate(&mut client).await.map_err(failure)?;
    for migration in &applied {
        output::print(format_args!(
            "applied {}/{:04}_{}\n",
            migration.set, migration.number, migration.name
        ))?;
    }
    if has_outbox && args.schema.is_none() {
        publish(&config, &database).await?;
    }
    let days = match has_outbox {
        true => make_days(&database, schema).await,
        false => Ok(Days::default()),
    };
    let days = days.map_err(|error| Failure::of_relay(error, false))?;
    tell(&days)?;
    if applied.is_empty() && days.made.is_empty() {
        output::print(format_args!("nothing to apply: schema {schema} is up to date\n"))?;
    }
    Ok(())
}

/// Adds the pipeline's tables to the publication that was created with Walpost's own
/// outbox, as `walpost check` has announced.
async fn publish(config: &Config, database: &Database) -> Result<(), Failure> {
    let Some(relay) = config.migrated_pipeline() else { return Ok(()) };
    let found = publish_tables(database, &relay).await;
    for table in found.map_err(|error| Failure::of_relay(error, false))? {
        let PublishedTable { table, statement, problem, .. } = table;
        match problem {
            None => output::print(format_args!("added {table} to the publication\n"))?,
            Some(problem) => output::print(format_args!(
                "{table} is in no publication yet: {problem}; run `{statement}` then\n"
            ))?,
        }
    }
    Ok(())
}

/// Says which days have a partition now, and which have none and why.
fn tell(days: &Days) -> Result<(), Failure> {
    let is_not_owner = days.is_not_owner;
    let told = [
        (&days.made, "made partitions for"),
        (&days.in_default, "rows stay in the default partition, as some are there, of"),
        (&days.taken, "other tables have the names of the partitions for"),
        (&days.busy, "the outbox is locked; run it again to make partitions for"),
    ];
    for (days, what) in told.into_iter().filter(|(days, _)| !days.is_empty()) {
        output::print(format_args!("{what} {}\n", days.join(", ")))?;
    }
    if is_not_owner {
        output::print("no partitions were made: that takes the owner of the outbox\n")?;
    }
    Ok(())
}

/// `--set relay` stands between the `--set section.key=value` of every command.
fn take_sets(assignments: &mut Vec<String>) -> Option<&'static [Set]> {
    let mut sets: Option<&'static [Set]> = None;
    assignments.retain(|text| {
        sets = Some(match text.as_str() {
            "relay" => &[Set::Relay],
            "consumer" => &[Set::Consumer],
            "inbox" => &[Set::Inbox],
            "idempotency" => &[Set::Idempotency],
            "webhook" => &[Set::Webhook],
            "connect" => &[Set::Connect],
            "all" => Set::ALL,
            _ => return true,
        });
        false
    });
    sets
}

fn status(all: &[walpost_migrate::Status]) -> Table {
    let mut table = Table::titled(["migration", "state"]);
    for one in all {
        let name = format!("{}/{:04}_{}", one.set, one.number, one.name);
        let form = match one.form {
            Some(Form::Partitioned) => ", in partitions",
            Some(Form::Table) | None => "",
        };
        table.row([name, state(&one.state) + form]);
    }
    table
}

fn state(state: &State) -> String {
    match state {
        State::Pending => "pending".to_owned(),
        State::Applied { at, by } => {
            let ago = SystemTime::now().duration_since(*at).unwrap_or_default();
            format!("applied by {by} {}", ago_text(ago.as_secs()))
        }
        State::Changed => "applied with another text than this version has".to_owned(),
        State::Unknown => "applied by another version of walpost".to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn ago_text(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Name(_) => Failure::new(Exit::Configuration, error),
        error => Failure::postgres(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_told_from_an_assignment() {
        let mut assignments = vec!["pipeline.schema=s".to_owned(), "consumer".to_owned()];
        assert_eq!(take_sets(&mut assignments), Some(&[Set::Consumer][..]));
        assert_eq!(assignments, ["pipeline.schema=s"]);
        assert_eq!(take_sets(&mut assignments), None);
        for (text, set) in [
            ("inbox", &[Set::Inbox][..]),
            ("idempotency", &[Set::Idempotency]),
            ("webhook", &[Set::Webhook]),
            ("connect", &[Set::Connect]),
            ("all", Set::ALL),
        ] {
            assert_eq!(take_sets(&mut vec![text.to_owned()]), Some(set));
        }
    }
}
