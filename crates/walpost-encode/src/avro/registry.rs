//! Where a schema registry is, and what its failures ask for.

use std::{error::Error, fmt, sync::Arc, time::Duration};

/// Where the registry is, and how it is asked. `Debug` shows no credentials,
/// also not those in an address.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// `schema.registry.url`: one or more, of `http` or `https`; each is tried.
    pub urls: Vec<String>,
    /// `basic.auth.user.info`, or a token.
    pub credentials: Option<Credentials>,
    /// `auto.register.schemas`: schemas that are not there are registered.
    pub auto_register: bool,
    /// How long one answer may take.
    pub timeout: Duration,
}

impl RegistryConfig {
    /// The addresses for people, without credentials, separated by commas.
    pub fn shown_urls(&self) -> String {
        let urls: Vec<String> = self.urls.iter().map(|url| without_credentials(url)).collect();
        urls.join(", ")
    }

    /// The first address and the others; an error if one is no address.
    pub(super) fn addresses(&self) -> Result<(&String, &[String]), RegistryError> {
        let are_addresses = self.urls.iter().all(|url| is_address(url));
        let addresses = self.urls.split_first().filter(|_| are_addresses);
        addresses.ok_or_else(|| RegistryError::of_config(RegistryErrorKind::NoAddress))
    }
}

impl fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { urls, credentials, auto_register, timeout } = self;
        let urls: Vec<String> = urls.iter().map(|url| without_credentials(url)).collect();
        f.debug_struct("RegistryConfig")
            .field("urls", &urls)
            .field("credentials", credentials)
            .field("auto_register", auto_register)
            .field("timeout", timeout)
            .finish()
    }
}

/// From the first `://` to the last `@`: a password may have either in it.
fn without_credentials(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    match url.rfind('@') {
        Some(end) if start <= end => format!("{}***{}", &url[..start], &url[end..]),
        _ => url.to_owned(),
    }
}

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// User and password.
    Basic(String, String),
    /// A bearer token.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic(..) => "Basic(***)",
            Self::Token(_) => "Token(***)",
        })
    }
}

/// The registry has given no id.
#[derive(Clone, Debug, thiserror::Error)]
#[error("asking the schema registry{} failed: {kind}", about(.subject.as_deref()))]
pub struct RegistryError {
    pub(super) kind: RegistryErrorKind,
    pub(super) subject: Option<String>,
    #[source]
    pub(super) source: Option<Arc<dyn Error + Send + Sync>>,
}

fn about(subject: Option<&str>) -> String {
    subject.map_or_else(String::new, |subject| format!(" about subject {subject}"))
}

impl RegistryError {
    pub(super) fn of_config(kind: RegistryErrorKind) -> Self {
        Self { kind, subject: None, source: None }
    }

    /// What now.
    pub fn kind(&self) -> RegistryErrorKind {
        self.kind
    }
}

/// What a failure of the registry asks for: to ask again, to
/// [park](Self::parks) the event, or else to halt, as no event would fare
/// better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryErrorKind {
    /// It cannot be reached, or has a fault of its own: ask again.
    #[error("it does not answer; it is asked again")]
    Unavailable,
    /// The schema is not compatible with those of its subject: park.
    #[error("the schema is not compatible with earlier ones, change it or the subject's mode")]
    Incompatible,
    /// The schema is none to the registry: park.
    #[error("it takes the schema for none; change the names or types of the columns")]
    Invalid,
    /// The schema is not there, and must not be registered: park.
    #[error("the schema is not registered, register it or set auto.register.schemas")]
    NotRegistered,
    /// It refuses who asks, or the answer is none of a registry: halt.
    #[error("it refuses who asks, or is no registry; see to schema.registry.url and credentials")]
    Refused,
    /// No address to ask: halt.
    #[error("schema.registry.url is no address of http or https")]
    NoAddress,
    /// This build has no client for schema registries: halt.
    #[error(
        "this build has no client for schema registries; build walpost with --features registry"
    )]
    NoClient,
}

impl RegistryErrorKind {
    /// Whether to ask again.
    pub fn is_transient(self) -> bool {
        self == Self::Unavailable
    }

    /// Whether it is about this schema alone, so that the event is to be parked.
    pub fn parks(self) -> bool {
        matches!(self, Self::Incompatible | Self::Invalid | Self::NotRegistered)
    }
}

fn is_address(url: &str) -> bool {
    let behind = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    behind.is_some_and(|behind| !behind.is_empty() && !behind.starts_with(['/', ':', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::{super::Registry, *};

    #[test]
    fn credentials_show_nowhere() {
        let secrets = ["s3cret", "us3r", "p@ss", "t0ken"];
        let config = |url: &str, credentials| RegistryConfig {
            urls: vec![url.to_owned()],
            credentials: Some(credentials),
            auto_register: true,
            timeout: Duration::from_secs(1),
        };
        let basic = || Credentials::Basic("us3r".to_owned(), "s3cret".to_owned());
        for config in [
            config("http://us3r:s3cret@host:1/path", basic()),
            config("https://us3r:p@ss://s3cret@host:1", Credentials::Token("t0ken".to_owned())),
        ] {
            let shown = format!("{config:?} {:?}", Registry::new(&config));
            assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
            assert!(shown.contains("@host:1"), "{shown}");
        }
    }

    #[test]
    fn addresses_are_told_from_others() {
        for url in
            ["", "host:8081", "ftp://us3r:s3cret@host", "http://", "http://:80", "https:///a"]
        {
            let config = RegistryConfig {
                urls: vec!["http://a".to_owned(), url.to_owned()],
                credentials: None,
                auto_register: true,
                timeout: Duration::from_secs(1),
            };
            let error = Registry::new(&config).unwrap_err();
            assert_eq!(error.kind(), RegistryErrorKind::NoAddress, "{url}");
            assert!(!format!("{error:?} {error}").contains("s3cret"));
        }
    }
}
