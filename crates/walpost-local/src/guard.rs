//! Processes that never outlive the one that started them.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    LocalError,
    account::Account,
    command,
    signal::{Signal, send_signal, stands_still},
};

const POLL: Duration = Duration::from_millis(2);
const DROP_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Waits for a line before it becomes the program, so that the watchdog is
/// there first. No line, because the starter is gone: no program.
const GATE: &str = r#"read -r go || exit 125; exec "$@" </dev/null"#;

/// Waits for the end of the owner; then the process group of the child gets its
/// signal, then SIGKILL, and its folder is removed.
///
/// With a fourth argument the owner is the process of that id; the shell ends
/// without a signal if the child ends first. Without one the owner is the
/// starter, which holds the other end of a pipe: a line means that it has reaped
/// the child, the end of the pipe that the starter itself ended, even by SIGKILL.
const WATCHDOG: &str = r#"
trap '' INT HUP TERM
if [ -n "$4" ]; then
    while kill -s 0 "$4" 2>/dev/null; do
        kill -s 0 -- "-$1" 2>/dev/null || exit 0
        sleep 0.3
    done
else
    read -r done && exit 0
fi
kill -s "$2" -- "-$1" 2>/dev/null
kill -s CONT -- "-$1" 2>/dev/null
tries=0
while kill -s 0 -- "-$1" 2>/dev/null && [ "$tries" -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -s KILL -- "-$1" 2>/dev/null
if [ -n "$3" ]; then rm -rf -- "$3"; fi
"#;

/// The end of what ends a started program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Ends with its [`ChildGuard`] and with this process.
    Guard,
    /// Ends with the process of this id.
    Process(u32),
    /// Ends only by itself.
    Unbounded,
}

/// How a program is to be started.
///
/// ```
/// use std::time::Duration;
/// use walpost_local::Launch;
///
/// let log = std::env::temp_dir().join(format!("walpost-doc-{}.log", std::process::id()));
/// let child = Launch::new("greeter", "/bin/echo", &log).arg("hello").spawn()?;
/// assert!(child.wait(Duration::from_secs(10))?.success());
/// assert_eq!(std::fs::read_to_string(&log).unwrap(), "hello\n");
/// # std::fs::remove_file(&log).unwrap();
/// # Ok::<(), walpost_local::LocalError>(())
/// ```
#[derive(Debug)]
pub struct Launch {
    name: String,
    program: PathBuf,
    log: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    account: Option<Account>,
    last_signal: Signal,
    disposable: Option<PathBuf>,
    lifetime: Lifetime,
}

impl Launch {
    /// A program, the name it has in errors, and the file that takes what it
    /// prints (appended). A program without a slash is looked up on `PATH`.
    pub fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        log: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            log: log.into(),
            args: Vec::new(),
            env: Vec::new(),
            directory: None,
            account: None,
            last_signal: Signal::Kill,
            disposable: None,
            lifetime: Lifetime::Guard,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable. The others are inherited.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an inherited environment variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets the folder it runs in. Default: ours.
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Sets the signal it gets on drop and when we are killed. Default:
    /// [`Signal::Kill`], which also follows when the signal did not end it
    /// within 10 s (5 s when we are killed).
    #[must_use]
    pub fn last_signal(mut self, signal: Signal) -> Self {
        self.last_signal = signal;
        self
    }

    /// Sets a folder that is removed when we are killed. On drop it stays.
    #[must_use]
    pub fn disposable(mut self, path: Option<&Path>) -> Self {
        self.disposable = path.map(Path::to_owned);
        self
    }

