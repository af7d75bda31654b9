//! A real registry, over Confluent's API.

use std::time::Duration;

use walpost_encode::avro::{Registry, RegistryConfig, RegistryErrorKind, UnknownSchema};
use walpost_local::{Registry as Server, free_port};

fn config(url: String, auto_register: bool) -> RegistryConfig {
    RegistryConfig {
        urls: vec![url],
        credentials: None,
        auto_register,
        timeout: Duration::from_secs(30),
    }
}

fn asked(subject: &str, schema: &str) -> UnknownSchema {
    UnknownSchema { subject: subject.into(), schema: schema.into() }
}

#[tokio::test]
async fn ids_are_looked_up_or_registered() {
    let server = Server::start_new().unwrap();
    let registering = Registry::new(&config(server.url(), true)).unwrap();
    let looking = Registry::new(&config(server.url(), false)).unwrap();
    let schema = asked("orders-value", r#"["null",{"type":"string","connect.name":"a.B"}]"#);

    let missing = looking.id(&schema).await.unwrap_err();
    assert_eq!(missing.kind(), RegistryErrorKind::NotRegistered);
    assert!(!missing.kind().is_transient());

    let id = registering.id(&schema).await.unwrap();
    assert_eq!(registering.id(&schema).await.unwrap(), id);
    assert_eq!(looking.id(&schema).await.unwrap(), id);

    let broken = registering.id(&asked("broken-value", "{")).await.unwrap_err();
    assert_eq!(broken.kind(), RegistryErrorKind::Refused);
}

#[tokio::test]
async fn a_registry_that_is_away_is_asked_again() {
    let port = free_port().unwrap();
    let registry = Registry::new(&config(format!("http://127.0.0.1:{port}"), true)).unwrap();
    let error = registry.id(&asked("orders-value", "\"string\"")).await.unwrap_err();
    assert_eq!(error.kind(), RegistryErrorKind::Unavailable);
    assert!(error.kind().is_transient());
    assert!(
        Registry::new(&RegistryConfig { urls: vec![], ..config(String::new(), true) }).is_err()
    );
}
