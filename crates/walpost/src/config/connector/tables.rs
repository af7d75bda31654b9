use std::sync::{Mutex, PoisonError};

use walpost_connector::{AutoCreate, Connector};
use walpost_encode::connect::{
    Condition, ShapeOptions, Test, TransformChain, Transformed, TypedRecord,
};
use walpost_relay::{TableFilter, TableName};

use super::{encode::shape, transforms::transforms};

/// A table of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundTable {
    pub(crate) name: TableName,
    pub(crate) is_partitioned: bool,
    /// What it is a partition of, at the top.
    pub(crate) root: Option<TableName>,
}

/// What rows can reach the slot from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The publication's tables, by the names under which their rows come.
    Published(Vec<TableName>),
    /// Every table, as the publication is made, or changed, for those of the
    /// filters. `via_root`: whether rows of partitions come under their root's
    /// name; `None` where it is still to be made.
    Any { tables: Vec<FoundTable>, via_root: Option<bool> },
}

/// The same at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) reach: Reach,
    /// The first transaction that it does not see.
    pub(crate) looked_at: u64,
}

/// Whether a publication that is there is changed to have the tables of the
/// filters.
pub(crate) fn is_publication_changed(connector: &Connector) -> bool {
    connector.publication.autocreate == AutoCreate::Filtered
}

/// The tables that the connector's filters mean. `own` is the schema of Walpost's
/// own tables.
pub(crate) fn outboxes(connector: &Connector, own: &str, reach: Reach) -> Vec<TableName> {
    let mut routing = Routing::new(connector);
    let mut reads = |name: &TableName| {
        connector.tables.reads(&name.schema, &name.name, own) && routing.routes(name)
    };
    let (tables, via_root) = match reach {
        Reach::Published(mut tables) => {
            tables.retain(reads);
            return sorted(tables);
        }
        // One that we make is as the connector has it.
        Reach::Any { tables, via_root } => {
            (tables, via_root.or(connector.publication.via_partition_root))
        }
    };
    let mut named = Vec::new();
    for table in tables.into_iter().filter(|table| reads(&table.name)) {
        match (table.root, via_root) {
            // Under its own name comes no row of it.
            (Some(_), Some(true)) => {}
            (None, Some(false)) if table.is_partitioned => {}
            // We make it, and have them come so.
            (Some(root), None) => named.push(root),
            (Some(_) | None, _) => named.push(table.name),
        }
    }
    sorted(named)
}

/// Which tables that come later are outboxes too: `looked_at` is the first transaction
/// that was not seen by the look at those that were there.
pub(crate) fn arrivals(connector: &Connector, own: &str, looked_at: u64) -> TableFilter {
    let routing = Mutex::new(Routing::new(connector));
    let (tables, own) = (connector.tables.clone(), own.to_owned());
    TableFilter::new(looked_at, move |name| {
        tables.reads(&name.schema, &name.name, &own)
            && routing.lock().unwrap_or_else(PoisonError::into_inner).routes(name)
    })
}

/// Which tables' rows come to the router, as far as their topic alone says it.
struct Routing {
    shape: ShapeOptions,
    before: TransformChain,
    condition: Option<Condition>,
}

impl Routing {
    fn new(connector: &Connector) -> Self {
        let transforms = transforms(&connector.transforms);
        let is_static = |condition: &Condition| matches!(condition.test, Test::TopicMatches(_));
        Self {
            shape: shape(connector),
            before: TransformChain::new(transforms.before),
            condition: transforms.router.filter(is_static),
        }
    }

    fn routes(&mut self, name: &TableName) -> bool {
        let mut record = TypedRecord::new(self.shape.topic(&name.schema, &name.name).into());
        match self.before.apply(&mut record) {
            Ok(Transformed::Dropped) => false,
            // What fails on a record without contents says nothing of a row.
            Err(_) => true,
            Ok(Transformed::Kept | Transformed::Decoded) => {
                self.condition.as_ref().is_none_or(|condition| condition.holds(&record))
            }
        }
    }
}

fn sorted(mut tables: Vec<TableName>) -> Vec<TableName> {
    tables.sort_by(|one, other| (&one.schema, &one.name).cmp(&(&other.schema, &other.name)));
    tables.dedup();
    tables
}

