//! Configurations as they come over HTTP, and as they may be shown there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use walpost_connector::{HIDDEN, Properties};

use crate::{error::ApiError, state::Target};

/// Property by name. `Debug` would show secrets; nothing here prints one.
pub type Config = BTreeMap<String, String>;

/// Bytes of a connector's name, which is that of its pipeline.
const MAX_NAME_BYTES: usize = 63;
/// Bytes of a property's name.
const MAX_PROPERTY_BYTES: usize = 1_000;
/// Properties of a connector.
const MAX_PROPERTIES: usize = walpost_connector::MAX_PROPERTIES;

/// A request to create a connector.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) target: Target,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody<'a> {
    name: Option<String>,
    #[serde(borrow)]
    config: Option<BTreeMap<String, &'a RawValue>>,
    initial_state: Option<String>,
}

/// Which request takes which form of a connector's file.
const CREATED_BY: &str = "POST /connectors takes {\"name\": …, \"config\": {…}}, and \
                          PUT /connectors/{name}/config the properties alone";

/// Reads the body of `POST /connectors`.
pub(crate) fn read_create(body: &[u8]) -> Result<Create, ApiError> {
    let body: CreateBody<'_> = serde_json::from_slice(body).map_err(|error| {
        let error = not_json(&error);
        ApiError { message: format!("{}; {CREATED_BY}", error.message), ..error }
    })?;
    let name = body.name.unwrap_or_default().trim().to_owned();
    check_name(&name)?;
    let config = body.config.ok_or_else(|| ApiError::bad_request("config is missing"))?;
    let target = match body.initial_state {
        None => Target::Running,
        // As Jackson has it, in any case.
        Some(text) => Target::parse(&text.to_ascii_uppercase()).ok_or_else(|| {
            ApiError::bad_request("initial_state is none of RUNNING, PAUSED and STOPPED")
        })?,
    };
    Ok(Create { config: named(texts(config)?, &name)?, name, target })
}

/// Reads a flat object of properties that is all of a connector's.
pub(crate) fn read_config(body: &[u8], name: &str) -> Result<Config, ApiError> {
    check_name(name)?;
    named(read_flat(body)?, name)
}

/// Reads a flat object of properties.
pub(crate) fn read_flat(body: &[u8]) -> Result<Config, ApiError> {
    let map: BTreeMap<String, &RawValue> =
        serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    // What `POST /connectors` takes.
    if map.get("config").is_some_and(|raw| raw.get().starts_with('{')) {
        let text = format!("the properties stand under \"config\"; {CREATED_BY}");
        return Err(ApiError::bad_request(text));
    }
    texts(map)
}

/// Changes of properties: `None` takes one away.
pub(crate) fn read_patch(body: &[u8]) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let map: BTreeMap<String, &RawValue> =
        serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    map.into_iter()
        .map(|(name, raw)| match raw.get() {
            "null" => Ok((name, None)),
            _ => text(&name, raw).map(|text| (name, Some(text))),
        })
        .collect()
}

fn not_json(error: &serde_json::Error) -> ApiError {
    // Its text may have a part of what was sent.
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Data => "not of the form that belongs here",
        _ => "no JSON",
    };
    ApiError::bad_request(format!("the body is {what}: line {line}, column {column}"))
}

fn texts(map: BTreeMap<String, &RawValue>) -> Result<Config, ApiError> {
    if map.len() > MAX_PROPERTIES {
        let text = format!("a connector has at most {MAX_PROPERTIES} properties");
        return Err(ApiError::bad_request(text));
    }
    map.into_iter().map(|(name, raw)| text(&name, raw).map(|text| (name, text))).collect()
}

