//! Which PostgreSQL to use.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{LocalError, command, fetch};

const VERSION_LIMIT: Duration = Duration::from_secs(30);
const DEBIAN: &str = "/usr/lib/postgresql";

/// A folder with a working server.
#[derive(Debug)]
pub(super) struct Binaries {
    pub(super) bin: PathBuf,
    pub(super) major: u32,
}

/// The server of version `major`: `WALPOST_PG_BIN`, an installed one, or a
/// fetched one. Without a version the first of these.
pub(super) fn find(major: Option<u32>) -> Result<Binaries, LocalError> {
    let fits = |found: &Binaries| major.is_none_or(|major| major == found.major);
    if let Some(bin) = env::var_os("WALPOST_PG_BIN").filter(|bin| !bin.is_empty()) {
        let bin = PathBuf::from(bin);
        let named = probe(&bin).ok_or(LocalError::NotPostgres { path: bin })?;
        if fits(&named) {
            return Ok(named);
        }
    }
    if let Some(installed) = installed_folders().find_map(|bin| probe(&bin).filter(fits)) {
        return Ok(installed);
    }
    let bin = fetch::fetch_postgres(major)?;
    probe(&bin).ok_or(LocalError::NotPostgres { path: bin })
}

/// A client program beside the server, of a Debian installation, or on `PATH`.
pub(super) fn client(bin: &Path, name: &str) -> Option<PathBuf> {
    let beside = bin.join(name);
    if beside.is_file() {
        return Some(beside);
    }
    debian_folders()
        .into_iter()
        .map(|bin| bin.join(name))
        .find(|program| program.is_file())
        .or_else(|| command::on_path(name))
}

/// A client program of exactly the version `major`.
pub(super) fn client_of(major: u32, name: &str) -> Option<PathBuf> {
    let named = env::var_os("WALPOST_PG_BIN").filter(|bin| !bin.is_empty()).map(PathBuf::from);
    let mut programs = named.into_iter().chain(installed_folders()).map(|bin| bin.join(name));
    programs.find(|program| version(program) == Some(major))
}

fn installed_folders() -> impl Iterator<Item = PathBuf> {
    let told = || {
        let tool = command::on_path("pg_config")?;
        let mut command = Command::new(tool);
        let output = command::run("pg_config", command.arg("--bindir"), VERSION_LIMIT).ok()?;
        Some(PathBuf::from(output.stdout.trim()))
    };
    let beside = || command::on_path("postgres")?.parent().map(Path::to_owned);
    debian_folders()
        .into_iter()
        .chain(std::iter::once_with(told).flatten())
        .chain(std::iter::once_with(beside).flatten())
}

/// Newest first.
fn debian_folders() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN) else { return Vec::new() };
    let mut majors: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.into_iter().map(|major| Path::new(DEBIAN).join(format!("{major}/bin"))).collect()
}

fn probe(bin: &Path) -> Option<Binaries> {
    if !bin.join("initdb").is_file() {
        return None;
    }
    Some(Binaries { bin: bin.to_owned(), major: version(&bin.join("postgres"))? })
}

/// The major version of a program.
fn version(program: &Path) -> Option<u32> {
    if !program.is_file() {
        return None;
    }
    let name = program.file_name()?.to_str()?;
    let mut command = Command::new(program);
    major(&command::run(name, command.arg("--version"), VERSION_LIMIT).ok()?.stdout)
}

/// The major number of `postgres (PostgreSQL) 15.13 (Debian ...)`.
fn major(output: &str) -> Option<u32> {
    let version = output.split_once(')')?.1.trim_start();
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases_and_betas_are_understood() {
        assert_eq!(major("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major("something else"), None);
    }
}