#[cfg(test)]
mod tests {
    use walpost_connector::{Properties, Unknown, judge};

    use super::*;

    fn connector(include: &str, mode: &str) -> Connector {
        connector_with(include, mode, "")
    }

    fn connector_with(include: &str, mode: &str, more: &str) -> Connector {
        let file = include_str!("../../../../../connectors/orders.json");
        let file = file
            .replace("\"schema.include.list\": \"walpost\",", "")
            .replace("walpost.outbox", include)
            .replace("\"disabled\"", &format!("{mode:?}{more}"));
        let properties = Properties::read(file.as_bytes()).unwrap();
        judge(&properties, None, Unknown::Refuse).into_connector().unwrap().0
    }

    fn table(text: &str) -> TableName {
        text.parse().unwrap()
    }

    fn found(name: &str, root: Option<&str>) -> FoundTable {
        let is_partitioned = name.ends_with("parted");
        FoundTable { name: table(name), is_partitioned, root: root.map(table) }
    }

    fn names(tables: &[TableName]) -> Vec<String> {
        tables.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn of_a_publication_that_stays_as_it_is_only_its_tables_count() {
        let connector = connector("public.out.*", "disabled");
        let published = ["public.outbox", "public.orders", "walpost.outbox"].map(table);
        let found = outboxes(&connector, "walpost", Reach::Published(published.to_vec()));
        assert_eq!(names(&found), ["public.outbox"]);
        assert!(!is_publication_changed(&connector));
    }

    #[test]
    fn a_table_that_the_router_does_not_see_is_no_outbox() {
        let published = ["public.outbox", "public.orders", "public.archive"].map(table);
        let reach = || Reach::Published(published.to_vec());
        let own = r#","transforms.outbox.predicate": "own", "predicates": "own",
            "predicates.own.type":
                "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
            "predicates.own.pattern": "orders\\.public\\.o.*""#;
        let connector_of = |more: &str| connector_with("public.*", "disabled", more);
        let found = outboxes(&connector_of(own), "walpost", reach());
        assert_eq!(names(&found), ["public.orders", "public.outbox"]);
        let negated = format!("{own}, \"transforms.outbox.negate\": \"true\"");
        let found = outboxes(&connector_of(&negated), "walpost", reach());
        assert_eq!(names(&found), ["public.archive"]);
    }

    #[test]
    fn rows_of_partitions_are_looked_for_under_the_name_they_come_by() {
        let connector = connector("public.(parted|day_1|plain)", "filtered");
        let tables = vec![
            found("public.plain", None),
            found("public.parted", None),
            found("public.day_1", Some("public.parted")),
        ];
        for (via_root, expected) in [
            (Some(true), ["public.parted", "public.plain"]),
            (Some(false), ["public.day_1", "public.plain"]),
            (None, ["public.parted", "public.plain"]),
        ] {
            let reach = Reach::Any { tables: tables.clone(), via_root };
            assert_eq!(names(&outboxes(&connector, "walpost", reach)), expected, "{via_root:?}");
        }
        let more = ",\n\"publish.via.partition.root\": \"false\"";
        let connector = connector_with("public.(parted|day_1|plain)", "filtered", more);
        let reach = Reach::Any { tables, via_root: None };
        let named = outboxes(&connector, "walpost", reach);
        assert_eq!(names(&named), ["public.day_1", "public.plain"], "as it asks for");
    }

    #[test]
    fn a_table_that_comes_later_is_an_outbox_by_the_same_filters() {
        let connector = connector("tenant_.*[.]outbox", "disabled");
        let filter = arrivals(&connector, "walpost", 7);
        let passes = |name: &str| filter.passes(&table(name));
        assert!(passes("tenant_b.outbox"));
        assert!(!passes("tenant_b.orders") && !passes("walpost.parked"));
    }

    #[test]
    fn walposts_own_tables_are_no_outboxes() {
        let connector = connector("relay\\\\..*", "filtered");
        let tables = vec![found("relay.outbox", None), found("relay.parked", None)];
        let reach = Reach::Any { tables, via_root: None };
        assert_eq!(names(&outboxes(&connector, "relay", reach)), ["relay.outbox"]);
    }
}
