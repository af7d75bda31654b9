mod retention;
mod serving;
mod webhooks;

use std::io::Write;

use walpost_encode::{Encoder, Encoding};
use walpost_relay::{LostSlot, RelayConfig, RetentionConfig};
use walpost_router::RouterConfig;

use super::*;

fn file(text: &str) -> (tempfile::NamedTempFile, ConfigArgs) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let args = ConfigArgs { config: Some(file.path().to_owned()), ..ConfigArgs::default() };
    (file, args)
}

fn load(text: &str) -> Result<Config, ConfigError> {
    let (_file, args) = file(text);
    Config::load_with(&args, None, [])
}

fn refusal(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

fn variables(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let (_file, args) = file("");
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load_with(&args, None, pairs)
}

/// Fails when a field is added to the code and not to the file, as the
/// settings have no default of their own.
#[test]
fn the_default_file_is_the_defaults_of_the_code() {
    let config = load("").unwrap();
    let (relay, expected) = (config.relay().unwrap(), RelayConfig::new("main"));
    assert_eq!(format!("{relay:?}"), format!("{expected:?}"));
    assert_eq!(config.router().unwrap(), RouterConfig::walpost());
    let raw = Encoding { key: Encoder::Raw, value: Encoder::Raw };
    assert_eq!(config.plain_encoding().unwrap(), raw);
    assert_eq!(config.listen().unwrap().unwrap().to_string(), "127.0.0.1:9464");
    assert_eq!(config.log_format().unwrap(), LogFormat::Text);
    assert_eq!(config.retention().unwrap(), RetentionConfig::default());
    assert!(!config.settings.retention.enabled);
}

#[test]
fn a_retention_that_is_not_safe_is_named_with_its_line_and_the_reason() {
    let config = load("[retention]\nkeep_days = 3\n").unwrap();
    let text = config.retention().unwrap_err().to_string();
    assert!(text.contains("line 2: retention.keep_days is 3; it is at least 7: a row"), "{text}");
    let config = load("[retention]\nbatch_rows = 20_000\n").unwrap();
    let text = config.retention().unwrap_err().to_string();
    assert!(text.contains("retention.batch_rows is 20000; it lies between 1 and 10000"), "{text}");
    let text = refusal("[retention]\nkeep_dayz = 3\n");
    assert!(text.ends_with("did you mean retention.keep_days?"), "{text}");
}

#[test]
fn the_topic_of_dead_letters_is_none_of_events_and_polling_has_none() {
    let letters = |topic: &str, more: &str| {
        load(&format!("[pipeline]\ndead_letter_topic = \"{topic}\"\n{more}")).unwrap()
    };
    assert_eq!(load("").unwrap().relay().unwrap().dead_letter_topic, None);
    let config = letters("shop.dead", "");
    assert_eq!(config.relay().unwrap().dead_letter_topic.as_deref(), Some("shop.dead"));
    config.router().unwrap();
    let text = letters("no topic", "").relay().unwrap_err().to_string();
    assert!(text.contains("line 2: dead_letter_topic is \"no topic\""), "{text}");
    let text = letters("outbox.event.dead", "").router().unwrap_err().to_string();
    let expected = "line 2: pipeline.dead_letter_topic is \"outbox.event.dead\", which events may \
                    be routed to by router.topic_replacement, \"outbox.event.${routedByValue}\"";
    assert!(text.contains(expected), "{text}");
    let one = "[router]\ntopic_replacement = \"events\"\n";
    assert!(letters("events", one).router().is_err());
    letters("events.dead", one).router().unwrap();
    let polls = letters("dead", "source = \"polling\"\n");
    let text = polls.polling().unwrap_err().to_string();
    assert!(
        text.contains("line 2: pipeline.dead_letter_topic is set and pipeline.source"),
        "{text}"
    );
    let text = refusal("[pipeline]\ndead_leter_topic = \"dead\"\n");
    assert!(text.ends_with("did you mean pipeline.dead_letter_topic?"), "{text}");
}

#[test]
fn what_becomes_of_a_lost_slot_is_one_of_two() {
    let config = load("[pipeline]\non_lost_slot = \"recreate\"\n").unwrap();
    let text = config.relay().unwrap_err().to_string();
    let expected = r#"pipeline.on_lost_slot is "recreate"; one of "refuse", "recover""#;
    assert!(text.contains(expected), "{text}");
    let config = load("[pipeline]\non_lost_slot = \"recover\"\n").unwrap();
    assert_eq!(config.relay().unwrap().on_lost_slot, LostSlot::Recover);
}

#[test]
fn a_row_filter_brings_a_publication_of_its_own() {
    let relay = |text: &str| load(text).unwrap().relay();
    let shared = relay("").unwrap();
    assert_eq!((shared.publication.as_str(), shared.row_filter), ("walpost", None));
    let filter = "row_filter = \"tenant = 'a'\"";
    let own = relay(&format!("[pipeline]\nname = \"a\"\n{filter}")).unwrap();
    assert_eq!(own.publication, "walpost_a");
    assert_eq!(own.row_filter.as_deref(), Some("tenant = 'a'"));
    assert!(own.event_prefixes().is_empty());
    let named = format!("[pipeline]\n{filter}\npublication = \"mine\"\nrow_filter_messages = true");
    let named = load(&named).unwrap();
    assert_eq!(named.relay().unwrap().publication, "mine");
    assert_eq!(named.relay().unwrap().event_prefixes(), ["walpost"]);
    assert_eq!(named.migrated_publication(), "walpost", "it has all rows");
    assert_eq!(load("[pipeline]\npublication = \"p\"").unwrap().migrated_publication(), "p");
    let other = "[pipeline]\npublication = \"p\"\ntables = [\"public.events\"]";
    let other = load(other).unwrap();
    assert_eq!(other.migrated_publication(), "walpost", "its own is of its own tables");
    assert!(other.migrated_pipeline().is_none());
    let other = load("[pipeline]\ntables = [\"public.events\"]").unwrap();
    assert_eq!(other.migrated_publication(), "walpost");
    assert_eq!(other.migrated_pipeline().unwrap().publication, "walpost");
    let polling = load("[pipeline]\nsource = \"polling\"").unwrap();
    assert!(polling.migrated_pipeline().is_none(), "it has no publication");
}

#[test]
fn a_row_filter_that_cannot_be_meant_is_named_with_its_line() {
    let text = relay_refusal("[pipeline]\nrow_filter = \"  \"\n");
    assert!(text.contains("line 2: row_filter has 2 bytes"), "{text}");
    let text = refusal("[pipeline]\nrow_filters = \"true\"\n");
    assert!(text.ends_with("did you mean pipeline.row_filter?"), "{text}");
    let text = refusal("[pipeline]\nrow_filter = true\n");
    assert!(text.contains("pipeline.row_filter is true or false, expected a string"), "{text}");
    let polled = load("[pipeline]\nsource = \"polling\"\nrow_filter = \"true\"\n").unwrap();
    let text = polled.polling().unwrap_err().to_string();
    assert!(text.contains("line 3: pipeline.row_filter is set, and polling"), "{text}");
}

fn relay_refusal(text: &str) -> String {
    load(text).unwrap().relay().unwrap_err().to_string()
}

#[test]
fn the_window_of_consumers_is_for_ever_unless_it_is_set_within_its_bound() {
    let window = |text: &str| load(text).unwrap().dedup_window_hours();
    assert_eq!(window("").unwrap(), None);
    assert_eq!(window("[replay]\ndedup_window_hours = 48").unwrap(), Some(48));
    let text = window("[replay]\ndedup_window_hours = 900000").unwrap_err().to_string();
    assert!(text.contains("replay.dedup_window_hours is 900000; it lies between 0"), "{text}");
    assert!(text.contains("line 2"), "{text}");
    let text = refusal("[replay]\ndedup_hours = 48");
    assert!(text.contains("unknown key replay.dedup_hours"), "{text}");
}

#[test]
fn a_sink_beside_the_pipeline_is_not_transactional() {
    let config =
        load("[kafka]\n\"bootstrap.servers\" = \"h:1\"\n[sink]\npublish = \"transactional\"")
            .unwrap();
    let is_transactional = |connector: walpost_kafka::KafkaConnector| {
        format!("{connector:?}").contains("transactional_id: Some")
    };
    assert!(is_transactional(config.kafka().unwrap()));
    assert!(!is_transactional(config.kafka_beside().unwrap()));
}

#[test]
fn every_field_of_the_pipeline_can_be_set() {
    let names = format!("{:?}", RelayConfig::new("main"));
    let fields = names.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':'));
    let mut seen = 0;
    // A key, a table's parts, and what follows from other keys.
    let others =
        ["pipeline", "schema", "name", "placed_columns", "named_columns", "new_tables", "arrived"];
    // Parts of what a connector sets.
    let parts = ["stream", "each_start", "overrides", "insert", "update"];
    let of_connector = include_str!("connector/relay.rs");
    for field in fields.filter(|field| !others.contains(field) && !parts.contains(field)) {
        let is_set = DEFAULT_FILE.contains(&format!("\n{field} = "))
            || of_connector.contains(&format!("config.{field} ="));
        assert!(is_set, "{field}");
        seen += 1;
    }
    assert!(seen > 15, "{names}");
}

