//! Asks a schema registry with Confluent's API for ids: the one file here with I/O.

use std::{error::Error, fmt, sync::Arc};

use schema_registry_converter::{
    async_impl::schema_registry::{SrSettings, perform_sr_call},
    error::SRCError,
    schema_registry_common::{RawError, SrCall},
};

use super::{
    Credentials, RegistryConfig, RegistryError, RegistryErrorKind, SchemaType, UnknownSchema,
};

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

impl Registry {
    /// A registry that is not asked yet.
    ///
    /// # Errors
    /// [`RegistryErrorKind::NoAddress`] without a URL, or if one is no address.
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistryError> {
        let (first, more) = config.addresses()?;
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
        let settings = builder.set_timeout(config.timeout).build();
        let settings = settings.map_err(|source| RegistryError {
            source: Some(Arc::new(source)),
            ..RegistryError::of_config(RegistryErrorKind::NoAddress)
        })?;
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
        let failed = |kind, source: SRCError| RegistryError {
            kind,
            subject: Some(schema.subject.to_string()),
            source: Some(Arc::new(source)),
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
}
