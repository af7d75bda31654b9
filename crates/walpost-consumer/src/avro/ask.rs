//! Questions to a registry, over HTTP.

use std::collections::HashSet;

use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;

use crate::HandlerError;

const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Schemas that one schema may name, with those that they name.
const MAX_REFERENCES: usize = 64;

/// Where and as whom is asked.
pub(super) struct Asking {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) basic: Option<(String, String)>,
    pub(super) bearer: Option<String>,
}

/// What a registry has under an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The schemas that it names, innermost first, then the schema.
    Found(Vec<String>),
    Unknown,
    /// Of which kind it is.
    NotAvro(String),
}

/// As the registry tells it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    schema: String,
    /// None for Avro.
    schema_type: Option<String>,
    references: Option<Vec<Reference>>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    subject: String,
    version: i32,
}

impl Asking {
    pub(super) async fn schema(&self, id: u32) -> Result<Answer, HandlerError> {
        let Some(schema) = self.get(&["schemas", "ids", &id.to_string()]).await? else {
            return Ok(Answer::Unknown);
        };
        if let Some(kind) = schema.schema_type.filter(|kind| kind != "AVRO") {
            return Ok(Answer::NotAvro(kind.chars().take(32).collect()));
        }
        let mut texts = vec![schema.schema];
        let (mut open, mut seen) = (schema.references.unwrap_or_default(), HashSet::new());
        while let Some(Reference { subject, version }) = open.pop() {
            if !seen.insert((subject.clone(), version)) {
                continue;
            }
            if seen.len() > MAX_REFERENCES {
                return Err(HandlerError::park(format!(
                    "schema id {id} names more than {MAX_REFERENCES} others"
                )));
            }
            let path = ["subjects", &subject, "versions", &version.to_string()];
            let Some(named) = self.get(&path).await? else {
                return Err(HandlerError::retry(format!(
                    "schema id {id} names a schema that is unknown to the registry"
                )));
            };
            open.extend(named.references.unwrap_or_default());
            texts.push(named.schema);
        }
        texts.reverse();
        Ok(Answer::Found(texts))
    }

    /// `None` for what is not there.
    async fn get(&self, path: &[&str]) -> Result<Option<Schema>, HandlerError> {
        let mut url = reqwest::Url::parse(&self.url).map_err(|_| odd("an address that is none"))?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut request = self.client.get(url).header("accept", "application/json");
        if let Some((user, password)) = &self.basic {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(token) = &self.bearer {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| away(&error))?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND => {
                let body = read(response).await?;
                return if is_unknown(&body) { Ok(None) } else { Err(odd("404 and no reason")) };
            }
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(HandlerError::halt(format!(
                    "the schema registry refuses the consumer ({status})"
                )));
            }
            status => {
                return Err(HandlerError::transient(format!(
                    "the schema registry answered {status}"
                )));
            }
        }
        serde_json::from_slice(&read(response).await?)
            .map(Some)
            .map_err(|_| odd("what is no schema"))
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, HandlerError> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| away(&error))? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            return Err(odd("more than 4 MiB"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// Whether a registry says so, and not somebody else that there is no such
/// page.
fn is_unknown(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refusal {
        error_code: u32,
    }
    let refusal = serde_json::from_slice::<Refusal>(body);
    refusal.is_ok_and(|Refusal { error_code }| (40_401..=40_403).contains(&error_code))
}

/// Without its address, which may have a password.
fn away(error: &reqwest::Error) -> HandlerError {
    let how = if error.is_timeout() {
        "does not answer in time"
    } else if error.is_connect() {
        "cannot be reached"
    } else {
        "broke off"
    };
    HandlerError::transient(format!("the schema registry {how}"))
}

/// Of something between us and the registry, such as a proxy: it may pass.
fn odd(what: &str) -> HandlerError {
    HandlerError::transient(format!("the schema registry answered {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registry_says_that_a_schema_is_unknown() {
        assert!(is_unknown(br#"{"error_code":40403,"message":"Schema not found"}"#));
        assert!(is_unknown(br#"{"error_code":40401}"#));
        for other in [&b"<html>404</html>"[..], b"{}", br#"{"error_code":404}"#] {
            assert!(!is_unknown(other));
        }
    }
}
