//! A real registry, over Confluent's API.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

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
    assert!(missing.kind().parks() && !missing.kind().is_transient());

    let id = registering.id(&schema).await.unwrap();
    assert_eq!(registering.id(&schema).await.unwrap(), id);
    assert_eq!(looking.id(&schema).await.unwrap(), id);

    let broken = registering.id(&asked("broken-value", "{")).await.unwrap_err();
    assert_eq!(broken.kind(), RegistryErrorKind::Invalid);

    let other = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}"#;
    let missing = looking.id(&asked("orders-value", other)).await.unwrap_err();
    assert_eq!(missing.kind(), RegistryErrorKind::NotRegistered);

    let elsewhere = format!("{}/not/there", server.url());
    let lost = Registry::new(&config(elsewhere, false)).unwrap();
    let error = lost.id(&schema).await.unwrap_err();
    assert_eq!(error.kind(), RegistryErrorKind::Refused);
    assert!(!error.kind().parks() && !error.kind().is_transient());
}

/// One answer to whatever is asked.
fn answering(status: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            request.read_line(&mut line).unwrap();
            let line = line.trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        request.read_exact(&mut vec![0; length]).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
    url
}

#[tokio::test]
async fn only_what_is_about_the_schema_parks_the_event() {
    let code = |code: u32| format!("{{\"error_code\":{code},\"message\":\"m\"}}");
    let cases = [
        ("401 Unauthorized", code(40_101), RegistryErrorKind::Refused),
        ("403 Forbidden", code(40_301), RegistryErrorKind::Refused),
        ("400 Bad Request", String::new(), RegistryErrorKind::Refused),
        ("404 Not Found", String::new(), RegistryErrorKind::Refused),
        ("404 Not Found", code(404), RegistryErrorKind::Refused),
        ("404 Not Found", code(40_401), RegistryErrorKind::NotRegistered),
        ("404 Not Found", code(40_403), RegistryErrorKind::NotRegistered),
        ("405 Method Not Allowed", String::new(), RegistryErrorKind::Refused),
        ("409 Conflict", code(409), RegistryErrorKind::Incompatible),
        ("422 Unprocessable Entity", code(42_201), RegistryErrorKind::Invalid),
        ("200 OK", "{}".to_owned(), RegistryErrorKind::Refused),
        ("408 Request Timeout", String::new(), RegistryErrorKind::Unavailable),
        ("429 Too Many Requests", String::new(), RegistryErrorKind::Unavailable),
        ("500 Internal Server Error", code(50_001), RegistryErrorKind::Unavailable),
        ("503 Service Unavailable", String::new(), RegistryErrorKind::Unavailable),
    ];
    for (status, body, expected) in cases {
        let registry = Registry::new(&config(answering(status, &body), false)).unwrap();
        let error = registry.id(&asked("orders-value", "\"string\"")).await.unwrap_err();
        assert_eq!(error.kind(), expected, "{status} {body}");
        let parks = ["409", "422"].iter().any(|code| status.starts_with(code))
            || ["40401", "40403"].iter().any(|code| body.contains(code));
        assert_eq!(error.kind().parks(), parks, "{status} {body}");
    }
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
