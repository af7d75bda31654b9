//! Items of Structured Field Values (RFC 9651), as far as a string with
//! parameters needs them. The order of the functions is that of its section 4.2.

/// The string that is the Item's value; none where this is no Item, or one of
/// another type. Parameters have to be well-formed and mean nothing.
pub(crate) fn string_item(input: &[u8]) -> Option<String> {
    let mut rest = Rest(trimmed(input));
    let value = rest.string()?;
    rest.parameters()?;
    rest.0.is_empty().then_some(value)
}

fn trimmed(mut input: &[u8]) -> &[u8] {
    while let [b' ', tail @ ..] = input {
        input = tail;
    }
    while let [head @ .., b' '] = input {
        input = head;
    }
    input
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, tail) = self.0.split_first()?;
        self.0 = tail;
        Some(*first)
    }

    fn take(&mut self, expected: u8) -> bool {
        let is_there = self.0.first() == Some(&expected);
        if is_there {
            self.0 = &self.0[1..];
        }
        is_there
    }

    fn take_while(&mut self, holds: impl Fn(u8) -> bool) -> &'a [u8] {
        let count = self.0.iter().take_while(|byte| holds(**byte)).count();
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.take_while(|byte| byte == b' ');
            let first = self.next()?;
            if !first.is_ascii_lowercase() && first != b'*' {
                return None;
            }
            self.take_while(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            });
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<()> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b'"' => self.string().map(drop),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(())
            }
            b':' => {
                self.next();
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(())
            }
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(())
            }
            b'@' => {
                self.next();
                (self.number()? == Number::Integer).then_some(())
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Number> {
        self.take(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit()).len();
        if !self.take(b'.') {
            return (1..=15).contains(&whole).then_some(Number::Integer);
        }
        let part = self.take_while(|byte| byte.is_ascii_digit()).len();
        ((1..=12).contains(&whole) && (1..=3).contains(&part)).then_some(Number::Decimal)
    }

    fn string(&mut self) -> Option<String> {
        if !self.take(b'"') {
            return None;
        }
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => text.push(char::from(escaped)),
                    _ => return None,
                },
                plain @ b' '..=b'~' => text.push(char::from(plain)),
                _ => return None,
            }
        }
    }

    fn display_string(&mut self) -> Option<()> {
        self.next();
        if !self.take(b'"') {
            return None;
        }
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'"' => return std::str::from_utf8(&bytes).is_ok().then_some(()),
                b'%' => bytes.push(hex(self.next()?)? << 4 | hex(self.next()?)?),
                plain @ b' '..=b'~' => bytes.push(plain),
                _ => return None,
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Number {
    Integer,
    Decimal,
}

/// RFC 9651 has lower case alone here.
fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> Option<String> {
        string_item(input.as_bytes())
    }

    #[test]
    fn strings_are_read_with_their_escapes() {
        for (input, value) in [
            ("\"\"", ""),
            ("\"abc\"", "abc"),
            ("  \"a b\"  ", "a b"),
            (r#""a\"b\\c""#, "a\"b\\c"),
            ("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ] {
            assert_eq!(read(input).as_deref(), Some(value), "{input}");
        }
    }

    #[test]
    fn parameters_are_checked_and_dropped() {
        for parameters in [
            ";a",
            "; a=1",
            ";a=-1.5;b=?0",
            ";*x=tok/en",
            ";a=:aGk=:",
            ";a=@1659578233",
            ";a=\"x\"",
            ";a=%\"%c3%bc\"",
        ] {
            assert_eq!(read(&format!("\"k\"{parameters}")).as_deref(), Some("k"), "{parameters}");
        }
        for parameters in [
            ";",
            ";A",
            ";1a",
            " ;a",
            ";a=",
            ";a=?2",
            ";a=:x",
            ";a=@1.5",
            ";a=1.",
            ";a=1.2345",
            ";a=1234567890123456",
            ";a=%\"%C3\"",
            ";a=%\"%c3\"",
            ";a ;b",
            ",",
        ] {
            assert_eq!(read(&format!("\"k\"{parameters}")), None, "{parameters}");
        }
    }

    #[test]
    fn what_is_no_string_is_none() {
        for input in [
            "",
            " ",
            "abc",
            "\"abc",
            "abc\"",
            "\"a\"b\"",
            "\"a\\c\"",
            "\"a\\",
            "\"\u{e4}\"",
            "\"a\tb\"",
            "\"a\u{7f}\"",
            "'a'",
            "1",
            "?1",
            ":aGk=:",
            "\"a\", \"b\"",
            "\t\"a\"",
        ] {
            assert_eq!(read(input), None, "{input:?}");
        }
    }
}
