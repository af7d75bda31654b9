//! Java regular expressions with the `regex` crate, which is nearly the same
//! language and matches in linear time.
//!
//! Syntax that only Java has does not compile. What compiles in both but means
//! something else is found here and refused. What remains: classes such as `\d`
//! and `(?i)` know all of Unicode here and only ASCII in Java, which matters
//! for no legal Kafka topic.

use std::iter::Peekable;
use std::str::CharIndices;

/// Syntax that means one thing in Java and another in the `regex` crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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

/// Refuses what both languages read, but differently.
pub(crate) fn check(pattern: &str) -> Result<(), JavaOnly> {
    let mut chars = pattern.char_indices().peekable();
    let mut class_depth = 0_u32;
    while let Some((offset, c)) = chars.next() {
        let refuse = |construct| Err(JavaOnly { construct, offset });
        match c {
            '\\' => match chars.next() {
                Some((_, '<' | '>')) => return refuse("an escaped angle bracket"),
                Some((_, 'b')) if next_is(&mut chars, '{') => return refuse("a braced boundary"),
                _ => check_quantifier(&mut chars, class_depth)?,
            },
            '[' => {
                if class_depth > 0 && next_is(&mut chars, ':') {
                    return refuse("a class name in [: :]");
                }
                class_depth += 1;
                take_literal_bracket(&mut chars);
            }
            ']' => {
                class_depth = class_depth.saturating_sub(1);
                check_quantifier(&mut chars, class_depth)?;
            }
            '-' | '~' if class_depth > 0 && next_is(&mut chars, c) => {
                return refuse("a class difference");
            }
            '(' if class_depth == 0 => check_flags(&mut chars, offset)?,
            _ => check_quantifier(&mut chars, class_depth)?,
        }
    }
    Ok(())
}

type Chars<'a> = Peekable<CharIndices<'a>>;

fn next_is(chars: &mut Chars<'_>, expected: char) -> bool {
    chars.peek().is_some_and(|(_, c)| *c == expected)
}

/// `^` and a `]` right after an opening bracket belong to it.
fn take_literal_bracket(chars: &mut Chars<'_>) {
    chars.next_if(|(_, c)| *c == '^');
    chars.next_if(|(_, c)| *c == ']');
}

/// After an atom: at most one quantifier, which may be lazy. A second one is
/// possessive in Java (`a*+`), and a repetition of a repetition here.
fn check_quantifier(chars: &mut Chars<'_>, class_depth: u32) -> Result<(), JavaOnly> {
    if class_depth > 0 {
        return Ok(());
    }
    match chars.peek() {
        Some((_, '*' | '+' | '?')) => {
            chars.next();
        }
        Some((_, '{')) => while chars.next().is_some_and(|(_, c)| c != '}') {},
        _ => return Ok(()),
    }
    chars.next_if(|(_, c)| *c == '?');
    match chars.peek() {
        Some((offset, '*' | '+' | '?' | '{')) => {
            Err(JavaOnly { construct: "a quantifier after a quantifier", offset: *offset })
        }
        _ => Ok(()),
    }
}

/// `(?U)` and `(?u)` are other flags in Java; `(?R)` is none.
fn check_flags(chars: &mut Chars<'_>, offset: usize) -> Result<(), JavaOnly> {
    if chars.next_if(|(_, c)| *c == '?').is_none() {
        return Ok(());
    }
    while let Some((_, c)) = chars.next_if(|(_, c)| c.is_ascii_alphabetic() || *c == '-') {
        if matches!(c, 'U' | 'u' | 'R') {
            return Err(JavaOnly { construct: "a flag of another meaning", offset });
        }
        if c == 'P' {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn common_patterns_pass() {
        let patterns = [
            r"(?<routedByValue>.*)",
            r"(.)(.*)",
            r"(?i)order.*?",
            r"^[a-z0-9_\-]+\.(v\d{1,3})?$",
            r"(?<a>x)|(?P<b>y+)",
            r"[]a]+",
            r"[^]+*]+",
            r"\++\**",
            r"(?:ab)+(?-i:c)",
            r"a{2}?",
            r"\[+",
        ];
        for pattern in patterns {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
            regex::Regex::new(pattern).unwrap();
        }
    }

    #[test]
    fn what_java_reads_differently_is_refused_with_its_offset() {
        let cases = [
            (r"a*+", 2),
            (r"a++b", 2),
            (r"(ab)?+", 5),
            (r"x{1,2}+", 6),
            (r"[ab]++", 5),
            (r"\d++", 3),
            (r"a\<b", 1),
            (r"\b{start}", 0),
            (r"[[:alpha:]]", 1),
            (r"[a--b]", 2),
            (r"x(?U)y", 1),
            (r"(?iu)y", 0),
            (r"(?R)", 0),
        ];
        for (pattern, offset) in cases {
            let refused = check(pattern).unwrap_err();
            assert_eq!(refused.offset(), offset, "{pattern}: {refused}");
        }
    }
}
