//! `walpost contracts` of a build without the feature `contracts`.

use anyhow::anyhow;

use crate::failure::{Exit, Failure};

/// Contracts of events, which producers and consumers agree on.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--json")
    }
}

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    let reason = anyhow!(
        "this walpost was built without the feature `contracts`; install a package, or build it \
         with `--features contracts`"
    );
    Err(Failure::new(Exit::Configuration, reason))
}
