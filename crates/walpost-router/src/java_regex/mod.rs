//! Java's regular expressions, translated for the `regex` crate, which matches in
//! linear time, and for `fancy-regex`, which tries one way after the other, where
//! a pattern looks around, refers back or does not give back.
//!
//! Translated is what `java.util.regex.Pattern` of Java 19 means without flags:
//! classes such as `\d`, `\w`, `\b` and `\p{Lower}` and the flag `i` know ASCII
//! alone, a point passes no line terminator of Unicode, and `$` stands before the
//! last one too. What is not translated is refused.
//!
//! Two things differ, in patterns that make little sense: of a group that is
//! repeated and may be empty, as in `(a*)*`, Java has the last turn, which is; and
//! where a pattern ends with `$`, a match ends at the end of the text, not before
//! its last line terminator.

mod class;
mod engine;
mod property;

use std::{iter::Peekable, str::CharIndices};

pub use self::engine::GaveUp;
pub(crate) use self::engine::{Found, Groups, JavaRegex, linear, whole};

/// Syntax of Java's that Walpost has not, or that is none in Java.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{construct} at byte {offset}")]
pub struct JavaOnly {
    construct: &'static str,
    offset: usize,
}

impl JavaOnly {
    /// Byte offset in the pattern.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// A pattern for the engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    pub(crate) pattern: String,
    /// Whether the linear engine cannot match it.
    pub(crate) backtracks: bool,
    /// Groups from the first one on, with their names.
    pub(crate) groups: Vec<Option<String>>,
}

/// What Java takes for the end of a line.
const TERMINATORS: &str = r"\n\r\x{85}\x{2028}\x{2029}";
/// Of ASCII, as the linear engine has it.
const BOUNDARY: &str = r"(?-u:\b)";
const NO_BOUNDARY: &str = r"(?-u:\B)";
/// The same for the other one.
const LOOKING_BOUNDARY: &str =
    "(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))";
const LOOKING_NO_BOUNDARY: &str =
    "(?:(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<![0-9A-Za-z_])(?![0-9A-Za-z_]))";

/// Groups within groups.
const MAX_DEPTH: usize = 100;
/// Bytes of a pattern. The engine bounds what it compiles to, and not what it takes
/// to find that out: of a megabyte, seconds and a gigabyte.
const MAX_BYTES: usize = 64 * 1024;

/// Translates a pattern.
pub(crate) fn translate(pattern: &str) -> Result<Translated, JavaOnly> {
    if pattern.len() > MAX_BYTES {
        return Err(refused("more than 64 KiB", MAX_BYTES));
    }
    let mut translation = Translation::new(pattern);
    translation.all()?;
    let Translation { mut out, backtracks, groups, .. } = translation;
    if backtracks {
        out = out.replace(BOUNDARY, LOOKING_BOUNDARY).replace(NO_BOUNDARY, LOOKING_NO_BOUNDARY);
    }
    Ok(Translated { pattern: out, backtracks, groups })
}

/// `i`, `s` and `m`.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    ignores_case: bool,
    passes_lines: bool,
    by_line: bool,
}

struct Translation<'a> {
    chars: Peekable<CharIndices<'a>>,
    text: &'a str,
    out: String,
    flags: Flags,
    /// Each open group: where it begins, and the flags around it.
    open: Vec<(usize, Flags)>,
    groups: Vec<Option<String>>,
    backtracks: bool,
    /// Within `\Q` and `\E`.
    quotes: bool,
}

