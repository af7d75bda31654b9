//! The Java program that answers.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value as Json;
use walpost_local::{fetch_debezium, find_java};

/// Since when Java finds the shortest text of a floating-point number.
const OLDEST_JAVA: u32 = 19;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oracle/Oracle.java");

pub(crate) struct Oracle {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    pub(crate) fn start() -> Self {
        Self::start_beside("")
    }

    /// With more on the class path, before what Debezium has: where both have a
    /// library, Confluent's needs the newer one.
    pub(crate) fn start_beside(libraries: &str) -> Self {
        let java = find_java("the oracle", OLDEST_JAVA).unwrap();
        let libraries = format!("{libraries}:{}/*", fetch_debezium().unwrap().display());
        let mut child = Command::new(java)
            .args(["-Duser.timezone=UTC", "-Xmx512m", "-XX:+UseSerialGC"])
            .args(["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"])
            .arg("-cp")
            .arg(libraries)
            .arg(PROGRAM)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, questions, answers }
    }

    /// The answer to one question.
    pub(crate) fn ask(&mut self, question: &Json) -> Json {
        let questions = self.questions.as_mut().unwrap();
        writeln!(questions, "{question}").unwrap();
        questions.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("the oracle answers each line")
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Its input ends: so does it, and leaves no session behind.
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}

/// What the oracle said of one value: its bytes, no bytes, or that it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Bytes(Vec<u8>),
    Nothing,
    Failed(String),
}

impl Verdict {
    pub(crate) fn of(answer: &Json) -> Self {
        match answer.get("error") {
            Some(error) => Self::Failed(error.as_str().unwrap().to_owned()),
            None => Self::of_hex(&answer["hex"]),
        }
    }

    pub(crate) fn of_hex(hex: &Json) -> Self {
        match hex.as_str() {
            None => Self::Nothing,
            Some(hex) => {
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                Self::Bytes((0..hex.len()).step_by(2).map(byte).collect())
            }
        }
    }

    pub(crate) fn of_ours<E: std::fmt::Debug>(ours: Result<Option<impl AsRef<[u8]>>, E>) -> Self {
        match ours {
            Ok(Some(bytes)) => Self::Bytes(bytes.as_ref().to_vec()),
            Ok(None) => Self::Nothing,
            Err(error) => Self::Failed(format!("{error:?}")),
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nothing => "nothing".to_owned(),
            Self::Failed(error) => format!("failed: {error}"),
        }
    }
}

/// Of JSON the first fields that differ, else where the text does.
pub(crate) fn difference(ours: &str, theirs: &str) -> String {
    let parsed = [ours, theirs].map(|text| serde_json::from_str::<Json>(text).unwrap_or_default());
    let [ours_json, theirs_json] = parsed;
    let mut found = String::new();
    for place in ["/schema/fields", "/payload", ""] {
        let (Some(ours), Some(theirs)) = (ours_json.pointer(place), theirs_json.pointer(place))
        else {
            continue;
        };
        let fields = |json: &Json| match json {
            Json::Array(fields) => fields.iter().map(Json::to_string).collect::<Vec<_>>(),
            Json::Object(fields) => {
                fields.iter().map(|(name, value)| format!("{name}={value}")).collect()
            }
            other => vec![other.to_string()],
        };
        for (ours, theirs) in fields(ours).iter().zip(&fields(theirs)) {
            if ours != theirs && found.len() < 4_000 && ours.len() < 4_000 {
                found.push_str(&format!("\n  ours:   {ours}\n  theirs: {theirs}"));
            }
        }
    }
    if found.is_empty() {
        let at = ours.bytes().zip(theirs.bytes()).take_while(|(one, other)| one == other).count();
        let part =
            |text: &str| text.chars().skip(at.saturating_sub(40)).take(160).collect::<String>();
        found = format!("\n  ours:   {}\n  theirs: {}", part(ours), part(theirs));
    }
    found
}
