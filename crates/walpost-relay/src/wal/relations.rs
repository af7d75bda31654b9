//! What the outbox tables are, by object id.
//!
//! A name is what a table is called at one moment. The stream, the publication and
//! the rows go by the object id, so a name that means another table, a view, or
//! nothing for a while is noticed by it. A row counts as brought by the stream only
//! in a relation that is noted here: see [`Noted`].

mod fitness;
mod movable;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value, json};

pub(crate) use self::{
    fitness::{fit, renamed},
    movable::movable,
    report::{attached, holds_older, how_to_publish},
};
use super::quote_literal;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
};

/// A relation that holds rows of an outbox table, or is that table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The outbox table.
    root: u32,
    oid: u32,
    /// As `relkind` and `relpersistence`.
    kind: String,
    persistence: String,
    parent: Option<u32>,
    /// The transactions that have made it a child of its parent, and that one of its
    /// own, from the top, with `/` in between.
    attached: Option<String>,
    /// Quoted, with its schema.
    name: String,
    is_partition: bool,
}

/// The outbox tables as one snapshot of the catalog has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What each configured name means; nothing where there is no such relation.
    names: BTreeMap<String, Option<u32>>,
    relations: Vec<Fact>,
    digest: i64,
}

/// A relation whose rows the stream brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) attached: Option<String>,
    /// Rows of transactions below this id may be older than their partition's place
    /// in the table, and in no stream.
    pub(crate) since: Option<u64>,
}

/// The relations of a pipeline, as its checkpoint has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// By quoted name.
    tables: BTreeMap<String, u32>,
    parts: BTreeMap<u32, Part>,
    /// A relation was seen unlogged: what was inserted then is in no WAL.
    was_unlogged: bool,
}

/// What has happened to the relations since they were noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that matters.
    Nothing,
    /// These are new.
    Parts(Vec<Fact>),
    /// The next start says what is to be done.
    Other(String),
    /// The same, and rows are missing in the stream.
    Unlogged(String),
}

/// A partition that was attached with rows, maybe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) oid: u32,
    /// Quoted, with its schema.
    pub(crate) name: String,
    /// Of the outbox table.
    pub(crate) table: String,
    pub(crate) since: u64,
}

impl Fact {
    pub(crate) fn oid(&self) -> u32 {
        self.oid
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    /// The outbox table.
    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    pub(crate) fn is_root(&self) -> bool {
        self.root == self.oid
    }

    fn from_json(value: &Value) -> Option<Self> {
        let oid = |index: usize| value[index].as_u64().and_then(|oid| u32::try_from(oid).ok());
        let text = |index: usize| value[index].as_str().map(str::to_owned);
        Some(Self {
            root: oid(0)?,
            oid: oid(1)?,
            kind: text(2)?,
            persistence: text(3)?,
            parent: oid(4),
            attached: text(5),
            name: text(6)?,
            is_partition: value[7].as_bool()?,
        })
    }
}

impl Facts {
    /// Which names mean which relations.
    fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().filter_map(|(name, oid)| Some((name.as_str(), (*oid)?)))
    }

    /// The configured tables by their ids.
    pub(crate) fn named<'a>(
        &'a self,
        tables: &'a [TableName],
    ) -> impl Iterator<Item = (u32, TableName)> + 'a {
        let oid = |table: &TableName| self.names.get(&table.quoted()).copied().flatten();
        tables.iter().filter_map(move |table| Some((oid(table)?, table.clone())))
    }

    /// The configured tables between whose partitions rows may move, or that are
    /// partitions.
    pub(crate) fn partitioned(&self) -> HashSet<u32> {
        let is_one =
            |oid: &u32| self.find(*oid).is_some_and(|fact| fact.kind == "p" || fact.is_partition);
        self.names().map(|(_, oid)| oid).filter(is_one).collect()
    }

    /// What a relation is called, quoted.
    pub(crate) fn name(&self, oid: u32) -> Option<&str> {
        self.find(oid).map(Fact::name)
    }

    pub(crate) fn digest(&self) -> i64 {
        self.digest
    }

    /// The ids of all relations.
    pub(crate) fn oids(&self) -> BTreeSet<u32> {
        self.relations.iter().map(|fact| fact.oid).collect()
    }

    fn find(&self, oid: u32) -> Option<&Fact> {
        self.relations.iter().find(|fact| fact.oid == oid)
    }

    fn from_json(value: &Value, digest: i64) -> Option<Self> {
        let oid = |value: &Value| value.as_u64().and_then(|oid| u32::try_from(oid).ok());
        let names = value["names"].as_object()?;
        let relations = value["relations"].as_array()?.iter().map(Fact::from_json);
        Some(Self {
            names: names.iter().map(|(name, value)| (name.clone(), oid(value))).collect(),
            relations: relations.collect::<Option<_>>()?,
            digest,
        })
    }

    /// Why the rows of a relation are not those that the stream brings, if so.
    fn misfit(&self, fact: &Fact) -> Option<Misfit> {
        let parent = fact.parent.and_then(|parent| self.find(parent));
        if let Some(parent) = parent.filter(|parent| parent.kind != "p") {
            return Some(Misfit::Inherits { parent: parent.name.clone() });
        }
        match (&*fact.kind, &*fact.persistence) {
            ("r" | "p", "p") => None,
            ("r" | "p", "u") => Some(Misfit::Unlogged),
            ("r" | "p", _) => Some(Misfit::Temporary),
            _ => Some(Misfit::NoTable),
        }
    }
}

