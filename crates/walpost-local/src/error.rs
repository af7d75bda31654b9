use std::{io, path::PathBuf, time::Duration};

/// Why a private service could not be fetched, started or driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// A program that is needed is not on this machine.
    #[error("cannot {purpose}: `{tool}` was not found; install {install}")]
    ToolMissing {
        /// What was looked for.
        tool: String,
        /// What it is needed for.
        purpose: &'static str,
        /// What to install, with the Debian package.
        install: &'static str,
    },
    /// The Java found is older than what a program runs on.
    #[error(
        "cannot run {program} with Java {found} at {path}; point JAVA_HOME at a Java {oldest} or newer"
    )]
    JavaTooOld {
        /// What was to run.
        program: &'static str,
        /// The oldest major version that it runs on.
        oldest: u32,
        /// The version it reports.
        found: String,
        /// Where it was found.
        path: PathBuf,
    },
    /// `WALPOST_PG_BIN` names a folder without a PostgreSQL server.
    #[error(
        "WALPOST_PG_BIN is {path}, which has no working `initdb` and `postgres`; point it at the bin folder of a PostgreSQL server"
    )]
    NotPostgres {
        /// The folder it names.
        path: PathBuf,
    },
    /// PostgreSQL refuses to run as root, and there is no user to run it as.
    #[error(
        "cannot run PostgreSQL as root, and there is no user `{user}` to run it as; create it with `useradd --system {user}`, or run as another user"
    )]
    UserMissing {
        /// The user looked for.
        user: &'static str,
    },
    /// A folder cannot be entered by the user that the service runs as.
    #[error("user `{user}` cannot enter {path}; choose another folder, or run `chmod o+x` on it")]
    Untraversable {
        /// The folder that shuts the way.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// No binaries of that PostgreSQL version are known for this platform.
    #[error(
        "no PostgreSQL {major} is installed and none can be fetched for {platform} (only {known}); install its server package, or name its bin folder in WALPOST_PG_BIN"
    )]
    NotPinned {
        /// The major version asked for.
        major: u32,
        /// Operating system and processor.
        platform: String,
        /// The major versions that can be fetched for it.
        known: String,
    },
    /// A fetched file is not the file it should be.
    #[error("{file} has SHA-256 {found} instead of {expected}; delete it and fetch again")]
    Checksum {
        /// The file.
        file: PathBuf,
        /// The sum that is committed.
        expected: String,
        /// The sum it has.
        found: String,
    },
    /// A file that should have been fetched is not there.
    #[error("{file} was not fetched; delete its folder and fetch again")]
    NotFetched {
        /// The file.
        file: PathBuf,
    },
    /// A file was fetched that nobody knows.
    #[error("{file} was fetched, but its checksum is not known; it will not be used")]
    Unexpected {
        /// The file.
        file: PathBuf,
    },
    /// A command ended with a failure.
    #[error("{command} failed ({status}): {tail}")]
    Command {
        /// The command, shortened.
        command: String,
        /// How it ended.
        status: String,
        /// The last lines it printed.
        tail: String,
    },
    /// A service ended before it was ready.
    #[error("{service} ended before it was ready ({status}); its log {log} ends with: {tail}")]
    Ended {
        /// The service.
        service: String,
        /// How it ended.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// Something did not happen in time.
    #[error("{what} took longer than {limit:?}; {tail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long it was waited for.
        limit: Duration,
        /// The last lines of what it printed.
        tail: String,
    },
    /// The service is not running.
    #[error("cannot {attempt}: {service} is not running; call `start` first")]
    NotRunning {
        /// What was attempted.
        attempt: &'static str,
        /// The service.
        service: String,
    },
    /// A setting that contradicts another or cannot work.
    #[error("cannot start {service}: {reason}")]
    Setting {
        /// The service.
        service: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// No port could be found.
    #[error("no free port on 127.0.0.1 between {first} and {last}")]
    NoPort {
        /// First port tried.
        first: u16,
        /// Last port tried.
        last: u16,
    },
    /// The operating system refused something.
    #[error("cannot {attempt} {subject}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The file, program or process.
        subject: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LocalError {
    pub(crate) fn io(
        attempt: &'static str,
        subject: impl std::fmt::Display,
    ) -> impl FnOnce(io::Error) -> Self {
        let subject = subject.to_string();
        move |source| Self::Io { attempt, subject, source }
    }
}
