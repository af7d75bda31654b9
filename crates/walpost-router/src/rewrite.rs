use crate::{
    java_regex::{GaveUp, JavaRegex},
    pattern::PatternError,
    replacement::{Replacement, ReplacementError},
};

/// A text for another: a Java regular expression that has to match the whole,
/// and a Java replacement for its first match. What `route.topic.regex` and
/// `route.topic.replacement` do, and Kafka's `RegexRouter`.
///
/// The regex may look around, refer back and have possessive quantifiers; a text
/// that it then tries too many ways for is an error.
///
/// ```
/// use walpost_router::Rewrite;
///
/// let rewrite = Rewrite::new(r"outbox\.event\.(.*)", "$1.v2")?;
/// assert_eq!(rewrite.apply("outbox.event.order")?, "order.v2");
/// assert_eq!(rewrite.apply("else")?, "else");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Must match the whole text; what is replaced is the first match, which may
    /// be less.
    regex: Box<JavaRegex>,
    replacement: Replacement,
}

/// Two are equal when their regexes and replacements are.
impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.replacement == other.replacement
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
    /// For a regex that does not compile, and for a replacement that is none or
    /// names a group that there is not, which Java finds at the first text.
    pub fn new(regex: &str, replacement: &str) -> Result<Self, RewriteError> {
        let regex = Box::new(JavaRegex::new(regex).map_err(RewriteError::Pattern)?);
        let replacement =
            Replacement::parse(replacement, regex.groups()).map_err(RewriteError::Replacement)?;
        Ok(Self { regex, replacement })
    }

    /// `text` with its match replaced, or as it is where the regex does not
    /// match all of it.
    ///
    /// # Errors
    /// [`GaveUp`] where a regex that backtracks does so too often.
    pub fn apply(&self, text: &str) -> Result<String, GaveUp> {
        let Some(found) = self.regex.first_of_whole(text)? else {
            return Ok(text.to_owned());
        };
        let Some(replaced) = &found[0] else {
            return Ok(text.to_owned());
        };
        let mut rewritten = text[..replaced.start].to_owned();
        self.replacement.expand(text, &found, &mut rewritten);
        rewritten.push_str(&text[replaced.end..]);
        Ok(rewritten)
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
            ("(.+)(?=O)(.*)", "$1.$2.ahead", "aOrder", "a.Order.ahead"),
            ("(?<!x)(a+)b", "$1", "aab", "aa"),
            (r"(\w+)-\1", "$1", "ab-ab", "ab"),
            (r"(\w+)-\1", "$1", "ab-ac", "ab-ac"),
            ("(a++)b", "$1", "aab", "aa"),
            ("a++ab", "x", "aab", "aab"),
            ("(?>a|ab)c", "x", "abc", "abc"),
        ] {
            let rewritten = Rewrite::new(regex, replacement).unwrap().apply(text);
            assert_eq!(rewritten.as_deref(), Ok(expected), "{regex}");
        }
    }

    #[test]
    fn what_java_finds_at_the_first_text_is_found_at_once() {
        let error = |regex: &str, replacement: &str| Rewrite::new(regex, replacement).unwrap_err();
        assert!(matches!(error("(", "x"), RewriteError::Pattern(PatternError::JavaOnly(_))));
        let backtracking = error("(?=a)*", "x");
        assert!(
            matches!(backtracking, RewriteError::Pattern(PatternError::Backtracking { .. })),
            "{backtracking:?}"
        );
        assert!(matches!(error("a", "$1"), RewriteError::Replacement(_)));
    }

    #[test]
    fn a_regex_that_tries_without_end_gives_up() {
        let rewrite = Rewrite::new("(?:(?=a)a+)+b", "x").unwrap();
        assert!(rewrite.apply(&"a".repeat(64)).is_err());
        assert_eq!(rewrite.apply("b").as_deref(), Ok("b"));
    }
}
