use std::path::PathBuf;

use super::converters::registry_tls;
use crate::{judge::Scope, lists, secret::Secret, table::converters::STRATEGIES};

/// A schema registry, by the API of Confluent's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// `schema.registry.url`: its addresses; hidden, as they may hold a password.
    pub urls: Vec<Secret>,
    /// How to log in.
    pub login: Login,
    /// How a subject is named, of keys for the converter of keys.
    pub subject: SubjectStrategy,
    /// `auto.register.schemas`, default true.
    pub auto_register: bool,
    /// `use.latest.version`, default false: the newest schema of the subject.
    pub use_latest: bool,
    /// `latest.compatibility.strict`, default true.
    pub latest_strict: bool,
    /// `use.schema.id`: this schema.
    pub use_id: Option<u32>,
    /// `id.compatibility.strict`, default true.
    pub id_strict: bool,
    /// `normalize.schemas`, default false.
    pub normalizes: bool,
    /// TLS beyond the system's authorities.
    pub tls: RegistryTls,
}

/// How to log in to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// By what the address says, or not at all.
    Url,
    /// HTTP basic authentication.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Bearer(Secret),
}

/// How a subject is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectStrategy {
    /// `<topic>-key` and `<topic>-value`, the default.
    TopicName,
    /// The name of the schema.
    RecordName,
    /// `<topic>-<name of the schema>`.
    TopicRecordName,
}

/// TLS of a registry, all in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryTls {
    /// Authorities; `None` for the system's.
    pub authorities: Option<PathBuf>,
    /// Certificate and key of the client.
    pub identity: Option<PathBuf>,
    /// Password of the key.
    pub key_password: Option<Secret>,
}

pub(crate) fn read(scope: &mut Scope<'_>, is_key: bool) -> Option<Registry> {
    let urls = scope.require("schema.registry.url", "the address of the registry");
    check_stores(scope);
    let login = login(scope);
    let strategy = if is_key { "key.subject.name.strategy" } else { "value.subject.name.strategy" };
    let registry = Registry {
        urls: lists::split(&urls?).into_iter().map(Secret::new).collect(),
        login: login?,
        subject: scope.choice(strategy, subject),
        auto_register: scope.boolean("auto.register.schemas"),
        use_latest: scope.boolean("use.latest.version"),
        latest_strict: scope.boolean("latest.compatibility.strict"),
        use_id: u32::try_from(scope.number("use.schema.id")).ok(),
        id_strict: scope.boolean("id.compatibility.strict"),
        normalizes: scope.boolean("normalize.schemas"),
        tls: registry_tls(scope),
    };
    if registry.auto_register && registry.use_latest {
        scope.ignore(
            "use.latest.version",
            "auto.register.schemas is true, and Confluent's client then registers the record's own; \
             write false there for the newest version",
        );
    }
    if registry.subject != SubjectStrategy::TopicName {
        scope.tell(
            strategy,
            "and needs a value with a named schema: an envelope or expanded JSON, for bare \
             payloads have none",
        );
    }
    Some(registry)
}

/// A store that is not said to be PEM is a Java one.
fn check_stores(scope: &mut Scope<'_>) {
    for store in ["truststore", "keystore"] {
        let location = format!("schema.registry.ssl.{store}.location");
        let kind = format!("schema.registry.ssl.{store}.type");
        if scope.given(&location).is_some() && !scope.has(&kind) {
            scope.refuse(&kind, "it is missing, which means JKS; convert the store, and write PEM");
        }
    }
}

fn subject(class: &str) -> Option<SubjectStrategy> {
    let index = STRATEGIES.iter().position(|known| known.eq_ignore_ascii_case(class.trim()))?;
    let strategies =
        [SubjectStrategy::TopicName, SubjectStrategy::RecordName, SubjectStrategy::TopicRecordName];
    strategies.get(index).copied()
}

fn login(scope: &mut Scope<'_>) -> Option<Login> {
    const INFO: &str = "basic.auth.user.info";
    const FORMER: &str = "schema.registry.basic.auth.user.info";
    if let Some(token) = scope.given("bearer.auth.token") {
        return Some(Login::Bearer(Secret::new(token)));
    }
    let is_basic = scope
        .given("basic.auth.credentials.source")
        .is_some_and(|source| source.eq_ignore_ascii_case("USER_INFO"));
    if !is_basic {
        for name in [INFO, FORMER] {
            if scope.has(name) {
                let note = "basic.auth.credentials.source is not USER_INFO; write that";
                scope.ignore(name, note);
            }
        }
        return Some(Login::Url);
    }
    let name = if scope.has(INFO) { INFO } else { FORMER };
    let name = if scope.has(name) { name } else { INFO };
    let info = scope.require(name, "user:password")?;
    let Some((user, password)) = info.split_once(':') else {
        scope.refuse(name, "it has no colon; write user:password");
        return None;
    };
    Some(Login::Basic { user: user.to_owned(), password: Secret::new(password) })
}

/// Apicurio's own converter, by the API that it has for Confluent's clients.
pub(crate) fn of_apicurio(scope: &mut Scope<'_>) -> Option<Registry> {
    const URL: &str = "apicurio.registry.url";
    for (name, value) in
        [("apicurio.registry.as-confluent", "true"), ("apicurio.registry.use-id", "contentId")]
    {
        if !scope.has(name) {
            let note = format!("values are framed as Confluent's alone; write {value}");
            scope.refuse(name, note);
        }
    }
    let url = scope.require(URL, "the address of the registry")?;
    let host = url.split("/apis/").next().unwrap_or_default().trim_end_matches('/');
    let mapped = format!("{host}/apis/ccompat/v7");
    scope.map(URL, "its /apis/ccompat/v7, the API for Confluent's clients");
    Some(Registry {
        urls: vec![Secret::new(mapped)],
        login: Login::Url,
        subject: SubjectStrategy::TopicName,
        auto_register: scope.boolean("apicurio.registry.auto-register"),
        use_latest: scope.boolean("apicurio.registry.find-latest"),
        latest_strict: true,
        use_id: None,
        id_strict: true,
        normalizes: false,
        tls: RegistryTls::default(),
    })
}
