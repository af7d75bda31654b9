use super::{
    Kind::{Boolean, File, Number, OneOf, Password, Sql, Text},
    Rule, honoured, ignored,
    kind::COUNT,
    mapped, only, refused,
};
use crate::choices::{Choice, SslMode};

const PLUGINS: &[&str] = &["pgoutput"];

/// How the database is reached.
pub(super) const RULES: &[Rule] = &[
    honoured("database.hostname", Text, "", "host of the server").makes("postgres", "url"),
    honoured("database.port", Number(1, 65_535), "5432", "port of the server")
        .makes("postgres", "url"),
    honoured("database.user", Text, "", "login role").makes("postgres", "url"),
    honoured("database.password", Password, "", "its password").makes("postgres", "url"),
    honoured("database.dbname", Text, "", "the database").makes("postgres", "url"),
    honoured(
        "database.sslmode",
        OneOf(SslMode::NAMES),
        "prefer",
        "whether TLS is used, and how the server is checked",
    )
    .makes("postgres", "url"),
    honoured("database.sslcert", File, "", "file of the client's certificate")
        .makes("postgres", "url"),
    honoured("database.sslkey", File, "", "file of its key: PEM or DER; PKCS #12 is refused")
        .makes("postgres", "url"),
    honoured(
        "database.sslpassword",
        Password,
        "",
        "password of that key, where it is encrypted: PKCS #8 with PBES2",
    )
    .makes("postgres", "url"),
    honoured("database.sslrootcert", File, "", "PEM file of certificate authorities")
        .makes("postgres", "url"),
    only(
        "database.sslfactory",
        "",
        &["org.postgresql.ssl.LibPQFactory", "org.postgresql.ssl.NonValidatingFactory"],
        "it is a Java class; write database.sslmode and database.sslrootcert, or \
         org.postgresql.ssl.NonValidatingFactory for no check of the server",
    )
    .makes("postgres", "url"),
    honoured("database.tcpKeepAlive", Boolean, "true", "keep-alive of TCP")
        .makes("postgres", "url"),
    mapped(
        "database.query.timeout.ms",
        COUNT,
        "600000",
        "pipeline.statement_timeout_ms, at most 600,000",
    )
    .makes("pipeline", "statement_timeout_ms"),
    ignored(
        "database.connection.timeout.ms",
        COUNT,
        "600000",
        "Walpost tries again for ever, each time with a bound of its own",
    ),
    ignored(
        "connection.validation.timeout.ms",
        COUNT,
        "60000",
        "`walpost check` has a bound of its own",
    ),
    honoured(
        "database.initial.statements",
        Sql,
        "",
        "statements of each SQL session at its beginning, separated by semicolons",
    ),
    refused(
        "database.connection.factory.class",
        "it is a Java class; write database.user and database.password",
    ),
    ignored(
        "database.include.list",
        Text,
        "",
        "there is one database, that of database.dbname, as in Debezium",
    ),
    ignored("database.exclude.list", Text, "", "there is one database, as in Debezium"),
    refused(
        "driver.ssl*",
        "it would change how the server is checked; write database.sslmode and its neighbours",
    ),
    refused("driver.options", "it would change the session; write database.initial.statements"),
    refused(
        "driver.currentSchema",
        "it would change the session; write database.initial.statements",
    ),
    ignored("driver.*", Text, "", "it tunes Java's driver, which Walpost does not use"),
    honoured("plugin.name", OneOf(PLUGINS), "decoderbufs", "the output plug-in; pgoutput alone"),
];
