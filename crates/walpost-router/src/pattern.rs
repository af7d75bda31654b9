use regex::Regex;

use crate::java_regex::{self, JavaOnly};

/// A Java regular expression that has to match a text as a whole, as
/// `Matcher.matches` does: the patterns of `table.include.list` and of the
/// predicate `TopicNameMatches`.
///
/// It matches in a time that grows with the text alone, and therefore may not look
/// around, refer back or have a possessive quantifier.
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
    #[error("it does not compile")]
    Regex(#[source] regex::Error),
    /// It has syntax that Java has not, or Walpost.
    #[error("it has syntax that Java has not, or Walpost")]
    JavaOnly(#[source] JavaOnly),
    /// It looks around, refers back or does not give back, and does not compile.
    #[error("it does not compile: {problem}")]
    Backtracking {
        /// What the compiler says.
        problem: String,
    },
    /// It looks around, refers back or does not give back, which only those for
    /// topics may.
    #[error("it has look-around, a back-reference or a possessive quantifier")]
    NotLinear,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// For one that does not compile, is none in Java, or needs backtracking.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, "")
    }

    /// Compiles a pattern for which case does not matter, as with
    /// `Pattern.CASE_INSENSITIVE`, which knows ASCII alone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn ignoring_case(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, "(?i)")
    }

    fn compile(text: &str, flags: &str) -> Result<Self, PatternError> {
        // By itself, so that offsets in an error are those of the text.
        java_regex::translate(text).map_err(PatternError::JavaOnly)?;
        let translated = java_regex::translate(&format!("{flags}{text}"));
        let translated = translated.map_err(PatternError::JavaOnly)?;
        if translated.backtracks {
            return Err(PatternError::NotLinear);
        }
        let whole = java_regex::linear(&java_regex::whole(&translated.pattern))?;
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
    fn case_that_does_not_matter_is_that_of_ascii() {
        let pattern = Pattern::ignoring_case("größe").unwrap();
        assert!(pattern.matches("GRößE") && !pattern.matches("GRÖßE"));
    }

    #[test]
    fn what_is_no_pattern_in_java_or_takes_long_is_refused() {
        for text in ["(", "a)(?:b", "[", "a**", r"\y", "(?P<n>a)"] {
            assert!(matches!(Pattern::new(text), Err(PatternError::JavaOnly(_))), "{text}");
        }
        for text in ["a(?=b)", r"(a)\1", "a*+"] {
            assert_eq!(Pattern::new(text), Err(PatternError::NotLinear), "{text}");
        }
    }

    #[test]
    fn a_pattern_that_takes_a_megabyte_is_refused() {
        let large = r"[\p{L}\p{N}]{100}";
        assert!(Regex::new(large).is_ok(), "the crate's own bound is ten times as large");
        assert!(matches!(Pattern::new(large), Err(PatternError::Regex(_))));
        assert!(Pattern::new(r"[\p{L}\p{N}]{5}").is_ok());
    }
}
