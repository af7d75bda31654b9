//! Schema ids from a registry with Confluent's API: the one file here with I/O.

use std::{error::Error, fmt, time::Duration};

use schema_registry_converter::{
    async_impl::schema_registry::{SrSettings, perform_sr_call},
    error::SRCError,
    schema_registry_common::{RawError, SrCall},
};

use super::{SchemaType, UnknownSchema};

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

/// A schema registry.
#[derive(Clone)]
pub struct Registry {
    settings: SrSettings,
    auto_register: bool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings have addresses and credentials.
        f.debug_struct("Registry")
            .field("auto_register", &self.auto_register)
            .finish_non_exhaustive()
    }
}

/// The registry has given no id.
#[derive(Clone, Debug, thiserror::Error)]
#[error("asking the schema registry{} failed: {kind}", about(.subject.as_deref()))]
pub struct RegistryError {
    kind: RegistryErrorKind,
    subject: Option<String>,
    source: Option<SRCError>,
}

fn about(subject: Option<&str>) -> String {
    subject.map_or_else(String::new, |subject| format!(" about subject {subject}"))
}

impl RegistryError {
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

impl Registry {
    /// A registry that is not asked yet.
    ///
    /// # Errors
    /// [`RegistryErrorKind::NoAddress`] without a URL, or with one that is none.
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistryError> {
        let no_address =
            |source| RegistryError { kind: RegistryErrorKind::NoAddress, subject: None, source };
        let (first, more) = config
            .urls
            .split_first()
            .filter(|_| config.urls.iter().all(|url| is_address(url)))
            .ok_or_else(|| no_address(None))?;
        let mut builder = SrSettings::new_builder(first.trim_end_matches('/').to_owned());
        for url in more {
            builder.add_url(url.trim_end_matches('/').to_owned());
        }
        match &config.credentials {
            Some(Credentials::Basic(user, password)) => {
                builder.set_basic_authorization(user, Some(password));
            }
            Some(Credentials::Token(token)) => {
                builder.set_token_authorization(token);
            }
            None => {}
        }
        let settings = builder
            .set_timeout(config.timeout)
            .build()
            .map_err(|source| no_address(Some(source)))?;
        Ok(Self { settings, auto_register: config.auto_register })
    }

    /// The id of a schema, registered where that is allowed.
    ///
    /// # Errors
    /// [`RegistryError`]; its kind says whether to ask again.
    pub async fn id(&self, schema: &UnknownSchema) -> Result<u32, RegistryError> {
        let body = body(schema);
        let look_up = SrCall::PostForVersion(&schema.subject, &body);
        if !self.auto_register {
            return self.ask(schema, look_up).await;
        }
        let mut refusals = 0;
        loop {
            let answer = self.ask(schema, SrCall::PostNew(&schema.subject, &body)).await;
            let Err(refused) = answer else { return answer };
            refusals += 1;
            if refused.kind() != RegistryErrorKind::Incompatible || refusals == CONFLICTS_MOST {
                return Err(refused);
            }
            // Registries say the same to the second of two that register at once.
            if let Ok(id) = self.ask(schema, look_up).await {
                return Ok(id);
            }
        }
    }

    async fn ask(&self, schema: &UnknownSchema, call: SrCall<'_>) -> Result<u32, RegistryError> {
        let failed = |kind, source| RegistryError {
            kind,
            subject: Some(schema.subject.to_string()),
            source: Some(source),
        };
        let answer = perform_sr_call(&self.settings, call).await;
        let answer = answer.map_err(|error| failed(kind_of(&error), error))?;
        let no_id = || SRCError::new("no id in the answer", None, false);
        answer.id.ok_or_else(|| failed(RegistryErrorKind::Refused, no_id()))
    }
}

/// Avro is not named: registries that know nothing else take it for more than
/// they have.
fn body(schema: &UnknownSchema) -> String {
    let mut body = b"{\"schema\":".to_vec();
    crate::json::write_plain_string(&schema.schema, &mut body);
    if schema.schema_type != SchemaType::Avro {
        body.extend_from_slice(b",\"schemaType\":");
        crate::json::write_plain_string(schema.schema_type.name(), &mut body);
    }
    body.push(b'}');
    String::from_utf8(body).expect("JSON of text is UTF-8")
}

/// How often a schema is sent that is in conflict with another one.
const CONFLICTS_MOST: u32 = 3;

fn is_address(url: &str) -> bool {
    let behind = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    behind.is_some_and(|behind| !behind.is_empty() && !behind.starts_with(['/', ':', '?', '#']))
}

/// The registry knows no schemas of the subject.
const NO_SUBJECT: u32 = 40_401;
/// The registry does not know the schema.
const NO_SCHEMA: u32 = 40_403;

/// By the status, which the client tells in its text alone, and the registry's
/// own code: what is not there without one is the registry itself.
fn kind_of(error: &SRCError) -> RegistryErrorKind {
    let status = error.error.rsplit_once("failed with status ").map(|(_, status)| status);
    let status = status.and_then(|status| status.get(..3)).and_then(|code| code.parse().ok());
    let code = error
        .source()
        .and_then(|source| source.downcast_ref())
        .map(|raw: &RawError| raw.error_code);
    match (status, code) {
        (Some(404_u16), Some(NO_SUBJECT | NO_SCHEMA)) => RegistryErrorKind::NotRegistered,
        (Some(409), _) => RegistryErrorKind::Incompatible,
        // 413: whoever is in front of it takes no text as long as this one.
        (Some(413 | 422), _) => RegistryErrorKind::Invalid,
        (Some(408 | 429 | 500..) | None, _) => RegistryErrorKind::Unavailable,
        (Some(_), _) => RegistryErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let registry = Registry::new(&config).unwrap();
            let shown = format!("{config:?} {registry:?}");
            assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
            assert!(shown.contains("@host:1"), "{shown}");
        }
    }

    #[test]
    fn what_is_about_one_schema_parks_its_event() {
        let kind = |status: &str| {
            let text = format!("HTTP request to schema registry failed with status {status}");
            kind_of(&SRCError::new(&text, None, false))
        };
        for (status, kind_of_it) in [
            ("409 Conflict", RegistryErrorKind::Incompatible),
            ("413 Payload Too Large", RegistryErrorKind::Invalid),
            ("422 Unprocessable Entity", RegistryErrorKind::Invalid),
            ("404 Not Found", RegistryErrorKind::Refused),
            ("401 Unauthorized", RegistryErrorKind::Refused),
            ("429 Too Many Requests", RegistryErrorKind::Unavailable),
            ("503 Service Unavailable", RegistryErrorKind::Unavailable),
        ] {
            assert_eq!(kind(status), kind_of_it, "{status}");
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
