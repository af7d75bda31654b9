//! The form of a contract's document.
//!
//! A heading that is the event's type; a table of two columns with the rows of
//! [`ROWS`]; `## Schema` with one block of code, in `json` for JSON Schema or in
//! `avro`; `## Example` with blocks in `json`, for a JSON Schema at least one;
//! `## Consumers` with what they may expect. Other sections and text are free.

use std::collections::BTreeMap;

use crate::{Contract, DocumentError, schema::Schema};

const ROWS: [&str; 6] =
    ["aggregate type", "ordering key", "idempotency key", "version", "compatibility", "owner"];

/// A document in its parts.
#[derive(Default)]
struct Parts<'a> {
    heading: &'a str,
    /// First cells with their second.
    table: BTreeMap<&'a str, &'a str>,
    /// By their headings.
    sections: BTreeMap<&'a str, Section<'a>>,
}

#[derive(Default)]
struct Section<'a> {
    has_text: bool,
    blocks: Vec<Block<'a>>,
}

/// A fenced block of code.
struct Block<'a> {
    language: &'a str,
    text: String,
}

/// Reads a document.
pub(crate) fn parse(text: &str) -> Result<Contract, DocumentError> {
    let parts = split(text)?;
    if parts.heading.is_empty() {
        return Err(DocumentError::Heading);
    }
    let row = |row| parts.table.get(row).copied().ok_or(DocumentError::Missing { row });
    let version = row("version")?;
    let compatibility = row("compatibility")?;
    let value = |row, value: &str, expected| DocumentError::Value {
        row,
        value: value.to_owned(),
        expected,
    };
    let contract = Contract {
        event_type: parts.heading.to_owned(),
        aggregate_type: row("aggregate type")?.to_owned(),
        ordering_key: row("ordering key")?.to_owned(),
        idempotency_key: row("idempotency key")?.to_owned(),
        version: version
            .parse()
            .ok()
            .filter(|version| *version > 0)
            .ok_or_else(|| value("version", version, "a whole number from 1 on"))?,
        compatibility: compatibility.parse().map_err(|()| {
            value("compatibility", compatibility, "backward, forward, full or none")
        })?,
        owner: row("owner")?.to_owned(),
        schema: schema(&parts)?,
    };
    check_examples(&contract, &parts)?;
    let consumers = parts.sections.get("Consumers");
    match consumers.is_some_and(|section| section.has_text) {
        true => Ok(contract),
        false => {
            Err(DocumentError::Section { section: "Consumers", with: " with what they may expect" })
        }
    }
}

fn split(text: &str) -> Result<Parts<'_>, DocumentError> {
    let mut parts = Parts::default();
    let mut section: Option<&str> = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line = line.trim_end();
        if let Some(language) = line.strip_prefix("```") {
            let mut block = Block { language: language.trim(), text: String::new() };
            loop {
                let Some((_, line)) = lines.next() else {
                    return Err(DocumentError::Fence { line: index + 1 });
                };
                if line.trim_end() == "```" {
                    break;
                }
                block.text.push_str(line);
                block.text.push('\n');
            }
            if let Some(name) = section {
                parts.sections.entry(name).or_default().blocks.push(block);
            }
        } else if let Some(name) = line.strip_prefix("## ") {
            section = Some(name.trim());
            parts.sections.entry(name.trim()).or_default();
        } else if let Some(heading) = line.strip_prefix("# ") {
            if parts.heading.is_empty() {
                parts.heading = heading.trim().trim_matches('`');
            }
        } else if let Some(name) = section {
            let section = parts.sections.entry(name).or_default();
            section.has_text |= !line.trim().is_empty();
        } else if line.starts_with('|') {
            add_row(&mut parts.table, index + 1, line)?;
        }
    }
    Ok(parts)
}

