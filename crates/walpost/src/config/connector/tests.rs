mod told;

use std::{fs, path::PathBuf};

use clap::Parser;
use walpost_connector::Verdict;
use walpost_encode::connect::{Action, Converter, HeaderConverter};
use walpost_relay::{
    ContextHeaders, EventEncoding, Heartbeat, Initial, LostSlot, RelayConfig, Snapshot,
    StreamOrigin,
};
use walpost_router::NameFilter;

use super::ConnectorFile;
use crate::config::{Config, ConfigArgs, ConfigError};

const MINIMAL: &str = r#"{
  "name": "shop",
  "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
  "plugin.name": "pgoutput",
  "database.hostname": "db",
  "database.user": "app",
  "database.password": "s3cret",
  "database.dbname": "shop",
  "topic.prefix": "shop",
  "snapshot.mode": "no_data",
  "table.include.list": "public.outbox",
  "transforms": "outbox",
  "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
  "key.converter": "org.apache.kafka.connect.storage.StringConverter",
  "value.converter": "org.apache.kafka.connect.storage.StringConverter"
}"#;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Files, and the arguments that name them.
struct Stand {
    folder: tempfile::TempDir,
    args: Vec<String>,
}

impl Stand {
    /// With a connector that has further properties, each on a line from 16 on.
    fn new(more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines: String =
            more.iter().map(|(name, value)| format!(",\n  {name:?}: {value:?}")).collect();
        let text = MINIMAL.replace("\n}", &format!("{lines}\n}}"));
        fs::write(folder.path().join("shop.json"), text).unwrap();
        let args = vec!["walpost".to_owned()];
        Self { folder, args }.option("--connector", "shop.json")
    }

    /// An option with a file of the folder.
    fn option(mut self, option: &str, file: &str) -> Self {
        let path = self.path(file).display().to_string();
        self.args.extend([option.to_owned(), path]);
        self
    }

    fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    fn file(self, option: &str, file: &str, text: &str) -> Self {
        fs::write(self.path(file), text).unwrap();
        self.option(option, file)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn args(&self) -> ConfigArgs {
        Line::parse_from(&self.args).config
    }

    fn read(&self) -> ConnectorFile {
        self.args().connector.read().unwrap().unwrap()
    }

    fn load(&self) -> Result<Config, ConfigError> {
        let args = self.args();
        Config::load_with(&args, args.connector.read()?, [])
    }

    /// The text of what is wrong, without the folder.
    fn wrong<T>(&self, found: Result<T, ConfigError>) -> String {
        let Err(error) = found else { panic!("it is taken") };
        walpost_event::error_chain(&error)
            .replace(&format!("{}/", self.folder.path().display()), "")
    }
}

#[test]
fn a_connector_lies_above_the_defaults_and_below_everything_else() {
    let stand = Stand::new(&[("slot.name", "theirs"), ("max.queue.size", "9000")]);
    let config = stand.load().unwrap();
    let pipeline = &config.settings.pipeline;
    assert_eq!((&*pipeline.name, &*pipeline.slot), ("shop", "theirs"));
    assert_eq!((&*pipeline.publication, pipeline.in_flight_max_events), ("dbz_publication", 9000));
    assert_eq!(pipeline.initial, "skip");

    let stand = stand.file("--config", "walpost.toml", "[pipeline]\nslot = \"ours\"\n");
    assert_eq!(stand.load().unwrap().settings.pipeline.slot, "ours");
    let stand = stand.with(&["--set", "pipeline.slot=flag"]);
    assert_eq!(stand.load().unwrap().settings.pipeline.slot, "flag");
}

#[test]
fn an_error_about_a_key_of_the_connector_names_property_file_and_line() {
    let stand = Stand::new(&[("errors.deadletterqueue.topic.name", "outbox.event.x")]);
    let text = stand.wrong(stand.load().unwrap().router());
    assert!(
        text.starts_with(
            "shop.json line 16 (errors.deadletterqueue.topic.name): pipeline.dead_letter_topic is"
        ),
        "{text}"
    );
    // What a file of ours says is that file's.
    let stand = stand.file("--config", "w.toml", "\n[pipeline]\nslot = \"No\"\n");
    let text = stand.wrong(stand.load().unwrap().check_pipeline());
    assert!(text.starts_with("w.toml line 3: slot is \"No\""), "{text}");
}

#[test]
fn a_default_of_debezium_is_told_as_one() {
    let stand = Stand::new(&[]);
    let shown = stand.load().unwrap().effective();
    let line = shown.lines().find(|line| line.starts_with("slot = ")).unwrap();
    assert!(line.contains("slot = \"debezium\"  # "), "{line}");
    assert!(line.ends_with("shop.json (slot.name, which it does not give)"), "{line}");
}

/// Ours would be its default, which is none of the connector's.
#[test]
fn tables_that_filters_mean_are_not_told_by_a_default() {
    let stand = Stand::new(&[]);
    let shown = stand.load().unwrap().effective();
    assert!(!shown.contains("walpost.outbox"), "{shown}");
    let line = shown.lines().find(|line| line.starts_with("# tables: ")).unwrap();
    assert!(line.contains("shop.json mean"), "{line}");
    assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
    let stand = stand.with(&["--set", "pipeline.tables=public.outbox"]);
    let shown = stand.load().unwrap().effective();
    assert!(shown.contains("tables = [\"public.outbox\"]  # "), "{shown}");
}

#[test]
fn what_is_refused_names_the_property_and_how_many_more() {
    let stand = Stand::new(&[("slot.nmae", "a"), ("heartbeat.interval.ms", "1000")]);
    let text = stand.wrong(stand.load());
    let start = "shop.json line 16: slot.nmae = a: refused because";
    assert!(text.starts_with(start) && text.contains("did you mean slot.name?"), "{text}");

    let stand = stand.with(&["--unknown", "warn"]);
    let verdicts = stand.read();
    let row = verdicts.verdicts().row("slot.nmae").unwrap();
    assert_eq!(row.verdict, Verdict::Ignored);
    assert!(verdicts.warnings().any(|text| text.contains("line 16: slot.nmae")));
}

/// The pipeline of a connector with these properties, and of one table.
fn relay(more: &[(&str, &str)]) -> RelayConfig {
    let stand = Stand::new(more).with(&["--set", "pipeline.tables=public.mine"]);
    stand.load().unwrap().relay().unwrap()
}

#[test]
fn what_no_key_says_reaches_the_pipeline() {
    let plain = relay(&[]);
    let mut defaults = RelayConfig::new("shop");
    assert!(plain.heartbeat.is_none() && plain.message_filter.is_none());
    assert_eq!((&plain.snapshot, &plain.columns), (&defaults.snapshot, &defaults.columns));
    assert!(plain.confirm_slot && plain.publish_via_partition_root && !plain.drop_slot_on_stop);
    assert!(!plain.accept_advanced_slot && plain.signal_table.is_none());

    let of = relay(&[
        ("heartbeat.interval.ms", "250"),
        ("heartbeat.action.query", "insert into beat default values"),
        ("column.exclude.list", "public.mine.secret"),
        ("skipped.operations", "c,u,t"),
        ("signal.data.collection", "public.signals"),
        ("publish.via.partition.root", "false"),
        ("slot.stream.params", "origin=none"),
        ("lsn.flush.mode", "manual"),
        ("slot.drop.on.stop", "true"),
        ("offset.mismatch.strategy", "trust_slot"),
    ]);
    defaults.heartbeat = Some(Heartbeat {
        interval_ms: 250,
        topic: "__debezium-heartbeat.shop".to_owned(),
        server_name: "shop".to_owned(),
        action_query: Some("insert into beat default values".to_owned()),
    });
    assert_eq!(of.heartbeat, defaults.heartbeat);
    assert!(!of.columns.passes("public.mine.secret") && of.columns.passes("public.mine.id"));
    assert!(of.skipped.insert && of.skipped.update);
    assert_eq!(of.signal_table.map(|table| table.to_string()), Some("public.signals".to_owned()));
    assert!(!of.publish_via_partition_root && !of.confirm_slot && of.drop_slot_on_stop);
    assert_eq!((of.stream_origin, of.accept_advanced_slot), (Some(StreamOrigin::None), true));
}

#[test]
fn modes_of_snapshots_reach_the_pipeline() {
    let of = |mode: &str, more: &[(&str, &str)]| {
        let mode = [("snapshot.mode", mode)];
        let text = MINIMAL.replace("\n  \"snapshot.mode\": \"no_data\",", "");
        let stand = Stand::new(&[]).with(&["--set", "pipeline.tables=public.mine"]);
        let lines: String = mode
            .iter()
            .chain(more)
            .map(|(name, value)| format!(",\n  {name:?}: {value:?}"))
            .collect();
        fs::write(stand.path("shop.json"), text.replace("\n}", &format!("{lines}\n}}"))).unwrap();
        let relay = stand.load().unwrap().relay().unwrap();
        let Snapshot { stream, each_start, .. } = relay.snapshot;
        (relay.initial, stream, each_start, relay.on_lost_slot)
    };
    let (publish, skip) = (Some(Initial::Publish), Some(Initial::Skip));
    let (refuse, recover) = (LostSlot::Refuse, LostSlot::Recover);
    assert_eq!(of("initial", &[]), (publish, true, false, refuse));
    assert_eq!(of("no_data", &[]), (skip, true, false, refuse));
    assert_eq!(of("initial_only", &[]), (publish, false, false, refuse));
    assert_eq!(of("always", &[]), (publish, true, true, refuse));
    assert_eq!(of("when_needed", &[]), (publish, true, false, recover));
    let based = |name: &str| format!("snapshot.mode.configuration.based.{name}");
    assert_eq!(of("configuration_based", &[]), (skip, false, false, refuse));
    assert_eq!(
        of(
            "configuration_based",
            &[
                (&based("snapshot.data"), "true"),
                (&based("start.stream"), "true"),
                (&based("snapshot.on.data.error"), "true"),
            ]
        ),
        (publish, true, false, recover)
    );
}

#[test]
fn parts_of_snapshots_reach_the_pipeline() {
    const OVERRIDES: &str = "snapshot.select.statement.overrides";
    let of_table = format!("{OVERRIDES}.public.mine");
    let snapshot = relay(&[
        ("snapshot.include.collection.list", "public.mi.*"),
        (OVERRIDES, "public.mine"),
        (&of_table, "select * from public.mine where id > 7"),
    ])
    .snapshot;
    assert!(snapshot.tables.unwrap()[0].matches("public.mine"));
    assert_eq!(snapshot.overrides[0].table.to_string(), "public.mine");
    assert!(snapshot.overrides[0].statement.ends_with("id > 7"));

    let stand = Stand::new(&[(OVERRIDES, "a.b.c"), (&format!("{OVERRIDES}.a.b.c"), "select 1")]);
    let text = stand.wrong(stand.load());
    assert!(text.contains(&format!("{OVERRIDES}.a.b.c")) && text.contains("no table"), "{text}");
}

#[test]
fn prefixes_of_messages_are_the_connectors_unless_a_key_of_ours_names_them() {
    let of = |prefixes: &str, more: &[&str]| {
        let decodes = "\"decode,outbox\",\n  \"transforms.decode.type\": \"io.debezium.connector.\
                       postgresql.transforms.DecodeLogicalDecodingMessageContent\"";
        let text =
            MINIMAL.replace("\"outbox\"", decodes).replace("\n}", &format!("{prefixes}\n}}"));
        let stand = Stand::new(&[]).with(&["--set", "pipeline.tables=public.mine"]).with(more);
        fs::write(stand.path("shop.json"), text).unwrap();
        let relay = stand.load().unwrap().relay().unwrap();
        (relay.message_prefixes, relay.message_filter)
    };
    assert_eq!(of("", &[]), (Vec::new(), Some(NameFilter::All)));
    let only = ",\n  \"message.prefix.include.list\": \"orders.*\"";
    let (exact, filter) = of(only, &[]);
    let filter = filter.unwrap();
    assert!(exact.is_empty() && filter.passes("orders-eu") && !filter.passes("audit"));
    let keyed = of(only, &["--set", "pipeline.message_prefixes=audit"]);
    assert_eq!(keyed, (vec!["audit".to_owned()], None));
}

#[test]
fn a_literal_that_is_not_read_is_refused() {
    let literal = [
        ("transforms", "outbox,more"),
        ("transforms.more.type", "org.apache.kafka.connect.transforms.InsertHeader"),
        ("transforms.more.header", "h"),
        ("transforms.more.value.literal", "[1, true]"),
    ];
    let folder = Stand::new(&[]);
    let text = MINIMAL.replace("\n  \"transforms\": \"outbox\",", "");
    let lines: String = literal.map(|(name, value)| format!(",\n  {name:?}: {value:?}")).concat();
    fs::write(folder.path("shop.json"), text.replace("\n}", &format!("{lines}\n}}"))).unwrap();
    let file = folder.read();
    let row = file.verdicts().row("transforms.more.value.literal").unwrap();
    assert_eq!(row.verdict, Verdict::Refused, "{row}");
}

#[test]
fn placeholders_lead_nowhere_unless_it_is_allowed() {
    let given = [("slot.name", "${file:FOLDER/secrets:slot}")];
    let stand = Stand::new(&given);
    let path = stand.path("shop.json");
    let text = fs::read_to_string(&path).unwrap();
    let folder = stand.folder.path().canonicalize().unwrap();
    fs::write(&path, text.replace("FOLDER", &folder.display().to_string())).unwrap();
    fs::write(stand.path("secrets"), "slot=hidden_one\n").unwrap();
    let text = stand.wrong(stand.load());
    assert!(text.starts_with("shop.json line 16: slot.name = ${file:"), "{text}");
    let named = format!("allow it, with --allow-placeholders {}/secrets", folder.display());
    assert!(text.contains("refused because ${file:…} is not resolved here"), "said once: {text}");
    assert!(text.contains(&named) || text.contains("--allow-placeholders secrets"), "{text}");

    let allowed = folder.join("secrets").display().to_string();
    let stand = stand.with(&["--allow-placeholders", &allowed]);
    let config = stand.load().unwrap();
    assert_eq!(config.settings.pipeline.slot, "hidden_one");
    // What a placeholder stands for shows nowhere.
    assert!(!config.effective().contains("hidden_one"));
    assert!(config.effective().contains("slot = \"***\""), "{}", config.effective());
    let text = stand.wrong(Err::<(), _>(config.wrong("pipeline", "slot", "is \"hidden_one\"")));
    assert!(text.ends_with("(slot.name): is ***"), "{text}");
}

#[test]
fn secrets_of_a_connector_do_not_show() {
    let config = Stand::new(&[]).load().unwrap();
    assert!(!config.effective().contains("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"));
    assert_eq!(config.database().unwrap().config().get_password(), Some(b"s3cret".as_slice()));
}

#[test]
fn a_file_with_a_secret_beside_it_takes_its_place() {
    let stand = Stand::new(&[]);
    fs::write(stand.path("url"), "postgres://other@elsewhere/db\n").unwrap();
    let toml = format!("[postgres]\nurl_file = {:?}\n", stand.path("url").display().to_string());
    let stand = stand.file("--config", "w.toml", &toml);
    let database = stand.load().unwrap().database().unwrap();
    assert_eq!(database.config().get_user(), Some("other"));
}

#[test]
fn filters_have_to_be_looked_up_unless_tables_are_named() {
    let config = Stand::new(&[]).load().unwrap();
    assert!(matches!(config.relay(), Err(ConfigError::NoTables)));
    config.check_pipeline().unwrap();
    let named = Stand::new(&[]).with(&["--set", "pipeline.tables=public.mine"]);
    let relay = named.load().unwrap().relay().unwrap();
    assert_eq!(relay.tables[0].to_string(), "public.mine");
    // Without a transform that decodes messages they are no events.
    assert!(relay.message_prefixes.is_empty());
}

#[test]
fn a_worker_names_the_brokers_and_the_converters() {
    let worker = "bootstrap.servers=b:9092\n\
                  header.converter=org.apache.kafka.connect.storage.StringConverter\n";
    let stand = Stand::new(&[]).file("--worker", "worker.properties", worker);
    let config = stand.load().unwrap();
    assert_eq!(config.settings.kafka["bootstrap.servers"], "b:9092");
    assert!(config.effective().contains("worker.properties line 1 (bootstrap.servers)"));
    let EventEncoding::Connect(options) = config.encoding().unwrap() else { panic!("Connect") };
    assert!(matches!(options.converters.header, HeaderConverter::Of(Converter::String)));
    let alone = Line::parse_from(["walpost", "--worker", "w"]).config;
    assert!(matches!(alone.connector.read(), Err(ConfigError::WorkerAlone)));
}

#[test]
fn handling_router_and_transforms_reach_the_encoding() {
    let stand = Stand::new(&[
        ("walpost.debezium.version", "3.3"),
        ("decimal.handling.mode", "string"),
        ("transforms.outbox.table.field.event.key", "customer"),
        ("transforms.outbox.table.expand.json.payload", "true"),
        ("transforms.outbox.table.field.additional.missing", "ignore"),
    ]);
    let EventEncoding::Connect(options) = stand.load().unwrap().encoding().unwrap() else {
        panic!("Connect")
    };
    assert_eq!(options.context_headers, ContextHeaders::Three);
    assert_eq!(options.shape.topic_prefix, "shop");
    assert_eq!(options.shape.columns.decimal, walpost_encode::connect::DecimalHandling::String);
    assert_eq!(&*options.typing.key_column, "customer");
    assert!(options.typing.expand.is_some() && options.typing.ignore_missing);
    assert!(options.transforms.before.is_empty());
    let after = Stand::new(&[]);
    let text = include_str!("../../../../../connectors/transforms.json");
    fs::write(after.path("shop.json"), text).unwrap();
    let EventEncoding::Connect(options) = after.load().unwrap().encoding().unwrap() else {
        panic!("Connect")
    };
    let actions: Vec<_> = options.transforms.after.iter().map(|step| &step.action).collect();
    assert!(matches!(
        actions[..],
        [Action::InsertHeader { .. }, Action::DropHeaders(_), Action::Drop, Action::RenameTopic(_)]
    ));
}

#[test]
fn keys_of_ours_for_the_encoding_are_refused_beside_a_connector() {
    let stand = Stand::new(&[]).with(&["--set", "encode.value=json"]);
    let text = stand.wrong(stand.load().unwrap().encoding());
    assert_eq!(
        text,
        "--set: encode.value is set, and the connector's converters make the bytes; remove it"
    );
}
