use walpost_connector::{Connector, Properties, SettingValue, Unknown, Verdict, judge};

use super::{judged, laid, refused, row, settings, verdict, with};

fn kafka(more: &[(&str, &str)]) -> Connector {
    let more: Vec<(String, &str)> =
        more.iter().map(|(name, value)| (format!("producer.override.{name}"), *value)).collect();
    let more: Vec<(&str, &str)> = more.iter().map(|(name, value)| (&**name, *value)).collect();
    settings(&more)
}

/// What `[kafka]` has, in order.
fn names(connector: &Connector) -> Vec<(&str, &str)> {
    let kafka = connector.settings.iter().filter(|setting| setting.section == "kafka");
    let mut names: Vec<(&str, &str)> =
        kafka.map(|setting| (setting.key, setting.value.as_text().expect("a text"))).collect();
    names.sort_unstable();
    names
}

#[test]
fn settings_of_the_producer_have_librdkafkas_names() {
    let found = kafka(&[
        ("batch.size", " 131072 "),
        ("acks", "1"),
        ("max.in.flight.requests.per.connection", "10"),
        ("request.timeout.ms", "40000"),
        ("max.request.size", "2000000"),
        ("send.buffer.bytes", "-1"),
        ("receive.buffer.bytes", "65536"),
        ("compression.type", "ZSTD"),
        ("compression.zstd.level", "5"),
        ("compression.gzip.level", "9"),
        ("buffer.memory", "1000000"),
        ("retries", "3"),
    ]);
    let expected = [
        ("batch.size", "131072"),
        ("compression.level", "5"),
        ("compression.type", "zstd"),
        ("max.in.flight.requests.per.connection", "5"),
        ("message.max.bytes", "2000000"),
        ("socket.receive.buffer.bytes", "65536"),
        ("socket.send.buffer.bytes", "0"),
        ("socket.timeout.ms", "40000"),
    ];
    assert_eq!(names(&found), expected);
    assert_eq!(laid(&found, "sink.queue_max_bytes"), Some(&SettingValue::Number(1_000_000)));
    let (found, note) = verdict(&[
        ("producer.override.compression.gzip.level", "9"),
        ("producer.override.compression.type", "lz4"),
    ]);
    assert_eq!(found, Verdict::Ignored, "{note}");
}

#[test]
fn tls_and_passwords_are_found_and_do_not_show() {
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required \
                 username=\"app\" password=\"hunter2\";";
    let found = kafka(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-256"),
        ("sasl.jaas.config", scram),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", "/ca.pem"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", "/app.pem"),
        ("ssl.key.password", "hunter2"),
        ("ssl.endpoint.identification.algorithm", ""),
    ]);
    let expected = [
        ("sasl.mechanism", "SCRAM-SHA-256"),
        ("sasl.password", "hunter2"),
        ("sasl.username", "app"),
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", "/ca.pem"),
        ("ssl.certificate.location", "/app.pem"),
        ("ssl.endpoint.identification.algorithm", "none"),
        ("ssl.key.location", "/app.pem"),
        ("ssl.key.password", "hunter2"),
    ];
    assert_eq!(names(&found), expected);
    assert!(!format!("{found:?}").contains("hunter2"));
    let store = kafka(&[
        ("ssl.keystore.type", "PKCS12"),
        ("ssl.keystore.location", "/app.p12"),
        ("ssl.keystore.password", " p "),
    ]);
    let expected = [("ssl.keystore.location", "/app.p12"), ("ssl.keystore.password", "p")];
    assert_eq!(names(&store), expected);
}

