use std::path::PathBuf;

use crate::{
    config::{Config, ConfigArgs, DEFAULT_FILE},
    failure::Failure,
    output,
};

/// What to print.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print what holds: file, environment and flags applied, secrets as ***
    #[arg(long)]
    effective: bool,
    /// File of a Debezium connector, as --connector has it
    #[arg(value_name = "CONNECTOR", conflicts_with = "file", requires = "effective")]
    pub(crate) of: Option<PathBuf>,
}

pub(crate) fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    if args.effective {
        output::print(Config::load(config)?.effective())
    } else {
        output::print(DEFAULT_FILE)
    }
}
