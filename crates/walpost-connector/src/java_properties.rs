//! Java's properties files, by the rules of `java.util.Properties.load`.

use std::{iter::Peekable, str::Chars};

use crate::{
    error::{Position, ReadError, ReadProblem},
    properties::{Property, without_duplicates},
};

/// A character that is beyond ASCII: how it is taken depends on who reads the
/// file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// As Kafka Connect's: a file of ISO-8859-1, which few editors write.
    Ascii,
    /// As its provider of files: UTF-8.
    Utf8,
}

/// Reads a whole text that has to be ASCII, but for its comments.
pub(crate) fn read(text: &str) -> Result<Vec<Property>, ReadError> {
    without_duplicates(entries(text, Charset::Ascii)?)
}

/// All entries; a later one of the same name is the one that holds.
pub(crate) fn entries(text: &str, charset: Charset) -> Result<Vec<Property>, ReadError> {
    let mut lines = Lines { chars: text.chars().peekable(), line: 1, column: 1 };
    let mut properties = Vec::new();
    while let Some(line) = lines.logical() {
        properties.push(property(&line, charset)?);
    }
    Ok(properties)
}

/// A character with its place.
type Placed = (char, Position);

/// Lines of the file, as one where a backslash ends one.
struct Lines<'a> {
    chars: Peekable<Chars<'a>>,
    line: u32,
    column: u32,
}

impl Lines<'_> {
    fn next(&mut self) -> Option<Placed> {
        let at = Position { line: self.line, column: self.column };
        let c = self.chars.next()?;
        let is_end = c == '\n' || (c == '\r' && self.chars.peek() != Some(&'\n'));
        match is_end {
            true => (self.line, self.column) = (self.line.saturating_add(1), 1),
            false => self.column = self.column.saturating_add(1),
        }
        Some((c, at))
    }

    fn blanks(&mut self) {
        while self.chars.peek().is_some_and(|c| is_blank(*c)) {
            self.next();
        }
    }

    /// Behind a `\r`, the `\n` that belongs to it.
    fn rest_of_end(&mut self, end: char) {
        if end == '\r' && self.chars.peek() == Some(&'\n') {
            self.next();
        }
    }

    /// The next line that is neither blank nor a comment, with its escapes.
    fn logical(&mut self) -> Option<Vec<Placed>> {
        loop {
            self.blanks();
            match self.chars.peek()? {
                '#' | '!' => while self.next().is_some_and(|(c, _)| !matches!(c, '\n' | '\r')) {},
                '\n' | '\r' => {
                    self.next();
                }
                _ => match self.rest() {
                    line if line.is_empty() => {}
                    line => return Some(line),
                },
            }
        }
    }

    fn rest(&mut self) -> Vec<Placed> {
        let mut line = Vec::new();
        while let Some((c, at)) = self.next() {
            match c {
                '\n' | '\r' => {
                    self.rest_of_end(c);
                    return line;
                }
                '\\' => match self.next() {
                    Some((end @ ('\n' | '\r'), _)) => {
                        self.rest_of_end(end);
                        self.blanks();
                        // Nothing goes on, and a comment may begin.
                        if line.is_empty() {
                            return line;
                        }
                    }
                    Some(escaped) => line.extend([(c, at), escaped]),
                    None => return line,
                },
                _ => line.push((c, at)),
            }
        }
        line
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn property(line: &[Placed], charset: Charset) -> Result<Property, ReadError> {
    let end = end_of_name(line);
    let at = line.first().map(|(_, at)| *at);
    if let (0, Some(at)) = (end, at) {
        return Err(ReadError { at, problem: ReadProblem::NoName });
    }
    let mut rest = &line[end..];
    let skip_blanks = |rest: &mut &[Placed]| {
        while rest.first().is_some_and(|(c, _)| is_blank(*c)) {
            *rest = &rest[1..];
        }
    };
    skip_blanks(&mut rest);
    if rest.first().is_some_and(|(c, _)| matches!(c, '=' | ':')) {
        rest = &rest[1..];
        skip_blanks(&mut rest);
    }
    Ok(Property::new(unescaped(&line[..end], charset)?, unescaped(rest, charset)?, at))
}

/// Up to the first separator or blank that has no backslash before it.
fn end_of_name(line: &[Placed]) -> usize {
    let mut escaped = false;
    for (index, (c, _)) in line.iter().enumerate() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' => return index,
            c if is_blank(*c) => return index,
            _ => {}
        }
    }
    line.len()
}

