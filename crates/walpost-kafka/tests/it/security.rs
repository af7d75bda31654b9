//! Every way in, and what is said where there is none.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use walpost_event::error_chain;
use walpost_kafka::KafkaConnector;
use walpost_relay::{RelayError, Sink};
use walpost_testkit::{
    Algorithm, Authority, KeyForm, SecureKafka, create_topic, read_all, unique_name, until_some,
};

use crate::rig::{Driver, LIMIT, message, session};

/// Whoever is not let in hears of it within this.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) type Settings = Vec<(&'static str, String)>;

fn secure() -> &'static SecureKafka {
    static SHARED: OnceLock<SecureKafka> = OnceLock::new();
    SHARED.get_or_init(SecureKafka::start)
}

fn connector(listener: &str, settings: &Settings) -> Result<KafkaConnector, String> {
    let servers = ("bootstrap.servers", secure().listener(listener));
    // The name stands for two addresses, and the broker listens on one.
    let family = ("broker.address.family", "v4".to_owned());
    let all = [servers, family].into_iter().chain(settings.iter().cloned());
    let all: BTreeMap<String, String> = all.map(|(name, value)| (name.to_owned(), value)).collect();
    KafkaConnector::new(all).map_err(|error| error_chain(&error))
}

pub(crate) fn tls() -> Settings {
    vec![("security.protocol", "SSL".to_owned()), trust(&secure().authority)]
}

fn trust(authority: &Authority) -> (&'static str, String) {
    ("ssl.ca.location", authority.certificate().display().to_string())
}

