//! What connectors that come over HTTP take of the configuration of the process.

use clap::Parser;
use walpost_connector::Properties;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    config: ConfigArgs,
}

const CONNECTOR: [(&str, &str); 14] = [
    ("name", "shop"),
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("plugin.name", "pgoutput"),
    ("database.hostname", "db"),
    ("database.user", "app"),
    ("database.password", "s3cret"),
    ("database.dbname", "shop"),
    ("topic.prefix", "shop"),
    ("snapshot.mode", "no_data"),
    ("table.include.list", "public.outbox"),
    ("transforms", "outbox"),
    ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
];

/// A connector with these properties more, in a process with this file.
fn served(text: &str, more: &[(&str, &str)]) -> Config {
    let (_file, args) = file(text);
    let config = Config::load_with(&args, None, []).unwrap();
    let reading = args.connector.reading().unwrap();
    let pairs = CONNECTOR.iter().chain(more).copied();
    config.of_connector(reading.read(&Properties::from_pairs(pairs))).unwrap()
}

#[test]
fn nothing_of_one_pipeline_reaches_another_connector() {
    let config = served(
        "[postgres]\nurl = \"postgres://keeper@connectors/db\"\n\
         [pipeline]\nname = \"main\"\nslot = \"main\"\npublication = \"main\"\n\
         tables = [\"public.other\"]\nrow_filter = \"tenant = 1\"\ncheckpoint_interval_ms = 321\n\
         [sink]\ntransactional_id = \"main\"\n",
        &[],
    );
    let pipeline = &config.settings.pipeline;
    assert_eq!((&*pipeline.name, &*pipeline.slot), ("shop", "debezium"));
    assert_eq!((&*pipeline.publication, &*pipeline.row_filter), ("dbz_publication", ""));
    assert!(config.filters().is_some(), "its own filters say which tables");
    assert_eq!(config.settings.sink.transactional_id, "");
    let database = config.database().unwrap().to_string();
    assert!(database.contains("app@db") && database.contains("/shop"), "{database}");
    // What is no pipeline's own holds for all of them.
    assert_eq!(pipeline.checkpoint_interval_ms, 321);
}

#[test]
fn a_connector_comes_before_what_holds_for_all_and_that_before_its_defaults() {
    let placed =
        |file: &str, more: &[(&str, &str)]| served(file, more).settings.router.additional_placement;
    let own = ("transforms.outbox.table.fields.additional.placement", "type:header:own");
    let file = "[router]\nadditional_placement = \"type:header:all\"\n";
    assert_eq!(placed("", &[]), "", "as in Debezium, and not as in the default file");
    assert_eq!(placed(file, &[]), "type:header:all");
    assert_eq!(placed("", &[own]), "type:header:own");
    assert_eq!(placed(file, &[own]), "type:header:own");
}

#[test]
fn a_login_does_not_go_to_brokers_that_a_connector_names() {
    let file = "[kafka]\n\"bootstrap.servers\" = \"ours:9092\"\n\"sasl.username\" = \"u\"\n\
                \"sasl.password\" = \"s3cr3t\"\n\"security.protocol\" = \"SASL_SSL\"\n";
    let config = served(file, &[]);
    assert_eq!(config.settings.kafka["bootstrap.servers"], "ours:9092");
    assert_eq!(config.settings.kafka["sasl.password"], "s3cr3t");
    let config = served(file, &[("producer.override.bootstrap.servers", "theirs:9092")]);
    assert_eq!(config.settings.kafka["bootstrap.servers"], "theirs:9092");
    let has_login = config.settings.kafka.values().any(|value| value == "s3cr3t" || value == "u");
    assert!(!has_login, "{:?}", config.settings.kafka.keys());
    let config = served(
        "[sink]\nsasl_password_file = \"/run/secrets/kafka\"\n",
        &[("producer.override.bootstrap.servers", "theirs:9092")],
    );
    assert_eq!(config.settings.sink.sasl_password_file, "");
}

#[test]
fn a_login_of_a_connector_comes_before_the_file_with_that_of_all() {
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" \
                 password=\"own\";";
    let config = served(
        "[kafka]\n\"bootstrap.servers\" = \"ours:9092\"\n\
         [sink]\nsasl_password_file = \"/run/secrets/kafka\"\n",
        &[
            ("producer.override.security.protocol", "SASL_SSL"),
            ("producer.override.sasl.mechanism", "PLAIN"),
            ("producer.override.sasl.jaas.config", login),
        ],
    );
    assert_eq!(config.settings.kafka["sasl.password"], "own");
    assert_eq!(config.settings.sink.sasl_password_file, "");
}

#[test]
fn placeholders_of_the_workers_file_are_replaced_at_the_start_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.properties");
    std::fs::write(&path, "producer.sasl.jaas.config=${file:/no/such:login}\n").unwrap();
    let path = path.display().to_string();
    let line = Line::parse_from(["walpost", "--worker", &path]);
    let text = line.config.connector.reading().unwrap_err().to_string();
    assert!(text.starts_with("--worker: ") && text.contains("sasl.jaas.config"), "{text}");
    assert!(text.contains("--allow-placeholders"), "{text}");
}

#[test]
fn a_file_that_the_workers_placeholders_have_read_is_read_anew_for_each_connector() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (worker, secrets) = (path("worker.properties"), path("secrets"));
    std::fs::write(&secrets, "brokers=b:9092\npassword=old\n").unwrap();
    let brokers = format!("bootstrap.servers=${{file:{secrets}:brokers}}\n");
    std::fs::write(&worker, brokers).unwrap();
    let allowed = path("");
    let args = ["walpost", "--worker", &worker, "--allow-placeholders", &allowed];
    let plugin = Line::parse_from(args).config.connector.reading().unwrap().plugin();
    std::fs::write(&secrets, "brokers=b:9092\npassword=new\n").unwrap();
    let written = format!("${{file:{secrets}:password}}");
    let config = [("database.password".to_owned(), written)].into();
    assert_eq!(plugin.resolve(&config).unwrap().get("database.password"), Some("new"));
}

#[test]
fn beyond_loopback_a_token_is_needed() {
    let open = |listen: &str| load(&format!("[connect]\nlisten = \"{listen}\"\n")).unwrap();
    for listen in ["127.0.0.1:8083", "127.3.2.1:1", "[::1]:8083", "[::ffff:127.0.0.1]:1"] {
        assert!(open(listen).serving().unwrap().access.is_open(), "{listen}");
    }
    for listen in ["0.0.0.0:8083", "[::]:8083", "10.0.0.1:8083", "[::ffff:10.0.0.1]:1"] {
        let text = open(listen).serving().unwrap_err().to_string();
        assert!(text.contains("which others reach") && text.contains(" line 2: "), "{text}");
    }
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "0123456789abcdef\n").unwrap();
    let path = token.path().display();
    let text = format!("[connect]\nlisten = \"0.0.0.0:1\"\ntoken_file = \"{path}\"\n");
    let serving = load(&text).unwrap().serving().unwrap();
    assert!(!serving.access.is_open());
    assert_eq!(serving.worker_id, "0.0.0.0:1");
    for wrong in ["0123456789abcde", "0123456789 abcdef", "0123456789abcdéf", ""] {
        std::fs::write(token.path(), wrong).unwrap();
        let text = load(&text).unwrap().serving().unwrap_err().to_string();
        assert!(text.contains("is no token: 16 or more"), "{text}");
        assert!(wrong.is_empty() || !text.contains(wrong), "{text}");
    }
}
