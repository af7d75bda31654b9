use std::{fs, io};

use rustix::process::{self, Pid, WaitId, WaitIdOptions};

use crate::LocalError;

/// A signal that this crate sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP. PostgreSQL reloads its configuration.
    Hangup,
    /// SIGINT. PostgreSQL stops fast.
    Interrupt,
    /// SIGTERM. The usual request to end.
    Terminate,
    /// SIGQUIT. PostgreSQL stops at once, without a checkpoint.
    Quit,
    /// SIGKILL. Ends the process with no chance to react.
    Kill,
    /// SIGSTOP. Freezes the process.
    Stop,
    /// SIGCONT. Lets a frozen process run on.
    Continue,
}

impl Signal {
    fn raw(self) -> process::Signal {
        match self {
            Self::Hangup => process::Signal::HUP,
            Self::Interrupt => process::Signal::INT,
            Self::Terminate => process::Signal::TERM,
            Self::Quit => process::Signal::QUIT,
            Self::Kill => process::Signal::KILL,
            Self::Stop => process::Signal::STOP,
            Self::Continue => process::Signal::CONT,
        }
    }

    /// The name `kill -s` understands.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hangup => "HUP",
            Self::Interrupt => "INT",
            Self::Terminate => "TERM",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// Sends a signal to the process `pid`.
///
/// # Errors
///
/// When there is no such process, or it belongs to someone else.
pub fn send_signal(pid: u32, signal: Signal) -> Result<(), LocalError> {
    parse(pid)
        .and_then(|pid| process::kill_process(pid, signal.raw()).map_err(io::Error::from))
        .map_err(LocalError::io("send a signal to", format_args!("process {pid}")))
}

/// Whether this child is frozen with all its threads, or has ended.
pub(crate) fn stands_still(pid: u32) -> io::Result<bool> {
    let looked = WaitIdOptions::STOPPED | WaitIdOptions::EXITED;
    // It is left to be waited for.
    let options = looked | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match process::waitid(WaitId::Pid(parse(pid)?), options) {
        Ok(state) => Ok(state.is_some()),
        // It was waited for.
        Err(rustix::io::Errno::CHILD) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether a process with this id runs, or is frozen. On systems without
/// `/proc` also when it has ended and its parent has not yet waited for it.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let exists =
        parse(pid).is_ok_and(|pid| process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
    exists && !is_zombie(pid)
}

/// The state is the letter after the name, which is in parentheses.
fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn parse(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a process id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive_and_what_has_ended_is_not() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}
