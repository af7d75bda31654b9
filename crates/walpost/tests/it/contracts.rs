use std::{fs, path::Path, process::Command};

use walpost_contracts::EXAMPLE;

use crate::cli::{stderr, stdout, walpost};

/// With a folder `shop` in it, and one contract there.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("shop")).unwrap();
    fs::write(folder.path().join("shop/order-placed.md"), text).unwrap();
    folder
}

fn path(folder: &tempfile::TempDir) -> &str {
    folder.path().to_str().unwrap()
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let status = Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).status();
    assert!(status.unwrap().success());
}

/// The first version, one that breaks it, and one that does not.
fn versions() -> [String; 3] {
    let next = EXAMPLE.replace("| version | 1 |", "| version | 2 |");
    let breaking = next.replace(r#"["order_id"]"#, r#"["order_id", "total_cents"]"#);
    let compatible =
        next.replace(r#"  "properties": {"#, r#"  "properties": { "note": { "type": "string" },"#);
    [EXAMPLE.to_owned(), breaking, compatible]
}

#[test]
fn the_contracts_of_the_examples_are_contracts() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events");
    let output = walpost(&["contracts", "check", docs], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("OrderPlaced"), "{}", stdout(&output));
}

#[test]
fn a_breaking_schema_fails_and_says_where() {
    let [old, breaking, compatible] = versions().map(|text| folder(&text));
    let check = |new, more: &[&str]| {
        let before = ["contracts", "check", path(new), "--before", path(&old)];
        walpost(&[&before[..], more].concat(), &[])
    };
    let output = check(&compatible, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("compatible"), "{}", stdout(&output));

    let output = check(&breaking, &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("by /total_cents, which it requires"), "{text}");
    assert!(text.contains("next step: "), "{text}");

    let output = check(&breaking, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(line["change"], "breaks");
    assert_eq!(line["breaks"].as_array().unwrap().len(), 1);

    let output = check(&breaking, &["--allow", "OrderPlaced"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("/total_cents"), "{}", stderr(&output));
}

#[test]
fn a_commit_is_what_a_change_is_compared_with() {
    let [old, breaking, _] = versions();
    let folder = folder(&old);
    git(folder.path(), &["init", "--quiet"]);
    git(folder.path(), &["add", "."]);
    git(folder.path(), &["commit", "--quiet", "--message", "first"]);
    let check = |commit| walpost(&["contracts", "check", path(&folder), "--against", commit], &[]);
    let output = check("HEAD");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("none"), "{}", stdout(&output));

    fs::write(folder.path().join("shop/order-placed.md"), breaking).unwrap();
    assert_eq!(check("HEAD").status.code(), Some(1));

    fs::rename(folder.path().join("shop/order-placed.md"), folder.path().join("shop/other.md"))
        .unwrap();
    let renamed = fs::read_to_string(folder.path().join("shop/other.md")).unwrap();
    fs::write(folder.path().join("shop/other.md"), renamed.replace("# OrderPlaced", "# Other"))
        .unwrap();
    let output = check("HEAD");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("gone"), "{}", stdout(&output));

    let output = check("nowhere");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no commit \"nowhere\""), "{}", stderr(&output));
}

#[test]
fn a_folder_without_contracts_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let output = walpost(&["contracts", "check", path(&empty)], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("<domain>/<event>.md"), "{}", stderr(&output));
}