pub(crate) fn with(mut settings: Settings, more: &[(&'static str, &str)]) -> Settings {
    for (name, value) in more {
        settings.retain(|(known, _)| known != name);
        settings.push((name, (*value).to_owned()));
    }
    settings
}

fn login(protocol: &str, mechanism: &str) -> Settings {
    let settings = with(tls(), &[("security.protocol", protocol), ("sasl.mechanism", mechanism)]);
    match mechanism {
        "OAUTHBEARER" => {
            let token = [
                ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
                ("sasl.oauthbearer.config", "principal=app"),
            ];
            with(settings, &token)
        }
        _ => {
            let user =
                [("sasl.username", SecureKafka::USER), ("sasl.password", SecureKafka::PASSWORD)];
            with(settings, &user)
        }
    }
}

/// One event through the sink, and read back where nothing is asked for.
pub(crate) async fn arrives(listener: &str, settings: &Settings) {
    let topic = unique_name("secure");
    create_topic(&secure().broker.bootstrap(), &topic, 1, &[]).await;
    let connector = connector(listener, settings).unwrap();
    let sink = session(&connector).await;
    let sink = sink.unwrap_or_else(|error| panic!("{listener}: {}", error_chain(&error)));
    drop(sink);
    let mut driver = Driver::connect(&connector).await;
    driver.send(message(&topic, "key", "value")).await.unwrap();
    driver.settle().await;
    assert_eq!(driver.delivered().len(), 1, "{listener}");
    let records = read_all(&secure().broker.bootstrap(), &topic).await;
    assert_eq!(records.len(), 1, "{listener}");
    assert_eq!(records[0].value_text(), "value");
}

/// What is told, at once and without a secret, where nobody is let in.
pub(crate) async fn refused(listener: &str, settings: &Settings, parts: &[&str]) {
    let start = Instant::now();
    let told = match connector(listener, settings) {
        Err(told) => told,
        Ok(connector) => {
            let error = connector.connect().await.map(drop).expect_err("nobody is let in");
            assert!(matches!(error, RelayError::SinkAccess { .. }), "{error:?}");
            assert!(!error.is_transient(), "{error:?}");
            error_chain(&error)
        }
    };
    assert!(start.elapsed() < BOUND);
    for part in parts {
        assert!(told.contains(part), "expected {part:?} in: {told}");
    }
    assert!(!told.contains("s3cret"), "a secret shows: {told}");
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn tls_by_the_authoritys_certificate() {
    arrives("TLS", &tls()).await;
    let pem = std::fs::read_to_string(secure().authority.certificate()).unwrap();
    arrives("TLS", &vec![("security.protocol", "SSL".to_owned()), ("ssl.ca.pem", pem)]).await;
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn a_certificate_of_the_clients_with_its_key_in_each_form() {
    for algorithm in [Algorithm::Rsa, Algorithm::Ec] {
        let client = secure().authority.client("app", algorithm);
        let certificate = client.certificate.display().to_string();
        let keyed = |key: std::path::PathBuf, more: &[(&'static str, &str)]| {
            let settings = with(tls(), &[("ssl.certificate.location", &certificate)]);
            with(with(settings, &[("ssl.key.location", &key.display().to_string())]), more)
        };
        arrives("MUTUAL", &keyed(client.key.clone(), &[])).await;
        arrives("MUTUAL", &keyed(client.key_as(KeyForm::TraditionalPem), &[])).await;
        let encrypted = client.key_as(KeyForm::EncryptedPem("s3cret"));
        arrives("MUTUAL", &keyed(encrypted, &[("ssl.key.password", "s3cret")])).await;
        let store = client.pkcs12("s3cret").display().to_string();
        let store = [("ssl.keystore.location", &*store), ("ssl.keystore.password", "s3cret")];
        arrives("MUTUAL", &with(tls(), &store)).await;
        let text = |path| std::fs::read_to_string(path).unwrap();
        let inline = [
            ("ssl.certificate.pem", &*text(&client.certificate)),
            ("ssl.key.pem", &text(&client.key)),
        ];
        arrives("MUTUAL", &with(tls(), &inline)).await;
    }
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn each_mechanism_of_sasl_with_and_without_tls() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] {
        arrives("SASL", &login("SASL_PLAINTEXT", mechanism)).await;
        arrives("SASLTLS", &login("SASL_SSL", mechanism)).await;
    }
    arrives("STRICT", &login("SASL_PLAINTEXT", "SCRAM-SHA-512")).await;
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn a_certificate_that_does_not_hold_is_told_with_the_setting() {
    let stranger = Authority::new("stranger");
    let foreign = with(tls(), &[("ssl.ca.location", &trust(&stranger).1)]);
    refused("TLS", &foreign, &["could not be verified", "set ssl.ca.location"]).await;
    refused("EXPIRED", &tls(), &["could not be verified", "must not have expired"]).await;
    let port = secure().listener("TLS").replace("localhost", "127.0.0.1");
    let by_address = with(tls(), &[("bootstrap.servers", &port)]);
    refused("TLS", &by_address, &["could not be verified", "has to name the host"]).await;
    let nowhere = with(tls(), &[("ssl.ca.location", "/nowhere.pem")]);
    refused("TLS", &nowhere, &["ssl.ca.location"]).await;
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn a_client_without_the_right_certificate_is_told_which_settings_name_it() {
    let parts = ["ssl.certificate.location", "ssl.keystore.location"];
    refused("MUTUAL", &tls(), &parts).await;
    let stranger = Authority::new("stranger");
    let theirs = stranger.client("app", Algorithm::Ec);
    let certificate = theirs.certificate.display().to_string();
    let key = theirs.key.display().to_string();
    let named = [("ssl.certificate.location", &*certificate), ("ssl.key.location", &key)];
    refused("MUTUAL", &with(tls(), &named), &["alert", parts[0], parts[1]]).await;
    let client = secure().authority.client("app", Algorithm::Rsa);
    let store = client.pkcs12("s3cret").display().to_string();
    let store = [("ssl.keystore.location", &*store), ("ssl.keystore.password", "s3cret2")];
    refused("MUTUAL", &with(tls(), &store), &["ssl.keystore"]).await;
    let certificate = client.certificate.display().to_string();
    let key = client.key_as(KeyForm::EncryptedPem("s3cret")).display().to_string();
    let named = [("ssl.certificate.location", &*certificate), ("ssl.key.location", &key)];
    let named = with(with(tls(), &named), &[("ssl.key.password", "s3cret2")]);
    refused("MUTUAL", &named, &["ssl.key"]).await;
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn a_login_that_is_not_taken_is_told_with_the_setting() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let wrong = [("sasl.password", "s3cret-of-nobody")];
        let wrong = with(login("SASL_PLAINTEXT", mechanism), &wrong);
        refused("SASL", &wrong, &["mend sasl.username and sasl.password"]).await;
    }
    let other = login("SASL_PLAINTEXT", "PLAIN");
    refused("STRICT", &other, &["PLAIN", "SCRAM-SHA-512", "set sasl.mechanism"]).await;
    let no_user = with(login("SASL_PLAINTEXT", "PLAIN"), &[("sasl.password", "")]);
    refused("SASL", &no_user, &["set sasl.username and sasl.password"]).await;
    let protocol = vec![("security.protocol", "SASL_SSL".to_owned())];
    refused("SASLTLS", &protocol, &["set sasl.mechanism"]).await;
}

/// Such a broker may hang up, or say nothing at all; it may also be one that is
/// just coming up, so that it is asked again.
#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn the_wrong_protocol_for_a_listener_is_told_after_a_bounded_time() {
    let told = async |listener: &str, settings: &Settings| {
        let start = Instant::now();
        let connector = connector(listener, settings).unwrap();
        let error = connector.connect().await.map(drop).expect_err("nobody is let in");
        let told = error_chain(&error);
        assert!(start.elapsed() < BOUND);
        assert!(told.contains("security.protocol"), "{listener}: {told}");
    };
    let plain: Settings = Vec::new();
    let encrypted = tls();
    // Each waits for its time-out, so all at once.
    tokio::join!(told("TLS", &plain), told("SASL", &plain), told("SASL", &encrypted));
}

/// A user of SCRAM-SHA-256 is made, or goes.
fn alter_user(change: &str, value: &str) {
    let broker = &secure().broker;
    let bootstrap = broker.bootstrap();
    let args = ["--bootstrap-server", &bootstrap, "--alter", "--entity-type", "users"];
    let args = args.into_iter().chain(["--entity-name", "guest", change, value]);
    broker.run_tool("kafka.admin.ConfigCommand", args).unwrap();
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn brokers_that_took_a_login_once_are_asked_again_when_they_do_no_more() {
    alter_user("--add-config", "SCRAM-SHA-256=[password=s3cret-of-guest]");
    let guest = [("sasl.username", "guest"), ("sasl.password", "s3cret-of-guest")];
    let settings = with(login("SASL_PLAINTEXT", "SCRAM-SHA-256"), &guest);
    let connector = connector("SASL", &settings).unwrap();
    // Brokers hear of a change a moment later.
    let login = until_some(LIMIT, "a login", async || connector.connect().await.ok());
    login.await.close().await;
    alter_user("--delete-config", "SCRAM-SHA-256");
    let refusal = until_some(LIMIT, "a refusal of the login", async || {
        let error = connector.connect().await.err()?;
        let told = error_chain(&error);
        assert!(!told.contains("s3cret"), "a secret shows: {told}");
        told.contains("mend sasl.username").then_some(error)
    });
    let error = refusal.await;
    assert!(error.is_transient(), "{error:?}");
}

#[test]
#[ignore = "deep: TLS and SASL"]
fn what_is_not_built_in_is_told_with_how_to_build_it() {
    let sasl = ("security.protocol", "SASL_SSL".to_owned());
    for (mechanism, more, feature) in [
        ("GSSAPI", None, "gssapi"),
        ("OAUTHBEARER", Some(("sasl.oauthbearer.method", "oidc".to_owned())), "oidc"),
    ] {
        let is_built = match feature {
            "gssapi" => cfg!(feature = "gssapi"),
            _ => cfg!(feature = "oidc"),
        };
        let settings = [sasl.clone(), ("sasl.mechanism", mechanism.to_owned())];
        let mut settings: BTreeMap<String, String> = settings
            .into_iter()
            .chain(more)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        settings.insert("bootstrap.servers".to_owned(), "localhost:1".to_owned());
        let told = KafkaConnector::new(settings).map(drop).map_err(|error| error.to_string());
        if is_built {
            assert_eq!(told, Ok(()));
            continue;
        }
        let told = told.unwrap_err();
        assert!(told.contains(&format!("--features {feature}")), "{told}");
    }
}
