/// A place in a file, both counted from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// A file cannot be read as properties. Names the place, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {problem}", .at.line, .at.column)]
pub struct ReadError {
    /// Where.
    pub at: Position,
    /// What is wrong, and what to write.
    pub problem: ReadProblem,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadProblem {
    /// Larger than a configuration is.
    #[error("{bytes} bytes are no configuration, which has at most {max_bytes}")]
    TooLarge {
        /// Bytes of the file.
        bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
    /// More properties than a connector has.
    #[error("there are {count} properties; a configuration has at most {max_count}")]
    TooMany {
        /// How many.
        count: usize,
        /// The bound.
        max_count: usize,
    },
    /// Nothing but blanks and comments.
    #[error(
        "there are no properties; write {{\"name\": …, \"config\": {{…}}}} or name=value lines"
    )]
    Empty,
    /// Bytes that are no UTF-8.
    #[error("the bytes are no UTF-8; store the file as UTF-8")]
    NotUtf8,
    /// JSON that is none.
    #[error("expected {0}")]
    Expected(&'static str),
    /// An object or array where a text belongs.
    #[error("{name} is {found}; a property is a text, a number, true or false")]
    Nested {
        /// The property.
        name: String,
        /// `an object`, `an array` or `null`.
        found: &'static str,
    },
    /// A character that PostgreSQL and Kafka take for the end of a text.
    #[error("{name:?} has the character with the number 0 in its name or value; remove it")]
    Nul {
        /// The property.
        name: String,
    },
    /// A property that is there twice.
    #[error("{name} is there again, after line {first_line}; remove one of them")]
    Duplicate {
        /// The property.
        name: String,
        /// Where it is first.
        first_line: u32,
    },
    /// A member beside `config` that has no meaning.
    #[error(
        "{name} stands beside \"config\", where only name and initial_state have a meaning; move it into \"config\" or remove it"
    )]
    BesideConfig {
        /// The member.
        name: String,
    },
    /// A name beside `config` and another in it.
    #[error("the connector is named beside \"config\" and otherwise in it; make both names one")]
    TwoNames,
    /// An unknown `initial_state`.
    #[error("initial_state is none of RUNNING, PAUSED and STOPPED")]
    InitialState,
    /// A character in a properties file that Kafka Connect reads otherwise. It
    /// is not named, as it may be part of a password.
    #[error(
        "the character is beyond ASCII, and Kafka Connect reads such a file as ISO-8859-1; write \
         \\u and its four hexadecimal digits"
    )]
    NotAscii,
    /// A `\u` without four hexadecimal digits, or half of a pair.
    #[error(
        "the escape is no character; write \\u and four hexadecimal digits, or \\\\ for a backslash"
    )]
    Escape,
    /// A line that begins with a separator.
    #[error("there is no name before the separator; write name=value")]
    NoName,
}