/// Why the stream does not bring the rows of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Misfit {
    /// Quoted, with its schema.
    Inherits {
        parent: String,
    },
    Unlogged,
    Temporary,
    NoTable,
}

impl Misfit {
    /// What is wrong with the relation.
    fn of(&self, Fact { name, kind, .. }: &Fact) -> String {
        let what = match (self, &**kind) {
            (Self::Inherits { parent }, _) => {
                return format!(
                    "table {name} inherits from {parent}: its rows are read with that one's, and \
                     the stream brings none of them"
                );
            }
            (Self::Unlogged, _) => {
                return format!("table {name} is unlogged: its rows are in no WAL");
            }
            (Self::Temporary, _) => {
                return format!("table {name} is temporary: its rows are in no WAL");
            }
            (Self::NoTable, "v") => "a view",
            (Self::NoTable, "m") => "a materialized view",
            (Self::NoTable, "f") => "a foreign table",
            (Self::NoTable, "S") => "a sequence",
            (Self::NoTable, _) => "no table",
        };
        format!("{name} is {what}, whose rows are in no WAL")
    }
}

impl Noted {
    /// What a session begins with: whatever is known of the tables that it knew
    /// before; of others all that is there, which was decided about. Partitions that
    /// came since are looked at later.
    pub(crate) fn at_start(before: Option<&Self>, facts: &Facts) -> Self {
        let known: BTreeSet<u32> =
            before.map(|noted| noted.tables.values().copied().collect()).unwrap_or_default();
        let tables = facts.names().map(|(name, oid)| (name.to_owned(), oid)).collect();
        let mut noted = Self { tables, ..Self::default() };
        for fact in &facts.relations {
            let part = before.and_then(|before| before.parts.get(&fact.oid));
            let part = match part.filter(|part| part.attached == fact.attached) {
                Some(part) => part.clone(),
                None if known.contains(&fact.root) && fact.kind != "p" => continue,
                None => Part { attached: fact.attached.clone(), since: None },
            };
            noted.parts.insert(fact.oid, part);
        }
        noted
    }

    /// What has become of them.
    pub(crate) fn change(&self, facts: &Facts) -> Change {
        for (name, oid) in &self.tables {
            match (facts.names.get(name), facts.find(*oid)) {
                (Some(Some(now)), _) if now != oid => {
                    let what = format!("{name} is another relation than the pipeline has read");
                    return Change::Other(what);
                }
                (_, None) => return Change::Other(format!("table {name} was dropped")),
                _ => {}
            }
        }
        let mut parts = Vec::new();
        for fact in &facts.relations {
            match facts.misfit(fact) {
                None => {}
                Some(misfit @ Misfit::Unlogged) => return Change::Unlogged(misfit.of(fact)),
                Some(misfit) => return Change::Other(misfit.of(fact)),
            }
            let known = self.parts.get(&fact.oid);
            if known.is_none_or(|part| part.attached != fact.attached) {
                parts.push(fact.clone());
            }
        }
        // Its key may be a column that is updated.
        if let Some(fact) = parts.iter().find(|fact| fact.kind == "p") {
            return Change::Other(format!("{} is a new partition with partitions", fact.name));
        }
        if parts.is_empty() { Change::Nothing } else { Change::Parts(parts) }
    }

