//! A schema registry that is away, refuses a schema, or lets nobody in.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use walpost_encode::{
    avro::{AvroConverter, AvroOptions, RegistryConfig},
    connect::Converter,
};
use walpost_relay::{ConnectOptions, RelayError, Shadow, ShadowMade};
use walpost_testkit::until;

use crate::{
    connect::{options, streaming},
    rig::{Rig, SOON, interrupt, status, stop},
    shadow::events_within,
};

const AWAY: (&str, &str) = ("503 Service Unavailable", "");
const HERE: (&str, &str) = ("200 OK", r#"{"id":7}"#);
const UNKNOWN: (&str, &str) = ("404 Not Found", r#"{"error_code":40403,"message":"m"}"#);
const INCOMPATIBLE: (&str, &str) = ("409 Conflict", r#"{"error_code":409,"message":"m"}"#);
const CLOSED: (&str, &str) = ("401 Unauthorized", r#"{"error_code":40101,"message":"m"}"#);

/// Answers by the subject: of `bad`, or of any other.
#[derive(Clone, Copy)]
struct Answers {
    bad: (&'static str, &'static str),
    other: (&'static str, &'static str),
}

struct Server {
    url: String,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<u32>>,
    registered: Arc<Mutex<u32>>,
}

impl Server {
    /// Lives as long as the process.
    fn start(other: (&'static str, &'static str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(Answers { bad: INCOMPATIBLE, other }));
        let asked = Arc::new(Mutex::new(0));
        let registered = Arc::new(Mutex::new(0));
        let server = Self { url, answers, asked, registered };
        let (answers, asked) = (server.answers.clone(), server.asked.clone());
        let registered = server.registered.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let answers = *answers.lock().unwrap();
                *asked.lock().unwrap() += 1;
                // Whoever asks may have gone.
                let request = answer(stream.unwrap(), answers).unwrap_or_default();
                *registered.lock().unwrap() += u32::from(request.contains("/versions"));
            }
        });
        server
    }

    fn becomes(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap());
    }

    fn asked(&self) -> u32 {
        *self.asked.lock().unwrap()
    }

    /// How often somebody had a schema registered.
    fn registered(&self) -> u32 {
        *self.registered.lock().unwrap()
    }

    /// Values in Avro, which this server knows the schemas of.
    fn options(&self) -> ConnectOptions {
        let mut options = options();
        options.converters.key = Converter::String;
        let avro = AvroConverter::new(AvroOptions::default(), false);
        options.converters.value = Converter::Avro(avro);
        options.registries.value = Some(RegistryConfig {
            urls: vec![self.url.clone()],
            credentials: None,
            auto_register: true,
            timeout: Duration::from_secs(5),
        });
        options
    }
}

/// Returns the first line of the request.
fn answer(mut stream: TcpStream, answers: Answers) -> std::io::Result<String> {
    let mut request = BufReader::new(stream.try_clone()?);
    let (mut length, mut first) = (0, String::new());
    request.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    request.read_exact(&mut vec![0; length])?;
    let (status, body) = if first.contains(".bad-value") { answers.bad } else { answers.other };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())?;
    Ok(first)
}

async fn insert(rig: &Rig, route: &str, aggregate: &str, payload: &str) {
    let sql = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('{route}', '{aggregate}', 'Placed', '{payload}')"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

/// Schema 7, the second of a union, a text.
fn framed(text: &str) -> String {
    let length = char::from(2 * u8::try_from(text.len()).unwrap());
    format!("\0\0\0\0\u{7}\u{2}{length}{text}")
}

#[tokio::test]
async fn a_registry_that_is_away_is_waited_for_with_the_slot_in_hand() {
    let rig = Rig::new().await;
    let server = Server::start(AWAY);
    let relay = streaming(&rig, server.options()).await;
    rig.insert("a", &["1", "2"]).await;
    status(&relay, "a wait", |status| {
        status.waits.as_ref().is_some_and(|waits| waits.contains("wait for the schema registry"))
    })
    .await;
    // Each of them behind a wait.
    until(SOON, "a third question", async || server.asked() >= 3).await;
    let held = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}' and active",
        rig.config.slot
    );
    assert_eq!(rig.count(&held).await, 1);
    assert_eq!((rig.world.count(), relay.status().borrow().failed_sessions), (0, 0));

    server.becomes(|answers| answers.other = HERE);
    assert_eq!(rig.landed(2).await, [framed("1"), framed("2")]);
    let asked = server.asked();
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await[2], framed("3"));
    assert_eq!(server.asked(), asked, "an id is asked for once");
    status(&relay, "no wait", |status| status.waits.is_none()).await;
    stop(relay).await;
}

#[tokio::test]
async fn whoever_waits_for_the_registry_stops_when_told_and_the_event_comes_again() {
    let mut rig = Rig::new().await;
    rig.config.drain_timeout_ms = 5_000;
    let server = Server::start(AWAY);
    let relay = streaming(&rig, server.options()).await;
    rig.insert("a", &["1"]).await;
    status(&relay, "a wait", |status| status.waits.is_some()).await;
    stop(relay).await;
    assert_eq!(rig.world.count(), 0);

    server.becomes(|answers| answers.other = HERE);
    let relay = streaming(&rig, server.options()).await;
    assert_eq!(rig.landed(1).await, [framed("1")]);
    stop(relay).await;
}

