use walpost_event::error_chain;
use walpost_local::Kafka;

use crate::certificates::Authority;

/// A broker that lets clients in by every way that people have, each at a
/// listener of its own; its certificates are made for it.
///
/// | listener | asks for |
/// |---|---|
/// | `TLS` | nothing |
/// | `MUTUAL` | a certificate of [`SecureKafka::authority`] |
/// | `EXPIRED` | nothing, and shows a certificate that is out of date |
/// | `SASL`, `SASLTLS` | a login by PLAIN, SCRAM of either strength, or OAUTHBEARER, whose tokens nobody signs |
/// | `STRICT` | a login by SCRAM-SHA-512 |
///
/// The certificates name `localhost` alone. [`Kafka::bootstrap`] asks for
/// nothing, without TLS.
#[derive(Debug)]
pub struct SecureKafka {
    /// The broker.
    pub broker: Kafka,
    /// Who signed its certificates, and signs those of its clients.
    pub authority: Authority,
}

/// Listeners with their protocols.
const LISTENERS: [(&str, &str); 6] = [
    ("TLS", "SSL"),
    ("MUTUAL", "SSL"),
    ("EXPIRED", "SSL"),
    ("SASL", "SASL_PLAINTEXT"),
    ("SASLTLS", "SASL_SSL"),
    ("STRICT", "SASL_PLAINTEXT"),
];
const MODULES: &str = "org.apache.kafka.common.security";

impl SecureKafka {
    /// Who may log in by PLAIN and SCRAM.
    pub const USER: &str = "app";
    /// The password.
    pub const PASSWORD: &str = "s3cret-of-app";

    /// Starts one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let authority = Authority::new("authority");
        let (user, password) = (Self::USER, Self::PASSWORD);
        // Nobody kills this broker, so that it may be silent for a while.
        let mut builder = Kafka::builder()
            .scram_user(user, password)
            .property("broker.session.timeout.ms", "30000");
        for (name, protocol) in LISTENERS {
            builder = builder.listener(name, protocol);
        }
        for (name, value) in properties(&authority) {
            builder = builder.property(name, value);
        }
        let broker = builder.start().unwrap_or_else(|error| {
            panic!("the tests need a Kafka of their own: {}", error_chain(&error))
        });
        Self { broker, authority }
    }

    /// `localhost:<port>` of a listener.
    ///
    /// # Panics
    /// When there is none of this name.
    #[must_use]
    pub fn listener(&self, name: &str) -> String {
        self.broker.listener(name).unwrap_or_else(|| panic!("there is no listener {name}"))
    }
}

fn properties(authority: &Authority) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let server = authority.server(&["localhost"]).bundle();
    let expired = authority.expired_server(&["localhost"]).bundle();
    for (name, store) in
        [("tls", &server), ("mutual", &server), ("expired", &expired), ("sasltls", &server)]
    {
        let mut set = |key: &str, value: String| {
            all.push((format!("listener.name.{name}.ssl.{key}"), value));
        };
        set("keystore.type", "PEM".to_owned());
        set("keystore.location", store.display().to_string());
        set("truststore.type", "PEM".to_owned());
        set("truststore.location", authority.certificate().display().to_string());
    }
    all.push(("listener.name.mutual.ssl.client.auth".to_owned(), "required".to_owned()));
    for name in ["sasl", "sasltls"] {
        logins(name, &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], &mut all);
    }
    logins("strict", &["SCRAM-SHA-512"], &mut all);
    all
}

fn logins(listener: &str, mechanisms: &[&str], all: &mut Vec<(String, String)>) {
    let prefix = format!("listener.name.{listener}.");
    all.push((format!("{prefix}sasl.enabled.mechanisms"), mechanisms.join(",")));
    for mechanism in mechanisms {
        let module = match *mechanism {
            "PLAIN" => format!(
                "plain.PlainLoginModule required user_{}=\"{}\"",
                SecureKafka::USER,
                SecureKafka::PASSWORD
            ),
            "OAUTHBEARER" => {
                "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"app\""
                    .to_owned()
            }
            _ => "scram.ScramLoginModule required".to_owned(),
        };
        let name = mechanism.to_ascii_lowercase();
        all.push((format!("{prefix}{name}.sasl.jaas.config"), format!("{MODULES}.{module};")));
    }
}
