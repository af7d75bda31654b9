use std::fmt;

/// How the processes are members of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Partitions move one by one, which is the default.
    Cooperative,
    /// All partitions are given back in each rebalance.
    Eager,
    /// Each has a `group.instance.id`, which its replacement takes over.
    Static,
    /// By the group protocol of KIP-848.
    NewProtocol,
}

impl Membership {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cooperative, Self::Eager, Self::Static, Self::NewProtocol];

    /// Settings of librdkafka; `instance` names the member.
    pub(super) fn settings(self, instance: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::Cooperative => Vec::new(),
            Self::Eager => vec![("partition.assignment.strategy", "range".to_owned())],
            Self::Static => vec![("group.instance.id", instance.to_owned())],
            Self::NewProtocol => vec![("group.protocol", "consumer".to_owned())],
        }
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cooperative => "cooperative",
            Self::Eager => "eager",
            Self::Static => "static",
            Self::NewProtocol => "consumer",
        })
    }
}
