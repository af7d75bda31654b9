use std::fmt;

/// A group of migrations with numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Outbox, publication, and the relay's own tables: goes where the
    /// application writes its events.
    Relay,
    /// The consumer's tables: goes where the effects are.
    Consumer,
    /// The inbox: goes where the effects of received events are.
    Inbox,
    /// Requests under idempotency keys: goes where their effects are.
    Idempotency,
    /// Webhooks that are sent: goes where the application writes its events.
    Webhook,
    /// Connectors that are created over HTTP: goes wherever they are kept.
    Connect,
}

/// How the outbox is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As one table.
    #[default]
    Table,
    /// In partitions, one for each day.
    Partitioned,
}

/// One file of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From 1, without gaps.
    pub number: u32,
    /// The file's name without number and ending.
    pub name: &'static str,
    /// The SQL, with `{schema}` and `{publication}` where names belong.
    pub template: &'static str,
    /// The SQL for [`Form::Partitioned`], where that is another one.
    pub partitioned: Option<&'static str>,
}

impl Migration {
    const fn new(number: u32, name: &'static str, template: &'static str) -> Self {
        Self { number, name, template, partitioned: None }
    }

    /// The SQL for this form.
    pub fn text(&self, form: Form) -> &'static str {
        match form {
            Form::Table => self.template,
            Form::Partitioned => self.partitioned.unwrap_or(self.template),
        }
    }

    /// The form whose text has this [`checksum`]; the first one where both are
    /// the same.
    pub(crate) fn form_of(&self, checksum: &str) -> Option<Form> {
        [Form::Table, Form::Partitioned]
            .into_iter()
            .find(|form| crate::checksum(self.text(*form)) == checksum)
    }
}

impl Set {
    /// All sets.
    pub const ALL: &'static [Self] = &[
        Self::Relay,
        Self::Consumer,
        Self::Inbox,
        Self::Idempotency,
        Self::Webhook,
        Self::Connect,
    ];

    /// Those of an application that publishes and consumes; the others are for
    /// those who receive events or requests over HTTP, send webhooks, or serve connectors.
    pub const DEFAULT: &'static [Self] = &[Self::Relay, Self::Consumer];

    /// `relay`, `consumer`, `inbox`, `idempotency`, `webhook` or `connect`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Consumer => "consumer",
            Self::Inbox => "inbox",
            Self::Idempotency => "idempotency",
            Self::Webhook => "webhook",
            Self::Connect => "connect",
        }
    }

    /// Its files in order.
    pub fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Relay => RELAY,
            Self::Consumer => CONSUMER,
            Self::Inbox => INBOX,
            Self::Idempotency => IDEMPOTENCY,
            Self::Webhook => WEBHOOK,
            Self::Connect => CONNECT,
        }
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const RELAY: &[Migration] = &[
    Migration {
        partitioned: Some(include_str!("../migrations/partitioned/0001_outbox.sql")),
        ..Migration::new(1, "outbox", include_str!("../migrations/relay/0001_outbox.sql"))
    },
    Migration::new(2, "relay", include_str!("../migrations/relay/0002_relay.sql")),
    Migration::new(3, "proven", include_str!("../migrations/relay/0003_proven.sql")),
    Migration::new(4, "replay", include_str!("../migrations/relay/0004_replay.sql")),
    Migration::new(5, "polling", include_str!("../migrations/relay/0005_polling.sql")),
    Migration::new(6, "publication", include_str!("../migrations/relay/0006_publication.sql")),
    Migration::new(7, "moves", include_str!("../migrations/relay/0007_moves.sql")),
    Migration::new(8, "source", include_str!("../migrations/relay/0008_source.sql")),
    Migration::new(9, "dead_letters", include_str!("../migrations/relay/0009_dead_letters.sql")),
    Migration::new(10, "archive", include_str!("../migrations/relay/0010_archive.sql")),
    Migration::new(11, "days", include_str!("../migrations/relay/0011_days.sql")),
    Migration::new(12, "taken_over", include_str!("../migrations/relay/0012_taken_over.sql")),
    Migration::new(13, "identity", include_str!("../migrations/relay/0013_identity.sql")),
    Migration::new(
        14,
        "polling_states",
        include_str!("../migrations/relay/0014_polling_states.sql"),
    ),
    Migration::new(
        15,
        "retry_from_table",
        include_str!("../migrations/relay/0015_retry_from_table.sql"),
    ),
    Migration::new(16, "relations", include_str!("../migrations/relay/0016_relations.sql")),
];

