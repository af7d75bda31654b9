use std::ops::Range;

use super::scan::{Literal, Scan};

/// A Rust file with its functions and its tests.
#[derive(Debug)]
pub(super) struct Rust {
    pub(super) scan: Scan,
    pub(super) functions: Vec<Function>,
    /// Items under `#[cfg(test)]`, by offset.
    test_items: Vec<Range<usize>>,
    is_test_file: bool,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) span: Range<usize>,
}

impl Rust {
    pub(super) fn new(path: &str, scan: Scan) -> Self {
        let functions = functions(&scan);
        let test_items = test_items(&scan.code);
        let folders = ["/tests/", "/src/simulation/"];
        let is_test_file = path.starts_with("tests/")
            || path.ends_with("/tests.rs")
            || folders.iter().any(|folder| path.contains(folder));
        Self { scan, functions, test_items, is_test_file }
    }

    /// Whether the whole file is a test, or belongs to one.
    pub(super) fn is_test_file(&self) -> bool {
        self.is_test_file
    }

    /// Whether the offset lies in code that only tests have.
    pub(super) fn is_test(&self, offset: usize) -> bool {
        self.is_test_file || self.is_in_test_item(offset)
    }

    pub(super) fn is_in_test_item(&self, offset: usize) -> bool {
        self.test_items.iter().any(|item| item.contains(&offset))
    }

    /// The functions that the harness runs.
    pub(super) fn tests(&self) -> impl Iterator<Item = &Function> {
        let code = &self.scan.code;
        self.functions.iter().filter(|function| {
            let before = &code[..function.span.start];
            let head = &before[before.rfind(['{', '}', ';']).map_or(0, |at| at + 1)..];
            ["#[test]", "::test]", "::test("].iter().any(|mark| head.contains(mark))
        })
    }

    /// The modules within the file around the offset, the outermost first.
    pub(super) fn modules_at(&self, offset: usize) -> Vec<&str> {
        let code = self.scan.code.as_str();
        let words = self.scan.words().filter(|(at, word)| *word == "mod" && *at < offset);
        let around = words.filter_map(|(at, word)| {
            let (name_at, rest) = self.scan.after(at + word.len());
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
            let (open, rest) = self.scan.after(name_at + name.len());
            (rest.starts_with('{') && offset < closing_brace(code, open)).then_some(name)
        });
        around.collect()
    }

    /// The literals that are in no test.
    pub(super) fn product_literals(&self) -> impl Iterator<Item = &Literal> {
        self.scan.literals.iter().filter(|literal| !self.is_test(literal.offset))
    }

    /// The innermost function around the offset.
    pub(super) fn function_at(&self, offset: usize) -> Option<&Function> {
        let around = self.functions.iter().filter(|function| function.span.contains(&offset));
        around.min_by_key(|function| function.span.len())
    }
}

fn functions(scan: &Scan) -> Vec<Function> {
    let mut functions = Vec::new();
    for (offset, word) in scan.words() {
        if word != "fn" {
            continue;
        }
        let (name_at, rest) = scan.after(offset + 2);
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        // A type such as `fn(u8)` has no name.
        if length == 0 {
            continue;
        }
        if let Some(body) = body(&scan.code, name_at + length) {
            let name = rest[..length].to_owned();
            functions.push(Function { name, span: offset..body.end });
        }
    }
    functions
}

/// The braces of the item whose head goes on at `from`, if it has any.
fn body(code: &str, from: usize) -> Option<Range<usize>> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at..closing_brace(code, at)),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Behind the brace that closes the one at `open`.
fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    let starts = code.match_indices("#[cfg(").filter(|(at, _)| {
        let condition = code[at + "#[cfg(".len()..].trim_start();
        let condition = condition.strip_prefix("all(").unwrap_or(condition).trim_start();
        condition.strip_prefix("test").is_some_and(|rest| rest.starts_with([')', ',']))
    });
    starts.filter_map(|(at, _)| body(code, at).map(|body| at..body.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Rust {
        Rust::new("crates/a/src/lib.rs", Scan::new(text))
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "fn a(b: [u8; 2]) -> u8 { if b { \"}\" } else { '}' } }\n\
                    trait T { fn c(); fn d() { fn e() {} } }\nlet f: fn(u8) = g;";
        let rust = rust(text);
        let found: Vec<(&str, &str)> =
            rust.functions.iter().map(|f| (f.name.as_str(), &text[f.span.clone()])).collect();
        assert_eq!(found[0], ("a", text.lines().next().unwrap()));
        assert_eq!(found[1..], [("d", "fn d() { fn e() {} }"), ("e", "fn e() {}")]);
    }

    #[test]
    fn code_for_tests_is_told_from_the_rest() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n\
                    #[cfg(any(test, c))]\nfn d() {}\n#[cfg(test)]\nmod e;\nfn f() {}";
        let rust = rust(text);
        let in_tests = |name: &str| {
            let function = rust.functions.iter().find(|function| function.name == name).unwrap();
            rust.is_test(function.span.start)
        };
        assert!(in_tests("b"));
        for name in ["a", "d", "f"] {
            assert!(!in_tests(name), "{name}");
        }
    }

    #[test]
    fn files_of_tests_are_known_by_their_path() {
        for path in [
            "crates/a/tests/it/main.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/src/simulation/world.rs",
            "tests/e2e.rs",
        ] {
            assert!(Rust::new(path, Scan::new("")).is_test_file(), "{path}");
        }
        assert!(!Rust::new("crates/a/src/contests.rs", Scan::new("")).is_test_file());
    }
}
