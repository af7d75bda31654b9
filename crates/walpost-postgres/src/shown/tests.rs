use std::io;

use super::{
    Author::{Application, Walpost},
    *,
};

const MARKER: &str = "do-not-show-e1f0";

/// As a statement fails that the server parses.
const fn message(state: &'static str, file: &'static str) -> ServerMessage<'static> {
    ServerMessage {
        severity: "ERROR",
        state,
        message: MARKER,
        file: Some(file),
        has_context: false,
        is_in_statement: false,
        constraint: None,
        schema: None,
        table: None,
        column: None,
        data_type: None,
    }
}

const fn in_statement(state: &'static str, file: &'static str) -> ServerMessage<'static> {
    ServerMessage { is_in_statement: true, ..message(state, file) }
}

/// Whether the message is shown to be of: Walpost's statement, the application's, and
/// a function that either has called.
fn shown(of: ServerMessage<'_>) -> [bool; 3] {
    let is_shown =
        |of: ServerMessage<'_>, author| of.to_text(author).contains(&format!(": {MARKER}"));
    let called = ServerMessage { has_context: true, is_in_statement: false, ..of };
    let by_function = is_shown(called, Walpost);
    assert_eq!(by_function, is_shown(called, Application), "{}", of.state);
    [is_shown(of, Walpost), is_shown(of, Application), by_function]
}

const EVERYWHERE: [bool; 3] = [true, true, true];
const DIRECTLY: [bool; 3] = [true, true, false];
const OURS_ALONE: [bool; 3] = [true, false, false];
const NEVER: [bool; 3] = [false, false, false];

