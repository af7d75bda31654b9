//! Objects of texts, as Kafka Connect takes them: flat, or as `config` of an
//! object. A reader of its own, because each property keeps its place.

use crate::{
    error::{Position, ReadError, ReadProblem},
    properties::{InitialState, MAX_PROPERTIES, Properties, Property, without_duplicates},
};

/// Those of the configuration, and what stands beside it.
const MAX_MEMBERS: usize = MAX_PROPERTIES + 16;

/// Objects and arrays within each other. `config` is at the second level.
const MAX_DEPTH: u32 = 8;

struct Member {
    name: String,
    at: Position,
    value: Value,
}

enum Value {
    Text(String),
    Null,
    Array,
    Object(Vec<Member>),
}

/// Reads a whole text.
pub(crate) fn read(text: &str) -> Result<Properties, ReadError> {
    let mut reader =
        Reader { text, at: 0, count: 0, counted: Counted { at: 0, line: 1, column: 1 } };
    reader.blanks();
    if !reader.take('{') {
        return Err(reader.expected("{ for an object of properties"));
    }
    let members = reader.members(1)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err(reader.expected("the end of the file behind the object"));
    }
    let is_config =
        |member: &Member| member.name == "config" && matches!(member.value, Value::Object(_));
    match members.iter().any(is_config) {
        true => wrapped(members),
        false => Ok(Properties { list: properties(members)?, ..Properties::default() }),
    }
}

/// Members that are all texts.
fn properties(members: Vec<Member>) -> Result<Vec<Property>, ReadError> {
    let text = |member: Member| {
        let Member { name, at, value } = member;
        let found = match value {
            Value::Text(text) => return Ok(Property::new(name, text, Some(at))),
            Value::Null => "null",
            Value::Array => "an array",
            Value::Object(_) => "an object",
        };
        Err(ReadError { at, problem: ReadProblem::Nested { name, found } })
    };
    without_duplicates(members.into_iter().map(text).collect::<Result<_, _>>()?)
}

/// An object with `name` and `config`.
fn wrapped(members: Vec<Member>) -> Result<Properties, ReadError> {
    let mut seen: Vec<(String, u32)> = Vec::new();
    let mut name = None;
    let mut whole = Properties::default();
    for member in members {
        let at = member.at;
        let fail = |problem| Err(ReadError { at, problem });
        if let Some((name, first_line)) = seen.iter().find(|(name, _)| *name == member.name) {
            let (name, first_line) = (name.clone(), *first_line);
            return fail(ReadProblem::Duplicate { name, first_line });
        }
        seen.push((member.name.clone(), at.line));
        match (member.name.as_str(), member.value) {
            ("config", Value::Object(config)) => whole.list = properties(config)?,
            ("name", Value::Text(text)) => name = Some((text, at)),
            ("initial_state", Value::Text(text)) => match initial_state(&text) {
                Some(state) => whole.initial_state = state,
                None => return fail(ReadProblem::InitialState),
            },
            // As GET /connectors/{name} answers.
            ("tasks" | "type", _) => {}
            _ => return fail(ReadProblem::BesideConfig { name: member.name }),
        }
    }
    let Some((name, at)) = name else { return Ok(whole) };
    match whole.get("name") {
        Some(inner) if inner != name => Err(ReadError { at, problem: ReadProblem::TwoNames }),
        Some(_) => Ok(whole),
        None => {
            whole.list.insert(0, Property::new("name".to_owned(), name, Some(at)));
            Ok(whole)
        }
    }
}

fn initial_state(text: &str) -> Option<InitialState> {
    match text.to_ascii_uppercase().as_str() {
        "RUNNING" => Some(InitialState::Running),
        "PAUSED" => Some(InitialState::Paused),
        "STOPPED" => Some(InitialState::Stopped),
        _ => None,
    }
}

struct Reader<'a> {
    text: &'a str,
    /// Byte offset.
    at: usize,
    /// Members of all objects.
    count: usize,
    counted: Counted,
}

/// A byte offset up to which lines and columns are counted, each once.
#[derive(Clone, Copy)]
struct Counted {
    at: usize,
    line: u32,
    column: u32,
}

impl Counted {
    /// The same further behind.
    fn to(mut self, text: &str, at: usize) -> Self {
        for c in text[self.at..at].chars() {
            match c {
                '\n' => (self.line, self.column) = (self.line.saturating_add(1), 1),
                _ => self.column = self.column.saturating_add(1),
            }
        }
        self.at = at;
        self
    }

