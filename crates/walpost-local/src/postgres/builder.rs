use std::{
    fmt, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    KIND, NAME, Postgres, binaries,
    seed::{Role, Seed},
};
use crate::{
    Lifetime, LocalError,
    account::Account,
    command, free_port,
    service::{Service, start_on_free_ports},
    workdir::{MAX_SOCKET_DIR_BYTES, WorkDir},
};

pub(super) const SETTINGS: &str = "settings.conf";
const INITDB_LIMIT: Duration = Duration::from_secs(120);

/// How connections over TCP prove who they are. Over the socket they need not.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// Nothing is asked.
    Trust,
    /// The password of `postgres`, by SCRAM-SHA-256.
    ScramSha256(String),
    /// The password of `postgres`, by MD5.
    Md5(String),
}

impl Auth {
    pub(super) fn password(&self) -> Option<&str> {
        match self {
            Self::Trust => None,
            Self::ScramSha256(password) | Self::Md5(password) => Some(password),
        }
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::ScramSha256(_) => "scram-sha-256",
            Self::Md5(_) => "md5",
        }
    }
}

/// The method, without the password.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

/// Settings of a private PostgreSQL. The defaults are for logical replication:
/// `wal_level=logical`, 20 slots, 20 walsenders, 200 connections.
#[derive(Debug, Clone)]
pub struct PostgresBuilder {
    version: Option<u32>,
    home: Option<PathBuf>,
    port: Option<u16>,
    settings: Vec<(String, String)>,
    auth: Auth,
    tls: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
    hba: Option<String>,
    seed: Option<Seed>,
    lifetime: Lifetime,
}

impl Default for PostgresBuilder {
    fn default() -> Self {
        let settings = [
            ("wal_level", "logical"),
            ("max_wal_senders", "20"),
            ("max_replication_slots", "20"),
            ("max_connections", "200"),
        ];
        Self {
            version: None,
            home: None,
            port: None,
            settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
            auth: Auth::Trust,
            tls: None,
            client_authority: None,
            hba: None,
            seed: None,
            lifetime: Lifetime::Guard,
        }
    }
}

impl PostgresBuilder {
    /// Sets the major version. Default `None`: the first found.
    ///
    /// Looked for in this order: `WALPOST_PG_BIN`, `/usr/lib/postgresql`
    /// (newest first), `pg_config`, `PATH`; else it is fetched.
    #[must_use]
    pub fn version(mut self, major: Option<u32>) -> Self {
        self.version = major;
        self
    }

    /// Sets the folder for data, log and socket, which then stays. One that
    /// already has data is used as it is, with the settings of this builder.
    /// Default: a temporary folder that goes with the server.
    #[must_use]
    pub fn home(mut self, path: impl Into<PathBuf>) -> Self {
        self.home = Some(path.into());
        self
    }

    /// Sets the TCP port. Default: a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets a parameter of `postgresql.conf`. The last of a name counts.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// For data that nobody will miss: `fsync=off` and `full_page_writes=off`.
    /// Survives the death of the server, not that of the machine.
    #[must_use]
    pub fn throwaway(self) -> Self {
        self.setting("fsync", "off").setting("full_page_writes", "off")
    }

