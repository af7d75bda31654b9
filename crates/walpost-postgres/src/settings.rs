use std::{fmt, path::PathBuf};

use tokio_postgres::config::{ChannelBinding, Host, SslNegotiation};

use crate::tls::{Password, SslMode, TlsSettings};

/// Where a database is and how to log in, read from a libpq connection string.
///
/// Both forms of libpq are understood: `postgres://user@host:5432/db?key=value`
/// and `host=… user=…`. A host that begins with `/` is the folder of a Unix
/// socket. Beyond the keys of [`tokio_postgres::Config`] these are:
///
/// | key | meaning | default |
/// |---|---|---|
/// | `sslmode` | `disable`, `allow`, `prefer`, `require`, `verify-ca`, `verify-full` | `prefer` |
/// | `sslrootcert` | file of the certificate authorities (PEM or DER), or `system`, which means `verify-full` | those of the system |
/// | `sslcert`, `sslkey` | PEM or DER files of the client's certificate and key | none |
/// | `sslpassword` | password of the key, where it is encrypted (PKCS #8) | none |
/// | `sslnegotiation` | `postgres`, or `direct`: TLS from the first byte on, from PostgreSQL 17 on | `postgres` |
///
/// `Debug` and `Display` never show the password.
#[derive(Clone)]
pub struct Database {
    config: tokio_postgres::Config,
    tls: TlsSettings,
    /// Number of the only host to try, from 0.
    only: Option<usize>,
    /// Rows that policies hide from the role are left out.
    leaves_out_hidden: bool,
    /// At the beginning of each SQL session.
    initial_statements: Vec<String>,
}

/// The connection string cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// `tokio_postgres` refuses a key or value.
    #[error(
        "the connection string is not valid; expected postgres://user@host/db or \
         host=… user=… dbname=…"
    )]
    Syntax(#[source] tokio_postgres::Error),
    /// What stands where a key is expected is none. It is not shown: in a URL
    /// with a slip in its beginning it is the password.
    #[error(
        "the connection string is not valid: it begins with neither postgres:// nor a key; \
         expected postgres://user@host/db or host=… user=… dbname=…"
    )]
    NoKey,
    /// A key of ours has a value outside its set.
    #[error("{key} in the connection string is {value:?}, expected one of {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Two keys that only work together.
    #[error("the connection string sets {present} without {missing}")]
    Incomplete {
        /// The key that is there.
        present: &'static str,
        /// The key that is not.
        missing: &'static str,
    },
    /// A check that would check less than its other half asks for.
    #[error("{key}={value} does not go with {with}; write {write}")]
    Weak {
        /// The key.
        key: &'static str,
        /// Its value.
        value: &'static str,
        /// The other setting.
        with: &'static str,
        /// What to write instead.
        write: &'static str,
    },
    /// A key that every connection needs.
    #[error("the connection string names no {0}")]
    Missing(&'static str),
}

