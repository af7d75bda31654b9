//! Servers that all test executables of one test run share.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{Lifetime, LocalError, cache, signal::is_alive, workdir};

/// The process id of the run, for programs that start test executables otherwise.
const VARIABLE: &str = "WALPOST_TEST_RUN";
/// Programs that start test executables.
const RUNNERS: [&str; 3] = ["cargo", "cargo-nextest", "xtask"];
const MAX_ANCESTORS: usize = 8;

/// One run of tests: a process that starts test executables, such as `cargo test`.
///
/// The first process of the run that asks for a server starts it; the others get
/// its address. A server ends with the run, and its files go with it.
#[derive(Debug, Clone)]
pub struct Run {
    pid: u32,
    folder: PathBuf,
}

impl Run {
    /// The run of this process: that of `WALPOST_TEST_RUN`, or the nearest ancestor
    /// that is cargo, cargo-nextest or xtask. `None` for a test executable that was
    /// started by hand.
    #[must_use]
    pub fn current() -> Option<Self> {
        let named = env::var(VARIABLE).ok().and_then(|pid| pid.parse().ok());
        named.or_else(runner_above).filter(|pid| is_alive(*pid)).map(Self::of)
    }

    /// The run of this process id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        // The name of a temporary folder of `pid`, which goes when `pid` is gone.
        Self { pid, folder: workdir::base().join(format!("walpost-{pid}-run")) }
    }

    /// The address of the server `name`. `start` gets its home and lifetime if this
    /// process is the first of the run to ask, and returns process id and address.
    ///
    /// # Errors
    ///
    /// When `start` fails, or the folder of the run cannot be used.
    pub fn server(
        &self,
        name: &str,
        start: impl FnOnce(&Path, Lifetime) -> Result<(Option<u32>, String), LocalError>,
    ) -> Result<String, LocalError> {
        let failed = |attempt| LocalError::io(attempt, self.folder.display());
        fs::create_dir_all(&self.folder).map_err(failed("create"))?;
        let _lock = cache::lock(&self.folder.join(format!("{name}.lock")))?;
        let record = self.folder.join(format!("{name}.address"));
        if let Some(address) = running(&fs::read_to_string(&record).unwrap_or_default()) {
            return Ok(address);
        }
        let home = self.folder.join(name);
        if home.exists() {
            fs::remove_dir_all(&home).map_err(failed("clear"))?;
        }
        let (pid, address) = start(&home, Lifetime::Process(self.pid))?;
        let pid = pid.ok_or(LocalError::NotRunning {
            attempt: "share it with other tests",
            service: name.to_owned(),
        })?;
        fs::write(&record, format!("{pid} {address}")).map_err(failed("write to"))?;
        Ok(address)
    }
}

/// The address in a record, if its process runs.
fn running(record: &str) -> Option<String> {
    let (pid, address) = record.split_once(' ')?;
    pid.parse().is_ok_and(is_alive).then(|| address.to_owned())
}

fn runner_above() -> Option<u32> {
    let mut pid = std::process::id();
    for _ in 0..MAX_ANCESTORS {
        let (_, parent) = name_and_parent(pid)?;
        let (name, _) = name_and_parent(parent)?;
        if RUNNERS.contains(&name.as_str()) {
            return Some(parent);
        }
        pid = parent;
    }
    None
}

/// Of a process: `12 (cargo) S 1 …`.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    Some((name.to_owned(), rest.split(' ').nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        sync::atomic::{AtomicU32, Ordering},
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::Launch;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn until(what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what} did not happen");
            thread::yield_now();
        }
    }

    #[test]
    fn a_server_is_started_once_per_run_and_ends_with_it() {
        let mut runner = sleeper();
        let run = Run::of(runner.id());
        let started = AtomicU32::new(0);
        let ask = || {
            run.server("a", |home, lifetime| {
                started.fetch_add(1, Ordering::SeqCst);
                fs::create_dir_all(home).unwrap();
                let launch = Launch::new("server", "sleep", home.join("log")).arg("600");
                let child = launch.lifetime(lifetime).disposable(Some(home)).spawn()?;
                Ok((Some(child.pid()), format!("address of {}", child.pid())))
            })
            .unwrap()
        };
        let addresses: Vec<String> = thread::scope(|scope| {
            let asked: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert_eq!(started.load(Ordering::SeqCst), 1);
        let server: u32 = addresses[0].rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(addresses.iter().all(|address| *address == addresses[0]) && is_alive(server));

        runner.kill().unwrap();
        runner.wait().unwrap();
        until("the end of the server", || !is_alive(server));
        until("the end of its folder", || !run.folder.join("a").exists());
        // Another process may have removed it: its owner is gone.
        drop(fs::remove_dir_all(&run.folder));
    }

    #[test]
    fn a_server_that_has_ended_is_started_again() {
        let mut runner = sleeper();
        let run = Run::of(runner.id());
        let mut ended = sleeper();
        ended.kill().unwrap();
        ended.wait().unwrap();
        let dead = ended.id();
        let own = std::process::id();
        assert_eq!(run.server("a", |_, _| Ok((Some(dead), "old".into()))).unwrap(), "old");
        assert_eq!(run.server("a", |_, _| Ok((Some(own), "new".into()))).unwrap(), "new");
        assert_eq!(run.server("a", |_, _| panic!("it runs")).unwrap(), "new");
        runner.kill().unwrap();
        runner.wait().unwrap();
        drop(fs::remove_dir_all(&run.folder));
    }

    #[test]
    fn name_and_parent_of_a_process_are_read() {
        let (_, parent) = name_and_parent(std::process::id()).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
        let mut child = sleeper();
        until("the program of the child", || {
            name_and_parent(child.id()).is_some_and(|(name, _)| name == "sleep")
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
