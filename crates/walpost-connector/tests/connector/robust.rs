use std::collections::BTreeSet;

use proptest::prelude::*;
use walpost_connector::{Properties, SECTIONS, Section, Unknown, Verdict, judge};

use super::{judged, with};

#[test]
fn the_character_with_the_number_0_is_in_no_file_and_in_no_value() {
    for (file, place) in [
        (r#"{"a": "1", "database.hostname": "db\u0000x"}"#, "line 1, column 12"),
        ("a=1\ndatabase.hostname=db\\u0000x\n", "line 2, column 1"),
    ] {
        let error = Properties::read(file.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(place), "{error}");
        assert!(error.contains("\"database.hostname\" has the character"), "{error}");
        assert!(!error.contains("db\0"), "no value: {error}");
    }
    // What a placeholder stands for.
    for name in ["database.hostname", "transforms.outbox.route.topic.regex", "database.password"] {
        let row = super::row(&judged(&[(name, "x\0y")]), name);
        assert_eq!(row.verdict, Verdict::Refused, "{row}");
        assert!(row.note.contains("remove it"), "{row}");
    }
}

/// Names of the table with the aliases of a connector in them.
fn name() -> impl Strategy<Value = String> {
    let known: Vec<String> = SECTIONS
        .iter()
        .flat_map(|section| {
            let prefix =
                section.prefix().replace("<name>", "t").replace("<converter>", "value.converter");
            let prefix = prefix.replace("<group>", "default");
            section.rules.iter().map(move |rule| format!("{prefix}{}", rule.name.replace('*', "t")))
        })
        .collect();
    prop_oneof![
        8 => proptest::sample::select(known),
        1 => Just("transforms.t.type".to_owned()),
        1 => Just("predicates.t.type".to_owned()),
        1 => "[a-z.]{0,12}",
        1 => any::<String>(),
    ]
}

/// Values of the table, and others.
fn value() -> impl Strategy<Value = String> {
    let classes = SECTIONS.iter().flat_map(Section::classes);
    let classes: Vec<String> = classes.map(str::to_owned).collect();
    prop_oneof![
        3 => proptest::sample::select(classes),
        3 => Just("t,outbox".to_owned()),
        2 => "-?[0-9]{1,19}",
        2 => proptest::sample::select(vec!["true", "false", "", " ", "t", "a:envelope", "PEM"])
            .prop_map(str::to_owned),
        2 => "[a-z${}():*+\\\\,;=.]{0,16}",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = Properties::read(&bytes);
    }

    #[test]
    fn no_text_panics(text in r#"[{}\[\]":,=\\#! \n\ra-zu0-9ä$]{0,64}"#) {
        if let Ok(properties) = Properties::read(text.as_bytes()) {
            judge(&properties, None, Unknown::Refuse);
        }
    }

    #[test]
    fn whatever_the_properties_each_has_one_verdict_and_its_reason(
        given in proptest::collection::vec((name(), value()), 0..12),
        worker in proptest::collection::vec((name(), value()), 0..4),
        refuses in any::<bool>(),
    ) {
        let more: Vec<(&str, &str)> = given.iter().map(|(n, v)| (&**n, &**v)).collect();
        let (connector, worker) = (with(&more), Properties::from_pairs(worker));
        let unknown = if refuses { Unknown::Refuse } else { Unknown::Warn };
        let judgement = judge(&connector, Some(&worker), unknown);
        let rows = judgement.verdicts.rows();
        let count = rows.iter().filter(|row| row.value.is_some()).count();
        prop_assert_eq!(count, connector.iter().count() + worker.iter().count());
        for row in rows {
            prop_assert!(row.verdict == Verdict::Honoured || !row.note.is_empty(), "{}", row);
        }
        prop_assert_eq!(judgement.connector.is_some(), judgement.verdicts.is_usable());
        let keys = judgement.settings().iter().map(|setting| (setting.section, setting.key));
        let distinct: BTreeSet<_> = keys.clone().collect();
        prop_assert_eq!(distinct.len(), keys.count(), "{:?}", judgement.settings());
    }

    #[test]
    fn a_configuration_is_read_alike_in_all_forms(
        values in proptest::collection::btree_map("[a-z.]{1,8}", "[ -~]{0,12}", 1..6)
    ) {
        let json = serde_json::to_vec(&values).unwrap();
        let wrapped = serde_json::to_vec(&serde_json::json!({ "config": values })).unwrap();
        let escape = |text: &str| -> String {
            text.chars().flat_map(|c| ['\\', 'u'].into_iter().chain(format!("{:04x}", u32::from(c)).chars().collect::<Vec<_>>())).collect()
        };
        let java: String =
            values.iter().map(|(name, value)| format!("{name} = {}\n", escape(value))).collect();
        let pairs = |bytes: &[u8]| {
            let read = Properties::read(bytes).unwrap();
            read.iter().map(|p| (p.name.clone(), p.value.clone())).collect::<Vec<_>>()
        };
        let expected: Vec<(String, String)> = values.into_iter().collect();
        prop_assert_eq!(&pairs(&json), &expected);
        prop_assert_eq!(&pairs(&wrapped), &expected);
        prop_assert_eq!(pairs(java.as_bytes()), expected);
    }
}
