//! A real registry, over Confluent's API.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use walpost_encode::{
    avro::{Registry, RegistryConfig, RegistryErrorKind, SchemaType, UnknownSchema},
    connect::{Kind, Schema, Unconverted, Value},
    protobuf::{ProtobufConverter, ProtobufOptions},
};
use walpost_local::{Registry as Server, free_port};
use walpost_testkit::until_some;

fn config(url: String, auto_register: bool) -> RegistryConfig {
    RegistryConfig {
        urls: vec![url],
        credentials: None,
        auto_register,
        timeout: Duration::from_secs(30),
    }
}

fn asked(subject: &str, schema: &str) -> UnknownSchema {
    UnknownSchema { subject: subject.into(), schema: schema.into(), schema_type: SchemaType::Avro }
}

#[tokio::test]
#[ignore = "deep: needs a schema registry"]
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
    let limited = RegistryConfig { timeout: Duration::from_secs(5), ..config(elsewhere, false) };
    let lost = Registry::new(&limited).unwrap();
    // What it has no path for, this server leaves without any answer at times.
    let error = until_some(Duration::from_secs(120), "an answer", async || {
        let error = lost.id(&schema).await.unwrap_err();
        (!error.kind().is_transient()).then_some(error)
    })
    .await;
    assert_eq!(error.kind(), RegistryErrorKind::Refused, "{error:?}");
    assert!(!error.kind().parks() && !error.kind().is_transient());
}

#[tokio::test]
#[ignore = "deep: needs a schema registry"]
async fn schemas_of_protobuf_are_registered_as_such() {
    let server = Server::start_new().unwrap();
    let registering = Registry::new(&config(server.url(), true)).unwrap();
    let mut converter = ProtobufConverter::new(ProtobufOptions::default(), false);
    let text = || Schema::new(Kind::String).optional();
    let fields = Schema::fields([("payload", text()), ("at", Schema::new(Kind::Int64))]);
    let envelope = Schema { name: Some("shop.outbox.Order.Value".into()), ..Schema::new(fields) };
    let value = Value::Struct(vec![Value::String("p".into()), Value::Int64(1)]);
    for (topic, schema, value) in
        [("orders", envelope, value), ("bare", text(), Value::String("p".into()))]
    {
        let schema = Arc::new(schema);
        let Err(Unconverted::Ask(asked)) = converter.convert(topic, Some(&schema), &value) else {
            panic!("nobody has registered it")
        };
        assert_eq!(asked.schema_type, SchemaType::Protobuf);
        let id = registering.id(&asked).await.unwrap();
        assert_eq!(registering.id(&asked).await.unwrap(), id);
        converter.learn(&asked, id);
        let bytes = converter.convert(topic, Some(&schema), &value).unwrap().unwrap();
        assert_eq!(bytes[1..5], id.to_be_bytes());
    }
}

/// These answers in turn, to whatever is asked.
fn answering(answers: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (status, body) in answers {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, status, &body);
        }
    });
    url
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
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
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).unwrap();
}

fn code(code: u32) -> String {
    format!("{{\"error_code\":{code},\"message\":\"m\"}}")
}

/// A registry may tell all but one of those who register a subject's first schema
/// at once that theirs is in conflict.
#[tokio::test]
async fn who_registers_at_once_with_others_is_in_no_conflict() {
    let (conflict, missing) = (("409 Conflict", code(409)), ("404 Not Found", code(40_403)));
    let there = ("200 OK", "{\"id\":7}".to_owned());
    let id = async |answers: Vec<(&'static str, String)>| {
        let registry = Registry::new(&config(answering(answers), true)).unwrap();
        registry.id(&asked("orders-value", "\"string\"")).await.map_err(|error| error.kind())
    };
    let same_schema = vec![conflict.clone(), there.clone()];
    assert_eq!(id(same_schema).await, Ok(7));
    let another_one = vec![conflict.clone(), missing.clone(), there];
    assert_eq!(id(another_one).await, Ok(7));
    let round = [conflict.clone(), missing];
    let incompatible = [&round[..], &round[..], &[conflict]].concat();
    assert_eq!(id(incompatible).await, Err(RegistryErrorKind::Incompatible));
}

#[tokio::test]
async fn only_what_is_about_the_schema_parks_the_event() {
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
        let registry =
            Registry::new(&config(answering(vec![(status, body.clone())]), false)).unwrap();
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
