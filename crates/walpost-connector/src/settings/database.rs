use std::path::PathBuf;

use crate::{choices::SslMode, judge::Scope, lists, secret::Secret};

/// How the database is reached: `database.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Host.
    pub host: String,
    /// Port, default 5432.
    pub port: u16,
    /// Login role.
    pub user: String,
    /// Its password, as it is in the file, blanks and all.
    pub password: Option<Secret>,
    /// The one database.
    pub dbname: String,
    /// TLS.
    pub tls: Tls,
    /// `database.tcpKeepAlive`, default true.
    pub tcp_keep_alive: bool,
    /// Bound on each statement in milliseconds, where it is given and not 0.
    pub query_timeout_ms: Option<u64>,
    /// Statements at the beginning of each SQL session; not of the stream.
    pub initial_statements: Vec<String>,
}

/// TLS, as Java's driver has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `database.sslmode`, default `prefer`.
    pub mode: SslMode,
    /// Whether the server's certificate may be checked at all: false for
    /// `NonValidatingFactory`. Which is checked, the mode says.
    pub validates: bool,
    /// `database.sslrootcert`: PEM.
    pub root_certificate: Option<PathBuf>,
    /// `database.sslcert`: PEM or DER.
    pub client_certificate: Option<PathBuf>,
    /// `database.sslkey`: PKCS #8 in DER as the driver has it, or PEM.
    pub client_key: Option<PathBuf>,
    /// `database.sslpassword`: of the key.
    pub key_password: Option<Secret>,
}

pub(crate) fn read(scope: &mut Scope<'_>) -> Option<Database> {
    let host = scope.require("database.hostname", "the host of the server");
    let user = scope.require("database.user", "the role to log in with");
    let dbname = scope.require("database.dbname", "the database of the outbox");
    let tls = tls(scope);
    plugin(scope);
    let timeout = scope.given_number("database.query.timeout.ms").filter(|ms| *ms > 0);
    let statements = scope.text_or_default("database.initial.statements");
    Some(Database {
        host: host?,
        port: u16::try_from(scope.number("database.port")).ok()?,
        user: user?,
        password: scope.raw("database.password").filter(|text| !text.is_empty()).map(Secret::new),
        dbname: dbname?,
        tls,
        tcp_keep_alive: scope.boolean("database.tcpKeepAlive"),
        query_timeout_ms: timeout.and_then(|ms| ms.try_into().ok()),
        initial_statements: lists::split_statements(&statements),
    })
}

fn tls(scope: &mut Scope<'_>) -> Tls {
    let path = |scope: &Scope<'_>, name: &str| scope.given(name).map(PathBuf::from);
    let tls = Tls {
        mode: scope.choice("database.sslmode", SslMode::parse),
        validates: !scope.text_or_default("database.sslfactory").ends_with("NonValidatingFactory"),
        root_certificate: path(scope, "database.sslrootcert"),
        client_certificate: path(scope, "database.sslcert"),
        client_key: path(scope, "database.sslkey"),
        key_password: scope.raw("database.sslpassword").map(Secret::new),
    };
    let checks = matches!(tls.mode, SslMode::VerifyCa | SslMode::VerifyFull);
    if checks && !tls.validates {
        scope.refuse(
            "database.sslfactory",
            "it checks nothing, and database.sslmode asks for a check; write one of the two",
        );
    }
    if tls.root_certificate.is_some() && !checks {
        scope.tell(
            "database.sslrootcert",
            "but no server is checked against it, as in Java's driver; write verify-ca or \
             verify-full to database.sslmode for that",
        );
    }
    for (one, other) in
        [("database.sslcert", "database.sslkey"), ("database.sslkey", "database.sslcert")]
    {
        if scope.given(one).is_some() && !scope.has(other) {
            scope.refuse(one, format!("{other} is missing, which belongs to it; write both"));
        }
    }
    let is_store = |path: &PathBuf| {
        path.extension().is_some_and(|end| end.eq_ignore_ascii_case("p12") || end == "pfx")
    };
    if tls.client_key.as_ref().is_some_and(is_store) {
        scope.refuse(
            "database.sslkey",
            "it is a PKCS #12 store; write key and certificate to a PEM file each",
        );
    }
    tls
}

fn plugin(scope: &mut Scope<'_>) {
    if !scope.has("plugin.name") {
        scope.tell(
            "plugin.name",
            "Debezium's default is decoderbufs; Walpost takes pgoutput, and refuses a slot of \
             another plug-in",
        );
    }
}
