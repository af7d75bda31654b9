//! JSON as Jackson reads it into a tree.

use std::collections::HashMap;

use super::places::FEW;
use crate::connect::value::Text;

/// How deep values may lie in each other, as in Jackson.
const MAX_DEPTH: usize = 1_000;

/// Characters of a number, as in Jackson.
const MAX_NUMBER_LEN: usize = 1_000;

/// A JSON value.
#[derive(Clone, PartialEq)]
pub(crate) enum Node {
    Null,
    Boolean(bool),
    Int(i32),
    Long(i64),
    /// An integer beyond 64 bits.
    BigInteger,
    Double(f64),
    /// A part of the text itself, where it has no escapes.
    String(Text),
    Array(Vec<Node>),
    /// Of members of one name the last, in the place of the first.
    Object(Vec<(Text, Node)>),
}

/// Why text is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Jackson does not read it either.
    NotJson,
    /// Half of a surrogate pair, which is no character.
    LoneSurrogate,
}

type Read<T> = Result<T, Unread>;

/// The first value of `text`; what follows it does not count, as in Jackson.
pub(crate) fn parse(text: &Text) -> Read<Node> {
    Parser { shared: text, text, at: 0, depth: 0 }.value()
}

struct Parser<'a> {
    shared: &'a Text,
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no blank.
    fn mark(&mut self) -> Read<u8> {
        self.skip_blanks();
        let mark = self.peek().ok_or(Unread::NotJson)?;
        self.at += 1;
        Ok(mark)
    }

    fn value(&mut self) -> Read<Node> {
        self.skip_blanks();
        match self.peek().ok_or(Unread::NotJson)? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => {
                self.at += 1;
                self.string().map(Node::String)
            }
            b't' => self.word("true", Node::Boolean(true)),
            b'f' => self.word("false", Node::Boolean(false)),
            b'n' => self.word("null", Node::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Unread::NotJson),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Read<Node>) -> Read<Node> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unread::NotJson);
        }
        let node = read(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn word(&mut self, word: &str, node: Node) -> Read<Node> {
        let rest = self.text[self.at..].strip_prefix(word).ok_or(Unread::NotJson)?;
        if rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$')) {
            return Err(Unread::NotJson);
        }
        self.at += word.len();
        Ok(node)
    }

    fn array(&mut self) -> Read<Node> {
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            match self.mark()? {
                b',' => {}
                b']' => return Ok(Node::Array(elements)),
                _ => return Err(Unread::NotJson),
            }
        }
    }

    fn object(&mut self) -> Read<Node> {
        let mut members = Members::default();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members.list));
        }
        loop {
            if self.mark()? != b'"' {
                return Err(Unread::NotJson);
            }
            let name = self.string()?;
            if self.mark()? != b':' {
                return Err(Unread::NotJson);
            }
            let node = self.value()?;
            members.put(name, node);
            match self.mark()? {
                b',' => {}
                b'}' => return Ok(Node::Object(members.list)),
                _ => return Err(Unread::NotJson),
            }
        }
    }

    /// What follows a quote, up to the next.
    fn string(&mut self) -> Read<Text> {
        let start = self.at;
        let (len, is_end) = self.plain()?;
        if is_end {
            return Ok(self.shared.part(start..start + len));
        }
        let mut out = self.text[start..start + len].to_owned();
        loop {
            out.push(self.escaped()?);
            let start = self.at;
            let (len, is_end) = self.plain()?;
            out.push_str(&self.text[start..start + len]);
            if is_end {
                return Ok(out.into());
            }
        }
    }

    /// Steps over the characters up to a quote or an escape, and that; how many
    /// bytes they are, and whether it is a quote.
    fn plain(&mut self) -> Read<(usize, bool)> {
        let rest = &self.text.as_bytes()[self.at..];
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let len = rest.iter().position(is_special).ok_or(Unread::NotJson)?;
        self.at += len + 1;
        match rest[len] {
            b'"' => Ok((len, true)),
            b'\\' => Ok((len, false)),
            _ => Err(Unread::NotJson),
        }
    }

    fn escaped(&mut self) -> Read<char> {
        let escape = self.peek().ok_or(Unread::NotJson)?;
        self.at += 1;
        Ok(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(Unread::NotJson),
        })
    }

    fn unicode(&mut self) -> Read<char> {
        let first = self.unit()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let is_pair = first < 0xdc00 && self.text[self.at..].starts_with("\\u");
        if !is_pair {
            return Err(Unread::LoneSurrogate);
        }
        self.at += 2;
        let second = self.unit()?;
        let code = match second {
            0xdc00..=0xdfff => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
            _ => return Err(Unread::LoneSurrogate),
        };
        char::from_u32(code).ok_or(Unread::LoneSurrogate)
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Read<u32> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Unread::NotJson)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Unread::NotJson);
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| Unread::NotJson)
    }

    fn number(&mut self) -> Read<Node> {
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(end);
        let is_ended = behind.is_empty()
            || behind.starts_with(|c: char| matches!(c, ',' | ']' | '}') || c.is_whitespace());
        let is_number = crate::number::is_json_number(text.as_bytes());
        if !is_ended || !is_number || text.len() > MAX_NUMBER_LEN {
            return Err(Unread::NotJson);
        }
        self.at += end;
        if text.contains(['.', 'e', 'E']) {
            return text.parse().map(Node::Double).map_err(|_| Unread::NotJson);
        }
        Ok(match text.parse::<i64>() {
            Ok(number) => i32::try_from(number).map_or(Node::Long(number), Node::Int),
            Err(_) => Node::BigInteger,
        })
    }
}