impl Database {
    /// Reads a connection string.
    ///
    /// # Errors
    /// For unknown keys, values out of range, and a string without a host.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let (rest, ours) = split_tls_keys(text);
        let mut config: tokio_postgres::Config = rest.parse().map_err(syntax)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(SettingsError::Missing("host"));
        }
        if config.get_user().is_none() {
            let user = std::env::var("USER").map_err(|_| SettingsError::Missing("user"))?;
            config.user(user);
        }
        if config.get_application_name().is_none() {
            config.application_name("walpost");
        }
        let mut tls = tls_settings(ours)?;
        tls.direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        check_strength(&config, &tls)?;
        Ok(Self {
            config,
            tls,
            only: None,
            leaves_out_hidden: false,
            initial_statements: Vec::new(),
        })
    }

    /// The same server and login, another database.
    #[must_use]
    pub fn with_dbname(mut self, dbname: &str) -> Self {
        self.config.dbname(dbname);
        self
    }

    /// The same database under another `application_name`.
    #[must_use]
    pub fn with_application_name(mut self, name: &str) -> Self {
        self.config.application_name(name);
        self
    }

    /// The same for whoever only looks: where row level security hides rows from
    /// the role, SQL sessions do without them. Otherwise PostgreSQL refuses a
    /// statement that would (`row_security = off`), so that no row that nobody
    /// has seen counts as dealt with.
    #[must_use]
    pub fn without_hidden_rows(mut self) -> Self {
        self.leaves_out_hidden = true;
        self
    }

    /// The same, where each SQL session begins with these statements, in order;
    /// replication sessions do not. A session where one of them fails is not
    /// opened; its error has the number of the statement, and what the server says.
    #[must_use]
    pub fn with_initial_statements(mut self, statements: Vec<String>) -> Self {
        self.initial_statements = statements;
        self
    }

    pub(crate) fn initial_statements(&self) -> &[String] {
        &self.initial_statements
    }

    /// The same with `sslmode=require`: what `allow` tries after a refusal.
    #[must_use]
    pub fn insisting_on_tls(&self) -> Self {
        let mut database = self.clone();
        database.tls.mode = SslMode::Require;
        database
    }

    /// Settings other than TLS.
    pub fn config(&self) -> &tokio_postgres::Config {
        &self.config
    }

    /// TLS settings.
    pub fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// Name of the database, the user's if none is given, as libpq has it.
    pub fn dbname(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or_default()
    }

    /// Login role.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// The first host, or the folder of its socket, and its port.
    pub fn first_target(&self) -> (String, u16) {
        match self.targets().swap_remove(0) {
            (Host::Tcp(name), port) => (name, port),
            (Host::Unix(folder), port) => (folder.display().to_string(), port),
        }
    }

    pub(crate) fn leaves_out_hidden(&self) -> bool {
        self.leaves_out_hidden
    }

    /// The same with one of its [`targets`](Self::targets) alone.
    pub(crate) fn with_target_alone(&self, index: usize) -> Self {
        Self { only: Some(self.only.unwrap_or(index)), ..self.clone() }
    }

    /// Hosts with their ports, in the order in which they are tried.
    pub(crate) fn targets(&self) -> Vec<(Host, u16)> {
        let mut targets = self.all_targets();
        match self.only {
            Some(index) => vec![targets.swap_remove(index)],
            None => targets,
        }
    }

    fn all_targets(&self) -> Vec<(Host, u16)> {
        let ports = self.config.get_ports();
        let port = |index: usize| match ports {
            [] => 5432,
            [only] => *only,
            many => many.get(index).copied().unwrap_or(5432),
        };
        if self.config.get_hosts().is_empty() {
            let address = |ip: &std::net::IpAddr| Host::Tcp(ip.to_string());
            let hosts = self.config.get_hostaddrs().iter().map(address);
            return hosts.enumerate().map(|(index, host)| (host, port(index))).collect();
        }
        let hosts = self.config.get_hosts().iter().cloned();
        hosts.enumerate().map(|(index, host)| (host, port(index))).collect()
    }
}

/// What may be told of a string that cannot be read: a key or option that is one
/// by its looks.
fn syntax(error: tokio_postgres::Error) -> SettingsError {
    let is_told = std::error::Error::source(&error).map(ToString::to_string).is_none_or(|text| {
        let mut parts = text.split('`').skip(1).step_by(2);
        parts.all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '='))
    });
    if is_told { SettingsError::Syntax(error) } else { SettingsError::NoKey }
}

/// A host as it may be shown: what stands before an `@` is the end of a password
/// that was not encoded.
pub(crate) fn shown_host(host: &str) -> &str {
    host.rsplit('@').next().unwrap_or_default()
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.user())?;
        for (index, (host, port)) in self.targets().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{comma}{}:{port}", shown_host(name))?,
                Host::Unix(folder) => write!(f, "{comma}{}:{port}", folder.display())?,
            }
        }
        write!(f, "/{}", self.dbname())
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self}, {:?})", self.tls)
    }
}

/// Keys that `tokio_postgres` does not know, or knows in part.
const TLS_KEYS: [&str; 5] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword"];

type TlsKeys = Vec<(&'static str, String)>;

/// Takes the TLS keys out of either form of connection string.
fn split_tls_keys(text: &str) -> (String, TlsKeys) {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        split_url(text)
    } else {
        split_keywords(text)
    }
}