fn unescaped(text: &[Placed], charset: Charset) -> Result<String, ReadError> {
    // Of UTF-16, since an escape may be half of a character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [(c, at), tail @ ..] = rest {
        rest = tail;
        if charset == Charset::Ascii && !c.is_ascii() {
            return Err(ReadError { at: *at, problem: ReadProblem::NotAscii });
        }
        let mut found = *c;
        if let ('\\', [(escaped, _), tail @ ..]) = (*c, rest) {
            rest = tail;
            found = match escaped {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'f' => '\u{c}',
                'u' => {
                    let problem = ReadProblem::Escape;
                    units.push(hex(rest).ok_or(ReadError { at: *at, problem })?);
                    rest = &rest[4..];
                    continue;
                }
                other => *other,
            };
        }
        if charset == Charset::Ascii && !found.is_ascii() {
            return Err(ReadError { at: *at, problem: ReadProblem::NotAscii });
        }
        units.extend_from_slice(found.encode_utf16(&mut [0; 2]));
    }
    let at = text.first().map_or(Position { line: 1, column: 1 }, |(_, at)| *at);
    String::from_utf16(&units).map_err(|_| ReadError { at, problem: ReadProblem::Escape })
}

/// Four hexadecimal digits at the beginning.
fn hex(text: &[Placed]) -> Option<u16> {
    let digits: String = text.get(..4)?.iter().map(|(c, _)| c).collect();
    let all = digits.bytes().all(|b| b.is_ascii_hexdigit());
    all.then(|| u16::from_str_radix(&digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Result<Vec<(String, String)>, ReadError> {
        Ok(read(text)?.into_iter().map(|entry| (entry.name, entry.value)).collect())
    }

    #[test]
    fn names_and_values_are_those_of_java() {
        for (text, expected) in [
            ("a=b", &[("a", "b")][..]),
            ("a:b", &[("a", "b")]),
            ("a b", &[("a", "b")]),
            ("  a \t = \t b  ", &[("a", "b  ")]),
            ("a = = b", &[("a", "= b")]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("a\\ b\\=c=d", &[("a b=c", "d")]),
            ("# x\n! y=z\n\n a=1\r\n\rb=2\rc=3", &[("a", "1"), ("b", "2"), ("c", "3")]),
            ("a=1\\\n   2\\\r\n\t3", &[("a", "123")]),
            ("a=1\\\n# no comment", &[("a", "1# no comment")]),
            ("a=1\\\n\nb=2", &[("a", "1"), ("b", "2")]),
            ("# x\\\na=1", &[("a", "1")]),
            ("\\\n# a comment\nb=2", &[("b", "2")]),
            ("a=1\\\\\nb=2", &[("a", "1\\"), ("b", "2")]),
            ("a=\\u00e4\\ud83d\\uDE00\\t\\n\\q", &[("a", "ä😀\t\nq")]),
            ("a=1\\", &[("a", "1")]),
            ("", &[]),
        ] {
            let expected: Vec<(String, String)> =
                expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(pairs(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (text, line, column, problem) in [
            ("a=1\nb=2\na = 3", 3, 1, "a is there again, after line 1"),
            ("a=1\n b=ä", 2, 4, "beyond ASCII"),
            ("a=\\ä", 1, 3, "beyond ASCII"),
            ("a=\\u12g4", 1, 3, "the escape is no character"),
            ("a=\\u12", 1, 3, "the escape is no character"),
            ("a=\\ud800", 1, 3, "the escape is no character"),
            ("\n =x", 2, 2, "there is no name"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.at, Position { line, column }, "{text:?}: {error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn comments_may_have_any_character_and_other_files_too() {
        assert_eq!(pairs("# ä\na=1").unwrap().len(), 1);
        assert_eq!(entries("a=ä\na=ö", Charset::Utf8).unwrap()[1].value, "ö");
    }
}
