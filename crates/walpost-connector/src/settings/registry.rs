use crate::{choices::Choice, judge::Scope, lists, secret::Secret, table::converters::STRATEGIES};

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

pub(crate) fn read(scope: &mut Scope<'_>, is_key: bool) -> Option<Registry> {
    let urls = addresses(scope);
    let login = login(scope);
    let strategy = if is_key { "key.subject.name.strategy" } else { "value.subject.name.strategy" };
    let registry = Registry {
        urls: urls?,
        login: login?,
        subject: scope.choice(strategy),
        auto_register: scope.boolean("auto.register.schemas"),
    };
    if registry.subject != SubjectStrategy::TopicName {
        scope.tell(
            strategy,
            "and needs a value with a named schema: an envelope or expanded JSON, for bare \
             payloads have none",
        );
    }
    Some(registry)
}

fn addresses(scope: &mut Scope<'_>) -> Option<Vec<Secret>> {
    const NAME: &str = "schema.registry.url";
    let urls = lists::split(&scope.require(NAME, "the address of the registry")?);
    let is_address = |url: &String| url.starts_with("http://") || url.starts_with("https://");
    if urls.is_empty() || !urls.iter().all(is_address) {
        scope.refuse(NAME, "an address of http or https is meant; write it as http://host:8081");
        return None;
    }
    Some(urls.into_iter().map(Secret::new).collect())
}

impl Choice for SubjectStrategy {
    const NAMES: &'static [&'static str] = STRATEGIES;

    fn parse(class: &str) -> Option<Self> {
        let index = STRATEGIES.iter().position(|known| known.eq_ignore_ascii_case(class.trim()))?;
        [Self::TopicName, Self::RecordName, Self::TopicRecordName].get(index).copied()
    }
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
    for (name, value) in [
        ("apicurio.registry.as-confluent", "true"),
        ("apicurio.registry.use-id", "contentId"),
        ("apicurio.registry.headers.enabled", "false"),
    ] {
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
    })
}
