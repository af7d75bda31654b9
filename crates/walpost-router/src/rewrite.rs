use regex::Regex;

use crate::{
    java_regex,
    pattern::PatternError,
    replacement::{Replacement, ReplacementError},
};

/// A text for another: a Java regular expression that has to match the whole,
/// and a Java replacement for its first match. What `route.topic.regex` and
/// `route.topic.replacement` do, and Kafka's `RegexRouter`.
///
/// ```
/// use walpost_router::Rewrite;
///
/// let rewrite = Rewrite::new(r"outbox\.event\.(.*)", "$1.v2")?;
/// assert_eq!(rewrite.apply("outbox.event.order"), "order.v2");
/// assert_eq!(rewrite.apply("else"), "else");
/// # Ok::<(), walpost_router::RewriteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Must match the whole text.
    whole: Regex,
    /// What is replaced is the first match, which may be less than the whole.
    first: Regex,
    replacement: Replacement,
}

/// Two are equal when their regexes and replacements are.
impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.first.as_str() == other.first.as_str() && self.replacement == other.replacement
    }
}

impl Eq for Rewrite {}

/// A regex and a replacement cannot be used together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The regex.
    #[error("the regular expression cannot be used")]
    Pattern(#[source] PatternError),
    /// The replacement, or a group that the regex does not have.
    #[error("the replacement cannot be used")]
    Replacement(#[source] ReplacementError),
}

impl Rewrite {
    /// Compiles both.
    ///
    /// # Errors
    /// For a regex that does not compile or means something else in Java, and
    /// for a replacement that is none or names a group that there is not, which
    /// Java finds at the first text.
    pub fn new(regex: &str, replacement: &str) -> Result<Self, RewriteError> {
        let pattern = |source| RewriteError::Pattern(source);
        java_regex::check(regex).map_err(|source| pattern(PatternError::JavaOnly(source)))?;
        let compile =
            |text: &str| Regex::new(text).map_err(|source| pattern(PatternError::Regex(source)));
        let first = compile(regex)?;
        let whole = compile(&format!(r"\A(?:{regex})\z"))?;
        let replacement =
            Replacement::parse(replacement, &first).map_err(RewriteError::Replacement)?;
        Ok(Self { whole, first, replacement })
    }

    /// `text` with its match replaced, or as it is where the regex does not
    /// match all of it.
    pub fn apply(&self, text: &str) -> String {
        let found = self.whole.is_match(text).then(|| self.first.captures(text)).flatten();
        let Some(captures) = found else {
            return text.to_owned();
        };
        let replaced = captures.get_match();
        let mut rewritten = text[..replaced.start()].to_owned();
        self.replacement.expand(&captures, &mut rewritten);
        rewritten.push_str(&text[replaced.end()..]);
        rewritten
    }

    /// Whether `text` has the form of the replacement; see
    /// [`Replacement::has_form_of`].
    pub(crate) fn has_form_of(&self, text: &str) -> bool {
        self.replacement.has_form_of(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_that_matches_the_whole_has_its_first_match_replaced() {
        for (regex, replacement, text, expected) in [
            ("(.)(.*)", "x.$2.$1", "User", "x.ser.U"),
            ("Order.*", "x", "User", "User"),
            ("a|ab", "x", "ab", "xb"),
            ("(?<n>.*)", "${n}-1", "t", "t-1"),
        ] {
            assert_eq!(Rewrite::new(regex, replacement).unwrap().apply(text), expected, "{regex}");
        }
    }

    #[test]
    fn what_java_finds_at_the_first_text_is_found_at_once() {
        let error = |regex: &str, replacement: &str| Rewrite::new(regex, replacement).unwrap_err();
        assert!(matches!(error("(", "x"), RewriteError::Pattern(PatternError::Regex(_))));
        assert!(matches!(error("a++", "x"), RewriteError::Pattern(PatternError::JavaOnly(_))));
        assert!(matches!(error("a", "$1"), RewriteError::Replacement(_)));
    }
}
