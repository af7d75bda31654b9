//! What the contracts were before: another folder, or a commit.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use walpost_contracts::Contracts;

use crate::failure::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Args {
    /// Compare with what the folder was in this commit, branch or tag of git
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// Compare with another folder
    #[arg(long, value_name = "FOLDER")]
    before: Option<PathBuf>,
}

impl Args {
    pub(super) fn load(&self, folder: &Path) -> Result<Option<Contracts>, Failure> {
        let failure = |error: anyhow::Error| Failure::new(Exit::Configuration, error);
        match (&self.before, &self.against) {
            (Some(before), _) => {
                Contracts::load(before).map(Some).map_err(|error| failure(error.into()))
            }
            (None, Some(commit)) => in_commit(folder, commit).map(Some).map_err(failure),
            (None, None) => Ok(None),
        }
    }
}

/// None at all where the commit has no such folder.
fn in_commit(folder: &Path, commit: &str) -> anyhow::Result<Contracts> {
    let commit = git(
        folder,
        &["rev-parse", "--verify", "--end-of-options", &format!("{commit}^{{commit}}")],
    )
    .with_context(|| format!("git has no commit {commit:?} here; fetch it, or name another"))?;
    let commit = commit.trim_end();
    let names = git(folder, &["ls-tree", "-r", "-z", "--name-only", commit, "."])?;
    let mut documents = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let path = Path::new(name);
        // Deeper ones are none, as in a folder that is read.
        if path.components().count() == 2 && Contracts::is_document(path) {
            let text = git(folder, &["show", &format!("{commit}:./{name}")])?;
            documents.push((PathBuf::from(format!("{commit}:{name}")), text));
        }
    }
    Ok(Contracts::parse(documents)?)
}

fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .context("git cannot be run; --before FOLDER compares without it")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("git {} is no UTF-8", arguments[0]))
}
