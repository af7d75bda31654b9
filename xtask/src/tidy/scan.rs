/// Rust source without what is no code.
///
/// In `code` comments are blank and the contents of strings and characters are
/// `\u{1}`; blanks, line ends and every byte offset stay as they were.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) code: String,
    pub(super) literals: Vec<Literal>,
    module_docs: Vec<String>,
    line_starts: Vec<usize>,
}

/// A string, byte string or raw string, escapes as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// Of its opening quotation mark.
    pub(super) offset: usize,
    pub(super) text: String,
}

impl Scan {
    pub(super) fn new(text: &str) -> Self {
        let mut scanner = Scanner { text, at: 0, code: Vec::new(), literals: Vec::new() };
        scanner.run();
        let code = String::from_utf8(scanner.code).expect("masked text is ASCII");
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let module_docs = text.lines().filter_map(|line| line.strip_prefix("//!"));
        Self {
            code,
            literals: scanner.literals,
            module_docs: module_docs.map(|line| line.trim().to_owned()).collect(),
            line_starts: std::iter::once(0).chain(line_ends.map(|(at, _)| at + 1)).collect(),
        }
    }

    /// From 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// The lines of code, each with the offset at which it begins.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.line_starts.iter().copied().zip(self.code.split('\n'))
    }

    /// The lines of the module's documentation, without their marks.
    pub(super) fn module_docs(&self) -> impl Iterator<Item = &str> {
        self.module_docs.iter().map(String::as_str)
    }

    /// Identifiers and keywords with their offsets.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let bytes = self.code.as_bytes();
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < bytes.len() && !is_word(bytes[at]) {
                at += 1;
            }
            let start = at;
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
            (start < at).then(|| (start, &self.code[start..at]))
        })
    }

    /// What follows `offset`, blanks left out, with its own offset.
    pub(super) fn after(&self, offset: usize) -> (usize, &str) {
        let rest = self.code[offset..].trim_start();
        (self.code.len() - rest.len(), rest)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    code: Vec<u8>,
    literals: Vec<Literal>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(rest) = self.text.as_bytes().get(self.at..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with(b"//") {
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.mask(length, b' ');
            } else if rest.starts_with(b"/*") {
                self.mask(block_comment(rest), b' ');
            } else if let Some(hashes) = self.raw_string() {
                self.raw(hashes);
            } else if rest[0] == b'"' {
                self.string();
            } else if rest[0] == b'\'' {
                self.quote();
            } else {
                self.code.push(if rest[0].is_ascii() { rest[0] } else { 1 });
                self.at += 1;
            }
        }
    }

    /// Replaces `length` bytes; white space stays.
    fn mask(&mut self, length: usize, by: u8) {
        let bytes = &self.text.as_bytes()[self.at..self.at + length];
        self.code.extend(bytes.iter().map(|b| if b.is_ascii_whitespace() { *b } else { by }));
        self.at += length;
    }

    fn keep(&mut self, length: usize) {
        self.code.extend_from_slice(&self.text.as_bytes()[self.at..self.at + length]);
        self.at += length;
    }

    /// The number of `#` if a raw string begins here: `r"`, `br#"`, `cr"`.
    fn raw_string(&self) -> Option<usize> {
        if self.code.last().is_some_and(|byte| is_word(*byte) && !b"bc".contains(byte)) {
            return None;
        }
        let rest = self.text[self.at..].strip_prefix('r')?;
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        rest[hashes..].starts_with('"').then_some(hashes)
    }

    fn raw(&mut self, hashes: usize) {
        self.keep(1 + hashes);
        let end = format!("\"{}", "#".repeat(hashes));
        let inside = &self.text[self.at + 1..];
        self.literal(inside.find(&end).unwrap_or(inside.len()));
        self.keep(hashes.min(self.text.len() - self.at));
    }

    fn string(&mut self) {
        let inside = &self.text.as_bytes()[self.at + 1..];
        let mut length = 0;
        while length < inside.len() && inside[length] != b'"' {
            length += if inside[length] == b'\\' { 2 } else { 1 };
        }
        self.literal(length.min(inside.len()));
    }

    /// A literal of `length` bytes between the quotation marks.
    fn literal(&mut self, length: usize) {
        let text = self.text[self.at + 1..self.at + 1 + length].to_owned();
        self.literals.push(Literal { offset: self.at, text });
        self.keep(1);
        self.mask(length, 1);
        self.keep(1.min(self.text.len() - self.at));
    }

    /// A character, or the mark of a lifetime.
    fn quote(&mut self) {
        let mut inside = self.text[self.at + 1..].chars();
        let first = inside.next();
        let length = match first {
            Some('\\') => {
                let rest = &self.text[self.at + 2..];
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                rest[escaped..].find('\'').map(|more| 1 + escaped + more)
            }
            Some(c) if inside.next() == Some('\'') => Some(c.len_utf8()),
            _ => None,
        };
        self.keep(1);
        if let Some(length) = length {
            self.mask(length, 1);
            self.keep(1);
        }
    }
}

/// Length of the comment at the start of `rest`; comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
            }
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of `text`, and its literals.
    fn scanned(text: &str) -> (String, Vec<String>) {
        let scan = Scan::new(text);
        assert_eq!(scan.code.len(), text.len(), "offsets stay");
        let words: Vec<&str> = scan.words().map(|(_, word)| word).collect();
        (words.join(" "), scan.literals.into_iter().map(|literal| literal.text).collect())
    }

    #[test]
    fn comments_are_no_code() {
        assert_eq!(scanned("a // b\nc /* d /* e */ f */ g").0, "a c g");
    }

    #[test]
    fn strings_and_characters_are_no_code() {
        let (words, literals) =
            scanned(r##"a("b \" c", r#"d "e" f"#, b"g", '"', '\'', 'h', '\u{1}') i"##);
        assert_eq!(words, "a r b i");
        assert_eq!(literals, [r#"b \" c"#, r#"d "e" f"#, "g"]);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(
            scanned("fn a<'b>(c: &'b str) -> r#type { 'd: loop {} }").0,
            "fn a b c b str r type d loop"
        );
    }

    #[test]
    fn text_that_ends_early_is_no_panic() {
        for text in ["\"a", "r#\"a", "'", "'\\", "/* a", "\"\\", "r\"", "b'"] {
            Scan::new(text);
        }
    }
}
