//! Whether the outbox tables have been in the publication all the time.
//!
//! The server decodes each change under the catalog of its own moment. What is
//! committed while the publication is dropped, or without the table, is in no
//! stream for ever, and since PostgreSQL 18 nobody is told. Object ids tell:
//! whatever is made anew has others. Of its options, what it publishes and under
//! which name, the transaction that has set them last tells: they may have been
//! others in between.

use serde_json::{Value, json};

use super::{quote_identifier, quote_literal};
use crate::{config::RelayConfig, error::RelayError, sql::Sql};

/// An SQL expression of these ids; null without the publication. `known` has ids of
/// tables, for those whose name means nothing at the moment.
pub(crate) fn expression(config: &RelayConfig, known: Option<&Value>) -> String {
    let tables: Vec<String> =
        config.tables.iter().map(|table| quote_literal(&table.quoted())).collect();
    // For those who ask which pipeline takes them; they are no part of the comparison.
    let messages: Vec<String> =
        config.event_prefixes().iter().map(|prefix| quote_literal(prefix)).collect();
    let known = known.map_or("null".to_owned(), |known| quote_literal(&known.to_string()));
    let names = format!("array[{}]::text[]", tables.join(", "));
    let tables = self::tables(&names, "p.oid", &format!("{known}::jsonb"));
    format!(
        "(select jsonb_build_object('oid', p.oid::int8, 'inserts', p.pubinsert, \
         'altered', p.xmin::text, 'messages', to_jsonb(array[{}]::text[]), 'tables', {tables}) \
         from pg_publication p where p.pubname = {})",
        messages.join(", "),
        quote_literal(&config.publication),
    )
}

/// The same of the tables of these names, all three SQL expressions.
pub(crate) fn tables(names: &str, publication_oid: &str, known: &str) -> String {
    let table = format!("coalesce(to_regclass(t.name)::oid, ({known} ->> t.name)::oid)");
    format!(
        "coalesce((select jsonb_object_agg(t.name, (select coalesce(jsonb_agg(r.oid::int8 \
         order by r.oid), '[]') from pg_publication_rel r where r.prpubid = {publication_oid} \
         and r.prrelid in (select {table} \
         union select relid::oid from pg_partition_ancestors({table})))) \
         from unnest({names}) t(name)), '{{}}')"
    )
}

/// The ids of now.
pub(crate) async fn read(sql: &Sql, config: &RelayConfig) -> Result<Option<Value>, RelayError> {
    let query = format!("select {}", expression(config, None));
    Ok(sql.one("reading the publication's object ids", &query, &[]).await?.get(0))
}

/// Whether what the pipeline reads now was in the publication since `before`
/// was noted, as far as it was there then.
pub(crate) fn is_unbroken(before: Option<&Value>, now: Option<&Value>) -> bool {
    let Some(before) = before else { return true };
    let Some(now) = now else { return false };
    let tables = |ids: &Value| ids["tables"].as_object().cloned().unwrap_or_default();
    let then = tables(before);
    before["oid"] == now["oid"]
        && before["inserts"] == now["inserts"]
        && (before["altered"].is_null() || before["altered"] == now["altered"])
        && tables(now).iter().all(|(name, ids)| then.get(name).is_none_or(|then| then == ids))
}

/// Tables that the pipeline reads now and did not when `before` was noted. One
/// that has another name since is none of them.
pub(crate) fn added<'a>(before: &Value, now: &'a Value) -> Vec<&'a str> {
    let Some(then) = before["tables"].as_object() else { return Vec::new() };
    let is_known = |ids: &Value| ids != &json!([]) && then.values().any(|then| then == ids);
    let tables = now["tables"].as_object().into_iter().flatten();
    let added = tables.filter(|(name, ids)| !then.contains_key(*name) && !is_known(ids));
    added.map(|(name, _)| name.as_str()).collect()
}

/// What to say of a slot whose stream has such a gap.
pub(crate) const BROKEN: &str = "publication_made_anew";

/// The statements that make it so, for the operator.
pub(crate) fn what_happened(config: &RelayConfig) -> String {
    format!(
        "publication {} was dropped and made again, its options were set, or it was without an \
         outbox table for a while",
        quote_identifier(&config.publication)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(oid: i64, tables: Value) -> Value {
        json!({ "oid": oid, "inserts": true, "tables": tables })
    }

    #[test]
    fn other_object_ids_are_a_gap_and_other_tables_are_none() {
        let before = of(7, json!({ "a": [1], "b": [2] }));
        let unbroken = |now: Value| is_unbroken(Some(&before), Some(&now));
        assert!(unbroken(before.clone()));
        assert!(unbroken(of(7, json!({ "a": [1] }))), "a table that is read no more");
        assert!(unbroken(of(7, json!({ "a": [1], "b": [2], "c": [3] }))), "a new one");
        assert!(!unbroken(of(8, json!({ "a": [1], "b": [2] }))), "another publication");
        assert!(!unbroken(of(7, json!({ "a": [1], "b": [3] }))), "taken out and put back");
        assert!(!unbroken(of(7, json!({ "a": [1], "b": [] }))), "taken out");
        assert!(!unbroken(json!({ "oid": 7, "inserts": false, "tables": { "a": [1], "b": [2] } })));
    }

    #[test]
    fn options_that_were_set_since_are_a_gap() {
        let at = |xid: &str| json!({ "oid": 7, "inserts": true, "altered": xid, "tables": {} });
        assert!(is_unbroken(Some(&at("3")), Some(&at("3"))));
        assert!(!is_unbroken(Some(&at("3")), Some(&at("4"))));
        assert!(is_unbroken(Some(&of(7, json!({}))), Some(&at("4"))), "it was not noted then");
    }

    #[test]
    fn a_table_is_new_by_its_name_and_by_its_ids() {
        let before = of(7, json!({ "a": [1], "b": [] }));
        let added = |tables: Value| added(&before, &of(7, tables)).join(" ");
        assert_eq!(added(json!({ "a": [1], "b": [2] })), "");
        assert_eq!(added(json!({ "renamed": [1] })), "");
        assert_eq!(added(json!({ "a": [1], "c": [3], "d": [] })), "c d");
        assert!(super::added(&json!({}), &of(7, json!({ "a": [1] }))).is_empty(), "not noted");
    }

    #[test]
    fn before_anything_was_noted_there_is_nothing_to_compare() {
        assert!(is_unbroken(None, None));
        assert!(is_unbroken(None, Some(&of(7, json!({})))));
        assert!(!is_unbroken(Some(&of(7, json!({}))), None), "dropped");
    }
}