fn add_row<'a>(
    table: &mut BTreeMap<&'a str, &'a str>,
    line: usize,
    text: &'a str,
) -> Result<(), DocumentError> {
    let mut cells = text.trim_matches('|').splitn(2, '|').map(str::trim);
    let (row, value) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    // The head, which is empty, and the line below it.
    if row.is_empty() || row.chars().all(|c| matches!(c, '-' | ':')) {
        return Ok(());
    }
    let wrong =
        |problem| DocumentError::Row { line, row: row.to_owned(), problem, known: ROWS.join(", ") };
    if !ROWS.contains(&row) {
        return Err(wrong("not known"));
    }
    let value = match value.strip_prefix('`').and_then(|value| value.strip_suffix('`')) {
        Some(code) if !code.contains('`') => code,
        _ => value,
    };
    if value.is_empty() {
        return Err(wrong("empty"));
    }
    match table.insert(row, value) {
        None => Ok(()),
        Some(_) => Err(wrong("there twice")),
    }
}

fn schema(parts: &Parts<'_>) -> Result<Schema, DocumentError> {
    let missing = DocumentError::Section {
        section: "Schema",
        with: " with one block of code, in json for JSON Schema or in avro",
    };
    let blocks = parts.sections.get("Schema").map_or(&[][..], |section| &section.blocks);
    match blocks {
        [Block { language: "json", text }] => Schema::json(text),
        [Block { language: "avro", text }] => Schema::avro(text),
        _ => Err(missing),
    }
}

/// An Avro schema has no examples: its payloads are bytes.
fn check_examples(contract: &Contract, parts: &Parts<'_>) -> Result<(), DocumentError> {
    if matches!(contract.schema, Schema::Avro(_)) {
        return Ok(());
    }
    let blocks = parts.sections.get("Example").map_or(&[][..], |section| &section.blocks);
    if blocks.is_empty() {
        return Err(DocumentError::Section {
            section: "Example",
            with: " with a payload in a block of code",
        });
    }
    for (index, block) in blocks.iter().enumerate() {
        contract
            .check_payload(block.text.as_bytes())
            .map_err(|source| DocumentError::Example { index: index + 1, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::{Compatibility, EXAMPLE};

    #[test]
    fn the_example_is_a_contract() {
        let contract = parse(EXAMPLE).unwrap();
        assert_eq!(contract.event_type, "OrderPlaced");
        assert_eq!(contract.aggregate_type, "order");
        assert_eq!(contract.ordering_key, "the aggregate's id, `order_id`");
        assert_eq!((contract.version, contract.compatibility), (1, Compatibility::Backward));
        assert_eq!(contract.schema_language(), "JSON Schema");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_should_be() {
        let without = |part: &str| EXAMPLE.replacen(part, "", 1);
        for (text, expected) in [
            (String::new(), "# OrderPlaced"),
            (without("| owner | the shop |"), "no row \"owner\""),
            (without("the shop"), "\"owner\" is empty"),
            (EXAMPLE.replacen("| owner", "| ownr", 1), "line 12: \"ownr\" is not known"),
            (EXAMPLE.replacen("| owner", "| version", 1), "\"version\" is there twice"),
            (EXAMPLE.replacen("| 1 |", "| 0 |", 1), "a whole number from 1 on"),
            (EXAMPLE.replacen("backward", "both", 1), "backward, forward, full or none"),
            (EXAMPLE.replacen("## Schema", "## Shape", 1), "no section \"Schema\""),
            (EXAMPLE.replacen("\"minimum\": 1 }", "\"minimum\": 1 ", 1), "no JSON:"),
            (EXAMPLE.replacen("\"integer\"", "\"int\"", 1), "no JSON Schema:"),
            (EXAMPLE.replacen("## Example", "## Sample", 1), "no section \"Example\""),
            (EXAMPLE.replacen("## Consumers", "## Readers", 1), "no section \"Consumers\""),
            (EXAMPLE.replacen("995 }\n```", "995 }\n", 1), "does not end"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
        let refused = parse(&EXAMPLE.replacen("\"order_id\": 42", "\"order_id\": 0", 1));
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("example 1"), "{refused}");
        assert!(refused.source().unwrap().to_string().contains("/order_id"), "{refused:?}");
    }
}
