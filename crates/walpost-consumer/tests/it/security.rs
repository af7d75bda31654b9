//! Brokers that ask for certificates and logins, and what is said where they
//! take none.

use walpost_consumer::{Error, error_chain};
use walpost_testkit::{Algorithm, Authority, KeyForm, SecureKafka};

use crate::support::{Effects, World, each, ids, run};

type Settings = Vec<(&'static str, String)>;

struct Rows {
    broker: SecureKafka,
    world: World,
}

impl Rows {
    async fn new() -> Self {
        let broker = SecureKafka::start();
        let world = World::on(&broker.broker.bootstrap(), 1).await;
        Self { broker, world }
    }

    fn trust(&self, protocol: &str) -> Settings {
        let authority = self.broker.authority.certificate().display().to_string();
        vec![("security.protocol", protocol.to_owned()), ("ssl.ca.location", authority)]
    }

    fn certified(&self) -> Settings {
        let client = self.broker.authority.client("app", Algorithm::Rsa);
        let key = client.key_as(KeyForm::EncryptedPem("s3cret"));
        let mut settings = self.trust("SSL");
        settings.extend([
            ("ssl.certificate.location", client.certificate.display().to_string()),
            ("ssl.key.location", key.display().to_string()),
            ("ssl.key.password", "s3cret".to_owned()),
        ]);
        settings
    }

    fn login(&self, protocol: &str, mechanism: &str, password: &str) -> Settings {
        let mut settings = self.trust(protocol);
        settings.extend([
            ("sasl.mechanism", mechanism.to_owned()),
            ("sasl.username", SecureKafka::USER.to_owned()),
            ("sasl.password", password.to_owned()),
        ]);
        settings
    }

    fn builder(&self, listener: &str, settings: &Settings) -> walpost_consumer::Builder {
        let servers = ("bootstrap.servers", self.broker.listener(listener));
        // The name stands for two addresses, and the broker listens on one.
        let family = ("broker.address.family", "v4".to_owned());
        let all: Vec<(&str, &str)> = [&servers, &family]
            .into_iter()
            .chain(settings)
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.world.consumer_as(&all)
    }

    async fn refused(&self, listener: &str, settings: &Settings, parts: &[&str]) {
        let consumer = self.builder(listener, settings).handler(Effects).unwrap();
        let error = run(consumer).end().await.unwrap_err();
        assert!(matches!(error, Error::Kafka { .. }), "{error}");
        let told = error_chain(&error);
        for part in parts {
            assert!(told.contains(part), "expected {part:?} in: {told}");
        }
        assert!(!told.contains("s3cret"), "a secret shows: {told}");
    }
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn events_come_by_every_way_in() {
    let rows = Rows::new().await;
    let mut token = rows.trust("SASL_SSL");
    token.extend([
        ("sasl.mechanism", "OAUTHBEARER".to_owned()),
        ("enable.sasl.oauthbearer.unsecure.jwt", "true".to_owned()),
        ("sasl.oauthbearer.config", "principal=app".to_owned()),
    ]);
    let password = SecureKafka::PASSWORD;
    let mut expected = Vec::new();
    for (listener, settings) in [
        ("TLS", rows.trust("SSL")),
        ("MUTUAL", rows.certified()),
        ("SASL", rows.login("SASL_PLAINTEXT", "PLAIN", password)),
        ("SASL", rows.login("SASL_PLAINTEXT", "SCRAM-SHA-256", password)),
        ("SASLTLS", rows.login("SASL_SSL", "SCRAM-SHA-512", password)),
        ("SASLTLS", token),
    ] {
        let new = ids(&format!("{listener}{}", expected.len()), 1);
        rows.world.publish(0, &new).await;
        expected.extend(new);
        let mut running = run(rows.builder(listener, &settings).handler(Effects).unwrap());
        running.until_applied(1).await;
        running.stop().await.unwrap();
    }
    assert_eq!(rows.world.effects().await, each(&expected, 1));
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn a_consumer_that_is_not_let_in_ends_with_the_setting_to_mend() {
    let rows = Rows::new().await;
    let stranger = Authority::new("stranger");
    let theirs = stranger.certificate().display().to_string();
    let foreign = vec![("security.protocol", "SSL".to_owned()), ("ssl.ca.location", theirs)];
    rows.refused("TLS", &foreign, &["set ssl.ca.location"]).await;
    let nowhere = "/nowhere.pem".to_owned();
    let unread = vec![("security.protocol", "SSL".to_owned()), ("ssl.ca.location", nowhere)];
    rows.refused("TLS", &unread, &["ssl.ca.location failed", "name files"]).await;
    rows.refused("EXPIRED", &rows.trust("SSL"), &["must not have expired"]).await;
    rows.refused("MUTUAL", &rows.trust("SSL"), &["ssl.certificate.location"]).await;
    let wrong = rows.login("SASL_PLAINTEXT", "SCRAM-SHA-512", "s3cret-of-nobody");
    rows.refused("SASL", &wrong, &["mend sasl.username and sasl.password"]).await;
    let other = rows.login("SASL_PLAINTEXT", "PLAIN", SecureKafka::PASSWORD);
    rows.refused("STRICT", &other, &["set sasl.mechanism"]).await;
    let mut kerberos = rows.trust("SASL_SSL");
    kerberos.push(("sasl.mechanism", "GSSAPI".to_owned()));
    rows.refused("SASLTLS", &kerberos, &["--features gssapi"]).await;
}