    /// Sets what ends it. Default: [`Lifetime::Guard`].
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    pub(crate) fn account(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// When the program is not there, or the system refuses.
    pub fn spawn(mut self) -> Result<ChildGuard, LocalError> {
        if self.program.components().count() == 1 {
            let name = self.program.to_string_lossy().into_owned();
            self.program = command::on_path(&name).ok_or(LocalError::ToolMissing {
                tool: name,
                purpose: "start a program",
                install: "it, or name it with its path",
            })?;
        }
        let mut child = self.spawn_gated()?;
        let mut gate = child.stdin.take().expect("stdin was asked for");
        let watchdog = match self.lifetime {
            Lifetime::Unbounded => None,
            Lifetime::Guard => Some(Watchdog::start(child.id(), &self)?),
            // It outlives the guard, so the guard does not keep it.
            Lifetime::Process(_) => Watchdog::start(child.id(), &self).map(|_| None)?,
        };
        gate.write_all(b"go\n").map_err(LocalError::io("start", &self.name))?;
        Ok(ChildGuard {
            name: self.name,
            log: self.log,
            last_signal: self.last_signal,
            lifetime: self.lifetime,
            pid: child.id(),
            state: std::sync::Mutex::new(State { child, watchdog }),
        })
    }

    fn spawn_gated(&self) -> Result<Child, LocalError> {
        let program = self.program.display().to_string();
        self.program.metadata().map_err(LocalError::io("run", &program))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(LocalError::io("open", self.log.display()))?;
        let second = log.try_clone().map_err(LocalError::io("share", self.log.display()))?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(GATE).arg("walpost-gate").arg(&self.program).args(&self.args);
        command.stdin(Stdio::piped()).stdout(log).stderr(second).process_group(0);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command.spawn().map_err(LocalError::io("run", program))
    }
}

/// A running program that ends with this value, and with this process, unless
/// [`Launch::lifetime`] says otherwise.
///
/// The program is in a process group of its own, so that Ctrl-C in a terminal
/// reaches us and not it. A second process, `/bin/sh`, reads from a pipe that
/// we hold open. When we end, even by SIGKILL, the system closes the pipe and
/// the shell ends the group of the program.
#[derive(Debug)]
pub struct ChildGuard {
    name: String,
    log: PathBuf,
    last_signal: Signal,
    lifetime: Lifetime,
    pid: u32,
    state: std::sync::Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    watchdog: Option<Watchdog>,
}

impl ChildGuard {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file that takes what it prints.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        command::tail_of(&self.log)
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    ///
    /// When the system cannot say.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, LocalError> {
        let mut state = self.lock();
        let status = state.child.try_wait().map_err(LocalError::io("wait for", &self.name))?;
        if status.is_some()
            && let Some(watchdog) = state.watchdog.take()
        {
            watchdog.dismiss();
        }
        Ok(status)
    }

    /// Whether it runs. A frozen one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.try_wait(), Ok(None))
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// When it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus, LocalError> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                return Err(LocalError::Timeout {
                    what: format!("the end of {}", self.name),
                    limit,
                    tail: self.log_tail(),
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Sends it a signal. One that has ended is left alone.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), LocalError> {
        let mut state = self.lock();
        match state.child.try_wait().map_err(LocalError::io("wait for", &self.name))? {
            None => send_signal(self.pid, signal),
            Some(_) => Ok(()),
        }
    }

    /// Sends it a signal and waits for its end. A frozen one wakes for it.
    ///
    /// # Errors
    ///
    /// When it still runs after `limit`.
    pub fn end(&self, signal: Signal, limit: Duration) -> Result<ExitStatus, LocalError> {
        self.signal(signal)?;
        self.signal(Signal::Continue)?;
        self.wait(limit)
    }

    /// Ends it with SIGKILL and waits for it.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn kill(&self) -> Result<ExitStatus, LocalError> {
        self.end(Signal::Kill, DROP_LIMIT)
    }

    /// Freezes it with SIGSTOP, and waits until all its threads stand still. One
    /// that has ended is left alone.
    ///
    /// # Errors
    ///
    /// When the system refuses, or a thread still runs after a minute.
    pub fn pause(&self) -> Result<(), LocalError> {
        self.signal(Signal::Stop)?;
        let start = Instant::now();
        while !stands_still(self.pid).map_err(LocalError::io("wait for", &self.name))? {
            if start.elapsed() > STOP_LIMIT {
                return Err(LocalError::Timeout {
                    what: format!("the standstill of {}", self.name),
                    limit: STOP_LIMIT,
                    tail: self.log_tail(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Lets a frozen one run on.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn resume(&self) -> Result<(), LocalError> {
        self.signal(Signal::Continue)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Guard && self.end(self.last_signal, DROP_LIMIT).is_err() {
            drop(self.kill());
        }
    }
}

#[derive(Debug)]
struct Watchdog {
    shell: Child,
    pipe: ChildStdin,
}

impl Watchdog {
    fn start(pid: u32, launch: &Launch) -> Result<Self, LocalError> {
        let owner = match launch.lifetime {
            Lifetime::Process(owner) => owner.to_string(),
            Lifetime::Guard | Lifetime::Unbounded => String::new(),
        };
        let mut shell = Command::new("/bin/sh")
            .arg("-c")
            .arg(WATCHDOG)
            .arg("walpost-watchdog")
            .arg(pid.to_string())
            .arg(launch.last_signal.name())
            .arg(launch.disposable.as_deref().unwrap_or(Path::new("")))
            .arg(owner)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(LocalError::io("watch over", &launch.name))?;
        let pipe = shell.stdin.take().expect("stdin was asked for");
        Ok(Self { shell, pipe })
    }

    /// The shell answers one line by ending, so the wait is short.
    fn dismiss(mut self) {
        drop(self.pipe.write_all(b"done\n"));
        drop(self.pipe);
        drop(self.shell.wait());
    }
}
