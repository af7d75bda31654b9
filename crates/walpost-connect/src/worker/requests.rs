use std::collections::BTreeMap;

use crate::{
    config::Config,
    state::{Restart, Target},
};

/// What is asked for, and changes something.
pub(crate) enum Request {
    /// A new connector.
    Create { name: String, config: Config, target: Target },
    /// All properties of one that may be new.
    Put { name: String, config: Config },
    /// Some properties; `None` takes one away.
    Patch { name: String, patch: BTreeMap<String, Option<String>> },
    /// What it is to do.
    Target { name: String, target: Target },
    /// It is to begin anew.
    Restart { name: String, restart: Restart },
    /// Its task is.
    RestartTask { name: String },
    /// It is to leave.
    Delete { name: String },
}

/// It was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// There is a new connector.
    Created,
    /// It is done, or begun.
    Changed,
    /// Of the connector and its task, which begin anew.
    Restarting([bool; 2]),
}

impl Request {
    /// The connector that it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Put { name, .. }
            | Self::Patch { name, .. }
            | Self::Target { name, .. }
            | Self::Restart { name, .. }
            | Self::RestartTask { name }
            | Self::Delete { name } => name,
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request about {:?}", self.name())
    }
}
