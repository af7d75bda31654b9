//! What every service has: one process, a folder for its files, and one way to
//! start, await and end the process in it.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{ChildGuard, Launch, Lifetime, LocalError, Signal, workdir::WorkDir};

const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long a start is tried again while the port or the shared memory of a
/// killed predecessor is still taken.
const BUSY_LIMIT: Duration = Duration::from_secs(15);
const PORT_TRIES: u32 = 5;
const POLL: Duration = Duration::from_millis(10);

/// How the services of one kind differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// How long until it is ready.
    pub(crate) start_limit: Duration,
    /// Ends it in order, where its files stay.
    pub(crate) orderly: Signal,
    /// Ends it at once, where its files go with it.
    pub(crate) hasty: Signal,
}

/// A process that can be ended and started again in its folder.
#[derive(Debug)]
pub(crate) struct Service {
    kind: Kind,
    name: String,
    lifetime: Lifetime,
    // Before the folder, so that the process ends before its files go.
    child: Mutex<Option<ChildGuard>>,
    home: WorkDir,
}

impl Service {
    /// One that is not started yet.
    pub(crate) fn new(
        kind: Kind,
        name: impl Into<String>,
        home: WorkDir,
        lifetime: Lifetime,
    ) -> Self {
        Self { kind, name: name.into(), lifetime, child: Mutex::new(None), home }
    }

    /// The folder of its files.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its log, over all its starts.
    pub(crate) fn log(&self) -> PathBuf {
        self.home().join("log")
    }

