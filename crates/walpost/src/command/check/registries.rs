//! The schema registries of a connector's converters, as far as they can be asked
//! without leaving anything there. Those that no client can be made for are refused before.

use walpost_encode::avro::{
    Registry, RegistryConfig, RegistryErrorKind, SchemaType, UnknownSchema,
};
use walpost_relay::{CheckResult, EventEncoding, Outcome};

/// What each registry answers, once.
pub(super) async fn check(encoding: &EventEncoding) -> Vec<CheckResult> {
    let EventEncoding::Connect(options) = encoding else { return Vec::new() };
    let of = &options.registries;
    let mut asked: Vec<&RegistryConfig> = Vec::new();
    for registry in [&of.key, &of.value, &of.header].into_iter().flatten() {
        if !asked.contains(&registry) {
            asked.push(registry);
        }
    }
    let mut results = Vec::new();
    for registry in asked {
        results.push(told(&registry.shown_urls(), ask(registry).await));
    }
    results
}

/// Looks a schema up that nobody has.
async fn ask(config: &RegistryConfig) -> Result<(), RegistryErrorKind> {
    let config = RegistryConfig { auto_register: false, ..config.clone() };
    let schema = UnknownSchema {
        subject: "walpost-check".into(),
        schema: r#""string""#.into(),
        schema_type: SchemaType::Avro,
    };
    let registry = Registry::new(&config).map_err(|error| error.kind())?;
    match registry.id(&schema).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind().parks() => Ok(()),
        Err(error) => Err(error.kind()),
    }
}

fn told(urls: &str, answer: Result<(), RegistryErrorKind>) -> CheckResult {
    let name = "registry";
    let Err(kind) = answer else {
        let detail = format!("{urls} answers");
        return CheckResult { name, outcome: Outcome::Ok, detail, next_step: None };
    };
    let next_step = match kind.is_transient() {
        true => "check schema.registry.url and whether the registry runs; events wait for it",
        false => {
            "correct schema.registry.url or its credentials; a run ends at the first event for \
             which it has to ask"
        }
    };
    CheckResult {
        name,
        outcome: Outcome::Warn,
        detail: format!("{urls}: {kind}"),
        next_step: Some(next_step.to_owned()),
    }
}