#[tokio::test]
async fn a_schema_that_is_refused_parks_its_events_until_they_are_sent_on() {
    let rig = Rig::new().await;
    let server = Server::start(HERE);
    let relay = streaming(&rig, server.options()).await;
    insert(&rig, "bad", "a", "1").await;
    insert(&rig, "bad", "a", "2").await;
    insert(&rig, "order", "b", "3").await;
    assert_eq!(rig.landed(1).await, [framed("3")]);
    let reasons = "select count(*) from walpost.parked where state = 'open' and \
                   (reason = 'undecodable' and detail like '%not compatible%' or \
                   reason = 'behind')";
    until(SOON, "two parked rows", async || rig.count(reasons).await == 2).await;

    server.becomes(|answers| answers.bad = HERE);
    let ask = "update walpost.parked set requested = 'retry', requested_at = now()";
    rig.client.batch_execute(ask).await.unwrap();
    assert_eq!(rig.landed(3).await[1..], [framed("1"), framed("2")]);
    stop(relay).await;
}

/// Ids of events that do not come again are looked for until the end.
#[tokio::test]
async fn a_schema_that_is_refused_parks_its_event_also_while_ids_are_looked_for() {
    let mut rig = Rig::new().await;
    rig.config.position_header = false;
    rig.config.checkpoint_interval_ms = 60_000;
    rig.config.settle_ms = 0;
    let server = Server::start(HERE);
    let relay = streaming(&rig, server.options()).await;
    insert(&rig, "order", "b", "1").await;
    rig.landed(1).await;
    let mut earlier = rig.world.landed().remove(0);
    for header in earlier.headers.iter_mut().filter(|header| &*header.name == "id") {
        header.value = Some("of an earlier event".into());
    }
    rig.world.land(earlier);
    interrupt(&rig, &relay).await;
    insert(&rig, "bad", "a", "2").await;
    insert(&rig, "order", "b", "3").await;
    assert_eq!(rig.landed(3).await[2], framed("3"));
    let parked = "select count(*) from walpost.parked where reason = 'undecodable'";
    until(SOON, "the parked row", async || rig.count(parked).await == 1).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_registry_that_lets_nobody_in_ends_the_relay() {
    let rig = Rig::new().await;
    let server = Server::start(CLOSED);
    let mut relay = streaming(&rig, server.options()).await;
    rig.insert("a", &["1"]).await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let error = ended.unwrap_err();
    assert!(matches!(error, RelayError::RegistryAccess { .. }), "{error:?}");
    assert!(!error.is_transient());
}

impl Server {
    async fn shadow(&self, rig: &Rig) -> Shadow {
        let (config, router) = (rig.config.clone(), rig.router.clone());
        Shadow::open(&rig.database, config, router, self.options().into()).await.unwrap()
    }
}

async fn made(
    shadow: &mut Shadow,
    count: usize,
    limit: Duration,
    meanwhile: impl FnMut(),
) -> Vec<ShadowMade> {
    let events = events_within(limit, shadow, count, meanwhile).await;
    events.into_iter().map(|event| event.made).collect()
}

fn is_message(made: &ShadowMade, text: &str) -> bool {
    let ShadowMade::Message(message) = made else { return false };
    message.value.as_deref() == Some(framed(text).as_bytes())
}

#[tokio::test]
async fn a_shadow_registers_no_schema_and_waits_until_somebody_has() {
    let rig = Rig::new().await;
    let server = Server::start(UNKNOWN);
    let mut shadow = server.shadow(&rig).await;
    rig.insert("a", &["1", "2"]).await;
    let registers = || {
        if server.asked() >= 2 {
            server.becomes(|answers| answers.other = HERE);
        }
    };
    let made = made(&mut shadow, 2, SOON, registers).await;
    assert!(is_message(&made[0], "1") && is_message(&made[1], "2"), "{made:?}");
    assert_eq!(server.registered(), 0);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn each_schema_has_its_own_time_to_be_registered_for_a_shadow() {
    let rig = Rig::new().await;
    let server = Server::start(UNKNOWN);
    server.becomes(|answers| answers.bad = UNKNOWN);
    let mut shadow = server.shadow(&rig).await;
    insert(&rig, "bad", "a", "1").await;
    insert(&rig, "order", "b", "2").await;
    let first = made(&mut shadow, 1, 2 * SOON, || {}).await;
    let [ShadowMade::Unregistered { id: Some(_), detail }] = &first[..] else {
        panic!("{first:?}")
    };
    assert!(detail.contains("bad-value") && detail.contains("not registered"), "{detail}");
    let asked = server.asked();
    let registers = || {
        if server.asked() >= asked + 2 {
            server.becomes(|answers| answers.other = HERE);
        }
    };
    let second = made(&mut shadow, 1, SOON, registers).await;
    assert!(is_message(&second[0], "2"), "{second:?}");
    assert_eq!(server.registered(), 0);
}
