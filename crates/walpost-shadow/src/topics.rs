/// Names that the topics of a connector have, by its `route.topic.replacement`.
///
/// ```
/// use walpost_shadow::TopicPattern;
///
/// let pattern = TopicPattern::of_replacement("outbox.event.${routedByValue}").unwrap();
/// assert!(pattern.matches("outbox.event.order") && !pattern.matches("order"));
/// assert!(TopicPattern::of_replacement("${routedByValue}").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern {
    /// Literals; between two of them stands anything.
    literals: Vec<String>,
}

impl TopicPattern {
    /// From a replacement in Java's syntax: `${name}` and `$1` stand for anything, `\`
    /// takes the next character as it is. `None` where no text is left, and any
    /// topic could be meant.
    pub fn of_replacement(replacement: &str) -> Option<Self> {
        let mut literals = vec![String::new()];
        let mut characters = replacement.chars().peekable();
        while let Some(character) = characters.next() {
            let last = literals.last_mut()?;
            match character {
                '\\' => last.extend(characters.next()),
                '$' => {
                    if characters.next_if_eq(&'{').is_some() {
                        while characters.next().is_some_and(|inner| inner != '}') {}
                    } else {
                        while characters.next_if(char::is_ascii_digit).is_some() {}
                    }
                    literals.push(String::new());
                }
                other => last.push(other),
            }
        }
        let has_text = literals.iter().any(|literal| !literal.is_empty());
        has_text.then_some(Self { literals })
    }

    /// Whether a topic may be one of the connector's.
    pub fn matches(&self, topic: &str) -> bool {
        let [first, middle @ .., last] = &*self.literals else {
            return self.literals.first().is_some_and(|only| only == topic);
        };
        let Some(rest) = topic.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        for literal in middle {
            let Some(at) = rest.find(&**literal) else { return false };
            rest = &rest[at + literal.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_for_anything_and_the_rest_for_itself() {
        let matches = |replacement: &str, topic: &str| {
            TopicPattern::of_replacement(replacement).unwrap().matches(topic)
        };
        assert!(matches("a.$1.b.${x}.c", "a.1.b.2.c"));
        assert!(!matches("a.$1.b.${x}.c", "a.1.2.c"));
        assert!(matches("a$12b", "ab") && !matches("a$12b", "b"));
        assert!(matches("aa$1aa", "aaaa") && !matches("aa$1aa", "aaa"));
        assert!(matches("orders", "orders") && !matches("orders", "orders2"));
        assert!(matches(r"a\$1", "a$1") && !matches(r"a\$1", "ax"));
        assert_eq!(TopicPattern::of_replacement("$1"), None);
        assert_eq!(TopicPattern::of_replacement(""), None);
    }
}
