use std::{fs, path::PathBuf};

use crate::cli::{stderr, stdout, walpost};

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("walpost.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn effective(path: &str) -> String {
    let output = walpost(&["config", "--effective", "--config", path], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_printed_default_file_is_a_valid_configuration() {
    let printed = stdout(&walpost(&["config"], &[]));
    assert!(printed.contains("[pipeline]"));
    let (_folder, path) = file(&printed);
    let of_file = effective(path.to_str().unwrap());
    let of_nothing = stdout(&walpost(&["config", "--effective"], &[]));
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&of_file), values(&of_nothing));
}

#[test]
fn what_is_effective_says_where_it_comes_from() {
    let (_folder, path) = file("[pipeline]\nslot = \"a\"\n");
    let args = ["config", "--effective", "--config", path.to_str().unwrap()];
    let more = ["--set", "sink.queue_max_bytes=1_000", "--postgres", "postgres://a:s3cret@h/db"];
    let variables = [("WALPOST_HTTP_LISTEN", "127.0.0.1:1")];
    let text = stdout(&walpost(&[&args[..], &more].concat(), &variables));
    assert!(text.contains("slot = \"a\"  # ") && text.contains("walpost.toml line 2"), "{text}");
    assert!(text.contains("queue_max_bytes = 1000  # --set"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:1\"  # WALPOST_HTTP_LISTEN"), "{text}");
    assert!(text.contains("url = \"postgres://a:***@h/db\"  # --postgres"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn a_misspelt_key_exits_with_2_and_names_line_and_neighbour() {
    let (_folder, path) = file("[pipeline]\n\nslto = \"a\"\n");
    for command in ["run", "check", "status", "migrate"] {
        let output = walpost(&[command, "--config", path.to_str().unwrap()], &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("line 3: unknown key pipeline.slto"), "{text}");
        assert!(text.contains("did you mean pipeline.slot?"), "{text}");
    }
}

#[test]
fn a_wrong_log_level_is_refused_by_check_as_by_run() {
    let url = crate::cli::nowhere();
    for command in ["run", "check"] {
        let args = [command, "--postgres", &url, "--kafka", "127.0.0.1:1"];
        let output = walpost(&[&args[..], &["--set", "log.level=verbose"]].concat(), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains("\"verbose\" is none of error, warn"), "{command}: {text}");
    }
}

#[test]
fn a_misspelt_variable_exits_with_2() {
    let output = walpost(&["run"], &[("WALPOST_POSTGRES_ULR", "x")]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("did you mean postgres.url?"), "{text}");
}

#[test]
fn a_value_that_cannot_be_used_is_told_with_its_place() {
    let common = ["run", "--postgres", "postgres://a@h/d", "--kafka", "h:1"];
    for (set, parts) in [
        ("pipeline.max_event_bytes=8MB", "is a string, expected a whole number"),
        ("router.topic_regex=(", "compiling route.topic.regex"),
        ("http.listen=x", "an address such as 127.0.0.1:9464"),
        ("log.level=inof", "none of error, warn, info"),
    ] {
        let output = walpost(&[&common[..], &["--set", set]].concat(), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with("error: --set: ") && text.contains(parts), "{text}");
    }
    let output = walpost(&common, &[("WALPOST_LOG", "loud")]);
    let text = stderr(&output);
    assert!(text.starts_with("error: WALPOST_LOG: log level \"loud\""), "{text}");
}

#[test]
fn a_file_that_is_named_has_to_be_there() {
    let output = walpost(&["run", "--config", "nowhere.toml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nowhere.toml"));
}