/// Errors, and where their messages are shown.
const ERRORS: &[(ServerMessage<'static>, [bool; 3])] = &[
    // Connections and logins.
    (message("08006", "pqcomm.c"), OURS_ALONE),
    (message("08P01", "postgres.c"), OURS_ALONE),
    (message("28P01", "auth.c"), OURS_ALONE),
    (message("3D000", "postinit.c"), OURS_ALONE),
    // Rights.
    (message("42501", "aclchk.c"), EVERYWHERE),
    (message("42501", "rls.c"), EVERYWHERE),
    (message("42501", "execMain.c"), EVERYWHERE),
    // As of pg_read_file($1).
    (message("42501", "fd.c"), OURS_ALONE),
    // Conflicts, locks, limits, shutdowns, states of the transaction.
    (message("25006", "utility.c"), EVERYWHERE),
    (message("25P02", "postgres.c"), EVERYWHERE),
    (message("40001", "predicate.c"), EVERYWHERE),
    (message("40P01", "deadlock.c"), EVERYWHERE),
    (message("53100", "md.c"), DIRECTLY),
    (message("53300", "proc.c"), DIRECTLY),
    (message("55P03", "postgres.c"), EVERYWHERE),
    (message("55P03", "heapam.c"), DIRECTLY),
    (message("57014", "postgres.c"), EVERYWHERE),
    (message("57P01", "postgres.c"), EVERYWHERE),
    // What a foreign server has said, under its state.
    (message("40001", "connection.c"), DIRECTLY),
    (message("55000", "slot.c"), OURS_ALONE),
    (message("55P04", "enum.c"), NEVER),
    (message("54000", "tsquery.c"), NEVER),
    (message("54000", "async.c"), OURS_ALONE),
    (message("54001", "stack_depth.c"), OURS_ALONE),
    (message("58P01", "walsender.c"), OURS_ALONE),
    // Names: at a position of the statement, or as a value.
    (in_statement("42P01", "parse_relation.c"), OURS_ALONE),
    (message("42P01", "namespace.c"), NEVER),
    (in_statement("42703", "parse_relation.c"), OURS_ALONE),
    (message("42704", "parse_type.c"), NEVER),
    (in_statement("42883", "parse_func.c"), OURS_ALONE),
    (message("42883", "regproc.c"), NEVER),
    (in_statement("3F000", "namespace.c"), OURS_ALONE),
    (message("3F000", "namespace.c"), NEVER),
    (message("0A000", "formatting.c"), NEVER),
    (message("42P07", "heap.c"), OURS_ALONE),
    (message("42710", "publicationcmds.c"), OURS_ALONE),
    // The text of the statement.
    (in_statement("42601", "scan.l"), NEVER),
    (in_statement("42601", "parse_clause.c"), NEVER),
    (in_statement("42602", "regproc.c"), NEVER),
    (in_statement("42622", "scansup.c"), NEVER),
    // Data.
    (in_statement("21000", "execMain.c"), NEVER),
    (in_statement("22P02", "numutils.c"), NEVER),
    (in_statement("22003", "numutils.c"), NEVER),
    (in_statement("22007", "datetime.c"), NEVER),
    (message("22023", "variable.c"), NEVER),
    (message("22030", "jsonfuncs.c"), NEVER),
    (message("23505", "nbtinsert.c"), NEVER),
    (message("23514", "execMain.c"), NEVER),
    (message("44000", "execMain.c"), NEVER),
    (message("38000", "fmgr.c"), NEVER),
    (message("P0001", "pl_exec.c"), NEVER),
    (message("P0004", "pl_exec.c"), NEVER),
    (message("HV000", "connection.c"), NEVER),
    (message("XX000", "reorderbuffer.c"), NEVER),
    (message("APP01", "postgres.c"), NEVER),
    (message("", "postgres.c"), NEVER),
    (message("é1234", "postgres.c"), NEVER),
];

#[test]
fn each_class_is_shown_or_left_out_by_author_and_context() {
    for (of, expected) in ERRORS {
        assert_eq!(shown(*of), *expected, "{} {:?}", of.state, of.file);
    }
}

#[test]
fn raised_texts_and_names_are_left_out_under_every_state() {
    for file in ["pl_exec.c", "plperl.c", "plpy_elog.c", "plv8.cc", "lib.rs"] {
        for state in ["42501", "40001", "57014", "25006", "53300", "42P07", "P0001"] {
            let table = Some(MARKER);
            let raised = ServerMessage { table, constraint: table, ..message(state, file) };
            for author in [Walpost, Application] {
                let text = raised.to_text(author);
                assert!(!text.contains(MARKER) && text.contains(state), "{text}");
                assert!(text.ends_with(", full text in the server's log"), "{text}");
            }
        }
    }
    // Ours are functions too.
    assert_eq!(shown(message("WP001", "pl_exec.c")), [true, true, true]);
}

#[test]
fn the_end_of_a_session_is_shown_whoever_was_asking() {
    let refused = ServerMessage { severity: "FATAL", ..message("3D000", "postinit.c") };
    assert_eq!(refused.to_text(Application), format!("FATAL 3D000: {MARKER}"));
    let pooler = ServerMessage { file: None, ..refused };
    assert_eq!(pooler.to_text(Walpost), format!("FATAL 3D000: {MARKER}"));
}

#[test]
fn a_text_has_the_condition_and_the_names() {
    let unique = ServerMessage {
        constraint: Some("note_pkey"),
        schema: Some("public"),
        table: Some("note"),
        ..message("23505", "nbtinsert.c")
    };
    let expected = "ERROR 23505 (unique violation), constraint note_pkey, schema public, table \
                    note, full text in the server's log";
    assert_eq!(unique.to_text(Walpost), expected);
    assert!(message("22099", "a.c").to_text(Walpost).starts_with("ERROR 22099 (data exception)"));
    assert!(message("APP01", "a.c").to_text(Walpost).starts_with("ERROR APP01, full text"));
    let debug = format!("{:?}", ServerMessage { is_in_statement: true, ..unique });
    assert!(debug.contains("23505") && !debug.contains(MARKER), "{debug}");
}

#[test]
fn names_of_conditions_are_found() {
    for (state, name) in [
        ("03000", Some("sql statement not yet complete")),
        ("XX002", Some("index corrupted")),
        ("42P01", Some("undefined table")),
        ("22P02", Some("invalid text representation")),
        ("é1234", None),
        ("", None),
    ] {
        assert_eq!(conditions::name(state), name, "{state}");
    }
}

#[test]
fn causes_follow_in_order_and_the_whole_is_one_line_and_bounded() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer\n")]
    struct Outer(#[source] io::Error);
    let inner = io::Error::other("inner\n  detail");
    assert_eq!(chain(&Outer(inner), Walpost), "outer: inner; detail");
    let long = chain(&io::Error::other("ä".repeat(MAX_BYTES)), Walpost);
    assert!(long.len() <= MAX_BYTES && long.ends_with("ä …"), "{}", long.len());
}