const CONSUMER: &[Migration] = &[
    Migration::new(1, "consumer", include_str!("../migrations/consumer/0001_consumer.sql")),
    Migration::new(2, "parked_keys", include_str!("../migrations/consumer/0002_parked_keys.sql")),
    Migration::new(3, "lanes", include_str!("../migrations/consumer/0003_lanes.sql")),
    Migration::new(
        4,
        "known_numbers",
        include_str!("../migrations/consumer/0004_known_numbers.sql"),
    ),
    Migration::new(5, "operator", include_str!("../migrations/consumer/0005_operator.sql")),
    Migration::new(6, "dead_letters", include_str!("../migrations/consumer/0006_dead_letters.sql")),
    Migration::new(7, "names", include_str!("../migrations/consumer/0007_names.sql")),
    Migration::new(8, "lane_rows", include_str!("../migrations/consumer/0008_lane_rows.sql")),
    Migration::new(9, "nulls", include_str!("../migrations/consumer/0009_nulls.sql")),
    Migration::new(10, "identity", include_str!("../migrations/consumer/0010_identity.sql")),
    Migration::new(11, "session", include_str!("../migrations/consumer/0011_session.sql")),
    Migration::new(12, "halted", include_str!("../migrations/consumer/0012_halted.sql")),
    Migration::new(13, "connections", include_str!("../migrations/consumer/0013_connections.sql")),
];

const INBOX: &[Migration] = &[
    Migration::new(1, "inbox", include_str!("../migrations/inbox/0001_inbox.sql")),
    Migration::new(2, "session", include_str!("../migrations/inbox/0002_session.sql")),
];

const IDEMPOTENCY: &[Migration] = &[
    Migration::new(
        1,
        "idempotency",
        include_str!("../migrations/idempotency/0001_idempotency.sql"),
    ),
    Migration::new(2, "session", include_str!("../migrations/idempotency/0002_session.sql")),
];

const WEBHOOK: &[Migration] = &[
    Migration::new(1, "webhook", include_str!("../migrations/webhook/0001_webhook.sql")),
    Migration::new(2, "archive", include_str!("../migrations/webhook/0002_archive.sql")),
    Migration::new(3, "mark", include_str!("../migrations/webhook/0003_mark.sql")),
    Migration::new(4, "given_back", include_str!("../migrations/webhook/0004_given_back.sql")),
    Migration::new(5, "order", include_str!("../migrations/webhook/0005_order.sql")),
    Migration::new(6, "breaker", include_str!("../migrations/webhook/0006_breaker.sql")),
    Migration::new(7, "identity", include_str!("../migrations/webhook/0007_identity.sql")),
];

const CONNECT: &[Migration] =
    &[Migration::new(1, "connect", include_str!("../migrations/connect/0001_connect.sql"))];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_of_the_folders_is_built_in_under_its_name() {
        for set in Set::ALL {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
            let mut files: Vec<String> = fs::read_dir(folder.join(set.as_str()))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let built_in: Vec<String> = set
                .migrations()
                .iter()
                .map(|migration| format!("{:04}_{}.sql", migration.number, migration.name))
                .collect();
            assert_eq!(files, built_in);
            for (file, migration) in files.iter().zip(set.migrations()) {
                let text = fs::read_to_string(folder.join(set.as_str()).join(file)).unwrap();
                assert_eq!(text, migration.template, "{file}");
            }
        }
    }

    #[test]
    fn every_other_form_is_built_in_under_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/partitioned");
        let built_in = RELAY.iter().filter_map(|one| Some((one, one.partitioned?)));
        for (migration, text) in built_in.clone() {
            let file = format!("{:04}_{}.sql", migration.number, migration.name);
            assert_eq!(fs::read_to_string(folder.join(&file)).unwrap(), text, "{file}");
            assert_eq!(migration.form_of(&crate::checksum(text)), Some(Form::Partitioned));
        }
        assert_eq!(fs::read_dir(folder).unwrap().count(), built_in.count());
    }

    fn quoted(text: &str, from: &str, to: &str) -> Vec<String> {
        let list = text.split_once(from).unwrap().1.split_once(to).unwrap().0;
        list.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_set_puts_back_the_same_settings_of_a_session() {
        let lists: BTreeSet<Vec<String>> = [Set::Consumer, Set::Inbox, Set::Idempotency]
            .into_iter()
            .flat_map(|set| {
                let migration = set.migrations().iter().find(|one| one.name == "session");
                let text = migration.unwrap().template;
                let values = quoted(text, "session_values() returns", "end $$");
                [values, quoted(text, "unnest(array[", "], kept")]
            })
            .collect();
        assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [21], "{lists:#?}");
    }

    #[test]
    fn numbers_run_from_one_without_gaps() {
        for set in Set::ALL {
            let numbers: Vec<u32> = set.migrations().iter().map(|one| one.number).collect();
            let expected: Vec<u32> = (1..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "{set}");
        }
    }
}
