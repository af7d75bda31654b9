use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use tokio::{signal::unix::SignalKind, task::block_in_place};
use walpost_local::{ChildGuard, Launch, LocalError, Signal};

use crate::{
    config::is_setting_variable,
    failure::{Exit, Failure},
    output,
};

/// An orderly stop drains; this is beyond its own bound.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// For a child that nobody needs any more. It drains as well.
const LEAVE_LIMIT: Duration = Duration::from_secs(30);

/// A process of the demo, of this same program. Ends with us, however we end.
#[derive(Debug)]
pub(super) struct Child {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    disposable: Option<PathBuf>,
    process: Option<ChildGuard>,
}

impl Child {
    /// One that does not run yet, with its log in `folder`.
    pub(super) fn new(
        name: &'static str,
        program: &Path,
        args: Vec<String>,
        folder: &Path,
    ) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, program: program.to_owned(), args, log, disposable: None, process: None }
    }

    /// Sets the folder that goes with it when we are killed.
    pub(super) fn disposable(mut self, folder: Option<&Path>) -> Self {
        self.disposable = folder.map(Path::to_owned);
        self
    }

    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let mut launch = Launch::new(self.name, &self.program, &self.log)
            .args(&self.args)
            .disposable(self.disposable.as_deref());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| is_setting_variable(name) || is_own(name)) {
                launch = launch.env_remove(name);
            }
        }
        self.process = Some(block_in_place(|| launch.spawn()).map_err(Failure::running)?);
        Ok(())
    }

    /// SIGKILL: no chance to finish anything.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        let Some(process) = self.process.take() else { return Ok(()) };
        block_in_place(|| process.kill()).map_err(Failure::running)?;
        Ok(())
    }

    /// SIGTERM, and the wait for an orderly end.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        let Some(process) = self.process.take() else { return Ok(()) };
        let ended = block_in_place(|| process.end(Signal::Terminate, STOP_LIMIT));
        let problem = match ended {
            Ok(status) if status.success() || has_not_begun(status) => return Ok(()),
            Ok(status) => format!("the {} did not stop in order ({status})", self.name),
            Err(LocalError::Timeout { .. }) => {
                format!("the {} did not stop within {} s", self.name, STOP_LIMIT.as_secs())
            }
            Err(error) => return Err(Failure::running(error)),
        };
        Err(self.with_log(&problem))
    }

    /// Lets it give up its slot and its place in the group, and ends it in any
    /// case.
    pub(super) fn leave(&mut self) {
        if let Some(process) = self.process.take() {
            block_in_place(|| drop(process.end(Signal::Terminate, LEAVE_LIMIT)));
        }
    }

    /// Fails when it has ended by itself.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Some(process) = &self.process else { return Ok(()) };
        match process.try_wait().map_err(Failure::running)? {
            None => Ok(()),
            Some(status) => {
                Err(self.with_log(&format!("the {} ended by itself ({status})", self.name)))
            }
        }
    }

    /// The end of its log, for a person who wants to know what happened.
    pub(super) fn log_tail(&self) -> String {
        const LINES: usize = 12;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LINES)..];
        tail.iter().fold(format!("--- log of the {}\n", self.name), |text, line| {
            text + "    " + line + "\n"
        })
    }

    fn with_log(&self, problem: &str) -> Failure {
        output::note(self.log_tail().trim_end());
        Failure::found(Exit::Running, problem)
    }
}

/// A process listens to SIGTERM before it does anything.
fn has_not_begun(status: ExitStatus) -> bool {
    status.signal() == Some(SignalKind::terminate().as_raw_value())
}

/// Variables that are no settings and would still change a child.
fn is_own(name: &str) -> bool {
    matches!(name, "WALPOST_CONFIG" | "WALPOST_FAILPOINT")
}
