use super::{load, refusal, variables};

const WEBHOOKS: &str = "[postgres]\nurl = \"postgres://a:s3cret@h/db\"\n[sink]\nkind = \"webhook\"\n\
                        [destination.a]\nurl = \"https://a.example/\"\n";

#[test]
fn what_else_leaves_is_asked_for_and_has_its_own_place() {
    let none = load(WEBHOOKS).unwrap().pruners().unwrap();
    assert!(none.deliveries.is_none() && none.inbox.is_none() && none.idempotency.is_none());
    let config = load(&format!(
        "{WEBHOOKS}[pipeline]\nschema = \"shop\"\n[webhook]\nprune = true\n\
         [retention]\nbatch_rows = 7\n[inbox]\nprune = true\nurl = \"postgres://b:s3cret@other/db\"\n\
         schema = \"billing\"\n[idempotency]\nprune = true\n"
    ))
    .unwrap();
    let pruners = config.pruners().unwrap();
    let deliveries = format!("{:?}", pruners.deliveries.unwrap().pruner);
    assert!(deliveries.contains("archive_after_days: 30, delete_after_days: 365"), "{deliveries}");
    let inbox = pruners.inbox.unwrap();
    assert_eq!((inbox.database.user(), inbox.is_elsewhere), ("b", true));
    let inbox = format!("{:?}", inbox.pruner);
    assert!(inbox.contains("schema: \"billing\""), "{inbox}");
    assert!(inbox.contains("payload_days: 30, keep_days: 90, batch_rows: 7"), "{inbox}");
    let idempotency = pruners.idempotency.unwrap();
    assert_eq!((idempotency.database.user(), idempotency.is_elsewhere), ("a", false));
    assert!(format!("{:?}", idempotency.pruner).contains("schema: \"shop\""));
    let printed = config.effective();
    assert!(!printed.contains("s3cret") && printed.contains("other"), "{printed}");
}

#[test]
fn a_retention_of_other_rows_that_cannot_be_meant_is_named_with_its_line() {
    let refused = |text: &str| load(text).unwrap().pruners().unwrap_err().to_string();
    for (more, expected) in [
        (
            "[webhook]\ndelete_after_days = 29",
            "line 8: webhook.delete_after_days is 29, fewer than the 30",
        ),
        (
            "[webhook]\narchive_after_days = 4_000",
            "line 8: webhook.archive_after_days is 4000; it lies between 0 and 3653",
        ),
        ("[inbox]\nkeep_days = 0", "line 8: inbox.keep_days is 0; it lies between 1 and 3653"),
        (
            "[inbox]\nprune = true\nurl = \"postgres://h/db\"\nurl_file = \"x\"",
            "inbox.url and inbox.url_file are both set",
        ),
        ("[idempotency]\nprune = true\nurl_file = \"/nowhere\"", "idempotency.url_file"),
    ] {
        let text = refused(&format!("{WEBHOOKS}{more}\n"));
        assert!(text.contains(expected), "{text}");
    }
    let text = refused("[webhook]\nprune = true\n");
    assert!(text.contains("line 2: webhook.prune is true and sink.kind"), "{text}");
    let text = refusal("[inbox]\nkeep_dayz = 3\n");
    assert!(text.ends_with("did you mean inbox.keep_days?"), "{text}");
}

#[test]
fn a_key_that_has_another_name_is_named_with_it_wherever_it_is_set() {
    for (key, value, name) in [
        ("deliveries_enabled", "true", "webhook.prune"),
        ("deliveries_archive_days", "7", "webhook.archive_after_days"),
        ("deliveries_delete_days", "90", "webhook.delete_after_days"),
        ("prune", "true", "retention.enabled"),
    ] {
        let expected = format!("unknown key retention.{key}, did you mean {name}?");
        let text = refusal(&format!("[retention]\n{key} = {value}\n"));
        assert!(text.ends_with(&format!("line 2: {expected}")), "{text}");
        let variable = format!("WALPOST_RETENTION_{}", key.to_uppercase());
        let text = variables(&[(&variable, value)]).unwrap_err().to_string();
        assert_eq!(text, format!("{variable}: {expected}"));
        // What it is called is there, and takes that value.
        let (section, key) = name.split_once('.').unwrap();
        load(&format!("[{section}]\n{key} = {value}\n")).unwrap();
    }
}
