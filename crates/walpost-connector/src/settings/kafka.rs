use std::collections::BTreeMap;

use super::jaas;
use crate::{
    judge::Judge,
    secret::Secret,
    table,
    verdicts::{Origin, Verdict},
};

/// The producer, under librdkafka's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kafka {
    /// Settings as of `[kafka]` in Walpost's own configuration. All are hidden,
    /// since some are secrets.
    pub settings: BTreeMap<String, Secret>,
    /// `buffer.memory`: bytes that may wait.
    pub queue_max_bytes: Option<u64>,
}

/// What becomes of a setting of Java's producer.
enum To {
    /// The same name and value.
    Same,
    /// Another name.
    Name(&'static str),
    /// Nothing, or it is dealt with elsewhere.
    Nothing,
}

fn translated(name: &str) -> To {
    match name {
        "request.timeout.ms" => To::Name("socket.timeout.ms"),
        "max.request.size" => To::Name("message.max.bytes"),
        "ssl.keystore.key" => To::Name("ssl.key.pem"),
        "ssl.keystore.certificate.chain" => To::Name("ssl.certificate.pem"),
        "ssl.truststore.certificates" => To::Name("ssl.ca.pem"),
        "ssl.truststore.location" => To::Name("ssl.ca.location"),
        "bootstrap.servers"
        | "client.id"
        | "client.dns.lookup"
        | "batch.size"
        | "linger.ms"
        | "compression.type"
        | "retry.backoff.ms"
        | "retry.backoff.max.ms"
        | "reconnect.backoff.ms"
        | "reconnect.backoff.max.ms"
        | "metadata.max.age.ms"
        | "connections.max.idle.ms"
        | "socket.connection.setup.timeout.ms"
        | "transaction.timeout.ms"
        | "enable.metrics.push"
        | "security.protocol"
        | "sasl.mechanism"
        | "ssl.key.password"
        | "ssl.cipher.suites" => To::Same,
        _ => To::Nothing,
    }
}

/// A setting, with who gives it and what stands before its name there.
struct Given {
    origin: Origin,
    prefix: &'static str,
    value: String,
}

/// Settings of the producer; a later layer has precedence.
struct Producer<'a> {
    judge: &'a mut Judge,
    given: BTreeMap<String, Given>,
}

pub(crate) fn read(judge: &mut Judge) -> Kafka {
    let layers = [
        (Origin::Worker, "", &["producer.", "key.", "value.", "header."][..]),
        (Origin::Worker, "producer.", &[]),
        (Origin::Connector, "producer.override.", &[]),
    ];
    let mut given: BTreeMap<String, Given> = BTreeMap::new();
    for (origin, prefix, elsewhere) in layers {
        let scope = judge.scope(origin, prefix, table::PRODUCER, elsewhere);
        for (name, _) in scope.beginning("") {
            let is_ours = !prefix.is_empty() || is_security(&name);
            let Some(value) = scope.raw(&name).filter(|_| is_ours) else { continue };
            let value = value.to_owned();
            given.insert(name, Given { origin, prefix, value });
        }
    }
    let mut producer = Producer { judge, given };
    producer.check_sasl();
    producer.check_stores();
    producer.settings()
}

/// What of the worker's own settings is the producer's as well, where it has
/// none of its own.
fn is_security(name: &str) -> bool {
    let is_of = |begin: &&str| name.starts_with(begin);
    ["sasl.", "ssl."].iter().any(is_of)
        || matches!(name, "bootstrap.servers" | "client.dns.lookup" | "security.protocol")
}