/// Texts, and numbers and booleans as they are written.
fn text(name: &str, raw: &RawValue) -> Result<String, ApiError> {
    let wrong = |what: &str| Err(ApiError::bad_request(format!("property {name:?} {what}")));
    if name.len() > MAX_PROPERTY_BYTES {
        return Err(ApiError::bad_request("the name of a property is too long"));
    }
    let text = match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).map_err(|error| not_json(&error))?,
        Some(b'{' | b'[' | b'n') | None => {
            return wrong("is an object, an array or null; write a text, a number, true or false");
        }
        Some(_) => raw.get().to_owned(),
    };
    match name.contains('\0') || text.contains('\0') {
        true => wrong("has a character with the number 0"),
        false => Ok(text),
    }
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let problem = match name {
        "" => "String may not be empty".to_owned(),
        name if name.len() > MAX_NAME_BYTES => {
            format!("it is the name of the pipeline, which has at most {MAX_NAME_BYTES} bytes")
        }
        name if name.chars().any(char::is_control) => {
            "String may not contain control sequences".to_owned()
        }
        _ => return Ok(()),
    };
    Err(invalid(&[format!("Invalid value for configuration name: {problem}")]))
}

/// The answer to a configuration that is wrong in these ways.
pub(crate) fn invalid(errors: &[String]) -> ApiError {
    ApiError::bad_request(format!(
        "Connector configuration is invalid and contains the following {} error(s):\n{}\nYou can \
         also find the above list of errors at the endpoint \
         `/connector-plugins/{{connectorType}}/config/validate`",
        errors.len(),
        errors.join("\n")
    ))
}

/// The configuration with the connector's name in it.
fn named(mut config: Config, name: &str) -> Result<Config, ApiError> {
    match config.get("name") {
        Some(other) if other != name => Err(ApiError::bad_request(format!(
            "Connector name configuration ({other}) doesn't match connector name in the URL \
             ({name})"
        ))),
        Some(_) => Ok(config),
        None => {
            config.insert("name".to_owned(), name.to_owned());
            Ok(config)
        }
    }
}

/// The properties, nothing of them replaced.
pub(crate) fn properties(config: &Config) -> Properties {
    Properties::from_pairs(config.iter().map(|(name, value)| (name.clone(), value.clone())))
}

/// What may be shown: `***` for what is a secret and no placeholder.
///
/// ```
/// use walpost_connect::{Config, masked};
///
/// let config = Config::from([
///     ("database.user".to_owned(), "app".to_owned()),
///     ("database.password".to_owned(), "s3cr3t".to_owned()),
/// ]);
/// assert_eq!(masked(&config)["database.password"], "***");
/// assert_eq!(masked(&config)["database.user"], "app");
/// ```
pub fn masked(config: &Config) -> Config {
    properties(config).iter().map(|one| (one.name.clone(), one.shown())).collect()
}

