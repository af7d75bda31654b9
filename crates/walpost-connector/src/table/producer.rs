use super::{
    Kind::{Boolean, Name, Number, OneOf, Password, Text},
    Rule, honoured, ignored,
    kind::{COUNT, POSITIVE},
    mapped, only, refused,
};

const COMPRESSION: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];
const ACKS: &[&str] = &["all", "-1", "0", "1"];
const PROTOCOLS: &[&str] = &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];
const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const LOOKUP: &[&str] = &["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"];
const FOREVER: &str = "Walpost tries for ever, and parks what the brokers refuse";
const PEM: &str = "librdkafka reads PEM alone; convert the store, and write PEM";
const JAVA: &str = "it tunes Java's client, which Walpost does not use";

/// Properties of Java's producer, with librdkafka's names as keys.
pub(crate) const RULES: &[Rule] = &[
    honoured("bootstrap.servers", Text, "", "kafka.bootstrap.servers")
        .sets("kafka", "bootstrap.servers"),
    honoured("client.id", Text, "", "kafka.client.id").sets("kafka", "client.id"),
    honoured("client.dns.lookup", OneOf(LOOKUP), "use_all_dns_ips", "kafka.client.dns.lookup")
        .sets("kafka", "client.dns.lookup"),
    mapped("acks", OneOf(ACKS), "all", "acks = all, whatever it says"),
    mapped("enable.idempotence", Boolean, "false", "idempotence, whatever it says"),
    mapped(
        "max.in.flight.requests.per.connection",
        POSITIVE,
        "1",
        "kafka.max.in.flight.requests.per.connection, at most 5; order is kept",
    )
    .makes("kafka", "max.in.flight.requests.per.connection"),
    honoured("batch.size", POSITIVE, "16384", "kafka.batch.size").sets("kafka", "batch.size"),
    honoured("linger.ms", Number(0, 900_000), "5", "kafka.linger.ms").sets("kafka", "linger.ms"),
    honoured("compression.type", OneOf(COMPRESSION), "none", "kafka.compression.type")
        .sets("kafka", "compression.type"),
    mapped("compression.gzip.level", Number(-1, 9), "-1", "kafka.compression.level")
        .makes("kafka", "compression.level"),
    mapped("compression.lz4.level", Number(1, 12), "9", "kafka.compression.level")
        .makes("kafka", "compression.level"),
    mapped(
        "compression.zstd.level",
        Number(-131_072, 22),
        "3",
        "kafka.compression.level, at most 12",
    )
    .makes("kafka", "compression.level"),
    mapped("max.request.size", Number(1000, 1_000_000_000), "1048576", "kafka.message.max.bytes")
        .sets("kafka", "message.max.bytes"),
    mapped("buffer.memory", Number(1, i64::MAX), "33554432", "sink.queue_max_bytes")
        .makes("sink", "queue_max_bytes"),
    mapped("request.timeout.ms", Number(10, 300_000), "30000", "kafka.socket.timeout.ms")
        .sets("kafka", "socket.timeout.ms"),
    honoured("retry.backoff.ms", Number(1, 300_000), "100", "kafka.retry.backoff.ms")
        .sets("kafka", "retry.backoff.ms"),
    honoured("retry.backoff.max.ms", Number(1, 300_000), "1000", "kafka.retry.backoff.max.ms")
        .sets("kafka", "retry.backoff.max.ms"),
    honoured("reconnect.backoff.ms", Number(0, 3_600_000), "50", "kafka.reconnect.backoff.ms")
        .sets("kafka", "reconnect.backoff.ms"),
    honoured(
        "reconnect.backoff.max.ms",
        Number(0, 3_600_000),
        "1000",
        "kafka.reconnect.backoff.max.ms",
    )
    .sets("kafka", "reconnect.backoff.max.ms"),
    honoured("metadata.max.age.ms", Number(1, 86_400_000), "300000", "kafka.metadata.max.age.ms")
        .sets("kafka", "metadata.max.age.ms"),
    honoured("connections.max.idle.ms", COUNT, "540000", "kafka.connections.max.idle.ms")
        .sets("kafka", "connections.max.idle.ms"),
    honoured(
        "socket.connection.setup.timeout.ms",
        Number(1000, i32::MAX as i64),
        "10000",
        "kafka.socket.connection.setup.timeout.ms",
    )
    .sets("kafka", "socket.connection.setup.timeout.ms"),
    ignored("socket.connection.setup.timeout.max.ms", COUNT, "30000", JAVA),
    mapped(
        "send.buffer.bytes",
        Number(-1, 100_000_000),
        "131072",
        "kafka.socket.send.buffer.bytes",
    )
    .makes("kafka", "socket.send.buffer.bytes"),
    mapped(
        "receive.buffer.bytes",
        Number(-1, 100_000_000),
        "32768",
        "kafka.socket.receive.buffer.bytes",
    )
    .makes("kafka", "socket.receive.buffer.bytes"),
    honoured(
        "transaction.timeout.ms",
        Number(1000, i32::MAX as i64),
        "60000",
        "kafka.transaction.timeout.ms",
    )
    .sets("kafka", "transaction.timeout.ms"),
    honoured("enable.metrics.push", Boolean, "true", "kafka.enable.metrics.push")
        .sets("kafka", "enable.metrics.push"),
    ignored("retries", COUNT, "2147483647", FOREVER),
    ignored("delivery.timeout.ms", COUNT, "2147483647", FOREVER),
    ignored("max.block.ms", Number(0, i64::MAX), "9223372036854775807", FOREVER),
    ignored("metadata.max.idle.ms", COUNT, "300000", JAVA),
    ignored("metadata.recovery.*", Text, "", JAVA),
    ignored(
        "partitioner.adaptive.partitioning.enable",
        Boolean,
        "true",
        "it is about records without a key, whose place says nothing",
    ),
    ignored(
        "partitioner.availability.timeout.ms",
        COUNT,
        "0",
        "it is about records without a key, whose place says nothing",
    ),
    ignored("metrics.*", Text, "", "Walpost has metrics of its own"),
    ignored("metric.reporters", Text, "", "Walpost has metrics of its own"),
    ignored("auto.include.jmx.reporter", Text, "", "Walpost has metrics of its own"),
    only(
        "partitioner.class",
        "",
        &["", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"],
        "Walpost puts records where Java's default does, by which a key stays in its partition; \
         remove it, or place a partition column",
    ),
    only(
        "partitioner.ignore.keys",
        "false",
        &["false"],
        "records of a key would lose their order; write false",
    ),
    only(
        "interceptor.classes",
        "",
        &["", "io.confluent.monitoring.clients.interceptor.MonitoringProducerInterceptor"],
        "it is a Java class that may change records; remove it",
    ),
    ignored("confluent.*", Text, "", "it is of an interceptor that does nothing here"),
    refused(
        "transactional.id",
        "Walpost has one for each pipeline; write exactly.once.support = required",
    ),
    refused("key.serializer", "the converter makes the bytes; write key.converter"),
    refused("value.serializer", "the converter makes the bytes; write value.converter"),
    only(
        "transaction.two.phase.commit.enable",
        "false",
        &["false"],
        "Walpost ends its transactions by itself; write false",
    ),
    ignored("config.providers", Text, "", "placeholders are replaced before"),
    refused("security.providers", "it names Java classes; remove it"),
    honoured("security.protocol", OneOf(PROTOCOLS), "PLAINTEXT", "kafka.security.protocol")
        .sets("kafka", "security.protocol"),
    honoured(
        "sasl.mechanism",
        OneOf(MECHANISMS),
        "GSSAPI",
        "kafka.sasl.mechanism; remove GSSAPI and OAUTHBEARER with their neighbours, and write \
         them to kafka.… of Walpost's own configuration",
    )
    .sets("kafka", "sasl.mechanism"),
    mapped(
        "sasl.jaas.config",
        Password,
        "",
        "kafka.sasl.username and kafka.sasl.password, of PlainLoginModule or ScramLoginModule",
    )
    .makes("kafka", "sasl.password"),
    refused(
        "sasl.client.callback.handler.class",
        "it is a Java class; write user and password in sasl.jaas.config",
    ),
    refused(
        "sasl.login.callback.handler.class",
        "it is a Java class; write user and password in sasl.jaas.config",
    ),
    refused("sasl.login.class", "it is a Java class; write user and password in sasl.jaas.config"),
    refused(
        "sasl.oauthbearer.*",
        "Walpost reads OAUTHBEARER of no connector; remove it, and write kafka.sasl.oauthbearer.… \
         of Walpost's own configuration, as docs/security.md has it",
    ),
    refused(
        "sasl.kerberos.*",
        "Walpost reads GSSAPI of no connector; remove it, and write kafka.sasl.kerberos.… of \
         Walpost's own configuration, as docs/security.md has it",
    ),
    ignored("sasl.login.*", Text, "", "it is of mechanisms that Walpost reads of no connector"),
    mapped("ssl.truststore.location", super::Kind::File, "", "kafka.ssl.ca.location")
        .sets("kafka", "ssl.ca.location"),
    only("ssl.truststore.type", "JKS", &["PEM"], PEM),
    mapped("ssl.truststore.certificates", Text, "", "kafka.ssl.ca.pem").sets("kafka", "ssl.ca.pem"),
    refused("ssl.truststore.password", "PEM has none; convert the store to PEM, and remove it"),
    mapped(
        "ssl.keystore.location",
        super::Kind::File,
        "",
        "kafka.ssl.keystore.location for PKCS12, else kafka.ssl.certificate.location and \
         kafka.ssl.key.location",
    )
    .makes("kafka", "ssl.certificate.location"),
    mapped("ssl.keystore.type", OneOf(&["PEM", "PKCS12"]), "JKS", "which of these; JKS is refused"),
    mapped("ssl.keystore.password", Password, "", "kafka.ssl.keystore.password")
        .makes("kafka", "ssl.keystore.password"),
    mapped("ssl.keystore.key", Password, "", "kafka.ssl.key.pem").sets("kafka", "ssl.key.pem"),
    mapped("ssl.keystore.certificate.chain", Text, "", "kafka.ssl.certificate.pem")
        .sets("kafka", "ssl.certificate.pem"),
    honoured("ssl.key.password", Password, "", "kafka.ssl.key.password")
        .sets("kafka", "ssl.key.password"),
    mapped(
        "ssl.endpoint.identification.algorithm",
        OneOf(&["https", ""]),
        "https",
        "kafka.ssl.endpoint.identification.algorithm, where \"\" is none",
    )
    .makes("kafka", "ssl.endpoint.identification.algorithm"),
    refused(
        "ssl.cipher.suites",
        "its names are Java's, and librdkafka takes OpenSSL's; remove it, and write those to \
         kafka.ssl.cipher.suites of Walpost's own configuration",
    ),
    ignored("ssl.protocol", Text, "TLSv1.3", "OpenSSL takes the newest that both sides have"),
    ignored(
        "ssl.enabled.protocols",
        Text,
        "TLSv1.2,TLSv1.3",
        "OpenSSL takes the newest that both sides have",
    ),
    ignored("ssl.provider", Name, "", JAVA),
    ignored("ssl.keymanager.algorithm", Text, "", JAVA),
    ignored("ssl.trustmanager.algorithm", Text, "", JAVA),
    ignored("ssl.secure.random.implementation", Text, "", JAVA),
    refused("ssl.engine.factory.class", "it is a Java class; write the stores as PEM"),
];
