//! Test executables, built by cargo.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cargo;
use crate::tidy::Target;

/// A test executable, and the folder it runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Of the package, as cargo has it.
    pub(crate) folder: PathBuf,
}

/// By package and target.
pub(crate) type Programs = BTreeMap<(String, Target), Vec<Program>>;

/// Which packages are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packages {
    /// `default-members`.
    Everyday,
    /// All of the workspace.
    All,
}

/// Builds the tests of these packages at once: built package by package, each would
/// have other features, and cargo would compile its dependencies again.
///
/// # Errors
/// If cargo cannot be started or read, or something does not compile.
pub(crate) fn build(packages: Packages, options: &[&str]) -> Result<Programs> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(options);
    if packages == Packages::All {
        command.arg("--workspace");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().expect("it was piped");
    let mut programs = Programs::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read the messages of cargo")?;
        let message = serde_json::from_str(&line).context("a message of cargo is not JSON")?;
        if let Some((key, program)) = program(&message) {
            programs.entry(key).or_default().push(program);
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    ensure!(status.success(), "the tests do not compile, see above");
    Ok(programs)
}

/// What the message says was built, if that is tests.
fn program(message: &Value) -> Option<((String, Target), Program)> {
    if message["profile"]["test"] != true {
        return None;
    }
    let target = match message["target"]["kind"][0].as_str()? {
        "test" => Target::Test(message["target"]["name"].as_str()?.to_owned()),
        "bin" => Target::Bins,
        _ => Target::Lib,
    };
    let package = package(message["package_id"].as_str()?)?.to_owned();
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let path = message["executable"].as_str()?.into();
    Some(((package, target), Program { path, folder }))
}

/// The name in a package id: the last folder of the URL, unless the id has one.
pub(super) fn package(id: &str) -> Option<&str> {
    let (url, fragment) = id.rsplit_once('#')?;
    let named = fragment.split_once('@').map(|(name, _)| name);
    named.or_else(|| url.rsplit('/').next())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_built_is_found_by_its_package_and_target() {
        let mut message = json!({
            "package_id": "path+file:///w/crates/a-b#0.1.0",
            "manifest_path": "/w/crates/a-b/Cargo.toml",
            "target": {"kind": ["test"], "name": "it"},
            "profile": {"test": true},
            "executable": "/w/target/it-1",
        });
        let built = || Program { path: "/w/target/it-1".into(), folder: "/w/crates/a-b".into() };
        let key = |package: &str, target| (package.to_owned(), target);
        assert_eq!(program(&message), Some((key("a-b", Target::Test("it".into())), built())));
        message["package_id"] = "path+file:///w/crates/a-b#c@0.1.0".into();
        message["target"]["kind"] = json!(["bin"]);
        assert_eq!(program(&message), Some((key("c", Target::Bins), built())));
        message["target"]["kind"] = json!(["lib"]);
        assert_eq!(program(&message), Some((key("c", Target::Lib), built())));
        message["profile"]["test"] = false.into();
        assert_eq!(program(&message), None);
        assert_eq!(program(&json!({"reason": "build-finished"})), None);
    }
}
