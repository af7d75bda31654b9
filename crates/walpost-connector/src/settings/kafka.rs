use std::collections::BTreeMap;

use super::jaas;
use crate::{
    judge::Judge,
    layer::{Setting, SettingValue},
    secret::is_secret_name,
    table::{self, Of, When},
    verdicts::{Origin, Verdict},
};

/// A property of the producer, without blanks around it, with who gives it and
/// what stands before its name there.
struct Given {
    origin: Origin,
    prefix: &'static str,
    value: String,
}

const BROKERS: &str = "bootstrap.servers";
const BUFFER: &str = "buffer.memory";
const QUEUE: &str = "max.queue.size.in.bytes";

/// Properties of the producer; of several of one name the last one holds.
struct Producer<'a> {
    judge: &'a mut Judge,
    given: BTreeMap<String, Given>,
}

/// Sets the keys of `[kafka]`, under librdkafka's names, of which none but texts
/// are.
pub(crate) fn read(judge: &mut Judge) {
    let mut given: BTreeMap<String, Given> = BTreeMap::new();
    // Of a worker's own settings its producers have but the brokers.
    if let Some(value) = judge.plain(Origin::Worker).given(BROKERS) {
        given.insert(BROKERS.to_owned(), Given { origin: Origin::Worker, prefix: "", value });
    }
    for (origin, prefix) in
        [(Origin::Worker, "producer."), (Origin::Connector, "producer.override.")]
    {
        let scope = judge.scope((Of::Producer, origin), prefix, table::PRODUCER, &[]);
        for (name, _) in scope.beginning("") {
            let Some(value) = scope.trimmed(&name) else { continue };
            given.insert(name, Given { origin, prefix, value });
        }
    }
    let mut producer = Producer { judge, given };
    producer.check_sasl();
    producer.check_stores();
    producer.lay_all();
}

impl Producer<'_> {
    /// A value, if there is one.
    fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(|given| given.value.as_str()).filter(|value| !value.is_empty())
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
            let note = "it is missing, which means GSSAPI, which Walpost reads of no connector; \
                        write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
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

    fn lay_all(&mut self) {
        let mut laid: Vec<(&str, &'static str, String)> = Vec::new();
        for rule in table::PRODUCER {
            let Some(native) = rule.native.filter(|native| native.when != When::Judged) else {
                continue;
            };
            let value = self.get(rule.name).map(|text| rule.kind.value(text.to_owned()));
            laid.extend(value.map(|value| match value {
                SettingValue::Text(text) => (rule.name, native.key, text),
                other => (rule.name, native.key, other.to_string()),
            }));
        }
        laid.extend(self.special());
        for (name, key, value) in laid {
            self.lay(name, ("kafka", key), value);
        }
        self.lay_buffer();
        self.unused_levels();
    }

    fn lay(
        &mut self,
        name: &str,
        (section, key): (&'static str, &'static str),
        value: impl Into<SettingValue>,
    ) {
        let Some(given) = self.given.get(name) else { return };
        let property = format!("{}{name}", given.prefix);
        let origin = given.origin;
        let property_of = self.judge.property(origin, &property);
        let setting = Setting {
            section,
            key,
            value: value.into(),
            at: property_of.and_then(|found| found.at),
            is_default: false,
            is_secret: is_secret_name(name) || property_of.is_some_and(|found| found.is_resolved()),
            property,
            origin,
        };
        self.judge.lay(setting);
    }

    /// Two properties are about one bound: the one nearer to the connector holds.
    fn lay_buffer(&mut self) {
        let Some(bytes) = self.get(BUFFER).and_then(|bytes| bytes.parse::<u64>().ok()) else {
            return;
        };
        if self.judge.plain(Origin::Connector).given_number(QUEUE).is_some_and(|size| size > 0) {
            let note = format!("sink.queue_max_bytes is already what {QUEUE} says");
            return self.ignore(BUFFER, &note);
        }
        self.lay(BUFFER, ("sink", "queue_max_bytes"), bytes);
    }

    fn ignore(&mut self, name: &str, note: &str) {
        let Some(given) = self.given.get(name) else { return };
        let (origin, property) = (given.origin, format!("{}{name}", given.prefix));
        self.judge.plain(origin).ignore(&property, note);
    }

    /// Properties whose values change on the way: name, key and value.
    fn special(&self) -> Vec<(&'static str, &'static str, String)> {
        const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";
        const ALGORITHM: &str = "ssl.endpoint.identification.algorithm";
        const LOGIN: &str = "sasl.jaas.config";
        let mut found = Vec::new();
        if let Some(requests) = self.get(IN_FLIGHT).and_then(|number| number.parse::<u32>().ok()) {
            found.push((IN_FLIGHT, IN_FLIGHT, requests.min(5).to_string()));
        }
        let levels = table::PRODUCER.iter().filter(|rule| rule.name == self.level_name());
        for rule in levels {
            let level = self.get(rule.name).and_then(|level| level.parse::<i64>().ok());
            // Of librdkafka, whatever the kind.
            let level = level.map(|level| level.clamp(-1, 12).to_string());
            found.extend(level.map(|level| (rule.name, "compression.level", level)));
        }
        for (java, ours) in [
            ("send.buffer.bytes", "socket.send.buffer.bytes"),
            ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
        ] {
            // -1 is the system's choice there, and 0 here.
            let bytes = self.get(java).map(|bytes| if bytes == "-1" { "0" } else { bytes });
            found.extend(bytes.map(|bytes| (java, ours, bytes.to_owned())));
        }
        if let Some(given) = self.given.get(ALGORITHM) {
            let algorithm = if given.value.is_empty() { "none" } else { "https" };
            found.push((ALGORITHM, ALGORITHM, algorithm.to_owned()));
        }
        if let Some(login) = self.get(LOGIN).and_then(jaas::login) {
            found.push((LOGIN, "sasl.username", login.user));
            found.push((LOGIN, "sasl.password", login.password));
        }
        found.extend(self.identity());
        found
    }

    /// Certificate and key of the client.
    fn identity(&self) -> Vec<(&'static str, &'static str, String)> {
        const LOCATION: &str = "ssl.keystore.location";
        const PASSWORD: &str = "ssl.keystore.password";
        let Some(location) = self.get(LOCATION).map(str::to_owned) else { return Vec::new() };
        let is_pkcs12 =
            self.get("ssl.keystore.type").is_some_and(|kind| kind.eq_ignore_ascii_case("PKCS12"));
        if is_pkcs12 {
            let password = self.get(PASSWORD).map(|text| (PASSWORD, PASSWORD, text.to_owned()));
            return [(LOCATION, LOCATION, location)].into_iter().chain(password).collect();
        }
        // Java's client reads both of one file.
        vec![
            (LOCATION, "ssl.certificate.location", location.clone()),
            (LOCATION, "ssl.key.location", location),
        ]
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
            if name != used {
                self.ignore(&name, "compression.type is of another kind");
            }
        }
    }
}

/// What a worker's file has beyond what anybody asks for.
pub(crate) fn leave_worker(judge: &mut Judge) {
    for prefix in ["key.converter.", "value.converter.", "header.converter."] {
        judge.leave(Origin::Worker, prefix, Verdict::Ignored, "no converter of the worker is used");
    }
}