fn split_url(text: &str) -> (String, TlsKeys) {
    let Some((base, query)) = text.split_once('?') else {
        return (text.to_owned(), Vec::new());
    };
    let mut ours = Vec::new();
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match TLS_KEYS.iter().find(|known| **known == key) {
            Some(known) => ours.push((*known, percent_decode(value))),
            None => rest.push(pair),
        }
    }
    let rest = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (rest, ours)
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, code.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The `key=value` form: values may be quoted with `'`, `\` escapes.
fn split_keywords(text: &str) -> (String, TlsKeys) {
    let mut ours = Vec::new();
    let mut rest = String::new();
    let mut chars = text.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let Some(&(start, _)) = chars.peek() else { break };
        let mut key = String::new();
        while let Some((_, c)) = chars.next_if(|(_, c)| *c != '=') {
            key.push(c);
        }
        chars.next();
        while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let value = keyword_value(&mut chars);
        let end = chars.peek().map_or(text.len(), |(index, _)| *index);
        match TLS_KEYS.iter().find(|known| **known == key.trim()) {
            Some(known) => ours.push((*known, value)),
            None => {
                rest.push_str(text[start..end].trim());
                rest.push(' ');
            }
        }
    }
    (rest, ours)
}

fn keyword_value(chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> String {
    let quoted = chars.next_if(|(_, c)| *c == '\'').is_some();
    let mut value = String::new();
    while let Some((_, c)) = chars.next_if(|(_, c)| quoted || !c.is_whitespace()) {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => break,
            plain => value.push(plain),
        }
    }
    value
}

fn tls_settings(keys: TlsKeys) -> Result<TlsSettings, SettingsError> {
    let mut settings = TlsSettings::default();
    let mut mode = None;
    for (key, value) in keys {
        match key {
            "sslmode" => mode = Some(ssl_mode(value)?),
            "sslrootcert" => {
                settings.root_cert = (value != "system").then(|| PathBuf::from(value));
                settings.root_cert_given = true;
            }
            "sslcert" => settings.client_cert = Some(value.into()),
            "sslkey" => settings.client_key = Some(value.into()),
            _ => settings.key_password = Some(Password::new(value)),
        }
    }
    let of_system = settings.root_cert_given && settings.root_cert.is_none();
    settings.mode = match mode {
        None if of_system => SslMode::VerifyFull,
        // Anybody has a certificate of one of those authorities, of some name.
        Some(mode) if of_system && !matches!(mode, SslMode::VerifyFull | SslMode::Disable) => {
            return Err(SettingsError::Weak {
                key: "sslrootcert",
                value: "system",
                with: "an sslmode below verify-full",
                write: "sslmode=verify-full",
            });
        }
        mode => mode.unwrap_or_default(),
    };
    let incomplete = |present, missing| Err(SettingsError::Incomplete { present, missing });
    match (&settings.client_cert, &settings.client_key) {
        (Some(_), None) => incomplete("sslcert", "sslkey"),
        (None, Some(_)) => incomplete("sslkey", "sslcert"),
        (None, None) if settings.key_password.is_some() => incomplete("sslpassword", "sslkey"),
        _ => Ok(settings),
    }
}

/// What libpq refuses as well, or what would be asked for in vain.
fn check_strength(config: &tokio_postgres::Config, tls: &TlsSettings) -> Result<(), SettingsError> {
    if tls.direct && matches!(tls.mode, SslMode::Disable | SslMode::Allow | SslMode::Prefer) {
        return Err(SettingsError::Weak {
            key: "sslnegotiation",
            value: "direct",
            with: "an sslmode below require",
            write: "sslmode=require, verify-ca or verify-full",
        });
    }
    if config.get_channel_binding() == ChannelBinding::Require {
        return Err(SettingsError::Weak {
            key: "channel_binding",
            value: "require",
            with: "Walpost, whose logins are not bound to the TLS channel",
            write: "channel_binding=prefer and sslmode=verify-full",
        });
    }
    Ok(())
}

fn ssl_mode(value: String) -> Result<SslMode, SettingsError> {
    match value.as_str() {
        "disable" => Ok(SslMode::Disable),
        "allow" => Ok(SslMode::Allow),
        "prefer" => Ok(SslMode::Prefer),
        "require" => Ok(SslMode::Require),
        "verify-ca" => Ok(SslMode::VerifyCa),
        "verify-full" => Ok(SslMode::VerifyFull),
        _ => Err(SettingsError::Value {
            key: "sslmode",
            value,
            expected: "disable, allow, prefer, require, verify-ca, verify-full",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_carry_the_tls_keys() {
        for text in [
            "postgres://u:p@h:6000/d?sslmode=verify-ca&connect_timeout=3&sslrootcert=%2Fca%20x.pem",
            "host=h port=6000 user=u password=p dbname=d sslmode = verify-ca connect_timeout=3 \
             sslrootcert='/ca x.pem'",
        ] {
            let database = Database::parse(text).unwrap();
            assert_eq!(database.to_string(), "u@h:6000/d");
            assert_eq!(database.tls().mode, SslMode::VerifyCa);
            assert_eq!(database.tls().root_cert.as_deref(), Some("/ca x.pem".as_ref()));
            assert_eq!(database.config().get_connect_timeout().unwrap().as_secs(), 3);
        }
    }

    #[test]
    fn a_password_with_quotes_and_spaces_survives() {
        let database = Database::parse(r"host=h user=u password='it''s' sslmode=disable");
        assert!(database.is_err(), "libpq escapes a quote with a backslash");
        let database =
            Database::parse(r"host=h user=u password='a \'b\' c' sslmode=disable").unwrap();
        assert_eq!(database.config().get_password(), Some(b"a 'b' c".as_slice()));
    }

    #[test]
    fn of_several_hosts_one_can_be_named() {
        for text in
            ["host=a,b,c port=1,2,3 user=u dbname=d", "hostaddr=10.0.0.1,10.0.0.2 port=1,2 user=u"]
        {
            let database = Database::parse(text).unwrap();
            let second = database.with_target_alone(1);
            assert_eq!(second.targets(), database.targets()[1..2]);
            assert_eq!(second.first_target().1, 2);
            assert_eq!(second.with_target_alone(0).targets(), second.targets());
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for text in
            ["postgres://u:hunter2@h/d", "host=h user=u sslcert=/c sslkey=/k sslpassword=hunter2"]
        {
            let database = Database::parse(text).unwrap();
            assert!(!format!("{database:?}{database}").contains("hunter2"));
        }
    }

    #[test]
    fn a_wrong_string_says_what_is_wrong() {
        let error = |text: &str| Database::parse(text).unwrap_err().to_string();
        assert!(error("host=h user=u sslmode=on").contains("verify-full"));
        assert!(error("user=u").contains("no host"));
        assert!(error("host=h user=u sslcert=/x").contains("without sslkey"));
        assert!(error("host=h user=u colour=red").contains("not valid"));
        assert!(error("host=h user=u sslpassword=s3cret").contains("without sslkey"));
        for (weak, write) in [
            ("sslrootcert=system sslmode=require", "sslmode=verify-full"),
            ("sslrootcert=system sslmode=prefer", "sslmode=verify-full"),
            ("sslnegotiation=direct", "sslmode=require"),
            ("channel_binding=require", "sslmode=verify-full"),
        ] {
            let told = error(&format!("host=h user=u {weak}"));
            assert!(told.contains(write), "{weak}: {told}");
        }
    }

    #[test]
    fn authorities_of_the_system_mean_that_everything_is_checked() {
        let mode = |text: &str| Database::parse(text).unwrap().tls().mode;
        assert_eq!(mode("host=h user=u sslrootcert=system"), SslMode::VerifyFull);
        assert_eq!(mode("host=h user=u sslrootcert=/ca.pem"), SslMode::Prefer);
        assert_eq!(mode("host=h user=u sslrootcert=system sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn a_url_with_a_slip_in_its_beginning_is_no_key_that_an_error_names() {
        for text in [
            "postgres//bob:hunter2@h/db?connect_timeout=3",
            "postgres:/bob:hunter2@h/db?sslmode=require",
            "bob:hunter2@h/db",
            "bob:hunter2@h/db?user=x",
            "psql://bob:hunter2@h/db host=h",
        ] {
            let error = Database::parse(text).unwrap_err();
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let told = format!("{error} {error:?} {}", cause.unwrap_or_default());
            assert!(!told.contains("hunter2"), "{told}");
        }
        let error = Database::parse("host=h user=u colour=red").unwrap_err();
        assert!(format!("{error:?}").contains("colour"), "a key is told");
    }
}