#[test]
fn every_key_of_the_default_file_is_explained() {
    let mut explained = false;
    for line in DEFAULT_FILE.lines() {
        assert!(line.len() <= 90, "{line}");
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(explained, "{line}");
        }
        explained = line.starts_with('#');
    }
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_nearest_key() {
    let text = refusal("[pipeline]\nslot = \"a\"\npublicaton = \"b\"\n");
    assert!(text.contains("line 3: unknown key pipeline.publicaton"), "{text}");
    assert!(text.ends_with("did you mean pipeline.publication?"), "{text}");
}

#[test]
fn a_misspelt_section_is_named_even_when_it_is_empty() {
    for text in ["\n[pipline]\n", "\n[pipline]\nslot = \"a\"\n"] {
        let text = refusal(text);
        assert!(text.contains("unknown section pipline, did you mean pipeline?"), "{text}");
    }
}

#[test]
fn a_key_of_another_section_is_found_there() {
    let text = refusal("[postgres]\nslot = \"a\"\n");
    assert!(text.ends_with("did you mean pipeline.slot?"), "{text}");
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_what_it_should_be() {
    let text = refusal("[pipeline]\nmax_event_bytes = \"8MB\"\n");
    assert!(text.contains("line 2: pipeline.max_event_bytes is a string, expected a whole"));
    let text = refusal("[pipeline]\nmax_event_bytes = -1\n");
    assert!(text.contains("pipeline.max_event_bytes is -1"), "{text}");
    let text = refusal("[pipeline]\ntables = \"outbox\"\n");
    assert!(text.contains("expected a list of strings"), "{text}");
}

#[test]
fn a_value_outside_its_set_is_named_with_the_set() {
    let config = load("[pipeline]\n\nsource = \"Native\"\n").unwrap();
    let text = config.relay().unwrap_err().to_string();
    assert!(text.contains("line 3"), "{text}");
    assert!(text.contains(r#"pipeline.source is "Native"; one of "native", "pgwire""#), "{text}");
}

#[test]
fn what_the_relay_refuses_is_named_with_its_line() {
    let config = load("[pipeline]\nslot = \"No Slot\"\n").unwrap();
    let text = config.relay().unwrap_err().to_string();
    assert!(text.contains("line 2: slot is \"No Slot\""), "{text}");
}

#[test]
fn broken_toml_is_named_with_its_line() {
    let text = refusal("[postgres]\nurl = \"a\nb\n");
    assert!(text.contains("line 2 is no TOML"), "{text}");
    let text = refusal("url = \"a\"\n");
    assert!(text.contains("line 1: url stands before the first [section]"), "{text}");
}

#[test]
fn kafka_takes_any_key_quoted_or_not() {
    let config = load(
        "[kafka]\nbootstrap.servers = \"a:1\"\n\"linger.ms\" = 5\nsocket.keepalive.enable = true\n",
    )
    .unwrap();
    let kafka = &config.settings.kafka;
    assert_eq!(kafka["bootstrap.servers"], "a:1");
    assert_eq!(kafka["linger.ms"], "5");
    assert_eq!(kafka["socket.keepalive.enable"], "true");
    config.kafka().unwrap();
}

#[test]
fn transactions_are_asked_for_by_the_mode_and_fit_into_their_timeout() {
    let kafka = |sink: &str| {
        let text = format!("[kafka]\nbootstrap.servers = \"h:1\"\n[sink]\n{sink}\n");
        load(&text).and_then(|config| config.kafka()).map_err(|error| error.to_string())
    };
    kafka("publish = \"transactional\"\ntransactional_id = \"shop-1\"").unwrap();
    for (sink, problem) in [
        ("publish = \"exactly-once\"", "\"idempotent\", \"transactional\""),
        ("transactional_id = \"shop-1\"", "sink.publish is \"idempotent\""),
        ("publish = \"transactional\"\ntransaction_interval_ms = 60_000", "at most half of it"),
    ] {
        let text = kafka(sink).unwrap_err();
        assert!(text.contains(problem) && text.contains("line "), "{text}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let (_file, mut args) = file("[pipeline]\nslot = \"a\"\nname = \"n\"\nschema = \"s\"\n");
    args.assignments = vec!["pipeline.slot=c".into(), "kafka.linger.ms=7".into()];
    args.postgres = Some("postgres://flag@h/db".into());
    let environment = [
        ("WALPOST_PIPELINE_SLOT", "b"),
        ("WALPOST_PIPELINE_NAME", "m"),
        ("WALPOST_PIPELINE_TABLES", "a.b, c"),
        ("WALPOST_PIPELINE_CREATE_SLOT", "false"),
        ("WALPOST_PIPELINE_MAX_EVENT_BYTES", "4_096"),
        ("WALPOST_POSTGRES_URL", "postgres://variable@h/db"),
        ("WALPOST_KAFKA_BOOTSTRAP_SERVERS", "k:9"),
        ("WALPOST_LOG", "debug"),
        ("WALPOST_TEST_POSTGRES", "x"),
        ("WALPOST_SERVICE_HOST", "10.0.0.1"),
    ];
    let variables = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load_with(&args, None, variables).unwrap();
    let pipeline = &config.settings.pipeline;
    assert_eq!((&*pipeline.slot, &*pipeline.name, &*pipeline.schema), ("c", "m", "s"));
    assert_eq!(pipeline.tables, ["a.b", "c"]);
    assert_eq!((pipeline.create_slot, pipeline.max_event_bytes), (false, 4096));
    assert_eq!(config.settings.postgres.url, "postgres://flag@h/db");
    assert_eq!(config.settings.kafka["linger.ms"], "7");
    assert_eq!(config.settings.kafka["bootstrap.servers"], "k:9");
}

#[test]
fn a_variable_of_a_known_section_with_an_unknown_key_is_an_error() {
    let text = variables(&[("WALPOST_POSTGRES_ULR", "x")]).unwrap_err().to_string();
    assert!(text.starts_with("WALPOST_POSTGRES_ULR: unknown key postgres.ulr"), "{text}");
    let text = variables(&[("WALPOST_PIPELINE_CREATE_SLOT", "ja")]).unwrap_err().to_string();
    assert!(text.contains("expected true or false"), "{text}");
}

#[test]
fn a_list_of_a_variable_is_written_as_in_the_file_or_between_commas() {
    for text in ["a.b,a.c", " a.b , a.c,", "[\"a.b\", 'a.c']", " [\n\"a.b\",\n\"a.c\",\n]"] {
        let config = variables(&[("WALPOST_PIPELINE_TABLES", text)]).unwrap();
        assert_eq!(config.settings.pipeline.tables, ["a.b", "a.c"], "{text}");
    }
    assert!(
        variables(&[("WALPOST_PIPELINE_TABLES", "[]")])
            .unwrap()
            .settings
            .pipeline
            .tables
            .is_empty()
    );
    // A name may begin so, and a pattern.
    let config = variables(&[("WALPOST_PIPELINE_TABLES", "[a]b.c")]).unwrap();
    assert_eq!(config.settings.pipeline.tables, ["[a]b.c"]);
    // So a shell hands it on.
    let text = variables(&[("WALPOST_PIPELINE_TABLES", "[a.b,a.c]")]).unwrap_err().to_string();
    assert!(text.starts_with("WALPOST_PIPELINE_TABLES: ") && text.contains("a,b"), "{text}");
    let text = variables(&[("WALPOST_PIPELINE_TABLES", "[1]")]).unwrap_err().to_string();
    assert!(text.contains("expected a list of strings"), "{text}");
}

#[test]
fn an_assignment_without_key_or_value_is_refused_without_its_value() {
    for text in ["slot=a", "pipeline.slot", ""] {
        let (_file, mut args) = file("");
        args.assignments = vec![text.into()];
        assert!(
            Config::load_with(&args, None, []).unwrap_err().to_string().contains("--set"),
            "{text}"
        );
    }
}

#[test]
fn what_is_effective_can_be_loaded_again_and_shows_no_secret() {
    let config = load(
        "[postgres]\nurl = \"postgres://a:s3cret@h/db\"\n[pipeline]\ntables = [\"x.y\"]\n\
         [kafka]\nsasl.password = \"s3cret\"\nbootstrap.servers = \"k:1\"\n[http]\nlisten = \"\"\n",
    )
    .unwrap();
    let text = config.effective();
    assert!(!text.contains("s3cret"), "{text}");
    assert!(text.contains("line 4"), "{text}");
    let again = load(&text).unwrap();
    assert_eq!(format!("{:?}", again.relay().unwrap()), format!("{:?}", config.relay().unwrap()));
    assert_eq!(again.settings.kafka["sasl.password"], "***");
    assert_eq!(again.settings.kafka["bootstrap.servers"], "k:1");
    assert_eq!(again.listen().unwrap(), None);
}

#[test]
fn secrets_are_read_from_files() {
    let (secret, _) = file("postgres://from-file@h/db\n");
    let path = secret.path().display();
    let config = load(&format!("[postgres]\nurl_file = \"{path}\"\n")).unwrap();
    assert_eq!(config.database().unwrap().user(), "from-file");
    let config = load(&format!("[postgres]\nurl = \"x\"\nurl_file = \"{path}\"\n")).unwrap();
    assert!(config.database().unwrap_err().to_string().contains("both set"));
    let config = load("[postgres]\nurl_file = \"/nowhere/url\"\n").unwrap();
    assert!(config.database().unwrap_err().to_string().contains("postgres.url_file"));
}

#[test]
fn a_missing_address_says_where_to_set_it() {
    let error = load("").unwrap().database().unwrap_err();
    assert!(error.next_step().contains("WALPOST_POSTGRES_URL"));
    let error = load("").unwrap().kafka().unwrap_err();
    assert!(error.next_step().contains("WALPOST_KAFKA_BOOTSTRAP_SERVERS"));
}

#[test]
fn polling_is_asked_for_by_the_source_and_its_defaults_are_those_of_the_code() {
    use walpost_relay::PollingConfig;

    assert_eq!(load("").unwrap().polling().unwrap(), None);
    let polling = |text: &str| {
        let text = format!("[pipeline]\nsource = \"polling\"\n{text}");
        load(&text).unwrap().polling().map_err(|error| error.to_string())
    };
    assert_eq!(polling(""), Ok(Some(PollingConfig::default())));
    let delays = polling("[polling]\nretry_delays = [\"5s\", \"1d\"]\n").unwrap_err();
    assert!(delays.contains("line 4: polling.retry_delays has \"1d\""), "{delays}");
    let bound = polling("[polling]\nclaim_timeout_ms = 1\n").unwrap_err();
    assert!(bound.contains("polling.claim_timeout_ms is 1; it lies between 15000"), "{bound}");
    let counted = polling("[polling]\nmax_attempts_applies_to = \"none\"\n").unwrap_err();
    assert!(counted.contains("one of \"row\", \"all\""), "{counted}");
    let tables = polling("tables = [\"a\", \"b\"]\n").unwrap_err();
    assert!(tables.contains("names 2 tables"), "{tables}");
    let fenced = polling("[sink]\npublish = \"transactional\"\n").unwrap_err();
    assert!(fenced.contains("would fence each other off"), "{fenced}");
    let unknown = refusal("[polling]\nstatus_colum = \"s\"\n");
    assert!(unknown.ends_with("did you mean polling.status_column?"), "{unknown}");
}

#[test]
fn every_field_of_polling_can_be_set() {
    let names = format!("{:?}", walpost_relay::PollingConfig::default());
    let fields = names.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':'));
    let mut seen = 0;
    for field in fields {
        assert!(DEFAULT_FILE.contains(&format!("\n{field} = ")), "{field}");
        seen += 1;
    }
    assert!(seen > 20, "{names}");
}
