use serde_json::json;
use walpost_postgres::Database;
use walpost_webhook::{Deliveries, Prune, Pruned};

use super::failure;
use crate::{command::sql, failure::Failure, output, table::thousands};

/// After so many deliveries there is a line about how far it is.
const TOLD_EVERY: u64 = 100_000;

/// What leaves, of deliveries that have arrived.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// They move to the archive so many days after they arrived, without what was sent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=3_653))]
    archive_after_days: u32,
    /// They are deleted so many days after they arrived; an event that comes again after that
    /// is sent once more
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3_653))]
    delete_after_days: u32,
    /// Deliveries of one transaction
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_rows: u32,
    /// Have them leave; without it they are counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn run(
    database: &Database,
    deliveries: &Deliveries,
    args: &Args,
) -> Result<(), Failure> {
    let prune =
        Prune::new(args.archive_after_days, args.delete_after_days).batch_rows(args.batch_rows);
    let client = sql::connect_to_ask(database).await?;
    let pruned = match args.yes {
        true => {
            let mut told = 0;
            let progress = |so_far: Pruned| {
                let count = so_far.archived + so_far.deleted;
                if count >= told + TOLD_EVERY {
                    told = count;
                    output::note(sentence(so_far, "so far "));
                }
            };
            deliveries.prune(&client, &prune, progress).await
        }
        false => deliveries.prunable(&client, &prune).await,
    };
    let pruned = pruned.map_err(failure)?;
    if args.json {
        let Pruned { archived, deleted, .. } = pruned;
        let line = json!({ "done": args.yes, "archived": archived, "deleted": deleted });
        return output::print(format_args!("{line}\n"));
    }
    if args.yes {
        return output::print(sentence(pruned, "") + "\n");
    }
    let counted = |count: u64| {
        let more = if count >= u64::from(Pruned::COUNTED_MAX) { " or more" } else { "" };
        format!("{}{more}", thousands(count))
    };
    output::print(format_args!(
        "{} deliveries would move to the archive, {} would be deleted from it\n",
        counted(pruned.archived),
        counted(pruned.deleted)
    ))?;
    output::note("nothing was done; --yes does it");
    Ok(())
}

fn sentence(pruned: Pruned, when: &str) -> String {
    format!(
        "{when}{} deliveries have moved to the archive, {} were deleted from it",
        thousands(pruned.archived),
        thousands(pruned.deleted)
    )
}
