//! PostgreSQL and Kafka in the background, for a person to work with.

use std::{
    fs, io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use walpost_local::{Kafka, Lifetime, Postgres, Signal, cache_dir, is_alive, send_signal};

const STOP_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Kafka,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Postgres, Self::Kafka];

    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Kafka => "kafka",
        }
    }

    /// What the tests read the address from.
    fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "WALPOST_TEST_POSTGRES",
            Self::Kafka => "WALPOST_TEST_KAFKA",
        }
    }

    fn stop_signal(self) -> Signal {
        match self {
            Self::Postgres => Signal::Interrupt,
            Self::Kafka => Signal::Terminate,
        }
    }

    fn home(self) -> PathBuf {
        cache_dir().join("services").join(self.name())
    }

    fn state_file(self) -> PathBuf {
        cache_dir().join("services").join(format!("{}.state", self.name()))
    }

    /// Starts it so that it outlives this process.
    fn start(self) -> Result<Running> {
        let (pid, address) = match self {
            Self::Postgres => {
                let postgres = Postgres::builder()
                    .home(self.home())
                    .setting("max_wal_senders", "100")
                    .setting("max_replication_slots", "100")
                    .setting("max_connections", "300")
                    .lifetime(Lifetime::Unbounded)
                    .start()?;
                (postgres.pid(), postgres.url("postgres"))
            }
            Self::Kafka => {
                let kafka =
                    Kafka::builder().home(self.home()).lifetime(Lifetime::Unbounded).start()?;
                (kafka.pid(), kafka.bootstrap())
            }
        };
        let pid = pid.with_context(|| format!("{} ended right after its start", self.name()))?;
        Ok(Running { pid, address })
    }
}

/// What the state file records.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    pid: u32,
    address: String,
}

impl Running {
    fn parse(text: &str) -> Option<Self> {
        let (pid, address) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, address: address.to_owned() })
    }

    /// The recorded one, if it still runs. After a restart of the machine its
    /// id may belong to another process, so its arguments must name its home.
    fn find(kind: Kind) -> Result<Option<Self>> {
        let path = kind.state_file();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let recorded = Self::parse(&text)
            .with_context(|| format!("cannot understand {}; delete it", path.display()))?;
        let arguments = fs::read(format!("/proc/{}/cmdline", recorded.pid)).ok();
        let home = kind.home().to_string_lossy().into_owned();
        let is_ours = arguments.is_none_or(|bytes| String::from_utf8_lossy(&bytes).contains(&home));
        Ok((is_alive(recorded.pid) && is_ours).then_some(recorded))
    }

    fn record(&self, kind: Kind) -> Result<()> {
        let path = kind.state_file();
        fs::write(&path, format!("{} {}\n", self.pid, self.address))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn stop(&self, kind: Kind) -> Result<()> {
        send_signal(self.pid, kind.stop_signal())?;
        let start = Instant::now();
        while is_alive(self.pid) {
            ensure!(
                start.elapsed() < STOP_LIMIT,
                "{} (process {}) still runs after {STOP_LIMIT:?}; its log is {}",
                kind.name(),
                self.pid,
                kind.home().join("log").display()
            );
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Starts what is not running, and prints where it is.
pub(crate) fn up() -> Result<()> {
    for kind in Kind::ALL {
        let running = match Running::find(kind)? {
            Some(running) => running,
            None => {
                eprintln!("starting {} ...", kind.name());
                let started = kind.start()?;
                started.record(kind)?;
                started
            }
        };
        println!("export {}={}", kind.variable(), running.address);
    }
    Ok(())
}

/// Stops what is running. Data and logs stay.
pub(crate) fn down() -> Result<()> {
    for kind in Kind::ALL {
        match Running::find(kind)? {
            Some(running) => {
                running.stop(kind)?;
                println!("{} stopped; its data stays in {}", kind.name(), kind.home().display());
            }
            None => println!("{} is not running", kind.name()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_is_read_back() {
        let running = Running { pid: 12, address: "127.0.0.1:1".into() };
        assert_eq!(Running::parse("12 127.0.0.1:1\n"), Some(running));
        assert_eq!(Running::parse("nothing"), None);
    }
}
