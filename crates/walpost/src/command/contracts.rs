mod before;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;
use walpost_contracts::{Break, Contract, Contracts};

use crate::{
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Contracts of events, which producers and consumers agree on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads the contracts of a folder, and tells which changes would break consumers
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// The folder, with a file DOMAIN/EVENT.md for each event
    #[arg(default_value = "docs/events")]
    folder: PathBuf,
    #[command(flatten)]
    before: before::Args,
    /// A type of event whose breaks are told and let pass; may be given several times
    #[arg(long, value_name = "EVENT_TYPE")]
    allow: Vec<String>,
    /// Print one JSON object a contract
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        let Command::Check(args) = &self.command;
        args.json
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Check(args) = &args.command;
    let now =
        Contracts::load(&args.folder).map_err(|error| Failure::new(Exit::Configuration, error))?;
    let before = args.before.load(&args.folder)?;
    let breaks = before.as_ref().map(|before| now.breaks_since(before)).unwrap_or_default();
    let judged = Judged { now: &now, before: before.as_ref(), breaks: &breaks };
    output::print(if args.json { judged.lines() } else { judged.table() })?;
    if !args.json {
        for one in &breaks {
            output::note(format_args!("{one}"));
        }
    }
    if before.is_none() {
        output::note("only the documents were looked at; --against COMMIT compares them too");
    }
    if let Some(unknown) =
        args.allow.iter().find(|name| !breaks.iter().any(|one| one.event_type == **name))
    {
        output::note(format_args!("--allow {unknown} allows nothing: nothing of it breaks"));
    }
    let refused = breaks.iter().filter(|one| !args.allow.contains(&one.event_type)).count();
    match refused {
        0 => Ok(()),
        count => {
            let text = format!("{count} changes would break those who read the events");
            let failure = Failure::found(Exit::Running, &text);
            let failure = failure.next_step("mend them, or let them pass with --allow EVENT_TYPE");
            Err(if args.json { failure.told_in_json() } else { failure })
        }
    }
}

struct Judged<'a> {
    now: &'a Contracts,
    before: Option<&'a Contracts>,
    breaks: &'a [Break],
}

impl Judged<'_> {
    fn change(&self, contract: &Contract) -> &'static str {
        let Some(before) = self.before else { return "-" };
        match before.get(&contract.event_type) {
            None => "new",
            Some(old) if old == contract => "none",
            Some(_) if self.of(&contract.event_type).next().is_some() => "breaks",
            Some(_) => "compatible",
        }
    }

    fn of(&self, event_type: &str) -> impl Iterator<Item = &Break> {
        self.breaks.iter().filter(move |one| one.event_type == event_type)
    }

    /// Contracts that are gone.
    fn gone(&self) -> impl Iterator<Item = &Contract> {
        let before = self.before.into_iter().flat_map(Contracts::iter);
        before.filter(|old| self.now.get(&old.event_type).is_none())
    }

    fn all(&self) -> impl Iterator<Item = (&Contract, &'static str)> {
        let now = self.now.iter().map(|contract| (contract, self.change(contract)));
        now.chain(self.gone().map(|contract| (contract, "gone")))
    }

    fn table(&self) -> String {
        let titles = ["event", "version", "compatibility", "schema", "owner", "change"];
        let mut table = Table::titled(titles).right([1]);
        for (contract, change) in self.all() {
            table.row([
                contract.event_type.clone(),
                contract.version.to_string(),
                contract.compatibility.to_string(),
                contract.schema_language().to_owned(),
                contract.owner.clone(),
                change.to_owned(),
            ]);
        }
        table.to_string()
    }

    fn lines(&self) -> String {
        let line = |(contract, change): (&Contract, &str)| {
            let event_type = &contract.event_type;
            let breaks: Vec<&str> = self.of(event_type).map(|one| one.reason.as_str()).collect();
            let line = json!({
                "event_type": event_type,
                "aggregate_type": contract.aggregate_type,
                "version": contract.version,
                "compatibility": contract.compatibility.to_string(),
                "schema": contract.schema_language(),
                "owner": contract.owner,
                "change": change,
                "breaks": breaks,
            });
            format!("{line}\n")
        };
        self.all().map(line).collect()
    }
}