    /// Tables that have another name than the configured one, and which.
    pub(crate) fn renamed<'a>(&'a self, facts: &'a Facts) -> Vec<(&'a str, &'a str)> {
        let renamed = |(name, oid): (&'a String, &u32)| {
            let is_gone = facts.names.get(name).copied().flatten().is_none();
            is_gone.then(|| facts.find(*oid)).flatten().map(|fact| (name.as_str(), fact.name()))
        };
        self.tables.iter().filter_map(renamed).collect()
    }

    /// Notes a relation.
    pub(crate) fn add(&mut self, fact: &Fact, since: Option<u64>) {
        self.parts.insert(fact.oid, Part { attached: fact.attached.clone(), since });
    }

    /// Forgets what is there no more.
    pub(crate) fn keep(&mut self, facts: &Facts) {
        let there = facts.oids();
        self.parts.retain(|oid, _| there.contains(oid));
    }

    /// Whether a relation was seen unlogged.
    pub(crate) fn was_unlogged(&self) -> bool {
        self.was_unlogged
    }

    pub(crate) fn parts(&self) -> &BTreeMap<u32, Part> {
        &self.parts
    }

    /// The ids of the tables.
    pub(crate) fn tables(&self) -> Vec<u32> {
        self.tables.values().copied().collect()
    }

    /// The ids of the tables by their names.
    pub(crate) fn tables_json(&self) -> Value {
        json!(self.tables)
    }

    /// The id of the table that had this name.
    pub(crate) fn table(&self, quoted: &str) -> Option<u32> {
        self.tables.get(quoted).copied()
    }

    pub(crate) fn to_json(&self) -> Value {
        let part = |(oid, part): (&u32, &Part)| {
            let since = part.since.map(|since| since.to_string());
            (oid.to_string(), json!({ "attached": part.attached, "since": since }))
        };
        let parts: Map<String, Value> = self.parts.iter().map(part).collect();
        json!({ "tables": self.tables, "parts": parts, "was_unlogged": self.was_unlogged })
    }

    /// Reads what [`to_json`](Self::to_json) wrote. `None` of anything else.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let table = |(name, oid): (&String, &Value)| {
            Some((name.clone(), u32::try_from(oid.as_u64()?).ok()?))
        };
        let part = |(oid, part): (&String, &Value)| {
            let since = match &part["since"] {
                Value::Null => None,
                since => Some(since.as_str()?.parse().ok()?),
            };
            let attached = part["attached"].as_str().map(str::to_owned);
            Some((oid.parse().ok()?, Part { attached, since }))
        };
        Some(Self {
            tables: value["tables"].as_object()?.iter().map(table).collect::<Option<_>>()?,
            parts: value["parts"].as_object()?.iter().map(part).collect::<Option<_>>()?,
            was_unlogged: value["was_unlogged"].as_bool()?,
        })
    }
}

/// An SQL expression of the facts. Of the catalog as the statement's snapshot sees
/// it, which functions such as `to_regclass` do not keep to; `known` are relations
/// that are looked at also where no name means them. Relations are looked up one by
/// one, since the planner expects more of a recursion, and would read all of `pg_class`.
fn expression(tables: &[TableName], known: &[u32]) -> String {
    let list = |of: &dyn Fn(&TableName) -> String| {
        let all: Vec<String> = tables.iter().map(|table| quote_literal(&of(table))).collect();
        format!("array[{}]::text[]", all.join(", "))
    };
    let known: Vec<String> = known.iter().map(u32::to_string).collect();
    format!(
        "(with recursive named (quoted, oid) as ( \
            select t.quoted, c.oid from unnest({}, {}, {}) t (quoted, schema, name) \
            left join pg_namespace n on n.nspname = t.schema \
            left join pg_class c on c.relnamespace = n.oid and c.relname = t.name), \
        part (root, oid, parent, attached) as ( \
            select c.oid, c.oid, null::oid, null::text from pg_class c \
            where c.oid in (select oid from named union select unnest('{{{}}}'::oid[])) \
            union all select part.root, i.inhrelid, i.inhparent, \
                concat_ws('/', part.attached, i.xmin::text) \
            from part join pg_inherits i on i.inhparent = part.oid where not i.inhdetachpending) \
        select jsonb_build_object( \
            'names', (select coalesce(jsonb_object_agg(quoted, oid::int8), '{{}}') from named), \
            'relations', (select coalesce(jsonb_agg(jsonb_build_array(part.root::int8, \
                part.oid::int8, c.relkind::text, c.relpersistence::text, part.parent::int8, \
                part.attached, format('%I.%I', n.nspname, c.relname), c.relispartition) \
                order by part.root, part.oid), '[]') \
                from part cross join lateral \
                    (select * from pg_class where pg_class.oid = part.oid limit 1) c \
                join pg_namespace n on n.oid = c.relnamespace)))",
        list(&TableName::quoted),
        list(&|table| table.schema.clone()),
        list(&|table| table.name.clone()),
        known.join(",")
    )
}

/// An SQL expression that changes with the facts.
pub(crate) fn digest(tables: &[TableName], known: &[u32]) -> String {
    format!("hashtextextended({}::text, 0)", expression(tables, known))
}