    fn position(self) -> Position {
        Position { line: self.line, column: self.column }
    }
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, expected: char) -> bool {
        let is_it = self.peek() == Some(expected);
        self.at += if is_it { expected.len_utf8() } else { 0 };
        is_it
    }

    fn blanks(&mut self) {
        while let Some(' ' | '\t' | '\n' | '\r') = self.peek() {
            self.at += 1;
        }
    }

    fn position(&self) -> Position {
        // What was counted may lie behind, where an error tells of its beginning.
        let start = Counted { at: 0, line: 1, column: 1 };
        let from = if self.counted.at <= self.at { self.counted } else { start };
        from.to(self.text, self.at).position()
    }

    fn expected(&self, what: &'static str) -> ReadError {
        ReadError { at: self.position(), problem: ReadProblem::Expected(what) }
    }

    /// Behind a `{`, up to its `}`.
    fn members(&mut self, depth: u32) -> Result<Vec<Member>, ReadError> {
        let mut members = Vec::new();
        self.blanks();
        if self.take('}') {
            return Ok(members);
        }
        loop {
            self.blanks();
            self.counted = self.counted.to(self.text, self.at);
            let at = self.counted.position();
            self.count += 1;
            if self.count > MAX_MEMBERS {
                let problem = ReadProblem::TooMany { count: self.count, max_count: MAX_PROPERTIES };
                return Err(ReadError { at, problem });
            }
            if !self.take('"') {
                return Err(self.expected("a name in double quotes"));
            }
            let name = self.string()?;
            self.blanks();
            if !self.take(':') {
                return Err(self.expected(": behind the name"));
            }
            let value = self.value(depth)?;
            members.push(Member { name, at, value });
            self.blanks();
            if self.take('}') {
                return Ok(members);
            }
            if !self.take(',') {
                return Err(self.expected(", or } behind the value"));
            }
        }
    }

    fn value(&mut self, depth: u32) -> Result<Value, ReadError> {
        self.blanks();
        match self.peek() {
            Some('{' | '[') if depth >= MAX_DEPTH => Err(self.expected("fewer levels")),
            Some('{') => {
                self.at += 1;
                self.members(depth + 1).map(Value::Object)
            }
            Some('[') => {
                self.at += 1;
                self.elements(depth + 1)?;
                Ok(Value::Array)
            }
            Some('"') => {
                self.at += 1;
                self.string().map(Value::Text)
            }
            Some('-' | '0'..='9') => self.number().map(Value::Text),
            _ => self.word(),
        }
    }

    /// Behind a `[`, up to its `]`.
    fn elements(&mut self, depth: u32) -> Result<(), ReadError> {
        self.blanks();
        if self.take(']') {
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.blanks();
            if self.take(']') {
                return Ok(());
            }
            if !self.take(',') {
                return Err(self.expected(", or ] behind the value"));
            }
        }
    }

    fn word(&mut self) -> Result<Value, ReadError> {
        for (word, value) in [
            ("true", Value::Text("true".to_owned())),
            ("false", Value::Text("false".to_owned())),
            ("null", Value::Null),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("a text in double quotes, a number, true or false"))
    }

    /// A number of JSON, as it is written.
    fn number(&mut self) -> Result<String, ReadError> {
        let start = self.at;
        self.take('-');
        if !self.take('0') {
            self.digits()?;
        }
        if self.take('.') {
            self.digits()?;
        }
        if self.take('e') || self.take('E') {
            let _ = self.take('+') || self.take('-');
            self.digits()?;
        }
        Ok(self.text[start..self.at].to_owned())
    }

    fn digits(&mut self) -> Result<(), ReadError> {
        let rest = &self.text[self.at..];
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        if count == 0 { Err(self.expected("a digit")) } else { Ok(()) }
    }

    /// Behind a quote, up to the next one.
    fn string(&mut self) -> Result<String, ReadError> {
        let mut text = String::new();
        loop {
            let here = self.at;
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(here)?),
                Some(c) if c >= ' ' => text.push(c),
                _ => {
                    self.at = here;
                    return Err(self.expected("\" at the end of the text, on the same line"));
                }
            }
        }
    }

    /// Behind a backslash, which is at `start`.
    fn escape(&mut self, start: usize) -> Result<char, ReadError> {
        let c = match self.next() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => return self.unicode(start),
            _ => {
                self.at = start;
                return Err(self.expected("an escape of JSON, such as \\\\ for a backslash"));
            }
        };
        Ok(c)
    }

    fn unicode(&mut self, start: usize) -> Result<char, ReadError> {
        let first = self.hex();
        let found = match first {
            Some(high @ 0xd800..=0xdbff) if self.take('\\') && self.take('u') => {
                let low = self.hex().filter(|low| (0xdc00..=0xdfff).contains(low));
                low.and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + low - 0xdc00))
            }
            Some(unit) => char::from_u32(unit),
            None => None,
        };
        found.ok_or_else(|| {
            self.at = start;
            ReadError { at: self.position(), problem: ReadProblem::Escape }
        })
    }

    /// Four hexadecimal digits.
    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let all = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = all.then(|| u32::from_str_radix(digits, 16).ok()).flatten()?;
        self.at += 4;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Result<Vec<(String, String)>, ReadError> {
        Ok(read(text)?.list.into_iter().map(|entry| (entry.name, entry.value)).collect())
    }

    #[test]
    fn all_forms_are_one() {
        let expected = vec![("name".to_owned(), "a".to_owned()), ("n".into(), "1".into())];
        for text in [
            r#"{"name": "a", "n": 1}"#,
            r#" { "name" : "a" , "config" : { "n" : "1" } } "#,
            r#"{"config":{"name":"a","n":"1"},"name":"a","tasks":[{"task":0}],"type":"source"}"#,
        ] {
            assert_eq!(pairs(text).as_ref(), Ok(&expected), "{text}");
        }
        let stopped = read(r#"{"name":"a","config":{},"initial_state":"stopped"}"#).unwrap();
        assert_eq!(stopped.initial_state, InitialState::Stopped);
    }

    #[test]
    fn numbers_and_booleans_are_their_text() {
        let text =
            r#"{"a": 5432, "b": true, "c": -1.50e+3, "d": false, "e": 12345678901234567890}"#;
        let values: Vec<String> = pairs(text).unwrap().into_iter().map(|(_, v)| v).collect();
        assert_eq!(values, ["5432", "true", "-1.50e+3", "false", "12345678901234567890"]);
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (text, line, column, problem) in [
            ("{\n  \"a\": 1,\n  \"a\": 2\n}", 3, 3, "a is there again, after line 2"),
            ("{\"a\": null}", 1, 2, "a is null"),
            ("{\"a\": [1, {}]}", 1, 2, "a is an array"),
            ("{\"a\": {\"b\": 1}}", 1, 2, "a is an object"),
            ("{\"a\": 1,}", 1, 9, "expected a name in double quotes"),
            ("{\"a\" 1}", 1, 6, "expected : behind the name"),
            ("{\"a\": 1 \"b\": 2}", 1, 9, "expected , or }"),
            ("{\"a\": \"x\ny\"}", 1, 9, "expected \" at the end of the text"),
            ("{\"a\": \"x", 1, 9, "expected \" at the end of the text"),
            ("{\"ä\": \"\\q\"}", 1, 8, "expected an escape of JSON"),
            ("{\"a\": \"\\ud800x\"}", 1, 8, "the escape is no character"),
            ("{\"a\": 01}", 1, 8, "expected , or }"),
            ("{\"a\": 1.}", 1, 9, "expected a digit"),
            ("{\"a\": yes}", 1, 7, "expected a text in double quotes"),
            ("{} x", 1, 4, "expected the end"),
            ("[]", 1, 1, "expected {"),
            ("{\"name\": \"a\", \"config\": {}, \"x\": 1}", 1, 29, "x stands beside \"config\""),
            ("{\"name\": \"a\", \"config\": {\"name\": \"b\"}}", 1, 2, "named beside"),
            ("{\"config\": {},\n\"config\": {}}", 2, 1, "config is there again"),
            ("{\"config\": {}, \"initial_state\": \"x\"}", 1, 16, "initial_state is none"),
        ] {
            let error = read(text).err().unwrap_or_else(|| panic!("{text} was taken"));
            assert_eq!(error.at, Position { line, column }, "{text}: {error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(read(&deep).is_err());
    }

    proptest! {
        #[test]
        fn texts_are_those_of_another_reader(
            members in proptest::collection::btree_map(any::<String>(), any::<String>(), 0..8)
        ) {
            let text = serde_json::to_string_pretty(&members).unwrap();
            let found = pairs(&text).unwrap();
            prop_assert_eq!(found, members.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn what_another_reader_refuses_is_refused(text in r#"[{}\[\]",:a\\u0-9\-.eE tfn\n]{0,40}"#) {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            if read(&text).is_ok() {
                prop_assert!(theirs.is_ok(), "{}", text);
            }
        }
    }
}
