use std::{
    ffi::OsStr,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use walpost_local::{ChildGuard, Launch, Signal};

use crate::until_some;

const SIGKILL: i32 = 9;
const POLL: Duration = Duration::from_millis(5);

/// A program under test. Its output goes to a file, whose end is printed when
/// the test panics. Ends with this value, by SIGKILL.
#[derive(Debug)]
pub struct Process {
    guard: ChildGuard,
    _folder: TempDir,
}

impl Process {
    /// Starts `program`, such as `env!("CARGO_BIN_EXE_walpost")`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    pub fn start(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        env: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        let program = program.into();
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = TempDir::new().expect("a temporary folder");
        let mut launch = Launch::new(&name, program, folder.path().join("log")).args(args);
        for (key, value) in env {
            launch = launch.env(key, value);
        }
        let guard = launch.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { guard, _folder: folder }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Whether it runs. A frozen one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.guard.is_running()
    }

    /// What it printed so far.
    ///
    /// # Panics
    ///
    /// When its log cannot be read.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.guard.log()).expect("the log was created at the start");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.guard.signal(signal).unwrap_or_else(|error| panic!("{error}"));
    }

    /// SIGKILL, and waits for its end.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    #[track_caller]
    pub fn kill(&self) {
        self.guard.kill().unwrap_or_else(|error| panic!("{error}"));
    }

    /// SIGSTOP, and waits until it stands still.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    #[track_caller]
    pub fn pause(&self) {
        self.guard.pause().unwrap_or_else(|error| panic!("{error}"));
    }

    /// SIGCONT.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::Continue);
    }

    /// SIGTERM, and waits for its end.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn terminate(&self, limit: Duration) -> ExitStatus {
        self.signal(Signal::Terminate);
        self.wait(limit)
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn wait(&self, limit: Duration) -> ExitStatus {
        self.guard.wait(limit).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits for its end, which has to be by SIGKILL, as a failpoint has it: one
    /// that ended by itself, or by a panic, was not killed.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`, or ended otherwise.
    #[track_caller]
    pub fn killed(&self, limit: Duration) {
        let status = self.wait(limit);
        let is_killed = status.signal() == Some(SIGKILL);
        assert!(is_killed, "it was not killed but ended by itself, with {status}: {}", self.log());
    }

    /// Waits until it says that it `listens on` an address, and where that is.
    ///
    /// # Panics
    ///
    /// When it does not within `limit`, or ends before.
    pub async fn listens(&self, limit: Duration) -> SocketAddr {
        until_some(limit, "a program that listens", async || {
            let ended = !self.is_running();
            let log = self.log();
            let address = log.lines().find_map(|line| line.strip_prefix("listens on "));
            let address = address.and_then(|address| address.trim().parse().ok());
            assert!(!ended || address.is_some(), "it ended before it listened: {log}");
            address
        })
        .await
    }

    /// Waits until its log contains `text`. Blocks the thread.
    ///
    /// # Panics
    ///
    /// When it does not within `limit`, or the program ends before.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str, limit: Duration) {
        let start = Instant::now();
        loop {
            let ended = !self.is_running();
            if self.log().contains(text) {
                return;
            }
            assert!(!ended, "it ended without printing `{text}`");
            assert!(start.elapsed() < limit, "waited {limit:?} in vain for `{text}` in the log");
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the log of process {} ends with:\n{}", self.pid(), self.guard.log_tail());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);
    const NOTHING: [(&str, &str); 0] = [];

    #[test]
    fn its_output_and_its_end_are_seen() {
        let script = "echo \"$GREETING\"; echo oops >&2; exit 3";
        let process = Process::start("/bin/sh", ["-c", script], [("GREETING", "hello")]);
        assert_eq!(process.wait(LIMIT).code(), Some(3));
        assert_eq!(process.log(), "hello\noops\n");
    }

    #[test]
    fn it_is_frozen_and_runs_on() {
        let script = "trap 'echo stopped; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
        let process = Process::start("/bin/sh", ["-c", script], NOTHING);
        process.wait_for_log("ready", LIMIT);
        process.pause();
        process.signal(Signal::Terminate);
        assert!(process.is_running());
        process.resume();
        assert!(process.wait(LIMIT).success());
        assert!(process.log().contains("stopped"));
    }

    #[tokio::test]
    async fn it_says_where_it_listens() {
        let script = "echo warming up; echo listens on 127.0.0.1:8080; exec sleep 60";
        let process = Process::start("/bin/sh", ["-c", script], NOTHING);
        assert_eq!(process.listens(LIMIT).await, ([127, 0, 0, 1], 8080).into());
    }

    #[test]
    fn a_kill_is_told_from_other_ends() {
        for (script, is_killed) in [
            ("kill -KILL $$", true),
            ("exit 0", false),
            ("exit 137", false),
            ("kill -ABRT $$", false),
        ] {
            let process = Process::start("/bin/sh", ["-c", script], NOTHING);
            let judged = catch_unwind(AssertUnwindSafe(|| process.killed(LIMIT)));
            assert_eq!(judged.is_ok(), is_killed, "{script}");
        }
    }

    #[test]
    #[should_panic(expected = "ended without printing `never`")]
    fn an_early_end_is_not_waited_for() {
        Process::start("/bin/sh", ["-c", "exit 0"], NOTHING).wait_for_log("never", LIMIT);
    }
}