    /// Its process id, or `None` when it is stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.lock().as_ref().filter(|child| child.is_running()).map(ChildGuard::pid)
    }

    /// Its program, in its folder.
    pub(crate) fn launch(&self, program: impl Into<PathBuf>) -> Launch {
        let disposable = match self.lifetime {
            Lifetime::Process(_) => Some(self.home()),
            Lifetime::Guard | Lifetime::Unbounded => self.home.disposable(),
        };
        Launch::new(&self.name, program, self.log())
            .directory(self.home())
            .disposable(disposable)
            .lifetime(self.lifetime)
            .last_signal(match disposable {
                Some(_) => self.kind.hasty,
                None => self.kind.orderly,
            })
    }

    /// Starts its program and returns when `is_ready` says so of its process
    /// id.
    pub(crate) fn run(
        &self,
        launch: Launch,
        is_ready: impl Fn(u32) -> bool,
    ) -> Result<ChildGuard, LocalError> {
        let child = launch.spawn()?;
        let start = Instant::now();
        while !is_ready(child.pid()) {
            if let Some(status) = child.try_wait()? {
                return Err(LocalError::Ended {
                    service: self.name.clone(),
                    status: status.to_string(),
                    log: self.log(),
                    tail: child.log_tail(),
                });
            }
            if start.elapsed() > self.kind.start_limit {
                return Err(LocalError::Timeout {
                    what: format!("the start of {}", self.name),
                    limit: self.kind.start_limit,
                    tail: child.log_tail(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(child)
    }

    /// Takes over what [`start_on_free_ports`] started.
    pub(crate) fn keep(&self, child: ChildGuard) {
        *self.lock() = Some(child);
    }

    /// Starts it again by `attempt`, unless it runs.
    pub(crate) fn start(
        &self,
        attempt: impl Fn() -> Result<ChildGuard, LocalError>,
    ) -> Result<(), LocalError> {
        let mut child = self.lock();
        if child.as_ref().is_some_and(ChildGuard::is_running) {
            return Ok(());
        }
        *child = None;
        let start = Instant::now();
        *child = Some(loop {
            match attempt() {
                Err(error) if is_busy(&error) && start.elapsed() < BUSY_LIMIT => {
                    thread::sleep(POLL);
                }
                done => break done?,
            }
        });
        Ok(())
    }

    /// Ends it with this signal, unless it is stopped.
    pub(crate) fn end(&self, signal: Signal) -> Result<(), LocalError> {
        let mut child = self.lock();
        if let Some(running) = child.as_ref() {
            running.end(signal, STOP_LIMIT)?;
        }
        *child = None;
        Ok(())
    }

    /// Does something to its process, which must run.
    pub(crate) fn running(
        &self,
        attempt: &'static str,
        act: impl FnOnce(&ChildGuard) -> Result<(), LocalError>,
    ) -> Result<(), LocalError> {
        match self.lock().as_ref().filter(|child| child.is_running()) {
            Some(child) => act(child),
            None => Err(LocalError::NotRunning { attempt, service: self.name.clone() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ChildGuard>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first start. Another process may take a port between its choice, which
/// is part of `attempt`, and its use; then others are chosen, if they `may_be`.
pub(crate) fn start_on_free_ports(
    may_be: bool,
    mut attempt: impl FnMut() -> Result<ChildGuard, LocalError>,
) -> Result<ChildGuard, LocalError> {
    let mut tries = 1;
    loop {
        match attempt() {
            Err(error) if may_be && tries < PORT_TRIES && is_busy(&error) => tries += 1,
            done => return done,
        }
    }
}

/// "Address already in use", or PostgreSQL's "pre-existing shared memory block
/// ... is still in use".
fn is_busy(error: &LocalError) -> bool {
    matches!(error, LocalError::Ended { tail, .. } if tail.contains("in use"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const KIND: Kind = Kind {
        start_limit: Duration::from_secs(20),
        orderly: Signal::Terminate,
        hasty: Signal::Kill,
    };

    fn service() -> Service {
        Service::new(KIND, "a service", WorkDir::temporary().unwrap(), Lifetime::Guard)
    }

    fn shell(service: &Service, script: &str) -> Launch {
        service.launch("/bin/sh").args(["-c", script])
    }

    fn refused(service: &Service, words: &str) -> LocalError {
        let launch = shell(service, &format!("echo {words}; exit 1"));
        service.run(launch, |_| false).unwrap_err()
    }

    #[test]
    fn it_runs_until_it_is_ended_and_starts_again() {
        let service = service();
        let attempt = || service.run(shell(&service, "echo up; exec sleep 600"), |_| true);
        service.start(attempt).unwrap();
        let first = service.pid().unwrap();
        service.start(attempt).unwrap();
        assert_eq!(service.pid(), Some(first));
        service.end(Signal::Terminate).unwrap();
        service.end(Signal::Terminate).unwrap();
        assert_eq!(service.pid(), None);
        let error = service.running("poke it", ChildGuard::pause).unwrap_err();
        assert!(error.to_string().contains("cannot poke it: a service is not running"), "{error}");
        service.start(attempt).unwrap();
        assert_ne!(service.pid().unwrap(), first);
    }

    #[test]
    fn an_end_before_it_is_ready_is_told_with_the_log() {
        let service = service();
        let error = refused(&service, "no such setting");
        assert!(matches!(&error, LocalError::Ended { tail, .. } if tail == "no such setting"));
    }

    #[test]
    fn a_start_that_takes_too_long_is_given_up() {
        let kind = Kind { start_limit: Duration::from_millis(30), ..KIND };
        let service =
            Service::new(kind, "a service", WorkDir::temporary().unwrap(), Lifetime::Guard);
        let error = service.run(shell(&service, "exec sleep 600"), |_| false).unwrap_err();
        assert!(error.to_string().contains("the start of a service took longer"), "{error}");
    }

    #[test]
    fn a_start_is_tried_again_only_while_something_is_in_use() {
        let attempts = |words: &str| {
            let (service, count) = (service(), Cell::new(0));
            let started = service.start(|| {
                count.set(count.get() + 1);
                match count.get() {
                    3 => service.run(shell(&service, "exec sleep 600"), |_| true),
                    _ => Err(refused(&service, words)),
                }
            });
            (started.is_ok(), count.get())
        };
        assert_eq!(attempts("Address already in use"), (true, 3));
        assert_eq!(attempts("no such setting"), (false, 1));
    }

    #[test]
    fn other_ports_are_chosen_a_bounded_number_of_times() {
        let attempts = |may_be: bool, words: &str| {
            let (service, mut count) = (service(), 0);
            let started = start_on_free_ports(may_be, || {
                count += 1;
                Err(refused(&service, words))
            });
            assert!(started.is_err());
            count
        };
        assert_eq!(attempts(true, "Address already in use"), PORT_TRIES);
        assert_eq!(attempts(false, "Address already in use"), 1);
        assert_eq!(attempts(true, "no such setting"), 1);
    }
}
