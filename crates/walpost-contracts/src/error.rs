use std::{io, path::PathBuf};

/// A folder of contracts cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder has no contracts.
    #[error("{} has no contracts; one is a file <domain>/<event>.md in it", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A document is no contract.
    #[error("{} is no contract", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: DocumentError,
    },
    /// Two documents are about one event.
    #[error("{} and {} are both about {event_type}; keep one", first.display(), second.display())]
    Twice {
        /// The event's type.
        event_type: String,
        /// The one file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

/// Why a document is no contract, and what it should have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It does not begin with the event's type.
    #[error("it has to begin with a heading that is the event's type: # OrderPlaced")]
    Heading,
    /// A row of the table is missing.
    #[error("its table has no row {row:?}: | {row} | ... |")]
    Missing {
        /// The row's first cell.
        row: &'static str,
    },
    /// A row of the table is not known, or there twice.
    #[error("line {line}: {row:?} is {problem}; the table's rows are {known}")]
    Row {
        /// From 1.
        line: usize,
        /// The row's first cell.
        row: String,
        /// What is wrong with it.
        problem: &'static str,
        /// Those that there are.
        known: String,
    },
    /// The value of a row is none that it can have.
    #[error("its {row} is {value:?}; it has to be {expected}")]
    Value {
        /// The row's first cell.
        row: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        expected: &'static str,
    },
    /// A section is missing or empty.
    #[error("it has no section {section:?}{with}")]
    Section {
        /// Its heading.
        section: &'static str,
        /// What has to be in it.
        with: &'static str,
    },
    /// The block of code does not end.
    #[error("line {line}: the block of code that begins here does not end")]
    Fence {
        /// From 1.
        line: usize,
    },
    /// The schema is none.
    #[error("its schema is no {language}: {problem}")]
    Schema {
        /// `JSON`, `JSON Schema` or `Avro schema`.
        language: &'static str,
        /// Why.
        problem: String,
    },
    /// The schema refuses the document's own example.
    #[error("its schema refuses its example {index}, counted from 1")]
    Example {
        /// Which, from 1.
        index: usize,
        /// Why.
        #[source]
        source: PayloadError,
    },
}

/// A payload is not what the contract of its event says. No value of the payload
/// is in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// There is no contract for this type.
    #[error(
        "there is no contract for events of type {event_type:?}; write one, or correct the type"
    )]
    NoContract {
        /// The event's type.
        event_type: String,
    },
    /// It is no JSON, or no datum of the Avro schema.
    #[error("the payload of {event_type} is no {expected}")]
    Unreadable {
        /// The event's type.
        event_type: String,
        /// `JSON`, or `datum of its Avro schema`.
        expected: &'static str,
    },
    /// The schema refuses it.
    #[error("the payload of {event_type} is not what its contract says: at {path}: {problem}")]
    Refused {
        /// The event's type.
        event_type: String,
        /// A JSON pointer into the payload; `/` is the whole.
        path: String,
        /// What the schema asks for.
        problem: String,
    },
}
