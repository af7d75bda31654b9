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
}

impl Set {
    /// All sets.
    pub const ALL: &'static [Self] = &[Self::Relay, Self::Consumer, Self::Inbox];

    /// Those of an application that publishes and consumes; the inbox is for
    /// those who receive events otherwise.
    pub const DEFAULT: &'static [Self] = &[Self::Relay, Self::Consumer];

    /// `relay`, `consumer` or `inbox`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Consumer => "consumer",
            Self::Inbox => "inbox",
        }
    }

    /// Its files in order.
    pub fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Relay => RELAY,
            Self::Consumer => CONSUMER,
            Self::Inbox => INBOX,
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
        number: 1,
        name: "outbox",
        template: include_str!("../migrations/relay/0001_outbox.sql"),
    },
    Migration {
        number: 2,
        name: "relay",
        template: include_str!("../migrations/relay/0002_relay.sql"),
    },
    Migration {
        number: 3,
        name: "proven",
        template: include_str!("../migrations/relay/0003_proven.sql"),
    },
    Migration {
        number: 4,
        name: "replay",
        template: include_str!("../migrations/relay/0004_replay.sql"),
    },
    Migration {
        number: 5,
        name: "polling",
        template: include_str!("../migrations/relay/0005_polling.sql"),
    },
    Migration {
        number: 6,
        name: "publication",
        template: include_str!("../migrations/relay/0006_publication.sql"),
    },
    Migration {
        number: 7,
        name: "moves",
        template: include_str!("../migrations/relay/0007_moves.sql"),
    },
    Migration {
        number: 8,
        name: "source",
        template: include_str!("../migrations/relay/0008_source.sql"),
    },
    Migration {
        number: 9,
        name: "dead_letters",
        template: include_str!("../migrations/relay/0009_dead_letters.sql"),
    },
];

const CONSUMER: &[Migration] = &[Migration {
    number: 1,
    name: "consumer",
    template: include_str!("../migrations/consumer/0001_consumer.sql"),
}];

const INBOX: &[Migration] = &[Migration {
    number: 1,
    name: "inbox",
    template: include_str!("../migrations/inbox/0001_inbox.sql"),
}];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

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
    fn numbers_run_from_one_without_gaps() {
        for set in Set::ALL {
            let numbers: Vec<u32> = set.migrations().iter().map(|one| one.number).collect();
            let expected: Vec<u32> = (1..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "{set}");
        }
    }
}
