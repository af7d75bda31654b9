use std::{fmt, ops::Range};

/// What is shown for a secret.
pub const HIDDEN: &str = "***";

/// A text that never shows: `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Whether a property of this name holds a secret, whoever defines it: what
/// Debezium hides in its own log, and the names of Kafka's and of registries'.
pub(crate) fn is_secret_name(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "password",
        "passwd",
        "pwd",
        "passphrase",
        "secret",
        "jaas",
        "token",
        "user.info",
        "keystore.key",
    ];
    let name = name.to_ascii_lowercase();
    let endpoint = name.ends_with("endpoint.url");
    !endpoint && PARTS.iter().any(|part| name.contains(part))
}

/// A URL, or a list of them, without users and passwords: nothing shows between
/// the first `://` and the last `@`, since a password may hold whatever ends a
/// user or a URL elsewhere.
pub(crate) fn without_user(urls: &str) -> String {
    match user(urls) {
        Some(Range { start, end }) => format!("{}{HIDDEN}{}", &urls[..start], &urls[end..]),
        None => urls.to_owned(),
    }
}

/// Whether `***` stands there for a user or a password, or for all of it.
pub(crate) fn has_hidden_user(urls: &str) -> bool {
    let hidden = user(urls).map_or(urls, |range| &urls[range]);
    hidden.split([':', '/', '@', ',']).any(|part| part.trim() == HIDDEN)
}

/// What does not show: all of it where no scheme comes before the last `@`.
fn user(urls: &str) -> Option<Range<usize>> {
    let end = urls.rfind('@')?;
    let start = urls.find("://").map(|start| start + "://".len()).filter(|start| *start <= end);
    Some(start.map_or(0..urls.len(), |start| start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", Secret::new("s3cr3t")), "***");
        assert_eq!(Secret::new("s3cr3t").expose(), "s3cr3t");
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "database.password",
            "driver.sslpassword",
            "database.passwd",
            "driver.pwd",
            "producer.override.sasl.jaas.config",
            "value.converter.basic.auth.user.info",
            "value.converter.apicurio.auth.client.secret",
            "producer.override.ssl.keystore.key",
            "x.Secret",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["database.user", "sasl.oauthbearer.token.endpoint.url", "topic.prefix"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn of_a_url_the_user_does_not_show() {
        for (url, shown) in [
            ("http://registry:8081", "http://registry:8081"),
            ("http://u:p@registry:8081/a@b", "http://***@b"),
            ("http://u:p/q@registry", "http://***@registry"),
            ("http://u:p,w@registry", "http://***@registry"),
            ("http://u:p://w@registry", "http://***@registry"),
            ("http://u:p@w@registry", "http://***@registry"),
            ("http://a,https://u:p@b/", "http://***@b/"),
            ("u:p@registry", "***"),
            ("u:p@http://registry", "***"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }

    #[test]
    fn what_was_shown_for_a_user_is_known_again_wherever_it_is_put() {
        for urls in [
            "***",
            "http://***@registry:8081",
            "http://***:8081",
            "http://u:***@registry",
            "http://***:p@registry",
            "http://a:8081,http://***@registry",
            "http://***@registry, http://u:p@b",
            "***@registry",
            "***,http://registry",
        ] {
            assert!(has_hidden_user(urls), "{urls}");
        }
        for urls in ["http://registry", "http://u:p***@registry", "http://u:p@registry/***"] {
            assert!(!has_hidden_user(urls), "{urls}");
        }
    }
}
