//! Whether the outbox tables have been in the publication all the time.
//!
//! The server decodes each change under the catalog of its own moment. What is
//! committed while the publication is dropped, or without the table, is in no
//! stream for ever, and since PostgreSQL 18 nobody is told. Object ids tell:
//! whatever is made anew has others.

use serde_json::Value;

use super::{quote_identifier, quote_literal};
use crate::{config::RelayConfig, error::RelayError, sql::Sql};

/// An SQL expression of these ids; null without the publication.
pub(crate) fn expression(config: &RelayConfig) -> String {
    let tables: Vec<String> =
        config.tables.iter().map(|table| quote_literal(&table.quoted())).collect();
    // For those who ask which pipeline takes them; they are no part of the comparison.
    let messages: Vec<String> =
        config.event_prefixes().iter().map(|prefix| quote_literal(prefix)).collect();
    let tables = self::tables(&format!("array[{}]::text[]", tables.join(", ")), "p.oid");
    format!(
        "(select jsonb_build_object('oid', p.oid::int8, 'inserts', p.pubinsert, \
         'messages', to_jsonb(array[{}]::text[]), 'tables', {tables}) \
         from pg_publication p where p.pubname = {})",
        messages.join(", "),
        quote_literal(&config.publication),
    )
}

/// The same of the tables of these names, both SQL expressions.
pub(crate) fn tables(names: &str, publication_oid: &str) -> String {
    format!(
        "coalesce((select jsonb_object_agg(t.name, (select coalesce(jsonb_agg(r.oid::int8 \
         order by r.oid), '[]') from pg_publication_rel r where r.prpubid = {publication_oid} \
         and r.prrelid in (select to_regclass(t.name)::oid \
         union select relid::oid from pg_partition_ancestors(to_regclass(t.name))))) \
         from unnest({names}) t(name)), '{{}}')"
    )
}

/// The ids of now.
pub(crate) async fn read(sql: &Sql, config: &RelayConfig) -> Result<Option<Value>, RelayError> {
    let query = format!("select {}", expression(config));
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
        && tables(now).iter().all(|(name, ids)| then.get(name).is_none_or(|then| then == ids))
}

/// What to say of a slot whose stream has such a gap.
pub(crate) const BROKEN: &str = "publication_made_anew";

/// The statements that make it so, for the operator.
pub(crate) fn what_happened(config: &RelayConfig) -> String {
    format!(
        "publication {} was dropped and made again, or was without an outbox table or without \
         inserts for a while",
        quote_identifier(&config.publication)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn before_anything_was_noted_there_is_nothing_to_compare() {
        assert!(is_unbroken(None, None));
        assert!(is_unbroken(None, Some(&of(7, json!({})))));
        assert!(!is_unbroken(Some(&of(7, json!({}))), None), "dropped");
    }
}
