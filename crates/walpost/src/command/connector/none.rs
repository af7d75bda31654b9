use walpost_connector::{AutoCreate, Connector};
use walpost_relay::TableName;

use super::SHOWN_VALUE;
use crate::{
    command::cells::line,
    config::{Config, connector::Reach, nearest::nearest},
    failure::{Exit, Failure},
};

const INCLUDED: &str = "table.include.list";
const FILTERS: [&str; 4] =
    [INCLUDED, "schema.include.list", "table.exclude.list", "schema.exclude.list"];

/// What tables there are, for who is told that none passes the filters.
pub(super) struct There {
    place: &'static str,
    /// But for those of Walpost's schema that are no outbox.
    names: Vec<String>,
}

impl There {
    /// `schema` is Walpost's.
    pub(super) fn of(reach: &Reach, schema: &str) -> Self {
        let (place, tables): (_, Vec<&TableName>) = match reach {
            Reach::Published(tables) => ("the publication has", tables.iter().collect()),
            Reach::Any { tables, .. } => {
                ("the database has", tables.iter().map(|table| &table.name).collect())
            }
        };
        let is_told = |table: &&TableName| table.schema != schema || table.name == "outbox";
        let told = tables.into_iter().filter(is_told);
        let mut names: Vec<String> = told.map(ToString::to_string).collect();
        names.sort_unstable();
        Self { place, names }
    }

    pub(super) fn none_passes(&self, config: &Config, connector: &Connector) -> Failure {
        let file = config.connector_file();
        let given = |name| {
            let row = file?.verdicts().row(name)?;
            Some((name, row.value.clone()?))
        };
        let given: Vec<(&str, String)> = FILTERS.into_iter().filter_map(given).collect();
        let mut text = format!(
            "{}: no table passes {}; {}",
            file.map_or("", |file| &*file.file),
            told(&given),
            self.told()
        );
        let included = given.iter().find(|(name, _)| *name == INCLUDED);
        if let Some(near) = included.and_then(|(_, value)| self.near(value)) {
            text.push_str(&format!("; did you mean {near}?"));
        }
        let mut next_step = "write the outbox in table.include.list, as schema.table, after \
                             creating it where it is missing"
            .to_owned();
        if connector.publication.autocreate == AutoCreate::Disabled {
            next_step.push_str(&format!(
                "; with publication.autocreate.mode = disabled publication {:?} has to have it too",
                config.settings.pipeline.publication
            ));
        }
        Failure::found(Exit::Postgres, &text).next_step(next_step)
    }

    /// The first ones.
    fn told(&self) -> String {
        const MOST: usize = 5;
        let more = if self.names.len() > MOST { ", …" } else { "" };
        match self.names.len() {
            0 => format!("{} none", self.place),
            len => format!("{} {}{more}", self.place, self.names[..len.min(MOST)].join(", ")),
        }
    }

    /// The table that a name of the list may have been meant for.
    fn near(&self, included: &str) -> Option<&str> {
        let names = || self.names.iter().map(String::as_str);
        let words = included.split(',').map(|word| word.trim().replace('\\', ""));
        let mut near = words.map(|word| nearest(&word, names().filter(|name| *name != word)));
        near.find_map(|near| near)
    }
}

/// The filters as they were given.
fn told(given: &[(&str, String)]) -> String {
    if given.is_empty() {
        return format!("the connector's filters, as {INCLUDED}");
    }
    let told = given.iter().map(|(name, value)| format!("{name} = {}", line(value, SHOWN_VALUE)));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(tables: &[&str]) -> There {
        let tables = tables.iter().map(|table| table.parse().unwrap()).collect();
        There::of(&Reach::Published(tables), "walpost")
    }

    #[test]
    fn the_table_that_was_meant_is_near_to_one_of_the_list() {
        let there = there(&["inventory.outboxevent", "walpost.outbox", "walpost.parked"]);
        for (included, expected) in [
            ("inventory.outboxevents", Some("inventory.outboxevent")),
            (r"a.b, inventory\.outboxevets", Some("inventory.outboxevent")),
            ("walpost.outbx", Some("walpost.outbox")),
            ("inventory.outboxevent", None),
            ("walpost.parkd", None),
            ("public.orders", None),
            ("***", None),
        ] {
            assert_eq!(there.near(included), expected, "{included}");
        }
        assert_eq!(there.told(), "the publication has inventory.outboxevent, walpost.outbox");
    }

    #[test]
    fn filters_are_told_with_their_values() {
        let value = || "a.b".to_owned();
        assert_eq!(told(&[(INCLUDED, value())]), "table.include.list = a.b");
        let both = [(INCLUDED, value()), ("schema.include.list", "a".to_owned())];
        assert_eq!(told(&both), "table.include.list = a.b, schema.include.list = a");
    }
}
