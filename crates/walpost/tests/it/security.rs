//! `walpost run` between a database and brokers that both ask for TLS, and what
//! it says when they do not let it in.

use std::{path::Path, time::Duration};

use walpost_local::Postgres;
use walpost_testkit::{
    Algorithm, Authority, KeyForm, Process, SecureKafka, create_topic, read_all, until,
};

use crate::cli::{stderr, stdout, walpost};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "secure.order";
const NO_BROKER: &str = "127.0.0.1:1";

type Env = Vec<(String, String)>;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A database that lets the role `relay` in by its certificate alone.
struct Database {
    authority: Authority,
    postgres: Postgres,
}

impl Database {
    fn start() -> Self {
        let authority = Authority::new("database");
        let identity = authority.server(&["localhost"]);
        let postgres = Postgres::builder()
            .throwaway()
            .setting("wal_level", "logical")
            .tls(&identity.certificate, &identity.key)
            .client_authority(authority.certificate())
            .hba("local all all trust\nhostssl all relay 127.0.0.1/32 cert\n")
            .start()
            .unwrap();
        postgres.psql("postgres", "create role relay superuser login replication").unwrap();
        let output =
            walpost(&["migrate", "--postgres", &postgres.socket_conninfo("postgres")], &[]);
        assert!(output.status.success(), "{}", stderr(&output));
        Self { authority, postgres }
    }

    fn url(&self, rest: &str) -> String {
        let client = self.authority.client("relay", Algorithm::Rsa);
        format!(
            "host=localhost port={} user=relay dbname=postgres sslcert={} sslkey={} \
             sslpassword=s3cret {rest}",
            self.postgres.port(),
            text(&client.certificate),
            text(&client.key_as(KeyForm::EncryptedDer("s3cret"))),
        )
    }

    fn insert(&self, id: u32) {
        let sql = format!(
            "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) values \
             ('00000000-0000-0000-0000-00000000000{id}', 'order', '{id}', 'Placed', '{{}}')"
        );
        self.postgres.psql("postgres", &sql).unwrap();
    }
}

/// `[kafka]` for a listener, as environment variables.
fn kafka(broker: &SecureKafka, listener: &str, settings: &[(&str, &str)]) -> Env {
    let (servers, authority) = (broker.listener(listener), text(&broker.authority.certificate()));
    let common = [
        ("bootstrap.servers", &*servers),
        ("broker.address.family", "v4"),
        ("ssl.ca.location", &authority),
    ];
    let named = |(name, value): (&str, &str)| {
        let name = name.replace('.', "_").to_ascii_uppercase();
        (format!("WALPOST_KAFKA_{name}"), value.to_owned())
    };
    // The last of a name counts.
    common.into_iter().chain(settings.iter().copied()).map(named).collect()
}

fn set<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let common = ["--postgres", url, "--set", "http.listen=", "--set", "pipeline.initial=publish"];
    [&common, more].concat()
}

#[tokio::test]
#[ignore = "deep: TLS and SASL"]
async fn an_event_goes_from_a_database_to_brokers_that_both_ask_who_comes() {
    let (database, broker) = (Database::start(), SecureKafka::start());
    let bootstrap = broker.broker.bootstrap();
    create_topic(&bootstrap, TOPIC, 1, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, SecureKafka::PASSWORD).unwrap();
    let password = format!("sink.sasl_password_file={}", text(&password));
    let client = broker.authority.client("app", Algorithm::Ec);
    let (certificate, key) = (text(&client.certificate), text(&client.key));
    let trust = text(&database.authority.certificate());
    let login = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", SecureKafka::USER),
    ];
    let shown = [
        ("security.protocol", "SSL"),
        ("ssl.certificate.location", &*certificate),
        ("ssl.key.location", &key),
    ];
    let of_system = [("SSL_CERT_FILE".to_owned(), trust.clone())];
    for (index, (rest, more, mut env)) in [
        (
            format!("sslmode=verify-full sslrootcert={trust}"),
            vec!["--set", &*password],
            kafka(&broker, "SASLTLS", &login),
        ),
        ("sslrootcert=system".to_owned(), vec![], kafka(&broker, "MUTUAL", &shown)),
    ]
    .into_iter()
    .enumerate()
    {
        env.extend(of_system.clone());
        let url = database.url(&rest);
        let route = ["--set", "router.topic_replacement=secure.${routedByValue}"];
        let args = [&["run"], &*set(&url, &more), &route].concat();
        database.insert(u32::try_from(index).unwrap());
        let relay = Process::start(env!("CARGO_BIN_EXE_walpost"), args, env);
        until(LIMIT, "the event", async || read_all(&bootstrap, TOPIC).await.len() == index + 1)
            .await;
        let log = relay.log();
        assert!(relay.terminate(LIMIT).success(), "{log}");
        assert!(!log.contains("s3cret"), "a secret shows: {log}");
    }
}

