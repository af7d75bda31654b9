//! Schema ids from a registry with Confluent's API: the one file here with I/O.

use std::{fmt, time::Duration};

use schema_registry_converter::{
    async_impl::schema_registry::{SrSettings, perform_sr_call, post_schema},
    error::SRCError,
    schema_registry_common::{SchemaType, SrCall, SuppliedSchema},
};

use super::UnknownSchema;

/// Where the registry is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryConfig {
    /// `schema.registry.url`: one or more; each is tried.
    pub urls: Vec<String>,
    /// `basic.auth.user.info`, or a token.
    pub credentials: Option<Credentials>,
    /// `auto.register.schemas`: schemas that are not there are registered.
    pub auto_register: bool,
    /// How long one answer may take.
    pub timeout: Duration,
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
#[derive(Clone, Debug)]
pub struct Registry {
    settings: SrSettings,
    auto_register: bool,
}

/// The registry has given no id.
#[derive(Clone, Debug, thiserror::Error)]
#[error("asking the schema registry about subject {subject} failed: {kind}")]
pub struct RegistryError {
    kind: RegistryErrorKind,
    subject: String,
    source: Option<SRCError>,
}

impl RegistryError {
    /// What now.
    pub fn kind(&self) -> RegistryErrorKind {
        self.kind
    }
}

/// What a failure of the registry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryErrorKind {
    /// It cannot be reached, or has a fault of its own: ask again.
    #[error("it does not answer; it is asked again")]
    Unavailable,
    /// The schema is not compatible with those of its subject: park.
    #[error("the schema is not compatible with earlier ones, change it or the subject's mode")]
    Incompatible,
    /// The schema is not there, and must not be registered: park.
    #[error("the schema is not registered, register it or set auto.register.schemas")]
    NotRegistered,
    /// It does not take the schema, or who asks: park.
    #[error("it refuses the schema or the credentials")]
    Refused,
}

impl RegistryErrorKind {
    /// Whether to ask again rather than to park the event.
    pub fn is_transient(self) -> bool {
        self == Self::Unavailable
    }
}

impl Registry {
    /// A registry that is not asked yet.
    ///
    /// # Errors
    /// [`RegistryErrorKind::Refused`] without a URL, or with one that is none.
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistryError> {
        let refused = |source| RegistryError {
            kind: RegistryErrorKind::Refused,
            subject: String::new(),
            source,
        };
        let (first, more) = config.urls.split_first().ok_or_else(|| refused(None))?;
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
        let settings =
            builder.set_timeout(config.timeout).build().map_err(|source| refused(Some(source)))?;
        Ok(Self { settings, auto_register: config.auto_register })
    }

    /// The id of a schema, registered where that is allowed.
    ///
    /// # Errors
    /// [`RegistryError`]; its kind says whether to ask again.
    pub async fn id(&self, schema: &UnknownSchema) -> Result<u32, RegistryError> {
        let subject = schema.subject.to_string();
        let answer = if self.auto_register {
            let supplied = SuppliedSchema::new(None, SchemaType::Avro, schema.schema.to_string());
            post_schema(&self.settings, subject, supplied).await.map(|registered| registered.id)
        } else {
            let body = lookup_body(&schema.schema);
            let call = SrCall::PostForVersion(&subject, &body);
            perform_sr_call(&self.settings, call).await.and_then(|raw| {
                raw.id.ok_or_else(|| SRCError::new("no id in the answer", None, false))
            })
        };
        answer.map_err(|error| RegistryError {
            kind: kind_of(&error),
            subject: schema.subject.to_string(),
            source: Some(error),
        })
    }
}

fn lookup_body(schema: &str) -> String {
    let mut body = b"{\"schema\":".to_vec();
    crate::json::write_plain_string(schema, &mut body);
    body.push(b'}');
    String::from_utf8(body).expect("JSON of text is UTF-8")
}

/// By the status, which the client tells in its text alone.
fn kind_of(error: &SRCError) -> RegistryErrorKind {
    let status = error.error.rsplit_once("failed with status ").map(|(_, status)| status);
    let code = status.and_then(|status| status.get(..3)).and_then(|code| code.parse::<u16>().ok());
    match code {
        Some(404) => RegistryErrorKind::NotRegistered,
        Some(409) => RegistryErrorKind::Incompatible,
        Some(408 | 429 | 500..) => RegistryErrorKind::Unavailable,
        Some(_) => RegistryErrorKind::Refused,
        None => RegistryErrorKind::Unavailable,
    }
}