/// A configuration that was read, changed and is sent back: where it has what
/// was shown for a secret, the stored secret is kept.
///
/// A secret goes with what it is shown to: it is kept only while everything of
/// its group is as it was, so that nobody has a password sent to another host
/// without knowing it. Whatever else is shown for a secret is refused.
///
/// # Errors
/// 400 that names the property whose value has to be written again.
pub(crate) fn unmasked(mut given: Config, stored: &Config) -> Result<Config, ApiError> {
    let shown = masked(stored);
    let is_kept = |name: &str, value: &str| {
        shown.get(name).is_some_and(|shown| shown == value && *shown != stored[name])
    };
    let kept: Vec<String> = given
        .iter()
        .filter(|(name, value)| is_kept(name, value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in &kept {
        given.insert(name.clone(), stored[name].clone());
    }
    for name in kept {
        let of = |other: &(&String, &String)| group(other.0) == group(&name);
        if !given.iter().filter(of).eq(stored.iter().filter(of)) {
            return Err(ApiError::bad_request(format!(
                "{name} is sent as it is shown, and other properties of {}* are not as they were; \
                 write {name} itself, or a placeholder",
                group(&name)
            )));
        }
    }
    match properties(&given).iter().find(|one| one.is_hidden()) {
        Some(property) => Err(ApiError::bad_request(format!(
            "{} has {HIDDEN}, which stands for a secret, and no stored value is shown so; write \
             it whole, or a placeholder",
            property.name
        ))),
        None => Ok(given),
    }
}

/// What stands before the names of those that belong together: `database.`,
/// `value.converter.`, `producer.override.`, `transforms.outbox.`.
fn group(name: &str) -> &str {
    let parts = if name.starts_with("database.") { 1 } else { 2 };
    let dots = name.match_indices('.').map(|(at, _)| at + 1);
    dots.take(parts).last().map_or(name, |end| &name[..end])
}

/// A configuration with changes.
pub(crate) fn patched(mut all: Config, patch: BTreeMap<String, Option<String>>) -> Config {
    for (name, value) in patch {
        match value {
            Some(value) => drop(all.insert(name, value)),
            None => drop(all.remove(&name)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config<const N: usize>(pairs: [(&str, &str); N]) -> Config {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn message<T>(result: Result<T, ApiError>) -> String {
        result.err().unwrap().message
    }

    #[test]
    fn a_request_is_read_as_kafka_connect_reads_it() {
        let body = br#"{"name": " orders ", "config": {"tasks.max": 1, "a": true, "b": "x"},
            "initial_state": "stopped"}"#;
        let create = read_create(body).unwrap();
        assert_eq!((&*create.name, create.target), ("orders", Target::Stopped));
        let expected = config([("a", "true"), ("b", "x"), ("name", "orders"), ("tasks.max", "1")]);
        assert!(create.config == expected);
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said_without_its_values() {
        for (body, said) in [
            (&b"{"[..], "the body is no JSON: line 1, column 1"),
            (b"[]", "the body is not of the form that belongs here: line 1, column 2"),
            (br#"{"name":"x","config":{},"more":"s3cr3t"}"#, "not of the form that belongs here"),
            (br#"{"name":"x"}"#, "config is missing"),
            (br#"{"config":{}}"#, "String may not be empty"),
            (b"{\"name\":\"a\\nb\",\"config\":{}}", "control sequences"),
            (br#"{"name":"x","config":{"name":"y"}}"#, "doesn't match connector name in the URL"),
            (br#"{"name":"x","config":{"p":{"s3cr3t":1}}}"#, "property \"p\" is an object"),
            (
                br#"{"name":"x","config":{"p":null}}"#,
                "property \"p\" is an object, an array or null",
            ),
            (br#"{"name":"x","config":{"p":"\u0000"}}"#, "character with the number 0"),
            (br#"{"name":"x","config":{},"initial_state":"s3cr3t"}"#, "initial_state is none of"),
        ] {
            let error = read_create(body).err().unwrap();
            assert_eq!(error.code, 400);
            assert!(error.message.contains(said), "{}", error.message);
            assert!(!error.message.contains("s3cr3t"), "{}", error.message);
        }
    }

    #[test]
    fn the_form_of_another_request_is_told_which_one_takes_it() {
        let flat = br#"{"connector.class": "c", "tasks.max": "1"}"#;
        let wrapped = br#"{"name": "x", "config": {"tasks.max": "1"}}"#;
        for said in [message(read_create(flat)), message(read_config(wrapped, "x"))] {
            assert!(said.contains("POST /connectors takes"), "{said}");
            assert!(said.contains("PUT /connectors/{name}/config the properties alone"), "{said}");
        }
        assert!(read_create(wrapped).is_ok() && read_config(flat, "x").is_ok());
    }

    #[test]
    fn a_patch_changes_and_takes_away() {
        let patch = read_patch(br#"{"a": null, "b": "2", "c": 3}"#).unwrap();
        let stored = config([("a", "1"), ("b", "1"), ("d", "1")]);
        assert!(patched(stored, patch) == config([("b", "2"), ("c", "3"), ("d", "1")]));
    }

    #[test]
    fn secrets_are_masked_and_placeholders_are_not() {
        let shown = masked(&config([
            ("database.password", "s3cr3t"),
            ("driver.sslpassword", "${env:PW}"),
            ("value.converter.schema.registry.url", "http://u:s3cr3t@registry:8081"),
            ("topic.prefix", "orders"),
        ]));
        let expected = config([
            ("database.password", "***"),
            ("driver.sslpassword", "${env:PW}"),
            ("value.converter.schema.registry.url", "http://***@registry:8081"),
            ("topic.prefix", "orders"),
        ]);
        assert!(shown == expected, "{shown:?}");
    }

    #[test]
    fn what_was_shown_and_comes_back_keeps_the_secret() {
        let stored = config([
            ("database.hostname", "db"),
            ("database.password", "s3cr3t"),
            ("value.converter.schema.registry.url", "http://u:s3cr3t@registry:8081"),
            ("slot.name", "orders"),
        ]);
        let mut given = masked(&stored);
        given.insert("slot.name".into(), "other".into());
        let kept = unmasked(given, &stored).unwrap();
        assert_eq!(kept["database.password"], "s3cr3t");
        assert_eq!(kept["value.converter.schema.registry.url"], "http://u:s3cr3t@registry:8081");
        assert_eq!(kept["slot.name"], "other");
    }

    #[test]
    fn a_secret_is_not_sent_elsewhere_by_who_does_not_know_it() {
        let stored = config([
            ("database.hostname", "db"),
            ("database.password", "s3cr3t"),
            ("producer.override.sasl.jaas.config", "login password=\"s3cr3t\";"),
        ]);
        for (name, value) in
            [("database.hostname", "elsewhere"), ("producer.override.bootstrap.servers", "x:1")]
        {
            let mut given = masked(&stored);
            given.insert(name.into(), value.into());
            let said = message(unmasked(given, &stored));
            assert!(said.contains("write "), "{said}");
            assert!(!said.contains("s3cr3t"));
        }
        let mut given = masked(&stored);
        given.insert("database.hostname".into(), "elsewhere".into());
        given.insert("database.password".into(), "known".into());
        assert_eq!(unmasked(given, &stored).unwrap()["database.password"], "known");
    }

    #[test]
    fn a_mask_is_no_secret() {
        for (name, value) in [
            ("database.password", "***"),
            ("value.converter.schema.registry.url", "http://***@registry:8081"),
            ("value.converter.schema.registry.url", "***"),
        ] {
            let said = message(unmasked(config([(name, value)]), &Config::new()));
            assert!(said.contains("no stored value is shown so"), "{said}");
        }
        for (name, value) in [
            ("heartbeat.action.query", "select '***'"),
            ("transforms.mask.replacement", "***"),
            ("database.password", "${dir:/run/secrets:***}"),
        ] {
            let given = config([(name, value)]);
            assert!(unmasked(given, &Config::new()).is_ok(), "it is what it is");
        }
    }

    #[test]
    fn a_url_that_was_shown_and_changed_is_refused() {
        const URL: &str = "value.converter.schema.registry.url";
        let stored = config([(URL, "http://u:s3cr3t@registry:8081")]);
        for changed in [
            "http://***@other:8081",
            "http://***@registry:8081,http://other:8081",
            "http://other:8081,http://***@registry:8081",
            "http://***:8081",
        ] {
            let patch = BTreeMap::from([(URL.to_owned(), Some(changed.to_owned()))]);
            let said = message(unmasked(patched(masked(&stored), patch), &stored));
            assert!(said.starts_with(URL) && said.contains("write it whole"), "{said}");
            assert!(!said.contains("s3cr3t"));
        }
        let written = config([(URL, "http://u:other@other:8081")]);
        assert!(unmasked(written.clone(), &stored).unwrap() == written);
    }
}