/// The facts of now.
pub(crate) async fn read(
    sql: &Sql,
    config: &RelayConfig,
    known: &[u32],
) -> Result<Facts, RelayError> {
    let query = format!(
        "select facts, hashtextextended(facts::text, 0) from (select {}) now (facts)",
        expression(&config.tables, known)
    );
    let row = sql.one("reading what the outbox tables are", &query, &[]).await?;
    let facts = Facts::from_json(&row.get(0), row.get(1));
    facts.ok_or_else(|| RelayError::Config("the catalog says what no catalog says".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(root: u32, oid: u32, kind: &str, attached: Option<&str>) -> Fact {
        Fact {
            root,
            oid,
            kind: kind.to_owned(),
            persistence: "p".to_owned(),
            parent: attached.map(|_| root),
            attached: attached.map(str::to_owned),
            name: format!("t{oid}"),
            is_partition: attached.is_some(),
        }
    }

    fn facts(name: Option<u32>, relations: Vec<Fact>) -> Facts {
        Facts { names: [("o".to_owned(), name)].into(), relations, digest: 0 }
    }

    fn plain() -> Noted {
        Noted::at_start(None, &facts(Some(1), vec![fact(1, 1, "r", None)]))
    }

    #[test]
    fn a_table_is_known_by_its_id_whatever_it_is_called() {
        let noted = plain();
        let table = || vec![fact(1, 1, "r", None)];
        assert_eq!(noted.change(&facts(Some(1), table())), Change::Nothing);
        assert_eq!(noted.change(&facts(None, table())), Change::Nothing, "renamed");
        assert!(matches!(noted.change(&facts(None, vec![])), Change::Other(_)), "dropped");
        let both = vec![fact(1, 1, "r", None), fact(2, 2, "v", None)];
        let Change::Other(what) = noted.change(&facts(Some(2), both)) else { panic!("a view") };
        assert!(what.contains("another relation"), "{what}");
    }

    #[test]
    fn what_the_stream_does_not_bring_is_no_part() {
        let noted = plain();
        let child = vec![fact(1, 1, "r", None), fact(1, 2, "r", Some("9"))];
        let Change::Other(what) = noted.change(&facts(Some(1), child)) else { panic!("a child") };
        assert!(what.contains("inherits"), "{what}");
        let unlogged = Fact { persistence: "u".to_owned(), ..fact(1, 1, "r", None) };
        let change = noted.change(&facts(Some(1), vec![unlogged]));
        assert!(matches!(change, Change::Unlogged(_)), "{change:?}");
        let foreign = vec![fact(1, 1, "p", None), fact(1, 2, "f", Some("9"))];
        let parted = Noted::at_start(None, &facts(Some(1), vec![fact(1, 1, "p", None)]));
        let change = parted.change(&facts(Some(1), foreign));
        assert!(matches!(change, Change::Other(_)), "{change:?}");
    }

    #[test]
    fn partitions_are_known_by_the_transaction_that_attached_them() {
        let of = |attached: &str| {
            facts(Some(1), vec![fact(1, 1, "p", None), fact(1, 2, "r", Some(attached))])
        };
        let mut noted = Noted::at_start(None, &of("9"));
        assert_eq!(noted.change(&of("9")), Change::Nothing);
        let Change::Parts(parts) = noted.change(&of("10")) else { panic!("attached again") };
        assert_eq!(parts, [fact(1, 2, "r", Some("10"))]);
        noted.add(&parts[0], Some(7));
        assert_eq!(noted.change(&of("10")), Change::Nothing);
        let start = |of: &Facts| Noted::at_start(Some(&noted), of).parts.get(&2).cloned();
        let since = Part { attached: Some("10".to_owned()), since: Some(7) };
        assert_eq!(start(&of("10")), Some(since));
        assert_eq!(start(&of("11")), None, "it is to be looked at");
        let other = facts(Some(3), vec![fact(3, 3, "p", None), fact(3, 4, "r", Some("5"))]);
        let began = Noted::at_start(Some(&noted), &other);
        assert_eq!(began.parts.keys().copied().collect::<Vec<_>>(), [3, 4], "decided about");
        noted.keep(&facts(Some(1), vec![fact(1, 1, "p", None)]));
        assert_eq!(noted.parts.keys().copied().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_is_noted_is_read_as_it_was_written() {
        let mut noted = plain();
        noted.add(&fact(1, 2, "r", Some("9")), Some(1 << 40));
        assert_eq!(Noted::from_json(&noted.to_json()), Some(noted));
        assert_eq!(Noted::from_json(&json!({})), None);
    }
}
