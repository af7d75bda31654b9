use std::{collections::HashMap, sync::Arc};

use crate::{
    config::{RouterConfig, key},
    error::{ConfigError, RouteErrorKind},
    rewrite::{Rewrite, RewriteError},
};

/// Topics remembered. Beyond it all are forgotten and worked out again.
const MAX_CACHED_TOPICS: usize = 4096;

/// Longest route value remembered. No Kafka topic is longer than 249
/// characters.
const MAX_CACHED_VALUE_BYTES: usize = 256;

/// The topic of a route value by `route.topic.regex` and
/// `route.topic.replacement`.
#[derive(Clone, Debug)]
pub(crate) struct Topics {
    rewrite: Rewrite,
    known: HashMap<Box<[u8]>, Arc<str>>,
}

impl Topics {
    pub(crate) fn new(config: &RouterConfig) -> Result<Self, ConfigError> {
        let rewrite = Rewrite::new(&config.topic_regex, &config.topic_replacement)
            .map_err(|error| blamed(config, error))?;
        Ok(Self { rewrite, known: HashMap::new() })
    }

    /// Whether a topic of this name has the form of the replacement.
    pub(crate) fn has_form_of(&self, topic: &str) -> bool {
        self.rewrite.has_form_of(topic)
    }

    /// The topic for `value`: no regex and no allocation if it was asked for
    /// lately.
    pub(crate) fn topic(&mut self, value: &[u8]) -> Result<Arc<str>, RouteErrorKind> {
        if let Some(topic) = self.known.get(value) {
            return Ok(Arc::clone(topic));
        }
        let text = std::str::from_utf8(value).map_err(|_| RouteErrorKind::RouteValueNotUtf8)?;
        let topic: Arc<str> = self.rewrite.apply(text).map_err(RouteErrorKind::TopicRegex)?.into();
        if value.len() <= MAX_CACHED_VALUE_BYTES {
            if self.known.len() >= MAX_CACHED_TOPICS {
                self.known.clear();
            }
            self.known.insert(value.into(), Arc::clone(&topic));
        }
        Ok(topic)
    }
}

/// An error of ours with the key that is to blame.
fn blamed(config: &RouterConfig, error: RewriteError) -> ConfigError {
    let (key, value) = (key::TOPIC_REGEX, config.topic_regex.clone());
    match error {
        RewriteError::Pattern(source) => ConfigError::Regex { key, value, source },
        RewriteError::Replacement(source) => ConfigError::Replacement {
            key: key::TOPIC_REPLACEMENT,
            value: config.topic_replacement.clone(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(regex: &str, replacement: &str) -> Result<Topics, ConfigError> {
        Topics::new(&RouterConfig {
            topic_regex: regex.into(),
            topic_replacement: replacement.into(),
            ..RouterConfig::default()
        })
    }

    #[test]
    fn a_topic_is_replaced_only_if_the_whole_value_matches() {
        let cases = [
            ("(?<routedByValue>.*)", "outbox.event.${routedByValue}", "User", "outbox.event.User"),
            ("(?<routedByValue>.*)", "outbox.event.${routedByValue}", "", "outbox.event."),
            ("(?<routedByValue>Order.*)", "outbox.event.${routedByValue}", "User", "User"),
            ("(.)(.*)", "x.$2.$1", "User", "x.ser.U"),
            ("Us", "x", "User", "User"),
            ("(?m)^User$", "x", "a\nUser", "a\nUser"),
            ("a|b", "x", "ab", "ab"),
            (r"(z\d{4}z)([A-Z]\p{Lower}+)$", "$1.$2", "z0001zOrder", "z0001z.Order"),
            ("(.+)(?=O)(.*)", "$1.$2.ahead", "aOrder", "a.Order.ahead"),
        ];
        for (regex, replacement, value, expected) in cases {
            let mut topics = topics(regex, replacement).unwrap();
            assert_eq!(&*topics.topic(value.as_bytes()).unwrap(), expected, "{regex} on {value}");
        }
    }

    #[test]
    fn the_first_match_is_replaced_even_if_it_is_not_the_whole() {
        assert_eq!(&*topics("a|ab", "x").unwrap().topic(b"ab").unwrap(), "xb");
    }

    #[test]
    fn a_value_that_takes_too_many_steps_is_an_error() {
        let error = topics("(?:(?=a)a+)+b", "x").unwrap().topic(&[b'a'; 64]).unwrap_err();
        assert!(matches!(error, RouteErrorKind::TopicRegex(_)), "{error}");
    }

    #[test]
    fn a_value_asked_for_again_gives_the_same_allocation() {
        let mut topics = topics("(.*)", "$1").unwrap();
        let first = topics.topic(b"order").unwrap();
        assert!(Arc::ptr_eq(&first, &topics.topic(b"order").unwrap()));
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut topics = topics("(.*)", "$1").unwrap();
        for value in 0..3 * MAX_CACHED_TOPICS {
            topics.topic(value.to_string().as_bytes()).unwrap();
            assert!(topics.known.len() <= MAX_CACHED_TOPICS);
        }
        topics.known.clear();
        topics.topic(&[b'x'; MAX_CACHED_VALUE_BYTES + 1]).unwrap();
        assert!(topics.known.is_empty());
    }

    #[test]
    fn a_value_that_is_not_utf8_is_an_error() {
        let error = topics("(.*)", "$1").unwrap().topic(b"\xff").unwrap_err();
        assert_eq!(error, RouteErrorKind::RouteValueNotUtf8);
    }

    #[test]
    fn what_cannot_be_compiled_is_refused_with_key_and_value() {
        for regex in ["(", "a)(b", "a**", "(?x) a", r"\y"] {
            let error = topics(regex, "x").unwrap_err();
            assert!(matches!(&error, ConfigError::Regex { value, .. } if value == regex));
            assert!(error.to_string().contains("route.topic.regex"), "{error}");
        }
        let error = topics("(.*)", "${nope}").unwrap_err();
        assert!(matches!(error, ConfigError::Replacement { .. }));
        assert!(error.to_string().contains("route.topic.replacement"), "{error}");
    }
}
