//! Changes of contracts, as documents.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use walpost_contracts::{Contracts, EXAMPLE, Error, PayloadError};

const AVRO: &str = r#"{"type": "record", "name": "OrderPlaced", "fields": [
    {"name": "order_id", "type": "long"}]}"#;

fn contracts(text: &str) -> Contracts {
    Contracts::parse([(PathBuf::from("shop/order-placed.md"), text.to_owned())]).unwrap()
}

fn avro(schema: &str, version: u32) -> Contracts {
    let (head, rest) = EXAMPLE.split_once("```json").unwrap();
    let (_, tail) = rest.split_once("```").unwrap();
    let text = format!("{head}```avro\n{schema}\n```{tail}");
    contracts(&text.replace("| version | 1 |", &format!("| version | {version} |")))
}

#[track_caller]
fn reasons(new: &Contracts, old: &Contracts) -> Vec<String> {
    new.breaks_since(old).into_iter().map(|one| one.to_string()).collect()
}

#[test]
fn what_is_no_schema_counts_too() {
    let old = contracts(EXAMPLE);
    assert_eq!(reasons(&old, &old), [] as [&str; 0]);
    for (from, to, expected) in [
        ("| aggregate type | `order` |", "| aggregate type | `sale` |", "names the topic"),
        ("`order_id` |", "`total_cents` |", "the ordering key"),
        ("the event's id", "`order_id`", "the idempotency key"),
        ("backward", "none", "promises less"),
        ("\"minimum\": 1 ", "\"minimum\": 0 ", "raise it to 2"),
    ] {
        let found = reasons(&contracts(&EXAMPLE.replace(from, to)), &old);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    let gone = reasons(&contracts(&EXAMPLE.replace("OrderPlaced", "Other")), &old);
    assert!(gone[0].contains("OrderPlaced: its contract is gone"), "{gone:?}");
}

#[test]
fn each_direction_is_asked_for_where_it_was_promised() {
    let wider =
        |text: &str| text.replace("\"minimum\": 1 ", "\"minimum\": 0 ").replace("| 1 |", "| 2 |");
    for (compatibility, widened, narrowed) in
        [("backward", 0, 1), ("forward", 1, 0), ("full", 1, 1), ("none", 0, 0)]
    {
        let old = EXAMPLE.replace("backward", compatibility);
        let new = wider(&old);
        assert_eq!(reasons(&contracts(&new), &contracts(&old)).len(), widened, "{compatibility}");
        let (old, new) = (new.replace("| 2 |", "| 1 |"), old.replace("| 1 |", "| 2 |"));
        assert_eq!(reasons(&contracts(&new), &contracts(&old)).len(), narrowed, "{compatibility}");
    }
}

#[test]
fn avro_follows_its_own_rules() {
    let old = avro(AVRO, 1);
    let field = |field: &str| AVRO.replace("}]}", &format!("}}, {field}]}}"));
    let with_default = avro(&field(r#"{"name": "n", "type": "int", "default": 0}"#), 2);
    assert_eq!(reasons(&with_default, &old), [] as [&str; 0]);
    let without = reasons(&avro(&field(r#"{"name": "n", "type": "int"}"#), 2), &old);
    assert!(without[0].contains("'n'"), "{without:?}");
    let narrower = reasons(&avro(&AVRO.replace("long", "int"), 2), &old);
    assert!(narrower[0].contains("order_id"), "{narrower:?}");
    let other = reasons(&avro(AVRO, 2), &contracts(EXAMPLE));
    assert!(other[0].contains("one is in JSON, the other in Avro"), "{other:?}");
}

#[test]
fn an_avro_payload_is_one_datum_with_or_without_its_frame() {
    let contracts = avro(AVRO, 1);
    for payload in [&[84][..], &[0, 0, 0, 0, 7, 84]] {
        contracts.check_payload("OrderPlaced", payload).unwrap();
    }
    for payload in [&[][..], &[84, 84], b"{}"] {
        let refused = contracts.check_payload("OrderPlaced", payload);
        assert!(matches!(refused, Err(PayloadError::Unreadable { .. })), "{refused:?}");
    }
}

#[test]
fn one_event_has_one_document() {
    let folder = tempfile::tempdir().unwrap();
    for domain in ["shop", "billing"] {
        fs::create_dir(folder.path().join(domain)).unwrap();
        fs::write(folder.path().join(domain).join("order-placed.md"), EXAMPLE).unwrap();
        fs::write(folder.path().join(domain).join("README.md"), "free").unwrap();
    }
    fs::write(folder.path().join("overview.md"), "free").unwrap();
    assert!(matches!(Contracts::load(folder.path()), Err(Error::Twice { .. })));
    fs::remove_dir_all(folder.path().join("billing")).unwrap();
    assert_eq!(Contracts::load(folder.path()).unwrap().iter().len(), 1);
    fs::write(folder.path().join("shop/other.md"), "# Other").unwrap();
    let error = Contracts::load(folder.path()).unwrap_err();
    assert!(error.to_string().contains("other.md"), "{error}");
}
