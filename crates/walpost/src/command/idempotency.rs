use std::time::SystemTime;

use clap::Subcommand;
use serde_json::{Value, json};
use walpost_idempotency::{Entry, Idempotency, Key, Lookup, Scope};
use walpost_postgres::Database;

use crate::{
    command::{inbox::utc, sql},
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
    output,
    table::{Table, thousands},
};

/// Requests under idempotency keys: how far one is, and what may leave.
///
/// The table is that of `walpost migrate --set idempotency`. It has no keys, so a
/// request is found by the key and whose it is, as the application has them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Schema of the table; without it pipeline.schema
    #[arg(long, global = true)]
    schema: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows a request, without its response
    Show(ShowArgs),
    /// Counts what has expired, or has it leave; or forgets one request
    Purge(PurgeArgs),
}

/// A request.
#[derive(Debug, clap::Args)]
struct Which {
    /// Whose it is, as the application says it
    #[arg(long, requires = "key")]
    principal: Option<String>,
    /// Name of its route; none where keys are scoped by principals alone
    #[arg(long, requires = "key")]
    route: Option<String>,
    /// Its key, without quotes
    #[arg(long, requires = "principal")]
    key: Option<String>,
    /// Instead of these: what it is stored under, as 64 hexadecimal digits
    #[arg(long, value_name = "HEX", conflicts_with_all = ["principal", "route", "key"])]
    lookup: Option<Lookup>,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PurgeArgs {
    #[command(flatten)]
    which: Which,
    /// Rows of one transaction
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_rows: u32,
    /// Do it; without it nothing is done
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::Show(args) => args.json,
            Command::Purge(args) => args.json,
        }
    }
}

impl Which {
    fn lookup(&self) -> Result<Option<Lookup>, Failure> {
        let (Some(principal), Some(key)) = (&self.principal, &self.key) else {
            return Ok(self.lookup);
        };
        let key = Key::new(key).map_err(|error| Failure::new(Exit::Configuration, error))?;
        let scope = match &self.route {
            Some(route) => Scope::principal_and_route(principal, route),
            None => Scope::principal(principal),
        };
        Ok(Some(Lookup::new(&scope, &key)))
    }
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = args.schema.clone().unwrap_or_else(|| config.settings.pipeline.schema.clone());
    let idempotency = Idempotency::in_schema(schema);
    let database = config.database()?;
    let done = match &args.command {
        Command::Show(args) => show(&database, &idempotency, args).await,
        Command::Purge(args) => match args.which.lookup()? {
            Some(lookup) => forget(&database, &idempotency, &lookup, args).await,
            None => purge(&database, &idempotency, args).await,
        },
    };
    done.map_err(|failure| failure.for_role(&database))
}

async fn show(
    database: &Database,
    idempotency: &Idempotency,
    args: &ShowArgs,
) -> Result<(), Failure> {
    let Some(lookup) = args.which.lookup()? else {
        let text = "no request was named";
        return Err(Failure::found(Exit::Configuration, text)
            .next_step("name it by --principal, --route and --key, or by --lookup"));
    };
    let client = sql::connect_to_look(database).await?;
    let entry = idempotency.show(&client, &lookup).await.map_err(failure)?;
    let fields = fields(&lookup, &entry.ok_or_else(missing)?);
    if args.json {
        let object: Value =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        return output::print(format_args!("{object}\n"));
    }
    let mut table = Table::default();
    for (name, value) in fields {
        let text = match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.escape_debug().to_string(),
            other => other.to_string(),
        };
        table.row([name.to_owned(), text]);
    }
    output::print(table)
}

fn fields(lookup: &Lookup, entry: &Entry) -> Vec<(&'static str, Value)> {
    let at = |at: Option<SystemTime>| json!(at.map(utc));
    vec![
        ("lookup", json!(lookup.to_string())),
        ("route", json!(entry.route)),
        ("status", json!(entry.status)),
        ("created_at", json!(utc(entry.created_at))),
        ("completed_at", at(entry.completed_at)),
        ("expires_at", at(entry.expires_at)),
        ("gone_until", at(entry.gone_until)),
        ("lease_until", at(entry.lease_until)),
        ("is_abandoned", json!(entry.is_abandoned)),
        ("recovery_point", json!(entry.recovery_point)),
        ("response_status", json!(entry.response_status)),
    ]
}

async fn purge(
    database: &Database,
    idempotency: &Idempotency,
    args: &PurgeArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let pruned = match args.yes {
        true => idempotency.prune(&client, args.batch_rows).await,
        false => idempotency.prunable(&client).await,
    };
    let pruned = pruned.map_err(failure)?;
    if args.json {
        let line = json!({ "done": args.yes, "responses": pruned.responses, "rows": pruned.rows });
        return output::print(format_args!("{line}\n"));
    }
    let (responses, rows) = (thousands(pruned.responses), thousands(pruned.rows));
    output::print(match args.yes {
        true => format!("{responses} responses and {rows} rows have left\n"),
        false => format!(
            "{responses} responses and {rows} rows would leave\nnothing was done; --yes does it\n"
        ),
    })
}

/// One request, whether or not it has expired.
async fn forget(
    database: &Database,
    idempotency: &Idempotency,
    lookup: &Lookup,
    args: &PurgeArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let entry = idempotency.show(&client, lookup).await.map_err(failure)?.ok_or_else(missing)?;
    if entry.lease_until.is_some() && !entry.is_abandoned {
        let text = "the request is being carried out, and its lease lasts";
        return Err(Failure::found(Exit::Nothing, text)
            .next_step("wait for its end; `walpost idempotency show` says when its lease ends"));
    }
    let done = args.yes && idempotency.remove(&client, lookup).await.map_err(failure)?;
    if args.json {
        return output::print(format_args!("{}\n", json!({ "done": done, "rows": 1 })));
    }
    output::print(match done {
        true => "the request is forgotten: the next one under its key is new\n",
        false => "one request would be forgotten\nnothing was done; --yes does it\n",
    })
}

fn missing() -> Failure {
    Failure::found(Exit::Nothing, "no request is stored under this key").next_step(
        "compare principal and route with what the application says, to the letter; without a \
         route where its policy has the scope of principals alone",
    )
}

/// The text of the error has the next step in it.
fn failure(error: walpost_idempotency::Error) -> Failure {
    Failure::new(Exit::Postgres, error)
}