    /// Sets what is asked of TCP connections. Default: [`Auth::Trust`].
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Turns TLS on, with a certificate and its key in PEM files, which are
    /// copied. Plain connections stay possible unless [`PostgresBuilder::hba`]
    /// shuts them out.
    #[must_use]
    pub fn tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls = Some((certificate.into(), key.into()));
        self
    }

    /// Has certificates of clients checked against those of a PEM file, which is
    /// copied. Who has to show one, [`PostgresBuilder::hba`] says.
    #[must_use]
    pub fn client_authority(mut self, certificates: impl Into<PathBuf>) -> Self {
        self.client_authority = Some(certificates.into());
        self
    }

    /// Sets the whole text of `pg_hba.conf`. Default: everyone on the socket,
    /// and on 127.0.0.1 who passes [`PostgresBuilder::auth`].
    #[must_use]
    pub fn hba(mut self, text: impl Into<String>) -> Self {
        self.hba = Some(text.into());
        self
    }

    /// Begins with a copy of the data of `other`, which must be of this version
    /// and stopped when this one first starts, and goes on with its timeline: as
    /// a snapshot of its disk would. Only the settings are this builder's.
    #[must_use]
    pub fn clone_of(self, other: &Postgres) -> Self {
        self.seeded(other, Role::Clone)
    }

    /// The same as a standby. Set `primary_conninfo` to what it follows.
    #[must_use]
    pub fn standby_of(self, other: &Postgres) -> Self {
        self.seeded(other, Role::Standby)
    }

    /// The same as a restore from a backup: replays what WAL the copy holds and
    /// begins a timeline of its own.
    #[must_use]
    pub fn restore_of(self, other: &Postgres) -> Self {
        self.seeded(other, Role::Restore).setting("restore_command", "false")
    }

    fn seeded(mut self, other: &Postgres, role: Role) -> Self {
        self.seed = Some(Seed { data: other.data_dir(), role });
        self.version = Some(other.major);
        self
    }

    /// Sets what ends the server. Default: [`Lifetime::Guard`]; any other needs
    /// [`PostgresBuilder::home`], which [`Lifetime::Process`] removes at the end.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Fetches what is missing, creates the data folder, and starts. Returns
    /// when connections are accepted.
    ///
    /// # Errors
    ///
    /// When any of that fails; see [`LocalError`].
    pub fn start(self) -> Result<Postgres, LocalError> {
        let home = WorkDir::open(NAME, self.home.as_deref(), self.lifetime)?;
        let binaries = binaries::find(self.version)?;
        let account = Account::for_postgres()?;
        if let Some(account) = &account {
            account.check_way_to(home.path())?;
            account.check_way_to(&binaries.bin)?;
        }
        let (socket_dir, socket_home) = self.socket_dir(&home, account.as_ref())?;
        let mut postgres = Postgres {
            service: Service::new(KIND, format!("{NAME} {}", binaries.major), home, self.lifetime),
            bin: binaries.bin,
            major: binaries.major,
            port: 0,
            socket_dir,
            auth: self.auth.clone(),
            account,
            _socket_home: socket_home,
        };
        self.create_data(&postgres)?;
        let child = start_on_free_ports(self.port.is_none(), || {
            postgres.port = self.port.map_or_else(free_port, Ok)?;
            self.write_settings(&postgres)?;
            postgres.start_once()
        })?;
        postgres.service.keep(child);
        Ok(postgres)
    }

    fn socket_dir(
        &self,
        home: &WorkDir,
        account: Option<&Account>,
    ) -> Result<(PathBuf, Option<WorkDir>), LocalError> {
        let inside = home.path().join("socket");
        let fits = inside.as_os_str().len() <= MAX_SOCKET_DIR_BYTES;
        let (socket_dir, other) = match (fits, self.lifetime) {
            (true, _) => (inside, None),
            (false, Lifetime::Guard) => {
                let other = WorkDir::temporary()?;
                (other.path().join("socket"), Some(other))
            }
            (false, Lifetime::Process(_) | Lifetime::Unbounded) => {
                return Err(LocalError::Setting {
                    service: NAME,
                    reason: format!(
                        "its home must be shorter than {} bytes, for the socket in it",
                        MAX_SOCKET_DIR_BYTES - "/socket".len()
                    ),
                });
            }
        };
        create_owned(&socket_dir, account)?;
        Ok((socket_dir, other))
    }

    fn create_data(&self, postgres: &Postgres) -> Result<(), LocalError> {
        let data = postgres.data_dir();
        if !data.join("PG_VERSION").is_file() {
            create_owned(&data, postgres.account.as_ref())?;
            match &self.seed {
                None => self.initdb(postgres, &data)?,
                Some(seed) => seed.copy_to(&data, postgres.account.as_ref())?,
            }
            let conf = data.join("postgresql.conf");
            let include = postgres.service.home().join(SETTINGS);
            fs::read_to_string(&conf)
                .and_then(|text| {
                    let include = quoted(&include.to_string_lossy());
                    fs::write(&conf, format!("{text}\ninclude = {include}\n"))
                })
                .map_err(LocalError::io("write", conf.display()))?;
        }
        if let Some(text) = &self.hba {
            let path = data.join("pg_hba.conf");
            fs::write(&path, text).map_err(LocalError::io("write", path.display()))?;
        }
        Ok(())
    }

    fn initdb(&self, postgres: &Postgres, data: &Path) -> Result<(), LocalError> {
        let mut command = Command::new(postgres.bin.join("initdb"));
        command
            .arg("-D")
            .arg(data)
            .args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"])
            .args(["--auth-local=trust", &format!("--auth-host={}", self.auth.method())])
            .current_dir(data);
        let mut password_file = None;
        if let Some(password) = self.auth.password() {
            let path = postgres.service.home().join("password");
            write_secret(&path, password.as_bytes(), postgres.account.as_ref())?;
            command.arg(format!("--pwfile={}", path.display()));
            password_file = Some(path);
        }
        if let Some(account) = &postgres.account {
            command.uid(account.uid).gid(account.gid);
        }
        let done = command::run("initdb", &mut command, INITDB_LIMIT);
        if let Some(path) = password_file {
            fs::remove_file(&path).map_err(LocalError::io("remove", path.display()))?;
        }
        done.map(drop)
    }

    fn write_settings(&self, postgres: &Postgres) -> Result<(), LocalError> {
        let home = postgres.service.home();
        let mut settings = vec![
            ("listen_addresses".to_owned(), postgres.host().to_owned()),
            ("port".to_owned(), postgres.port.to_string()),
            (
                "unix_socket_directories".to_owned(),
                postgres.socket_dir.to_string_lossy().into_owned(),
            ),
        ];
        if let Some((certificate, key)) = &self.tls {
            let clients = self.client_authority.iter().map(|path| ("ssl_ca_file", path));
            let files = [("ssl_cert_file", certificate), ("ssl_key_file", key)];
            let files = files.into_iter().chain(clients);
            settings.push(("ssl".into(), "on".into()));
            for (name, from) in files {
                let to = home.join(name);
                let bytes = fs::read(from).map_err(LocalError::io("read", from.display()))?;
                write_secret(&to, &bytes, postgres.account.as_ref())?;
                settings.push((name.into(), to.to_string_lossy().into_owned()));
            }
        }
        let text: String = settings
            .iter()
            .chain(&self.settings)
            .map(|(name, value)| format!("{name} = {}\n", quoted(value)))
            .collect();
        let path = home.join(SETTINGS);
        fs::write(&path, text).map_err(LocalError::io("write", path.display()))
    }
}

/// A value of `postgresql.conf`.
pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn create_owned(path: &Path, account: Option<&Account>) -> Result<(), LocalError> {
    fs::create_dir_all(path).map_err(LocalError::io("create", path.display()))?;
    account.map_or(Ok(()), |account| account.own(path))
}

/// Nobody but the server may read it, not even for a moment.
fn write_secret(path: &Path, bytes: &[u8], account: Option<&Account>) -> Result<(), LocalError> {
    let write = || {
        fs::write(path, b"")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        fs::write(path, bytes)
    };
    write().map_err(LocalError::io("write", path.display()))?;
    account.map_or(Ok(()), |account| account.own(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_quoted() {
        assert_eq!(quoted(r"it's \n"), r"'it''s \\n'");
    }

    #[test]
    fn a_password_is_not_in_the_debug_text() {
        let builder = Postgres::builder().auth(Auth::Md5("hunter2".into()));
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}
