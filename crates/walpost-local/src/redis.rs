use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use crate::{
    ChildGuard, Lifetime, LocalError, Signal, command, free_port,
    service::{Kind, Service, start_on_free_ports},
    workdir::WorkDir,
};

const NAME: &str = "Redis";
const PROGRAM: &str = "redis-server";
const KIND: Kind =
    Kind { start_limit: Duration::from_secs(30), orderly: Signal::Terminate, hasty: Signal::Kill };
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// A Redis of our own on 127.0.0.1, in a temporary folder, never that of the
/// system. Ends with this value. It appends to a file, so that a stop and a
/// start keep its keys.
#[derive(Debug)]
pub struct Redis {
    service: Service,
    program: PathBuf,
    port: u16,
}

impl Redis {
    /// Starts one. Returns when it answers.
    ///
    /// # Errors
    ///
    /// When `redis-server` is not installed, or does not start.
    pub fn start_new() -> Result<Self, LocalError> {
        let program = command::on_path(PROGRAM).ok_or_else(|| LocalError::ToolMissing {
            tool: PROGRAM.into(),
            purpose: "run Redis",
            install: "Redis (Debian: redis-server)",
        })?;
        let home = WorkDir::open(NAME, None, Lifetime::Guard)?;
        let service = Service::new(KIND, NAME, home, Lifetime::Guard);
        let mut redis = Self { service, program, port: 0 };
        let child = start_on_free_ports(true, || {
            redis.port = free_port()?;
            redis.start_once()
        })?;
        redis.service.keep(child);
        Ok(redis)
    }

    /// `redis://127.0.0.1:<port>/0`. Stays the same over stop and start.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    /// Starts it again, with the keys that it had. Does nothing while it runs.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start(&self) -> Result<(), LocalError> {
        self.service.start(|| self.start_once())
    }

    /// Stops it in order. Does nothing when it is stopped.
    ///
    /// # Errors
    ///
    /// When it still runs after 60 s.
    pub fn stop(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Terminate)
    }

    /// Freezes it: connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&self) -> Result<(), LocalError> {
        self.service.running("freeze it", ChildGuard::pause)
    }

    /// Lets it run on after [`Redis::pause`].
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&self) -> Result<(), LocalError> {
        self.service.running("let it run on", ChildGuard::resume)
    }

    /// Sends one command, of words without blanks, and returns the answer as
    /// it comes over the wire.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn ask(&self, command: &str) -> Result<String, LocalError> {
        ask(self.address(), command, ASK_LIMIT).map_err(LocalError::io("ask", NAME))
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn start_once(&self) -> Result<ChildGuard, LocalError> {
        let port = self.port.to_string();
        let launch = self.service.launch(&self.program).args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "no",
            "--maxmemory-policy",
            "noeviction",
        ]);
        self.service.run(launch, |_| {
            ask(self.address(), "PING", PROBE_LIMIT).is_ok_and(|answer| answer == "+PONG\r\n")
        })
    }
}

fn ask(address: SocketAddr, command: &str, limit: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.strip_suffix("+OK\r\n").unwrap_or(&answer).to_owned())
}
