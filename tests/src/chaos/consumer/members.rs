use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use walpost_testkit::{Process, until};

use super::blows::Pause;
use crate::{LIMIT, chaos::stage::off};

/// What `walpost-test-consumer` prints.
const LISTENS: &str = "consumer: listens to SIGTERM";

/// A consumer in a process of its own, whose log outlives it.
#[derive(Debug)]
pub(super) struct Member {
    process: Process,
    /// Its sessions in the database are called so.
    pub(super) name: String,
    /// Its name in the group, where membership is static.
    pub(super) instance: String,
    log: PathBuf,
}

impl Member {
    pub(super) fn new(process: Process, name: String, instance: String, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { process, name, instance, log }
    }

    pub(super) fn kill(&self) {
        self.process.kill();
    }

    pub(super) fn resume(&self) {
        self.process.resume();
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Whether it ended because of its `group.instance.id`. When it wakes, or has not
    /// had the processor for a session, what it still commits under its old id in the
    /// group may reach the broker behind its own request to join again, and then it
    /// is taken for another's.
    pub(super) fn was_fenced(&self) -> bool {
        !self.is_running() && self.printed().contains("under this group.instance.id")
    }

    pub(super) fn printed(&self) -> String {
        self.process.log()
    }

    /// SIGTERM, as soon as it listens to it; whether it ended as it should, or was
    /// fenced.
    pub(super) async fn terminate(self) -> bool {
        let listens = || self.printed().contains(LISTENS) || !self.is_running();
        until(LIMIT, "a consumer that listens to signals", async || listens()).await;
        off(move || self.process.terminate(LIMIT).success() || self.was_fenced()).await
    }

    /// Stops it, or waits until it has stopped itself.
    pub(super) async fn pause(&self, pause: Pause) {
        match pause {
            Pause::Anywhere => self.process.pause(),
            Pause::InHandler => {
                let pid = i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw);
                kill_process(pid.expect("a process has an id"), Signal::USR1).unwrap();
            }
            // It was started so.
            Pause::AfterCommit => {}
        }
        until(LIMIT, "a consumer that is stopped", async || self.is_paused()).await;
    }

    fn is_paused(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.pid()));
        stat.is_ok_and(|stat| {
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(fs::write(&self.log, self.process.log()));
    }
}
