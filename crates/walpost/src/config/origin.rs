use std::fmt;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Default,
    /// A property of a connector's or a worker's file. `line` is `None` where it
    /// is not given, and its default holds.
    Property {
        name: String,
        file: String,
        line: Option<u32>,
    },
    File {
        file: String,
        line: usize,
    },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Property { name, file, line: Some(line) } => {
                write!(f, "{file} line {line} ({name})")
            }
            Self::Property { name, file, line: None } => {
                write!(f, "{file} ({name}, which it does not give)")
            }
            Self::File { file, line } => write!(f, "{file} line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}
