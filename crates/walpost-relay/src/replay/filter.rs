use serde_json::{Value as Json, json};
use walpost_event::Relation;
use walpost_router::RouterConfig;

use crate::{
    error::RelayError,
    wal::{quote_identifier, quote_literal},
};

/// Column that times are compared with.
pub(super) const TIME_COLUMN: &str = "created_at";
/// Column that has the insert order.
pub(super) const ORDER_COLUMN: &str = "seq";

/// Which rows of an outbox table are published once more: those that everything
/// set here holds for.
///
/// Event type, aggregate and id are the columns that the router takes them
/// from, and values are compared as PostgreSQL compares them there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayFilter {
    /// Any of these event types; empty for all.
    pub event_types: Vec<String>,
    /// Aggregates of this type.
    pub aggregate_type: Option<String>,
    /// Aggregates with this id.
    pub aggregate_id: Option<String>,
    /// Any of these event ids; empty for all.
    pub ids: Vec<String>,
    /// Inserted then or later: any time that PostgreSQL reads, UTC where it
    /// names no zone.
    pub from: Option<String>,
    /// Inserted before then.
    pub until: Option<String>,
    /// With this number in the column `seq`, or a higher one.
    pub seq_from: Option<i64>,
    /// With this number in the column `seq`, or a lower one.
    pub seq_until: Option<i64>,
}

impl ReplayFilter {
    /// Whether it lets every row through.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As the audit row keeps it.
    pub(super) fn to_json(&self) -> Json {
        let mut json = json!({});
        let mut set = |name: &str, value: Json| {
            let is_set = !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
            if is_set {
                json[name] = value;
            }
        };
        set("event_types", json!(self.event_types));
        set("aggregate_type", json!(self.aggregate_type));
        set("aggregate_id", json!(self.aggregate_id));
        set("ids", json!(self.ids));
        set("from", json!(self.from));
        set("until", json!(self.until));
        set("seq_from", json!(self.seq_from));
        set("seq_until", json!(self.seq_until));
        json
    }

    /// What [`to_json`](Self::to_json) wrote; `None` for anything else.
    pub(super) fn from_json(json: &Json) -> Option<Self> {
        let mut filter = Self::default();
        for (name, value) in json.as_object()? {
            let text = || value.as_str().map(str::to_owned);
            let texts = || -> Option<Vec<String>> {
                value.as_array()?.iter().map(|one| Some(one.as_str()?.to_owned())).collect()
            };
            match name.as_str() {
                "event_types" => filter.event_types = texts()?,
                "aggregate_type" => filter.aggregate_type = Some(text()?),
                "aggregate_id" => filter.aggregate_id = Some(text()?),
                "ids" => filter.ids = texts()?,
                "from" => filter.from = Some(text()?),
                "until" => filter.until = Some(text()?),
                "seq_from" => filter.seq_from = Some(value.as_i64()?),
                "seq_until" => filter.seq_until = Some(value.as_i64()?),
                // Of a newer version: leaving it out would send more.
                _ => return None,
            }
        }
        Some(filter)
    }

    /// The condition on a row, with literals of no type, so that each is read
    /// as its column's.
    ///
    /// # Errors
    /// [`RelayError::Config`] when the table lacks a column that it names.
    pub(super) fn condition(
        &self,
        relation: &Relation,
        router: &RouterConfig,
    ) -> Result<String, RelayError> {
        let column = |name: &str, what: &str| match relation.column_index(name) {
            Some(_) => Ok(quote_identifier(name)),
            None => Err(RelayError::Config(format!(
                "table {}.{} has no column {name:?} to choose by {what}",
                relation.schema, relation.name
            ))),
        };
        let among = |values: &[String]| {
            let literals: Vec<String> = values.iter().map(|value| quote_literal(value)).collect();
            format!(" in ({})", literals.join(", "))
        };
        let mut conditions = Vec::new();
        if !self.event_types.is_empty() {
            let column = column(&router.event_type, "event type")?;
            conditions.push(column + &among(&self.event_types));
        }
        for (value, name, what) in [
            (&self.aggregate_type, &router.route_by_field, "aggregate type"),
            (&self.aggregate_id, &router.event_key, "aggregate id"),
        ] {
            if let Some(value) = value {
                conditions.push(column(name, what)? + &among(std::slice::from_ref(value)));
            }
        }
        if !self.ids.is_empty() {
            conditions.push(column(&router.event_id, "id")? + &among(&self.ids));
        }
        for (value, operator) in [(&self.from, ">="), (&self.until, "<")] {
            if let Some(value) = value {
                let column = column(TIME_COLUMN, "time")?;
                conditions.push(format!("{column} {operator} {}", quote_literal(value)));
            }
        }
        for (value, operator) in [(self.seq_from, ">="), (self.seq_until, "<=")] {
            if let Some(value) = value {
                conditions.push(format!("{ORDER_COLUMN} {operator} {value}"));
            }
        }
        Ok(match conditions.is_empty() {
            true => "true".to_owned(),
            false => conditions.join(" and "),
        })
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Column, ReplicaIdentity, type_oid};

    use super::*;

    fn table(columns: &[&str]) -> Relation {
        let column = |name: &&str| Column {
            name: (*name).into(),
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            is_key: false,
        };
        Relation {
            oid: 0,
            schema: "public".into(),
            name: "outbox".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: columns.iter().map(column).collect(),
        }
    }

    fn full() -> ReplayFilter {
        ReplayFilter {
            event_types: vec!["Placed".into(), "it's".into()],
            aggregate_type: Some("order".into()),
            aggregate_id: Some("7".into()),
            ids: vec!["a".into()],
            from: Some("2026-01-01".into()),
            until: Some("2026-02-01".into()),
            seq_from: Some(-3),
            seq_until: Some(9),
        }
    }

    #[test]
    fn everything_that_is_set_is_a_condition_and_its_values_are_quoted() {
        let table =
            table(&["id", "aggregatetype", "aggregateid", "type", "created_at", "seq", "xid"]);
        let text = full().condition(&table, &RouterConfig::walpost()).unwrap();
        assert_eq!(
            text,
            "\"type\" in ('Placed', 'it''s') and \"aggregatetype\" in ('order') and \
             \"aggregateid\" in ('7') and \"id\" in ('a') and \"created_at\" >= '2026-01-01' and \
             \"created_at\" < '2026-02-01' and seq >= -3 and seq <= 9"
        );
        let all = ReplayFilter::default().condition(&table, &RouterConfig::walpost()).unwrap();
        assert_eq!(all, "true");
    }

    #[test]
    fn a_column_that_is_not_there_is_named() {
        let error = full().condition(&table(&["id", "type"]), &RouterConfig::walpost());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("\"aggregatetype\"") && text.contains("public.outbox"), "{text}");
    }

    #[test]
    fn what_was_kept_is_read_again_and_what_is_not_known_is_refused() {
        for filter in [full(), ReplayFilter::default()] {
            assert_eq!(ReplayFilter::from_json(&filter.to_json()), Some(filter));
        }
        assert_eq!(ReplayFilter::default().to_json(), json!({}));
        for wrong in [json!({"tenant": "a"}), json!({"ids": "a"}), json!([])] {
            assert_eq!(ReplayFilter::from_json(&wrong), None, "{wrong}");
        }
    }
}