impl<'a> Translation<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            chars: text.char_indices().peekable(),
            text,
            out: String::with_capacity(2 * text.len()),
            flags: Flags::default(),
            open: Vec::new(),
            groups: Vec::new(),
            backtracks: false,
            quotes: false,
        }
    }

    fn all(&mut self) -> Result<(), JavaOnly> {
        while let Some((offset, c)) = self.next() {
            if self.quotes {
                self.literal(c);
                self.quantifier()?;
                continue;
            }
            match c {
                '\\' => self.escape(offset)?,
                '[' => {
                    let class = class::translate(self, offset, 0)?;
                    self.out.push_str(&class);
                    self.quantifier()?;
                }
                '(' => self.group(offset)?,
                ')' => {
                    let begun = self.open.pop().ok_or(refused("a ) without its (", offset))?;
                    self.flags = begun.1;
                    self.out.push(')');
                    self.quantifier()?;
                }
                '|' => self.out.push('|'),
                '.' => {
                    let any = if self.flags.passes_lines { "(?s:.)" } else { "" };
                    self.out.push_str(any);
                    if any.is_empty() {
                        self.out.push_str(&format!("[^{TERMINATORS}]"));
                    }
                    self.quantifier()?;
                }
                '^' => self.beginning(),
                '$' => self.end(),
                '*' | '+' | '?' => return Err(refused("a quantifier of nothing", offset)),
                '{' => return Err(refused("a repetition of nothing", offset)),
                c => {
                    self.literal(c);
                    self.quantifier()?;
                }
            }
        }
        match self.open.last() {
            None => Ok(()),
            Some((offset, _)) => Err(refused("a ( without its )", *offset)),
        }
    }

    /// The next character, with `\Q` and `\E` read.
    fn next(&mut self) -> Option<(usize, char)> {
        loop {
            let (offset, c) = self.chars.next()?;
            let mark = if self.quotes { "\\E" } else { "\\Q" };
            if !self.text[offset..].starts_with(mark) {
                return Some((offset, c));
            }
            self.chars.next();
            self.quotes = !self.quotes;
        }
    }

    fn next_if(&mut self, expected: char) -> bool {
        self.chars.next_if(|(_, c)| *c == expected).is_some()
    }

    /// What is left to read.
    fn rest(&mut self) -> &'a str {
        let offset = self.chars.peek().map_or(self.text.len(), |(offset, _)| *offset);
        &self.text[offset..]
    }

    fn skip(&mut self, bytes: usize) {
        let end = self.text.len() - self.rest().len() + bytes;
        while self.chars.next_if(|(offset, _)| *offset < end).is_some() {}
    }

    fn literal(&mut self, c: char) {
        if self.flags.ignores_case && c.is_ascii_alphabetic() {
            self.out.push('[');
            self.out.push(c.to_ascii_lowercase());
            self.out.push(c.to_ascii_uppercase());
            self.out.push(']');
        } else {
            push_escaped(c, &mut self.out);
        }
    }

    fn looking(&mut self, pattern: &str) {
        self.backtracks = true;
        self.out.push_str(pattern);
    }

    fn beginning(&mut self) {
        if self.flags.by_line {
            // Not at the very end, even behind a line.
            self.looking(r"(?:(?!\z)(?:\A|(?<=[\n\x{85}\x{2028}\x{2029}])|(?<=\r)(?!\n)))");
        } else {
            self.out.push_str(r"\A");
        }
    }

    fn end(&mut self) {
        // Where nothing follows, what has to match the whole ends nowhere else.
        let is_last = is_end(self.rest());
        if self.flags.by_line {
            self.looking(r"(?:(?=[\r\x{85}\x{2028}\x{2029}])|(?<!\r)(?=\n)|\z)");
        } else if is_last {
            self.out.push_str(r"\z");
        } else {
            self.looking(r"(?:(?=\r\n\z)|(?<!\r)(?=\n\z)|(?=[\r\x{85}\x{2028}\x{2029}]\z)|\z)");
        }
    }

    fn escape(&mut self, offset: usize) -> Result<(), JavaOnly> {
        let (_, c) = self.chars.next().ok_or(refused("a backslash at the end", offset))?;
        match c {
            'A' => self.out.push_str(r"\A"),
            'z' => self.out.push_str(r"\z"),
            'Z' => {
                let by_line = std::mem::take(&mut self.flags.by_line);
                self.end();
                self.flags.by_line = by_line;
            }
            'b' if self.rest().starts_with('{') => {
                return Err(refused("a braced boundary", offset));
            }
            'b' => self.out.push_str(BOUNDARY),
            'B' => self.out.push_str(NO_BOUNDARY),
            'R' => {
                // It gives back no half of the two.
                self.looking(r"(?>\r\n|[\n\x0B\f\r\x{85}\x{2028}\x{2029}])");
                return self.quantifier();
            }
            '1'..='9' | 'k' => {
                self.reference(c, offset)?;
                return self.quantifier();
            }
            c => {
                match class::escape(self, c, offset)? {
                    class::Item::Char(c) => self.literal(c),
                    class::Item::Set(set) => self.out.push_str(&format!("[{set}]")),
                }
                return self.quantifier();
            }
        }
        Ok(())
    }

    /// A group before, as Java reads its number: further digits count while there
    /// is such a group.
    fn reference(&mut self, first: char, offset: usize) -> Result<(), JavaOnly> {
        if self.flags.ignores_case {
            return Err(refused("a reference without regard to case", offset));
        }
        let number = if first == 'k' {
            let rest = self.rest();
            let name = rest.strip_prefix('<').and_then(|rest| Some(rest.split_once('>')?.0));
            let name = name.ok_or(refused("a reference without a name", offset))?;
            self.skip(name.len() + 2);
            self.groups.iter().position(|known| known.as_deref() == Some(name)).map(|at| at + 1)
        } else {
            let mut number = first as usize - '0' as usize;
            while let Some(digit) = self.rest().chars().next().and_then(|c| c.to_digit(10)) {
                let longer = number * 10 + digit as usize;
                if longer > self.groups.len() {
                    break;
                }
                number = longer;
                self.chars.next();
            }
            Some(number).filter(|number| *number <= self.groups.len())
        };
        let number = number.ok_or(refused("a reference to no group before it", offset))?;
        self.looking(&format!(r"(?:\{number})"));
        Ok(())
    }

    fn group(&mut self, offset: usize) -> Result<(), JavaOnly> {
        if self.open.len() >= MAX_DEPTH {
            return Err(refused("a group within too many", offset));
        }
        let around = self.flags;
        if !self.next_if('?') {
            self.groups.push(None);
            self.out.push('(');
            self.open.push((offset, around));
            return Ok(());
        }
        let rest = self.rest();
        for (mark, backtracks) in
            [(":", false), ("=", true), ("!", true), ("<=", true), ("<!", true), (">", true)]
        {
            if rest.starts_with(mark) {
                self.skip(mark.len());
                self.backtracks |= backtracks;
                self.out.push_str("(?");
                self.out.push_str(mark);
                self.open.push((offset, around));
                return Ok(());
            }
        }
        if let Some(named) = rest.strip_prefix('<') {
            return self.named(named, offset);
        }
        self.set_flags(offset, around)
    }

    fn named(&mut self, named: &str, offset: usize) -> Result<(), JavaOnly> {
        let name = named.split_once('>').map_or("", |(name, _)| name);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_name {
            return Err(refused("a group with a name that Java does not allow", offset));
        }
        if self.groups.iter().any(|known| known.as_deref() == Some(name)) {
            return Err(refused("a second group of one name", offset));
        }
        self.skip(name.len() + 2);
        self.groups.push(Some(name.to_owned()));
        self.out.push('(');
        self.open.push((offset, self.flags));
        Ok(())
    }

    /// `(?i)`, which counts up to the end of the group around, or `(?i:`.
    fn set_flags(&mut self, offset: usize, around: Flags) -> Result<(), JavaOnly> {
        let mut is_on = true;
        loop {
            let (_, c) = self.chars.next().ok_or(refused("flags without an end", offset))?;
            match c {
                'i' => self.flags.ignores_case = is_on,
                's' => self.flags.passes_lines = is_on,
                'm' => self.flags.by_line = is_on,
                '-' if is_on => is_on = false,
                ':' => {
                    self.out.push_str("(?:");
                    self.open.push((offset, around));
                    return Ok(());
                }
                ')' => return Ok(()),
                _ => return Err(refused("a flag other than i, s and m", offset)),
            }
        }
    }

    /// Behind an atom: at most one, greedy, reluctant or possessive.
    fn quantifier(&mut self) -> Result<(), JavaOnly> {
        if self.quotes && !self.rest().starts_with("\\E") {
            return Ok(());
        }
        // One may follow what was quoted, for its last character.
        if self.quotes {
            self.skip(2);
            self.quotes = false;
        }
        let rest = self.rest();
        let offset = self.text.len() - rest.len();
        let len = match rest.bytes().next() {
            Some(b'*' | b'+' | b'?') => 1,
            Some(b'{') => {
                let bounds = rest.split_once('}').map_or("", |(bounds, _)| &bounds[1..]);
                let is_number =
                    |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let is_right = match bounds.split_once(',') {
                    Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
                    None => is_number(bounds),
                };
                if !is_right {
                    return Err(refused("a repetition without numbers", offset));
                }
                bounds.len() + 2
            }
            _ => return Ok(()),
        };
        self.out.push_str(&rest[..len]);
        self.skip(len);
        if self.next_if('?') {
            self.out.push('?');
        } else if self.next_if('+') {
            self.looking("+");
        }
        match self.rest().bytes().next() {
            Some(b'*' | b'+' | b'?' | b'{') => {
                Err(refused("a quantifier after a quantifier", self.text.len() - self.rest().len()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether nothing of a pattern is to be matched before `rest`, but other ways.
fn is_end(mut rest: &str) -> bool {
    loop {
        rest = match rest.as_bytes() {
            [] => return true,
            [b')', ..] => &rest[1..],
            [b'|', ..] => match behind_group(rest) {
                Some(behind) => behind,
                None => return true,
            },
            _ => return false,
        };
    }
}

/// What follows the group that `rest` is the end of; `None` where there is none.
fn behind_group(rest: &str) -> Option<&str> {
    let (mut depth, mut is_escaped, mut in_class) = (0_u32, false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            _ if in_class => {}
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(&rest[at + 1..]),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn refused(construct: &'static str, offset: usize) -> JavaOnly {
    JavaOnly { construct, offset }
}

/// As both engines read it, within a class and outside.
fn push_escaped(c: char, out: &mut String) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>' | '_') {
        out.push('\\');
    }
    out.push(c);
}

#[cfg(test)]
mod tests;
