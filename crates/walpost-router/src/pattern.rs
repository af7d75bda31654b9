use regex::{Regex, RegexBuilder};

use crate::java_regex::{self, JavaOnly};

/// A Java regular expression that has to match a text as a whole, as
/// `Matcher.matches` does: the patterns of `table.include.list` and of the
/// predicate `TopicNameMatches`.
///
/// ```
/// use walpost_router::Pattern;
///
/// let tables = Pattern::ignoring_case(r"shop\.outbox(_\d+)?")?;
/// assert!(tables.matches("Shop.Outbox_3"));
/// assert!(!tables.matches("shop.outbox_3_old"));
/// # Ok::<(), walpost_router::PatternError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    whole: Regex,
}

/// Two patterns are equal when their texts and their sense of case are.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.whole.as_str() == other.whole.as_str()
    }
}

impl Eq for Pattern {}

/// A regular expression cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not compile.
    #[error("it does not compile without look-around, back-references and other Java-only syntax")]
    Regex(#[source] regex::Error),
    /// It would compile, but mean something else than in Java.
    #[error("Java reads it differently")]
    JavaOnly(#[source] JavaOnly),
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// For one that does not compile, or means something else in Java.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, "")
    }

    /// Compiles a pattern for which case does not matter, as with
    /// `Pattern.CASE_INSENSITIVE`. (Which knows ASCII alone in Java, and all of
    /// Unicode here.)
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn ignoring_case(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, "(?i)")
    }

    fn compile(text: &str, flags: &str) -> Result<Self, PatternError> {
        java_regex::check(text).map_err(PatternError::JavaOnly)?;
        // By itself, so that a parenthesis that is not opened closes none of ours.
        bounded(text)?;
        let whole = bounded(&format!(r"{flags}\A(?:{text})\z"))?;
        Ok(Self { text: text.to_owned(), whole })
    }

    /// Whether it matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Bytes of one compiled pattern.
const MAX_BYTES: usize = 1024 * 1024;

fn bounded(text: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(text).size_limit(MAX_BYTES).build().map_err(PatternError::Regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_or_nothing() {
        let pattern = Pattern::new("a|ab").unwrap();
        assert!(pattern.matches("ab") && pattern.matches("a"));
        assert!(!pattern.matches("abc") && !pattern.matches("AB") && !pattern.matches("a\n"));
        assert!(Pattern::ignoring_case("a|ab").unwrap().matches("AB"));
        assert_eq!(pattern.as_str(), "a|ab");
        assert_ne!(pattern, Pattern::ignoring_case("a|ab").unwrap());
    }

    #[test]
    fn what_java_reads_differently_and_what_is_no_pattern_is_refused() {
        assert!(matches!(Pattern::new("a*+"), Err(PatternError::JavaOnly(_))));
        for text in ["a(?=b)", "(", "a)(?:b", "[", r"(a)\1"] {
            assert!(matches!(Pattern::new(text), Err(PatternError::Regex(_))), "{text}");
        }
    }

    #[test]
    fn a_pattern_that_takes_a_megabyte_is_refused() {
        let large = r"\w{100}";
        assert!(Regex::new(large).is_ok(), "the crate's own bound is ten times as large");
        assert!(matches!(Pattern::new(large), Err(PatternError::Regex(_))));
        assert!(Pattern::new(r"\w{10}").is_ok());
    }
}
