//! Programs that run to their end: found, bounded in time, output captured.

use std::{
    env, fs,
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::LocalError;

const POLL: Duration = Duration::from_millis(5);
const TAIL_LINES: usize = 15;

/// The first executable called `name` on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs `command` and returns what it wrote to stdout and to stderr.
pub(crate) fn run(
    what: &str,
    command: &mut Command,
    limit: Duration,
) -> Result<Output, LocalError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = || tempfile::tempfile().map_err(LocalError::io("create", "a temporary file"));
    let share = |file: &fs::File| file.try_clone().map_err(LocalError::io("share", "a file"));
    let (mut stdout, mut stderr) = (file()?, file()?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(share(&stdout)?)
        .stderr(share(&stderr)?)
        .spawn()
        .map_err(LocalError::io("run", &program))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(LocalError::io("wait for", &program))? {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill().map_err(LocalError::io("kill", &program))?;
            child.wait().map_err(LocalError::io("wait for", &program))?;
            break None;
        }
        thread::sleep(POLL);
    };
    let output = Output { stdout: text(&mut stdout)?, stderr: text(&mut stderr)? };
    let said = || tail(&format!("{}\n{}", output.stdout, output.stderr));
    match status {
        None => Err(LocalError::Timeout { what: what.to_owned(), limit, tail: said() }),
        Some(status) if status.success() => Ok(output),
        Some(status) => Err(LocalError::Command {
            command: what.to_owned(),
            status: status.to_string(),
            tail: said(),
        }),
    }
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The last lines of a log file, for an error text.
pub(crate) fn tail_of(log: &Path) -> String {
    fs::read(log).map_or_else(
        |error| format!("(unreadable: {error})"),
        |bytes| tail(&String::from_utf8_lossy(&bytes)),
    )
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn text(file: &mut fs::File) -> Result<String, LocalError> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(LocalError::io("read", "the output of a program"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_last_lines() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let error = run("the script", &mut command, Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.to_string(), "the script failed (exit status: 3): one\ntwo");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        let error = run("it", command.arg("100"), Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, LocalError::Timeout { .. }));
    }
}
