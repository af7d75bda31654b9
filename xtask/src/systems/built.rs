use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tidy::{self, Target};

/// Where the tests of a target are, and where they run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Of the package, as cargo has it.
    pub(super) folder: PathBuf,
}

pub(super) type Programs = BTreeMap<(String, Target), Vec<Program>>;

/// Builds the tests of the whole workspace at once, as `cargo test --workspace`
/// does: built package by package, each would have other features, and its
/// dependencies be compiled anew.
///
/// # Errors
/// If cargo cannot be started or read, or something does not compile.
pub(super) fn build() -> Result<Programs> {
    let mut child = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(tidy::root())
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let stdout = child.stdout.take().expect("it was piped");
    let mut programs = Programs::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read what cargo says")?;
        let message = serde_json::from_str(&line).context("cargo's message is no JSON")?;
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

/// The name in a package id: the last folder of the URL, unless it is told.
fn package(id: &str) -> Option<&str> {
    let (url, fragment) = id.rsplit_once('#')?;
    let told = fragment.split_once('@').map(|(name, _)| name);
    told.or_else(|| url.rsplit('/').next())
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
