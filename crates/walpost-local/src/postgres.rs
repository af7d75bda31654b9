mod binaries;
mod builder;
mod seed;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use self::builder::quoted;
pub use self::builder::{Auth, PostgresBuilder};
use crate::{
    ChildGuard, LocalError, Signal,
    account::Account,
    command,
    service::{Kind, Service},
    workdir::WorkDir,
};

const NAME: &str = "PostgreSQL";
const KIND: Kind =
    Kind { start_limit: Duration::from_secs(60), orderly: Signal::Interrupt, hasty: Signal::Quit };
const PSQL_LIMIT: Duration = Duration::from_secs(60);

/// A PostgreSQL server of our own. Ends with this value; its files go with it
/// unless [`PostgresBuilder::home`] named a place for them.
///
/// Its superuser is `postgres`. Its folder holds `data`, `log`, `socket`.
#[derive(Debug)]
pub struct Postgres {
    service: Service,
    bin: PathBuf,
    major: u32,
    port: u16,
    socket_dir: PathBuf,
    auth: Auth,
    account: Option<Account>,
    /// Only when the folder's own path is too long for a socket.
    _socket_home: Option<WorkDir>,
}

impl Postgres {
    /// The settings to start one with.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// Its address: always `127.0.0.1`.
    #[must_use]
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// Its TCP port. Stays the same over stop and start.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its Unix socket, to be used as the `host` of a
    /// connection together with [`Postgres::port`].
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// `postgres://postgres@127.0.0.1:<port>/<database>`, with the password
    /// when there is one.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let password = self
            .auth
            .password()
            .map_or(String::new(), |password| format!(":{}", percent_encoded(password)));
        let database = percent_encoded(database);
        format!("postgres://postgres{password}@{}:{}/{database}", self.host(), self.port)
    }

    /// The same as `key=value` pairs.
    #[must_use]
    pub fn conninfo(&self, database: &str) -> String {
        let password = self
            .auth
            .password()
            .map_or(String::new(), |password| format!(" password={}", conninfo_quoted(password)));
        let database = conninfo_quoted(database);
        format!("host={} port={} user=postgres dbname={database}{password}", self.host(), self.port)
    }

    /// `key=value` pairs for the Unix socket, where no password is needed.
    #[must_use]
    pub fn socket_conninfo(&self, database: &str) -> String {
        let database = conninfo_quoted(database);
        let host = conninfo_quoted(&self.socket_dir.to_string_lossy());
        format!("host={host} port={} user=postgres dbname={database}", self.port)
    }

    /// Its major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// A client program such as `psql` or `pg_recvlogical`: the one beside the
    /// server, else of another installed version, else on `PATH`.
    ///
    /// # Errors
    ///
    /// When none is installed.
    pub fn client_program(&self, name: &str) -> Result<PathBuf, LocalError> {
        binaries::client(&self.bin, name).ok_or_else(|| LocalError::ToolMissing {
            tool: name.to_owned(),
            purpose: "run a client program of PostgreSQL",
            install: "a PostgreSQL client (Debian: postgresql-client)",
        })
    }

    /// A client program of exactly this major version, for what older and newer ones
    /// refuse, such as a dump. Only servers that are installed have client programs,
    /// fetched ones have none.
    ///
    /// # Errors
    ///
    /// When none is installed.
    pub fn client_program_of(major: u32, name: &str) -> Result<PathBuf, LocalError> {
        binaries::client_of(major, name).ok_or_else(|| LocalError::ToolMissing {
            tool: format!("{name} {major}"),
            purpose: "run a client program of PostgreSQL",
            install: "the PostgreSQL client of that version (Debian: postgresql-client-VERSION)",
        })
    }

    /// Its data folder.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.service.home().join("data")
    }

    /// Its log, over all its starts.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.service.log()
    }

    /// The process id of its postmaster, or `None` when it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.service.pid()
    }

    /// Starts it again, on the same data, port and socket. Returns when it
    /// accepts connections. Does nothing while it runs.
    ///
    /// # Errors
    ///
    /// When it ends before it is ready, or is not ready within 60 s.
    pub fn start(&self) -> Result<(), LocalError> {
        self.service.start(|| self.start_once())
    }

    /// Stops it as `pg_ctl stop -m fast` does: connections are cut, walsenders
    /// are drained, a checkpoint is written. Does nothing when it is stopped.
    ///
    /// # Errors
    ///
    /// When it still runs after 60 s, as it does while a replication client
    /// does not confirm what it was sent.
    pub fn stop_fast(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Interrupt)
    }

    /// Stops it as `pg_ctl stop -m immediate` does: a crash, with recovery at
    /// the next start. Does nothing when it is stopped.
    ///
    /// # Errors
    ///
    /// When it still runs after 60 s.
    pub fn stop_immediate(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Quit)
    }

    /// Ends its postmaster with SIGKILL. Its other processes notice and end by
    /// themselves, a moment later. Does nothing when it is stopped.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn kill(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Kill)
    }

    /// Adds a setting, to hold from the next start, or from
    /// [`Postgres::reload`] if PostgreSQL can change it while it runs.
    ///
    /// # Errors
    ///
    /// When the file of settings cannot be written.
    pub fn set(&self, name: &str, value: &str) -> Result<(), LocalError> {
        let path = self.service.home().join(builder::SETTINGS);
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{name} = {}", quoted(value)))
            .map_err(LocalError::io("write", path.display()))
    }

    /// Lets it read its settings again. They hold a moment later.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn reload(&self) -> Result<(), LocalError> {
        self.service.running("reload settings", |child| child.signal(Signal::Hangup))
    }

    /// Runs SQL with `psql` over the socket and returns its unaligned output,
    /// one row a line, columns separated by `|`.
    ///
    /// # Errors
    ///
    /// When no `psql` is installed, or the SQL fails.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String, LocalError> {
        let mut command = Command::new(self.client_program("psql")?);
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"])
            .arg(self.socket_conninfo(database))
            .args(["-c", sql]);
        Ok(command::run("psql", &mut command, PSQL_LIMIT)?.stdout)
    }

    /// The postmaster writes its status into `postmaster.pid`, for `pg_ctl`.
    fn start_once(&self) -> Result<ChildGuard, LocalError> {
        let launch = self
            .service
            .launch(self.bin.join("postgres"))
            .arg("-D")
            .arg(self.data_dir())
            .account(self.account.clone());
        let pid_file = self.data_dir().join("postmaster.pid");
        self.service
            .run(launch, |pid| is_ready(&fs::read_to_string(&pid_file).unwrap_or_default(), pid))
    }
}

fn is_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines();
    let ours = lines.next().and_then(|line| line.trim().parse().ok()) == Some(pid);
    ours && lines.nth(6).is_some_and(|status| status.trim() == "ready")
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn conninfo_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_postmaster_counts_as_ready() {
        let file = "42\n/data\n1700000000\n5432\n/tmp\n127.0.0.1\n  1 2\nready   \n";
        assert!(is_ready(file, 42));
        assert!(!is_ready(file, 43));
        assert!(!is_ready(&file.replace("ready   ", "starting"), 42));
        assert!(!is_ready("", 42));
    }

    #[test]
    fn passwords_and_names_are_quoted() {
        assert_eq!(percent_encoded("a:b@c/ä"), "a%3Ab%40c%2F%C3%A4");
        assert_eq!(conninfo_quoted("plain_1"), "plain_1");
        assert_eq!(conninfo_quoted(r"a'b\c d"), r"'a\'b\\c d'");
        assert_eq!(conninfo_quoted(""), "''");
    }
}