impl Producer<'_> {
    /// A value without the blanks around it, if there is one.
    fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(|given| given.value.trim()).filter(|value| !value.is_empty())
    }

    /// Refuses a setting where it is given, or beside another one.
    fn refuse(&mut self, name: &str, beside: &str, note: &str) {
        let place = self.given.get(name).or_else(|| self.given.get(beside));
        let Some((origin, prefix)) = place.map(|given| (given.origin, given.prefix)) else {
            return;
        };
        self.judge.plain(origin).refuse(&format!("{prefix}{name}"), note);
    }

    fn check_sasl(&mut self) {
        let protocol = self.get("security.protocol").unwrap_or_default().to_ascii_uppercase();
        if !protocol.starts_with("SASL") {
            return;
        }
        let mechanism = self.get("sasl.mechanism").map(str::to_owned);
        let Some(mechanism) = mechanism else {
            let note = "it is missing, which means GSSAPI, which is not built in; write PLAIN, \
                        SCRAM-SHA-256 or SCRAM-SHA-512";
            return self.refuse("sasl.mechanism", "security.protocol", note);
        };
        let config = self.get("sasl.jaas.config").map(jaas::login);
        let module = if mechanism.eq_ignore_ascii_case("PLAIN") {
            "PlainLoginModule"
        } else {
            "ScramLoginModule"
        };
        let note = match config {
            None => "it is missing",
            Some(None) => "user and password are not found in it",
            Some(Some(login)) if login.module != module => "its module is of another mechanism",
            Some(Some(_)) => return,
        };
        let write = format!(
            "{note}; write org.apache.kafka.common.security.{}.{module} required \
             username=\"…\" password=\"…\";",
            if module == "PlainLoginModule" { "plain" } else { "scram" }
        );
        self.refuse("sasl.jaas.config", "sasl.mechanism", &write);
    }

    fn check_stores(&mut self) {
        for store in ["truststore", "keystore"] {
            let (location, kind) = (format!("ssl.{store}.location"), format!("ssl.{store}.type"));
            if self.get(&location).is_some() && self.get(&kind).is_none() {
                let note = "it is missing, which means JKS; convert the store, and write PEM";
                self.refuse(&kind, &location, note);
            }
        }
    }

    fn settings(&mut self) -> Kafka {
        let mut kafka = Kafka::default();
        let mut set = |name: &str, value: &str| {
            kafka.settings.insert(name.to_owned(), Secret::new(value));
        };
        for (name, given) in &self.given {
            let is_password = name.contains("password") || name.contains("keystore");
            let value = if is_password { given.value.as_str() } else { given.value.trim() };
            match translated(name) {
                _ if value.is_empty() => {}
                To::Same => set(name, value),
                To::Name(other) => set(other, value),
                To::Nothing => {}
            }
        }
        for (name, value) in self.special() {
            set(name, &value);
        }
        kafka.queue_max_bytes = self.get("buffer.memory").and_then(|bytes| bytes.parse().ok());
        self.unused_levels();
        kafka
    }

    /// Settings whose values change on the way.
    fn special(&self) -> Vec<(&'static str, String)> {
        const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";
        let mut found = Vec::new();
        if let Some(requests) = self.get(IN_FLIGHT).and_then(|number| number.parse::<u32>().ok()) {
            found.push((IN_FLIGHT, requests.min(5).to_string()));
        }
        if let Some(level) = self.get(&self.level_name()) {
            found.push(("compression.level", level.to_owned()));
        }
        for (java, ours) in [
            ("send.buffer.bytes", "socket.send.buffer.bytes"),
            ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
        ] {
            // -1 is the system's choice there, and 0 here.
            let bytes = self.get(java).map(|bytes| bytes.strip_prefix("-1").map_or(bytes, |_| "0"));
            found.extend(bytes.map(|bytes| (ours, bytes.to_owned())));
        }
        if let Some(given) = self.given.get("ssl.endpoint.identification.algorithm") {
            let none = given.value.trim().is_empty();
            let algorithm = if none { "none" } else { "https" };
            found.push(("ssl.endpoint.identification.algorithm", algorithm.to_owned()));
        }
        if let Some(login) = self.get("sasl.jaas.config").and_then(jaas::login) {
            found.push(("sasl.username", login.user));
            found.push(("sasl.password", login.password));
        }
        found.extend(self.identity());
        found
    }

    /// Certificate and key of the client.
    fn identity(&self) -> Vec<(&'static str, String)> {
        let Some(location) = self.get("ssl.keystore.location") else { return Vec::new() };
        let is_pkcs12 =
            self.get("ssl.keystore.type").is_some_and(|kind| kind.eq_ignore_ascii_case("PKCS12"));
        let password = self.given.get("ssl.keystore.password").map(|given| given.value.clone());
        let location = location.to_owned();
        if is_pkcs12 {
            let password = password.map(|password| ("ssl.keystore.password", password));
            return [("ssl.keystore.location", location)].into_iter().chain(password).collect();
        }
        // Java's client reads both of one file.
        vec![("ssl.certificate.location", location.clone()), ("ssl.key.location", location)]
    }

    fn level_name(&self) -> String {
        let kind = self.get("compression.type").unwrap_or_default().to_ascii_lowercase();
        format!("compression.{kind}.level")
    }

    /// Levels of other kinds of compression than the one that is used.
    fn unused_levels(&mut self) {
        let used = self.level_name();
        for kind in ["gzip", "lz4", "zstd"] {
            let name = format!("compression.{kind}.level");
            let Some(given) = self.given.get(&name).filter(|_| name != used) else { continue };
            let (origin, full) = (given.origin, format!("{}{name}", given.prefix));
            self.judge.plain(origin).ignore(&full, "compression.type is of another kind");
        }
    }
}

/// What a worker's file has beyond what anybody asks for.
pub(crate) fn leave_worker(judge: &mut Judge) {
    for prefix in ["key.converter.", "value.converter.", "header.converter."] {
        judge.leave(Origin::Worker, prefix, Verdict::Ignored, "no converter of the worker is used");
    }
}
