use std::process::Command;

use anyhow::{Context, Result};
use walpost_local::{ChildGuard, Launch};

use super::{Job, Output, PUBLICATION, Subject};
use crate::services::{DATABASE, Services};

const PROGRAM: &str = "pg_recvlogical";

/// PostgreSQL's own reader, which does nothing with what it reads: the usual
/// limit that a relay is measured against.
#[derive(Debug)]
pub(crate) struct RecvLogical;

impl Subject for RecvLogical {
    fn name(&self) -> &'static str {
        "pg_recvlogical"
    }

    fn version(&self, services: &Services) -> Result<String> {
        let program = services.postgres.client_program(PROGRAM)?;
        let output = Command::new(program).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn output(&self) -> Output {
        Output::File
    }

    fn start(&self, job: &Job<'_>) -> Result<ChildGuard> {
        let postgres = &job.services.postgres;
        let mut launch = Launch::new(PROGRAM, postgres.client_program(PROGRAM)?, job.log())
            .args(["--host", postgres.host(), "--port", &postgres.port().to_string()])
            .args(["--username", "postgres"])
            .args(["--dbname", DATABASE, "--slot", job.slot, "--start", "--no-loop"])
            .args(["-o", "proto_version=1", "-o", "messages=true"])
            .args(["-o", &format!("publication_names={PUBLICATION}")])
            .args(["--fsync-interval=0", "--status-interval=1", "--file"])
            .arg(job.file)
            .disposable(Some(job.services.folder()));
        if let Some(end) = job.end {
            launch = launch.args(["--endpos", &end.to_string()]);
        }
        launch.spawn().context("starting pg_recvlogical")
    }
}
