use std::fmt::Write;

use crate::table::{Kind, Native, Rule, SECTIONS, Standing};

/// The whole table as Markdown: a section for each group of properties, a row
/// for each property. `docs/from-debezium.md` has it.
pub fn manual() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = write!(text, "\n### {}\n\n", section.title);
        if !section.prefix().is_empty() {
            let _ = writeln!(text, "Names begin with `{}`.", section.prefix());
        }
        for class in section.classes() {
            let _ = writeln!(text, "Of `{class}`.");
        }
        if !section.prefix().is_empty() || !section.classes().is_empty() {
            text.push('\n');
        }
        if section.rules.is_empty() {
            text.push_str("It has no options of its own.\n");
            continue;
        }
        text.push_str(
            "| property | value | default | verdict | | key |\n|---|---|---|---|---|---|\n",
        );
        for rule in section.rules {
            text.push_str(&row(rule));
        }
    }
    text
}

fn row(rule: &Rule) -> String {
    let name = rule.name.replace('*', "…");
    let default = rule.default.map(|default| format!("`{default}`")).unwrap_or_default();
    let (verdict, note) = match rule.standing {
        Standing::Honoured(what) => ("honoured".to_owned(), what.to_owned()),
        Standing::Mapped(to) => ("mapped".to_owned(), format!("to {to}")),
        Standing::Ignored(why) => ("ignored".to_owned(), format!("because {why}")),
        Standing::Refused(why) => ("refused".to_owned(), format!("because {why}")),
        Standing::Only(_, why) => ("refused otherwise".to_owned(), format!("because {why}")),
        Standing::Alias(of) => ("mapped".to_owned(), format!("to `{of}`, its name now")),
        Standing::Removed(now) => {
            let why = "because Debezium removed it";
            ("refused".to_owned(), format!("{why}; write `{now}`; ignored if that is set"))
        }
    };
    let value = match (rule.standing, rule.kind) {
        (Standing::Refused(_) | Standing::Removed(_), _) => String::new(),
        (Standing::Only(values, _), _) => one_of(values),
        (_, Kind::OneOf(values)) => one_of(values),
        (_, kind) => kind.expected(),
    };
    let key = rule.native.map(|native| key_of(&native)).unwrap_or_default();
    let cells = [format!("`{name}`"), value, default, verdict, note, key];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn key_of(native: &Native) -> String {
    format!("`{}.{}`", native.section, native.key)
}

fn one_of(values: &[&str]) -> String {
    let shown = |value: &&str| match value.is_empty() {
        true => "nothing".to_owned(),
        false => format!("`{value}`"),
    };
    values.iter().map(shown).collect::<Vec<_>>().join(", ")
}
