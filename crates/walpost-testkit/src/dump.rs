//! Databases that are dumped and restored, by the programs of their server's version.

use std::{path::Path, process::Command};

use tempfile::NamedTempFile;
use walpost_event::error_chain;
use walpost_local::Postgres;

use crate::services::Database;

/// A whole database as `pg_dump` wrote it.
#[derive(Debug)]
pub struct Dump {
    file: NamedTempFile,
    major: u32,
}

impl Database {
    /// Dumps it.
    ///
    /// # Panics
    ///
    /// When that fails, or no `pg_dump` of the server's major version is installed.
    pub async fn dump(&self) -> Dump {
        let version = "select current_setting('server_version_num')::int / 10000";
        let row = self.connect().await.query_one(version, &[]).await;
        let major: i32 = row.expect("a server has a version").get(0);
        let major = u32::try_from(major).expect("a major version is positive");
        let file = NamedTempFile::new().expect("a temporary file can be created");
        run(major, "pg_dump", ["-Fc", "-d", self.url(), "-f"], file.path());
        Dump { file, major }
    }
}

impl Dump {
    /// Restores it into a database of a server of the same version. What the dump has
    /// replaces what is there.
    ///
    /// # Panics
    ///
    /// When that fails.
    #[track_caller]
    pub fn restore(&self, into: &Database) {
        let args = ["--clean", "--if-exists", "-d", into.url()];
        run(self.major, "pg_restore", args, self.file.path());
    }
}

#[track_caller]
fn run(major: u32, name: &str, args: [&str; 4], file: &Path) {
    let program = Postgres::client_program_of(major, name);
    let program = program.unwrap_or_else(|error| panic!("{}", error_chain(&error)));
    let output = Command::new(program).args(args).arg(file).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed: {log}");
}
