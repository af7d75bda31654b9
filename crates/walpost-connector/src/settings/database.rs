use crate::{choices::SslMode, judge::Scope, lists, secret::Secret};

/// What of the database no key of Walpost's own says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// `database.initial.statements`: statements at the beginning of each SQL
    /// session; not of the stream.
    pub initial_statements: Vec<Secret>,
}

/// Bounds of `pipeline.statement_timeout_ms`.
const TIMEOUTS_MS: (u64, u64) = (100, 600_000);

pub(crate) fn read(scope: &mut Scope<'_>) -> Database {
    let host = scope.require("database.hostname", "the host of the server");
    let user = scope.require("database.user", "the role to log in with");
    let dbname = scope.require("database.dbname", "the database of the outbox");
    let tls = tls(scope);
    plugin(scope);
    if let (Some(host), Some(user), Some(dbname)) = (host, user, dbname) {
        let port = scope.text_or_default("database.port");
        let mut keys = vec![("host", host), ("port", port), ("user", user), ("dbname", dbname)];
        // As it is in the file, blanks and all.
        let password = scope.raw("database.password").filter(|text| !text.is_empty());
        keys.extend(password.map(|password| ("password", password.to_owned())));
        if !scope.boolean("database.tcpKeepAlive") {
            keys.push(("keepalives", "0".to_owned()));
        }
        keys.extend(tls);
        scope.lay_hidden("database.hostname", connection_string(&keys));
    }
    const TIMEOUT: &str = "database.query.timeout.ms";
    if let Some(ms) = scope.given_number(TIMEOUT).and_then(|ms| u64::try_from(ms).ok()) {
        let (least, most) = TIMEOUTS_MS;
        scope.lay(TIMEOUT, if ms == 0 { most } else { ms.clamp(least, most) });
    }
    let statements = scope.text_or_default("database.initial.statements");
    let statements = lists::split_statements(&statements);
    Database { initial_statements: statements.into_iter().map(Secret::new).collect() }
}

/// As libpq has it: `key='value'`, with a backslash before what ends a value.
fn connection_string(keys: &[(&str, String)]) -> String {
    let escaped = |value: &str| value.replace('\\', r"\\").replace('\'', r"\'");
    let pairs = keys.iter().map(|(key, value)| format!("{key}='{}'", escaped(value)));
    pairs.collect::<Vec<_>>().join(" ")
}

const ROOT: &str = "database.sslrootcert";

/// TLS as Java's driver has it: only the modes that check the server read the
/// certificates of authorities.
fn tls(scope: &mut Scope<'_>) -> Vec<(&'static str, String)> {
    const FACTORY: &str = "database.sslfactory";
    let mode: SslMode = scope.choice("database.sslmode");
    let checks = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
    if checks && scope.text_or_default(FACTORY).ends_with("NonValidatingFactory") {
        let note = "it checks nothing, and database.sslmode asks for a check; write one of the two";
        scope.refuse(FACTORY, note);
    }
    let mut keys = vec![("sslmode", mode.name().to_owned())];
    match (scope.given(ROOT), checks) {
        (Some(root), true) => keys.push(("sslrootcert", root)),
        (None, true) => scope.tell(
            ROOT,
            "the authorities are the system's, where Java's driver reads ~/.postgresql/root.crt",
        ),
        (Some(_), false) => scope.tell(
            ROOT,
            "but no server is checked against it, as in Java's driver; write verify-ca or \
             verify-full to database.sslmode for that",
        ),
        (None, false) => {}
    }
    let certificate = ("sslcert", "database.sslcert");
    let key = ("sslkey", "database.sslkey");
    for ((native, name), (_, other)) in [(certificate, key), (key, certificate)] {
        let Some(path) = scope.given(name) else { continue };
        if !scope.has(other) {
            scope.refuse(name, format!("{other} is missing, which belongs to it; write both"));
        }
        if name == key.1 && is_store(&path) {
            let note = "it is a PKCS #12 store; write key and certificate to a PEM file each";
            scope.refuse(name, note);
        }
        keys.push((native, path));
    }
    const PASSWORD: &str = "database.sslpassword";
    let password = scope.raw(PASSWORD).filter(|text| !text.is_empty()).map(str::to_owned);
    match scope.has(key.1) {
        true => keys.extend(password.map(|password| ("sslpassword", password))),
        false if scope.has(PASSWORD) => {
            scope.ignore(PASSWORD, "database.sslkey names no key that it could be of");
        }
        false => {}
    }
    keys
}

fn is_store(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".p12") || path.ends_with(".pfx")
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
