//! Events that consumers have parked: looked at, and asked for.

use serde_json::{Value, json};

use crate::{
    cli::{stderr, stdout, walpost},
    rig::Rig,
};

/// 1 is parked and two wait behind it, 4 has no id, 5 is parked alone, and 6
/// of a partition that nobody reads.
const PARKED: &str = r#"
insert into walpost.position (consumer, topic, part, group_id, cluster_id, topic_id, next_offset)
values ('shipping', 'orders', 0, 'shipping', 'c', 't', 90);
insert into walpost.consumer_parked (consumer, pos_id, topic, part, off, run, source, event_id,
    key, value, header_names, header_values, reason, attempts, state, holds_key)
select 'shipping', case n when 6 then 99 else 1 end, 'orders', 0, 10 + n, 0, 'orders',
    case n when 4 then null else 'e' || n end,
    convert_to(case when n <= 3 then 'k' else 'k' || n end, 'UTF8'),
    convert_to('{"card": "4242"}', 'UTF8'), array['id', 'trace'],
    array[convert_to('e' || n, 'UTF8'), null], 'no such customer', 5,
    case when n in (2, 3) then 'waiting' else 'parked' end, n <= 3
from generate_series(1, 6) n;
"#;

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["id"].as_u64().unwrap()).collect()
}

#[test]
fn what_consumers_parked_is_listed_and_shown_and_asked_for() {
    let rig = Rig::of(&["consumer", "parked"]);
    let output = rig.run(&["list"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("walpost migrate --set consumer"), "{}", stderr(&output));
    let migrated = walpost(&["migrate", "--set", "consumer", "--postgres", &rig.url], &[]);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    assert_eq!(stdout(&rig.run(&["list"])), "no event of the kind is parked\n");
    rig.sql(PARKED);

    assert_eq!(numbers(&rig.json(&["list"])), [1, 4, 5, 6]);
    assert_eq!(numbers(&rig.json(&["list", "--all"])), [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(&rig.json(&["list", "--all", "--key", "k"])), [1, 2, 3]);
    assert_eq!(numbers(&rig.json(&["list", "--consumer", "mailing"])), [0_u64; 0]);
    let first = &rig.json(&["list", "--limit", "1"])[0];
    assert_eq!((&first["behind"], &first["offset"]), (&json!(2), &json!(11)));
    let text = stdout(&rig.run(&["list"]));
    assert!(text.contains("orders[0]@11  e1          2  no such customer"), "{text}");
    for args in [&["show", "1"][..], &["list", "--all"], &["list", "--all", "--json"]] {
        assert!(!stdout(&rig.run(args)).contains("4242"), "{args:?}");
    }
    let shown = stdout(&rig.run(&["show", "1", "--payload"]));
    assert!(shown.contains("4242") && shown.contains("header trace"), "{shown}");
    let parts = &rig.json(&["show", "1", "--payload", "--max-bytes", "7"])[0]["contents"];
    assert_eq!(parts[3], json!({ "part": "value", "text": "{\"card\"", "bytes": 16 }));
    assert_eq!(rig.run(&["show", "99"]).status.code(), Some(1));
    rig.sql(
        "update walpost.consumer_parked set dead_letter_topic = 'dead', dead_letter_at = now(), \
         dead_letter_error = case id when 5 then 'too large' end where id in (1, 5)",
    );
    let letters: Vec<Value> =
        rig.json(&["list"]).into_iter().map(|event| event["dead_letter"].clone()).collect();
    assert_eq!(letters, ["written", "none", "refused", "none"]);
    assert!(stdout(&rig.run(&["list"])).contains("parked  refused  shipping"));
    let shown = &rig.json(&["show", "5"])[0];
    assert_eq!(shown["dead_letter_error"], "too large");
    assert_eq!(shown["dead_letter_topic"], "dead");

    assert_eq!(
        stdout(&rig.run(&["retry", "--all", "--dry-run"])),
        "would retry 3 events: 1, 5, 6\n"
    );
    assert_eq!(rig.sql("select count(request) from walpost.consumer_parked"), "0");
    let output = rig.run(&["retry", "1", "--by", "ann", "--wait-seconds", "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("1  waiting"), "{}", stdout(&output));
    let asked = "select request || ' ' || requested_by from walpost.consumer_parked where id = 1";
    assert_eq!(rig.sql(asked), "retry ann");
    let output = rig.run(&["retry", "1", "--wait-seconds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not dealt with in time: 1"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_the_way_on() {
    let rig = Rig::of(&["consumer", "parked"]);
    assert!(walpost(&["migrate", "--set", "all", "--postgres", &rig.url], &[]).status.success());
    rig.sql(PARKED);
    for (args, expected) in [
        (["retry", "4"], "walpost consumer parked discard 4"),
        (["retry", "6"], "nobody reads the partition of event 6"),
        (["retry", "99"], "no parked event has number 99"),
    ] {
        let output = rig.run(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let output = rig.run(&["discard", "--all"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    let output = rig.run(&["discard", "6"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("6  discarded"), "{}", stdout(&output));
    let output = rig.run(&["discard", "6"]);
    assert!(stderr(&output).contains("discarded already"), "{}", stderr(&output));
    for wrong in [&["retry"][..], &["retry", "1", "--all"], &["discard", "1", "--key", "k"]] {
        assert_eq!(rig.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