#[test]
#[ignore = "deep: TLS and SASL"]
fn a_run_that_brokers_do_not_let_in_ends_with_the_setting_to_mend() {
    let (database, broker) = (Database::start(), SecureKafka::start());
    let trust = text(&database.authority.certificate());
    let url = database.url(&format!("sslmode=verify-full sslrootcert={trust}"));
    let stranger = Authority::new("stranger");
    let theirs = text(&stranger.certificate());
    let login = |mechanism, password| {
        [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", SecureKafka::USER),
            ("sasl.password", password),
        ]
    };
    for (listener, settings, part) in [
        ("SASL", &login("SCRAM-SHA-256", "s3cret-of-nobody")[..], "mend sasl.username"),
        ("STRICT", &login("PLAIN", SecureKafka::PASSWORD), "set sasl.mechanism"),
        (
            "TLS",
            &[("security.protocol", "SSL"), ("ssl.ca.location", &*theirs)],
            "set ssl.ca.location",
        ),
        ("MUTUAL", &[("security.protocol", "SSL")], "ssl.certificate.location"),
    ] {
        let env = kafka(&broker, listener, settings);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
        let output = walpost(&[&["run"], &*set(&url, &[])].concat(), &env);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(4), "{told}");
        let errors = told.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{told}");
        let next_step = told.split("next step: ").nth(1).unwrap_or_default();
        assert!(next_step.contains(part), "expected {part:?} in: {told}");
        let output = walpost(&[&["check"], &*set(&url, &[])].concat(), &env);
        let found = stdout(&output);
        assert_eq!(output.status.code(), Some(4), "{found}");
        assert!(found.contains(part), "expected {part:?} in: {found}");
        assert!(!(told + &found).contains("s3cret"), "a secret shows");
    }
}

#[test]
#[ignore = "deep: TLS and SASL"]
fn a_run_that_its_database_does_not_let_in_ends_with_the_setting_to_mend() {
    let database = Database::start();
    let trust = text(&database.authority.certificate());
    let other = database.authority.client("somebody", Algorithm::Ec);
    let named = format!(
        "sslmode=verify-full sslrootcert={trust} sslcert={} sslkey={}",
        text(&other.certificate),
        text(&other.key)
    );
    let by_address = database.url(&format!("sslmode=verify-full sslrootcert={trust}"));
    for (url, part) in [
        (database.url("sslrootcert=system"), "set sslrootcert"),
        (by_address.replace("host=localhost", "host=127.0.0.1"), "names, have it name this one"),
        (
            format!(
                "host=localhost port={} user=relay dbname=postgres {named}",
                database.postgres.port()
            ),
            "in that role's name",
        ),
    ] {
        let args = [&["run"], &*set(&url, &["--kafka", NO_BROKER])].concat();
        let output = walpost(&args, &[]);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{told}");
        let next_step = told.split("next step: ").nth(1).unwrap_or_default();
        assert!(next_step.contains(part), "expected {part:?} in: {told}");
        assert!(!told.contains("s3cret"), "a secret shows: {told}");
    }
}