#[test]
fn what_librdkafka_cannot_do_is_refused() {
    const SASL: (&str, &str) = ("producer.override.security.protocol", "SASL_PLAINTEXT");
    const PLAIN: (&str, &str) = ("producer.override.sasl.mechanism", "PLAIN");
    let jaas = "producer.override.sasl.jaas.config";
    for (more, property, says) in [
        (
            &[("producer.override.no.such.setting", "1")][..],
            "producer.override.no.such.setting",
            "no such property",
        ),
        (
            &[(
                "producer.override.partitioner.class",
                "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            )],
            "producer.override.partitioner.class",
            "Java's default",
        ),
        (
            &[("producer.override.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256")],
            "producer.override.ssl.cipher.suites",
            "Java's",
        ),
        (
            &[("producer.override.interceptor.classes", "a.B")],
            "producer.override.interceptor.classes",
            "remove it",
        ),
        (
            &[("producer.override.transactional.id", "x")],
            "producer.override.transactional.id",
            "exactly.once.support = required",
        ),
        (
            &[("producer.override.ssl.truststore.location", "/a.jks")],
            "producer.override.ssl.truststore.type",
            "write PEM",
        ),
        (
            &[("producer.override.ssl.truststore.type", "JKS")],
            "producer.override.ssl.truststore.type",
            "write PEM",
        ),
        (
            &[("producer.override.sasl.mechanism", "OAUTHBEARER")],
            "producer.override.sasl.mechanism",
            "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (&[SASL], "producer.override.sasl.mechanism", "which means GSSAPI"),
        (
            &[SASL, PLAIN],
            jaas,
            "it is missing; write org.apache.kafka.common.security.plain.PlainLoginModule",
        ),
        (&[SASL, PLAIN, (jaas, "x")], jaas, "user and password are not found"),
        (
            &[SASL, PLAIN, (jaas, "a.ScramLoginModule required username=u password=hunter2;")],
            jaas,
            "of another mechanism",
        ),
    ] {
        refused(more, property, says);
        let shown = format!("{:?}", judged(more).verdicts);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn the_connector_comes_before_the_workers_producer_and_the_worker_gives_the_brokers_alone() {
    let worker = Properties::from_pairs([
        ("bootstrap.servers", "worker:9092"),
        ("security.protocol", "SSL"),
        ("ssl.truststore.certificates", "-----BEGIN"),
        ("producer.linger.ms", "7"),
        ("producer.batch.size", "1000"),
        ("producer.bootstrap.servers", "producer:9092"),
        ("linger.ms", "1"),
    ]);
    let connector = with(&[("producer.override.batch.size", "2000")]);
    let judgement = judge(&connector, Some(&worker), Unknown::Refuse);
    assert_eq!(row(&judgement, "linger.ms").verdict, Verdict::Ignored);
    let expected =
        [("batch.size", "2000"), ("bootstrap.servers", "producer:9092"), ("linger.ms", "7")];
    assert_eq!(names(judgement.connector.as_ref().unwrap()), expected);
    for name in ["security.protocol", "ssl.truststore.certificates"] {
        let row = row(&judgement, name);
        assert_eq!(row.verdict, Verdict::Ignored, "{row}");
        assert!(row.note.contains("write it with producer. before its name"), "{row}");
    }
    let brokers = judgement.settings().iter().find(|setting| setting.key == "bootstrap.servers");
    assert_eq!(brokers.unwrap().property, "producer.bootstrap.servers");
}

#[test]
fn of_two_bounds_on_what_waits_the_loser_is_told() {
    let both = [("producer.override.buffer.memory", "1000"), ("max.queue.size.in.bytes", "2000")];
    let judgement = judged(&both);
    let row = row(&judgement, both[0].0);
    assert_eq!(row.verdict, Verdict::Ignored, "{row}");
    assert!(row.note.contains("max.queue.size.in.bytes"), "{row}");
    let connector = judgement.connector.unwrap();
    assert_eq!(laid(&connector, "sink.queue_max_bytes"), Some(&SettingValue::Number(2000)));
    let unbounded = settings(&[both[0], ("max.queue.size.in.bytes", "0")]);
    assert_eq!(laid(&unbounded, "sink.queue_max_bytes"), Some(&SettingValue::Number(1000)));
}
