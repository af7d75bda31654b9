use std::process::{Command, Output};

/// Runs the binary in an empty folder, with no variable of ours.
pub(crate) fn walpost(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_walpost"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WALPOST_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).args(args).current_dir(folder.path()).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Nobody listens there: the port was free a moment ago and is not ours.
pub(crate) fn nowhere() -> String {
    format!("postgres://app:s3cret@127.0.0.1:{}/db", walpost_local::free_port().unwrap())
}

#[test]
fn help_names_the_exit_codes() {
    for args in [&["--help"][..], &["run", "--help"]] {
        let text = stdout(&walpost(args, &[]));
        assert!(text.contains("3  PostgreSQL is not as it has to be"), "{text}");
    }
}

#[test]
fn an_unknown_argument_exits_with_2() {
    assert_eq!(walpost(&["run", "--no-such"], &[]).status.code(), Some(2));
}

#[test]
fn a_run_without_a_database_says_where_to_name_it_and_exits_with_2() {
    let output = walpost(&["run"], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.starts_with("error: postgres.url is not set\nnext step: name the database"),
        "{text}"
    );
}

#[test]
fn a_run_without_a_broker_says_where_to_name_it_and_exits_with_2() {
    let output = walpost(&["run", "--postgres", "postgres://app@h/db"], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("next step: name a broker"), "{text}");
}

#[test]
fn a_setting_that_breaks_the_promise_is_refused_before_anything_is_connected() {
    let args =
        ["run", "--postgres", "postgres://app@h/db", "--kafka", "h:1", "--set", "kafka.acks=1"];
    let output = walpost(&args, &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("kafka.acks") && text.contains("promise"), "{text}");
}

#[test]
fn an_address_that_is_taken_exits_with_2() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http.listen={}", taken.local_addr().unwrap());
    let args = ["run", "--postgres", "postgres://app@h/db", "--kafka", "h:1", "--set", &listen];
    let output = walpost(&args, &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot listen on 127.0.0.1:"), "{text}");
    assert!(text.contains("next step: set http.listen"), "{text}");
}

#[test]
fn a_database_that_never_answers_exits_with_3_and_shows_no_password() {
    let url = nowhere();
    let set = ["--set", "pipeline.start_timeout_ms=1", "--set", "http.listen="];
    let args = ["run", "--postgres", &url, "--kafka", "127.0.0.1:1"];
    let output = walpost(&[&args[..], &set].concat(), &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("next step: make sure that PostgreSQL runs"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(text.matches("error: ").count(), 1, "{text}");
}

#[test]
fn commands_that_look_exit_with_3_when_the_database_does_not_answer() {
    let url = nowhere();
    for command in [&["status"][..], &["parked", "list"], &["migrate"], &["migrate", "--status"]] {
        let output = walpost(&[command, &["--postgres", &url]].concat(), &[]);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {}", stderr(&output));
    }
}