/// The members of an object so far.
#[derive(Default)]
struct Members {
    list: Vec<(Text, Node)>,
    /// Their places, once they are many.
    places: HashMap<Text, usize>,
}

impl Members {
    fn put(&mut self, name: Text, node: Node) {
        match self.place(&name) {
            Some(place) => self.list[place].1 = node,
            None => self.list.push((name, node)),
        }
    }

    /// Where the name stands already; if nowhere, it comes next.
    fn place(&mut self, name: &Text) -> Option<usize> {
        if self.list.len() < FEW {
            return self.list.iter().position(|(member, _)| member == name);
        }
        if self.places.is_empty() {
            let place = |(place, (name, _)): (usize, &(Text, Node))| (name.clone(), place);
            self.places = self.list.iter().enumerate().map(place).collect();
        }
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        self.places.insert(name.clone(), self.list.len());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Read<Node> {
        super::parse(&text.into())
    }

    #[test]
    fn of_many_members_of_one_name_the_last_counts() {
        let names = (0..3 * FEW).chain(0..FEW + 1);
        let members: Vec<String> = names.enumerate().map(|(n, m)| format!("\"{m}\":{n}")).collect();
        let Ok(Node::Object(read)) = parse(&format!("{{{}}}", members.join(","))) else {
            panic!("an object")
        };
        assert_eq!(read.len(), 3 * FEW);
        for (place, (name, node)) in read.iter().enumerate() {
            let number = if place <= FEW { place + 3 * FEW } else { place };
            assert_eq!(**name, *place.to_string());
            assert!(*node == Node::Int(number as i32), "{name:?}");
        }
    }

    #[test]
    fn values_are_read() {
        let node = parse(r#"{"a": [1, -2.5e3, "\u00e4\ud83d\ude00\n", true, null], "a": 7} x"#);
        assert!(node == Ok(Node::Object(vec![("a".into(), Node::Int(7))])));
        assert!(
            parse(r#"["\u00e4\ud83d\ude00\/"]"#)
                == Ok(Node::Array(vec![Node::String("ä😀/".into())]))
        );
        assert!(parse("[3000000000]") == Ok(Node::Array(vec![Node::Long(3_000_000_000)])));
        assert!(parse("[9223372036854775808]") == Ok(Node::Array(vec![Node::BigInteger])));
    }

    #[test]
    fn what_is_no_json_is_told() {
        for text in ["", "{", "[1", "[01]", "[1.]", "[nul]", "{\"a\"}", "[\"\t\"]", "[\"\\x\"]"] {
            assert!(parse(text) == Err(Unread::NotJson), "{text}");
        }
        assert!(parse(r#"["\ud800"]"#) == Err(Unread::LoneSurrogate));
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert!(parse(&deep) == Err(Unread::NotJson));
    }
}
